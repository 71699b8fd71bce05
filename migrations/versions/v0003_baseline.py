"""The tables of the pool

Until the first release this baseline makes the tables from the records. At the release it must
be written out (Alembic's autogenerate does that), so that later changes of the records do not
change it.
"""

from alembic import op

from pool_server.database.records import Record

# Databases of 0001 and 0002, before, had other columns: they are refused by name.
revision = "0003"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    Record.metadata.create_all(op.get_bind())
    if op.get_bind().dialect.name == "sqlite":
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
