"""Tables of the price book. Observations are only ever added; the pointer `offers.latest_id` is moved last.

    sources --< batches --< observations >-- offers        billing >-- observations
                  \\--< quarantine

An offer is what can be bought as one source names it; an observation is its price on a day; an observation without a
price says that the source no longer lists it. Billing terms stand once and are shared, with the publication that a
source refers to where it is another's.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite counts rows only in a column of type INTEGER; PostgreSQL needs 64 bits for many years of prices.
BigId = BigInteger().with_variant(Integer, "sqlite")

sources = Table(
    "sources",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("tried_at", DateTime(timezone=True)),
    Column("stored_at", DateTime(timezone=True)),
    Column("error", String, nullable=False, default=""),
)
batches = Table(
    "batches",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("source_id", Integer, ForeignKey("sources.id"), nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False),
    Column("origin", String, nullable=False, default=""),
)
offers = Table(
    "offers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("source_id", Integer, ForeignKey("sources.id"), nullable=False),
    Column("provider", String, nullable=False),
    Column("instance", String, nullable=False),
    Column("region", String, nullable=False),
    Column("term", String, nullable=False),
    Column("gpu", String, nullable=False),
    Column("n_gpus", Integer, nullable=False),
    Column("n_nodes", Integer, nullable=False),
    Column("block_gpu_hours", String, nullable=False),
    Column("reservation_hours", String, nullable=False),
    Column("currency", String, nullable=False),
    Column("ram_gib", Float),
    Column("latest_id", BigId),
    UniqueConstraint(
        "source_id",
        "provider",
        "instance",
        "region",
        "term",
        "gpu",
        "n_gpus",
        "n_nodes",
        "block_gpu_hours",
        "reservation_hours",
        "currency",
        name="uq_offers_identity",
    ),
    Index("ix_offers_gpu_term", "gpu", "term"),
    Index("ix_offers_provider", "provider"),
)
billing = Table(
    "billing",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("billing_increment_s", Float),
    Column("minimum_s", Float),
    Column("billed_while_stopped", String, nullable=False),
    Column("storage_usd_per_gb_month", Float),
    Column("stopped_storage_usd_per_gb_month", Float),
    Column("egress_usd_per_gb", Float),
    Column("ingress_usd_per_gb", Float),
    Column("deposit_usd", Float),
    Column("boot_s", Float),
    Column("interruption_class", String, nullable=False),
    Column("mtbi_hours", Float),
    Column("note", String, nullable=False),
    Column("reference", String, nullable=False),
)
# Without foreign keys: its ids are given out in the transaction that stores it, and three look-ups a row would cost a
# third of the rate of an import.
observations = Table(
    "observations",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("offer_id", Integer, nullable=False),
    Column("batch_id", Integer, nullable=False),
    Column("billing_id", Integer, nullable=False),
    Column("observed_at", Date, nullable=False),
    Column("usd_per_hour", Float),
    Column("price_per_hour", Float),
)
# One step to the last price of an offer up to a day, read backwards.
Index("ix_observations_offer_day", observations.c.offer_id, observations.c.observed_at)
quarantine = Table(
    "quarantine",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("batch_id", Integer, ForeignKey("batches.id"), nullable=False),
    Column("quote", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("decision", String, nullable=False, default=""),
    Column("decided_at", DateTime(timezone=True)),
)
locks = Table(
    "locks",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String, nullable=False),
    Column("taken_at", DateTime(timezone=True), nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
)
