"""The tables of the pool, written out in `v0003_baseline.sql`: later records do not change them."""

import re
from pathlib import Path

from alembic import op

# Databases of 0001 and 0002, before, had other columns: they are refused by name.
revision = "0003"
down_revision = None
branch_labels = None
depends_on = None
schema_digest = "c12847ab2a39e239ded140be63413ba1c16d3259b56a79ab86455f670837fccc"

# The SQL is PostgreSQL's. SQLite numbers rows itself only where the type of the key is INTEGER.
_FOR_SQLITE = (
    (r"\bTIMESTAMP WITH TIME ZONE\b", "DATETIME"),
    (r"\b(BIG)?SERIAL\b|(?<=_id )BIGINT\b", "INTEGER"),
    (r"\bDOUBLE PRECISION\b", "DOUBLE"),
    (r"\bBYTEA\b", "BLOB"),
    (r"\bDEFAULT false\b", "DEFAULT 0"),
    (r"\bDEFAULT true\b", "DEFAULT 1"),
)


def upgrade() -> None:
    statements = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for word, sqlite_word in _FOR_SQLITE if is_sqlite else ():
        statements = re.sub(word, sqlite_word, statements)
    for statement in statements.strip().removesuffix(";").split(";\n"):
        op.get_bind().exec_driver_sql(statement)
    if is_sqlite:
        make_sqlite_audit_guard()
    else:
        make_postgresql_audit_guard()


# The database itself refuses to change audit entries.


def make_sqlite_audit_guard() -> None:
    for act in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END"
        )


def make_postgresql_audit_guard() -> None:
    op.execute(
        "CREATE FUNCTION refuse_to_change_the_audit() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the audit is only appended to' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for act in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_the_audit()"
        )
