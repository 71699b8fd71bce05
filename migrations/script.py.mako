"""${message}."""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
# `tests/pool_server/test_migrations.py` prints it.
schema_digest = ""


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
