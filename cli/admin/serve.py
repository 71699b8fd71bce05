"""``poolctl serve``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.admin.db import ConfigOption, read_settings, use_config_file
from cli.frame.errors import ConfigurationError
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText

app = single()


@command(
    app,
    "serve",
    examples=[
        "serve",
        "serve --data /srv/pool --port 8710",
        "serve --config /etc/poolctl.toml --log-format json",
        "serve --config /etc/poolctl.toml --check",
    ],
)
def serve(
    invocation: Invocation,
    *,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The pool's data folder; created if missing."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="The address to listen on. Default: 127.0.0.1, this machine only."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="The port to listen on; 0 chooses a free one. Default: 8710."
        ),
    ] = None,
    config: ConfigOption = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(help="Log lines for people (text) or for programs (json)."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(help="Check the settings, folder, database and storage, and exit."),
    ] = False,
) -> Reply | None:
    """Run a pool on this machine: SQLite and a folder, no other set-up.

    Prints the address and, at the first start, the admin's token, which is shown only once. Ctrl-C
    finishes the requests under way and stops. With POOL_SERVER_DATABASE_URL this is one of several
    servers of a pool on PostgreSQL; run 'poolctl db upgrade' first.

    With --check, all problems of the settings (environment, file and options) are listed; exit
    code 2 if the pool cannot run. Warnings do not count.
    """
    from pool_server.logs import set_up_logging
    from pool_server.server import run_server

    log_level = "WARNING" if invocation.conventions.quiet else None
    use_config_file(config)
    given = {"data_folder": data, "host": host, "port": port, "log_format": log_format}
    if check:
        wanted = {key: value for key, value in given.items() if value is not None}
        return check_config(invocation, wanted)
    settings = read_settings(**given, log_level=log_level)
    set_up_logging(settings)

    def tell(url: str, secret: str | None) -> None:
        facts = {
            "url": url,
            "admin_token": secret,
            "data_folder": settings.data_folder,
            "database": settings.database_place,
        }
        rows = [["pool", url], ["data", str(settings.data_folder)]]
        if settings.uses_postgresql:
            rows.append(["database", settings.database_place])
        if secret is not None:
            rows.append(["admin token", f"{secret}  (shown this once)"])
        invocation.print_reply(Reply(facts, TableText(["what", "value"], rows), [url]))
        if secret is not None:
            invocation.note(f"log in from another window: poolctl auth login {url}")
        invocation.note("stop with Ctrl-C")

    run_server(settings, on_ready=tell)
    return None


# ``poolctl serve --check``: whether a pool can run with its settings.
def check_config(invocation: Invocation, given: Mapping[str, Any]) -> Reply:
    """Check the settings that a pool would run with: environment, file, and what was given."""
    from pool_server.operations.configuration import check_configuration
    from site_agent.pool import profiles

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
