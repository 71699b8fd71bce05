"""Who holds a version in quarantine, and whether others may have had it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Whoever put it into quarantine is not of the version's site: a curator of the pool.
HELD = """
UPDATE model_versions SET held_by_pool = true WHERE state = 'quarantined' AND NOT EXISTS (
  SELECT 1 FROM models m JOIN sites s ON s.id = m.site_id WHERE m.id = model_versions.model_id
  AND substr(model_versions.state_changed_by, 1, length(s.name) + 1) = s.name || '/'
)
"""
# Copies were quarantined in the name of who uploaded them.
HELD_COPIES = """
UPDATE model_versions SET held_by_pool = true WHERE state = 'quarantined' AND digest IN (
  SELECT digest FROM model_versions WHERE held_by_pool
)
"""
DRAFTS = "UPDATE model_versions SET was_available = false WHERE state = 'draft'"
# Of what is in quarantine the audit, from which nothing is ever deleted, knows where it was before.
NEVER_SHOWN = """
UPDATE model_versions SET was_available = false WHERE state = 'quarantined' AND NOT EXISTS (
  SELECT 1 FROM models m JOIN sites s ON s.id = m.site_id JOIN audit a
  ON a.subject = s.name || '/' || m.name || '@' || model_versions.number
  WHERE m.id = model_versions.model_id AND a.outcome = 'done'
  AND a.action IN ('version.publish', 'version.release')
)
"""
# Drafts, as the audit says, that were given out by their withdrawal: from now on they are not.
RETRACTED = """
UPDATE model_versions SET was_available = false, state = 'retracted' WHERE state = 'withdrawn'
AND EXISTS (
  SELECT 1 FROM models m JOIN sites s ON s.id = m.site_id JOIN audit a
  ON a.subject = s.name || '/' || m.name || '@' || model_versions.number
  WHERE m.id = model_versions.model_id AND a.outcome = 'done' AND a.action = 'version.add'
) AND NOT EXISTS (
  SELECT 1 FROM models m JOIN sites s ON s.id = m.site_id JOIN audit a
  ON a.subject = s.name || '/' || m.name || '@' || model_versions.number
  WHERE m.id = model_versions.model_id AND a.outcome = 'done'
  AND a.action IN ('version.publish', 'version.release')
)
"""
REFUSED = """
UPDATE withdrawals SET effect = 'refuse' WHERE version_id IN (
  SELECT id FROM model_versions WHERE state = 'retracted'
)
"""
# Before this there was no such state; their bytes stay refused.
UNRETRACTED = "UPDATE model_versions SET state = 'withdrawn' WHERE state = 'retracted'"


def upgrade() -> None:
    for name, default in (("was_available", sa.true()), ("held_by_pool", sa.false())):
        op.add_column(
            "model_versions",
            sa.Column(name, sa.Boolean(), server_default=default, nullable=False),
        )
    for statement in (HELD, HELD_COPIES, DRAFTS, NEVER_SHOWN, RETRACTED, REFUSED):
        op.execute(statement)


def downgrade() -> None:
    op.execute(UNRETRACTED)
    op.drop_column("model_versions", "held_by_pool")
    op.drop_column("model_versions", "was_available")
