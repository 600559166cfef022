"""Billing terms: what traffic in costs, and a disk while its machine is stopped."""

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


def downgrade() -> None:
    for name in ADDED:
        op.drop_column("billing", name)
