"""``poolctl admin check-config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.admin.db import ConfigOption
from cli.admin.pool_settings import use_config_file
from cli.frame.errors import ConfigurationError
from cli.frame.options import command
from cli.frame.output import Invocation, Reply, TableText

# Part of the group `admin`, which has the help.
app = typer.Typer()


@command(
    app,
    "check-config",
    examples=["admin check-config", "admin check-config --config /etc/poolctl.toml --json"],
)
def check_config(
    invocation: Invocation,
    *,
    config: ConfigOption = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The pool's data folder.")
    ] = None,
) -> Reply:
    """Check the settings of a pool's server and list all problems.

    Reads the environment (POOL_SERVER_...) and the file, and tries the folder, the database and the
    storage. Exit code 2 if the pool cannot run; warnings do not count.
    """
    from pool_server.operations.configuration import check_configuration
    from site_agent.pool import profiles

    use_config_file(config)
    given = {} if data is None else {"data_folder": data}
    settings, found = check_configuration(**given)
    if settings is not None and "data_folder" not in settings.model_fields_set:
        settings, found = check_configuration(data_folder=profiles.data_folder())
    problems = [f"{each.setting}: {each.text}" for each in found if each.level == "problem"]
    for each in found:
        if each.level == "warning":
            invocation.warn(f"{each.setting}: {each.text}")
    if problems or settings is None:
        raise ConfigurationError("\n".join(["the pool cannot run with these settings:", *problems]))
    rows = [
        ["data folder", str(settings.data_folder)],
        ["database", settings.database_place],
        ["model files", f"bucket {settings.s3_bucket}" if settings.storage == "s3" else "folder"],
        ["listens on", f"{settings.host} port {settings.port}"],
    ]
    facts = {
        "data_folder": settings.data_folder,
        "database": settings.database_place,
        "storage": settings.storage,
        "findings": found,
    }
    return Reply(facts, [TableText(["what", "value"], rows), "the pool can run"])
