"""Billing terms: what traffic in costs, and a disk while its machine is stopped. PostgreSQL: room to move pointers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ADDED = ("stopped_storage_usd_per_gb_month", "ingress_usd_per_gb")


def upgrade() -> None:
    for name in ADDED:
        op.add_column("billing", sa.Column(name, sa.Float))
    if op.get_context().dialect.name == "postgresql":
        # A pointer that moves within its page touches no index: without room every price rewrites five of them.
        op.execute("ALTER TABLE offers SET (fillfactor = 40)")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE offers RESET (fillfactor)")
    for name in ADDED:
        op.drop_column("billing", name)
