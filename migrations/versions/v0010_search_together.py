"""One index for terms and words together, on PostgreSQL

With an index of each, a search for a label and a word reads all versions that have the one, to
look whether they have the other: PostgreSQL takes the two for independent, and so does not expect
much of reading both indexes. One index of both columns gives those versions only that have both.

Without the extension pg_trgm (see 0009) there is no index of words, and nothing changes.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TOGETHER = """
DO $$ BEGIN
  IF EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm') THEN
    CREATE INDEX ix_search_entries_terms_words ON search_entries
      USING gin (terms, words gin_trgm_ops);
    DROP INDEX ix_search_entries_terms;
    DROP INDEX IF EXISTS ix_search_entries_words;
  END IF;
END $$
"""

APART = """
DO $$ BEGIN
  IF to_regclass('ix_search_entries_terms_words') IS NOT NULL THEN
    CREATE INDEX ix_search_entries_words ON search_entries USING gin (words gin_trgm_ops);
    CREATE INDEX ix_search_entries_terms ON search_entries USING gin (terms);
    DROP INDEX ix_search_entries_terms_words;
  END IF;
END $$
"""


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(TOGETHER)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(APART)
