"""Drop the search index, which triggers kept next to the records

Versions are searched in the tables of the records. A database that was made since has no index.
"""

from alembic import op
from sqlalchemy import text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FOLLOWED = (
    "labels", "merge_keys", "grants", "models", "sites", "model_versions", "withdrawal_flags",
)  # fmt: skip


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        triggers = connection.scalars(
            text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'search%'")
        ).all()
        # The triggers and the view come first, because they name the tables.
        statements = [f"DROP TRIGGER {name}" for name in triggers]
        statements += [f"DROP VIEW IF EXISTS {name}" for name in ("search_sources", "search_texts")]
        tables = ("search_terms", "search_words", "search_entries")
        statements += [f"DROP TABLE IF EXISTS {name}" for name in tables]
    else:
        functions = [f"search_{table}_changed()" for table in _FOLLOWED]
        functions.append("refresh_search_entries(bigint[], integer[])")
        statements = [f"DROP FUNCTION IF EXISTS {name} CASCADE" for name in functions]
        statements += [
            "DROP VIEW IF EXISTS search_sources",
            "DROP FUNCTION IF EXISTS search_term_number(text)",
            "DROP TABLE IF EXISTS search_entries",
        ]
    for statement in statements:
        op.execute(statement)
