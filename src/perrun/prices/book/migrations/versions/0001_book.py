"""The book: sources, batches, offers, billing terms, observations, quarantine, locks."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.String, nullable=False)


def _moment(name: str, nullable: bool) -> "sa.Column[object]":
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.Integer),
        _text("name"),
        _moment("tried_at", True),
        _moment("stored_at", True),
        _text("error"),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
        sa.UniqueConstraint("name", name="uq_sources_name"),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Integer),
        sa.Column("source_id", sa.Integer, nullable=False),
        _moment("stored_at", False),
        _text("origin"),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name="fk_batches_source_id"),
    )
    _offers()
    op.create_table(
        "billing",
        sa.Column("id", sa.Integer),
        sa.Column("billing_increment_s", sa.Float),
        sa.Column("minimum_s", sa.Float),
        _text("billed_while_stopped"),
        sa.Column("storage_usd_per_gb_month", sa.Float),
        sa.Column("egress_usd_per_gb", sa.Float),
        sa.Column("deposit_usd", sa.Float),
        sa.Column("boot_s", sa.Float),
        _text("interruption_class"),
        sa.Column("mtbi_hours", sa.Float),
        _text("note"),
        _text("reference"),
        sa.PrimaryKeyConstraint("id", name="pk_billing"),
    )
    _observations()
    op.create_table(
        "quarantine",
        sa.Column("id", sa.Integer),
        sa.Column("batch_id", sa.Integer, nullable=False),
        _text("quote"),
        _text("reason"),
        _text("decision"),
        _moment("decided_at", True),
        sa.PrimaryKeyConstraint("id", name="pk_quarantine"),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_quarantine_batch_id"),
    )
    op.create_table(
        "locks",
        _text("name"),
        _text("holder"),
        _moment("taken_at", False),
        _moment("until", False),
        sa.PrimaryKeyConstraint("name", name="pk_locks"),
    )


def _offers() -> None:
    identity = ("provider", "instance", "region", "term", "gpu")
    op.create_table(
        "offers",
        sa.Column("id", sa.Integer),
        sa.Column("source_id", sa.Integer, nullable=False),
        *(_text(name) for name in identity),
        sa.Column("n_gpus", sa.Integer, nullable=False),
        sa.Column("n_nodes", sa.Integer, nullable=False),
        _text("block_gpu_hours"),
        _text("reservation_hours"),
        _text("currency"),
        sa.Column("ram_gib", sa.Float),
        sa.Column("latest_id", BIG),
        sa.PrimaryKeyConstraint("id", name="pk_offers"),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name="fk_offers_source_id"),
        sa.UniqueConstraint(
            "source_id",
            *identity,
            "n_gpus",
            "n_nodes",
            "block_gpu_hours",
            "reservation_hours",
            "currency",
            name="uq_offers_identity",
        ),
    )
    op.create_index("ix_offers_gpu_term", "offers", ["gpu", "term"])
    op.create_index("ix_offers_provider", "offers", ["provider"])


def _observations() -> None:
    op.create_table(
        "observations",
        sa.Column("id", BIG, autoincrement=False),
        sa.Column("offer_id", sa.Integer, nullable=False),
        sa.Column("batch_id", sa.Integer, nullable=False),
        sa.Column("billing_id", sa.Integer, nullable=False),
        sa.Column("observed_at", sa.Date, nullable=False),
        sa.Column("usd_per_hour", sa.Float),
        sa.Column("price_per_hour", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_observations"),
    )
    op.create_index("ix_observations_offer_day", "observations", ["offer_id", "observed_at"])


def downgrade() -> None:
    for name in ("locks", "quarantine", "observations", "billing", "offers", "batches", "sources"):
        op.drop_table(name)
