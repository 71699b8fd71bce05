"""Run Alembic over the connection that the server hands it.

There is no configuration file: `pool_server.database.schema.migration_settings` builds Alembic's
settings, so migrations run from an installed wheel. To write the next revision::

    from alembic import command
    from pool_server.database.engine import Database
    from pool_server.database.schema import migration_settings
    with Database.open(settings).engine.connect() as connection:
        command.revision(migration_settings(connection), "summary of the change", autogenerate=True)
"""

from alembic import context

from pool_server.database.records import Record

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Record.metadata,
    # SQLite changes a table by making a new one; Alembic's batch mode does that.
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
