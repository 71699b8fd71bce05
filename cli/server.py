"""``poolctl serve``, ``db`` and ``admin recover``: commands for the operator of a pool's server."""

import os
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError

from aggregators.whole_file import write_whole
from cli.frame.errors import CliError, ExitCode, Outcome, UsageError
from cli.frame.options import Option, command, group, single
from cli.frame.output import Invocation, Reply, TableText
from site_agent import own_folders

if TYPE_CHECKING:
    from pool_server.settings import PoolSettings

# ``poolctl db``: the schema of a pool's database.
db_app = group("Upgrade the schema of a pool's database (for operators).")

ConfigOption = Annotated[
    Path | None, Option("A TOML file of settings. Default: POOL_SERVER_CONFIG.")
]


@dataclass(frozen=True)
class DatabaseOptions:
    """The database of a pool, for commands that work on it without asking the pool."""

    data: Annotated[
        Path | None,
        Option(
            "The pool's data folder; its database is the one there, unless environment or file "
            "name one on PostgreSQL.",
            "FOLDER",
        ),
    ] = None
    database_url: Annotated[
        str,
        Option(
            "postgresql://USER:PASSWORD@HOST/DATABASE. Use POOL_SERVER_DATABASE_URL to "
            "keep the password out of the process list.",
            "URL",
        ),
    ] = ""
    config: ConfigOption = None

    def settings(self) -> "PoolSettings":
        """Return the settings that options, or else environment or file, give, as for `serve`."""
        use_config_file(self.config)
        if self.data is not None and self.database_url:
            raise UsageError(
                "--data names a pool on SQLite, --database-url one on PostgreSQL; give only one"
            )
        settings = read_settings(data_folder=self.data, database_url=self.database_url or None)
        if self.data is not None and settings.uses_postgresql and settings.database_file.exists():
            raise UsageError(
                f"--data has a pool on SQLite, but environment or file name the database "
                f"{settings.database_place}; give only one (unset POOL_SERVER_CONFIG)"
            )
        return settings

    def settings_of_pool(self) -> "PoolSettings":
        """Return the settings of a pool that should be there."""
        settings = self.settings()
        default = own_folders.data_folder()
        is_default = not settings.uses_postgresql and settings.data_folder == default
        if self.data is None and is_default and not settings.database_file.exists():
            raise UsageError(
                f"no pool given, and there is none in {settings.data_folder}: give --config, "
                "--data or --database-url"
            )
        if not settings.uses_postgresql and not settings.database_file.parent.is_dir():
            raise UsageError(f"{settings.database_file.parent}: no such folder; expected a pool's")
        return settings


@command(db_app, "upgrade", "db upgrade", "db upgrade --config /etc/poolctl.toml")
def upgrade(invocation: Invocation, *, database: DatabaseOptions) -> Reply:
    """Upgrade the database to the schema of this version, or create it in an empty database.

    On PostgreSQL, stop the pool's servers and make a backup first; servers of another version
    refuse to start afterwards. A SQLite file is copied to the backups in its folder. The upgrade is
    applied completely or not at all. An empty database gets its first admin; the token is shown
    only once, on a terminal, or else written to the file first-token of the data folder.
    """
    from pool_server.app import set_up_database
    from pool_server.server import hold_data_folder

    settings = database.settings()
    with hold_data_folder(settings):
        change, made = set_up_database(settings)
        secret, token_file = _hand_over(invocation, settings, made)
    facts: dict[str, Any] = {
        "database": settings.database_place,
        "found": change.before,
        "revision": change.now,
        "backup": change.backup,
        "admin_token_file": token_file,
    }
    before = change.before or "empty"
    now = f"{change.now}  (up to date already)"
    rows = [
        ["database", settings.database_place],
        ["schema", now if before == change.now else f"{before} -> {change.now}"],
    ]
    if change.backup is not None:
        rows.append(["backup", str(change.backup)])
    if secret is not None:
        rows.append(["admin token", f"{secret}  (shown this once)"])
        invocation.note("start the server, then log in with: poolctl auth login URL")
    return Reply(facts, TableText(["what", "value"], rows), [change.now])


def _hand_over(
    invocation: Invocation, settings: "PoolSettings", secret: str | None
) -> tuple[str | None, Path | None]:
    """Return the first token to show on a terminal, or else the private file that has it.

    The output of a service ends in a log, and that of a program where nobody looks after secrets.
    """
    if secret is None or (sys.stdout.isatty() and not invocation.conventions.as_json):
        return secret, None
    file = settings.first_token_file
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(file, f"{secret}\n", mode=0o600)
    invocation.note(f"the admin's token is in {file}: log in with it, and delete the file")
    return None, file


# Settings of a pool's server, for the commands that run or look after one.
def use_config_file(path: Path | None) -> None:
    """Have settings read from this file, too, by this process and those that it starts."""
    from pool_server.settings import CONFIG_VARIABLE

    if path is not None:
        os.environ[CONFIG_VARIABLE] = str(path.absolute())
    name = os.environ.get(CONFIG_VARIABLE, "")
    if not name:
        return
    try:
        tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: the settings cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{name}: {error}; expected TOML, one line a setting, such as port = 8710"
        ) from None


def read_settings(**values: Any) -> "PoolSettings":
    """Return the settings that options give, or else the environment or a file."""
    from pool_server.operations.configuration import find_unknown_variables, wrong_values
    from pool_server.settings import PoolSettings

    use_config_file(None)
    said = {field: value for field, value in values.items() if value is not None}
    try:
        settings = PoolSettings(**said)
        for unknown in find_unknown_variables(os.environ):
            raise UsageError(f"{unknown.setting}: {unknown.text}")
        if "data_folder" not in settings.model_fields_set:
            settings = PoolSettings(**said, data_folder=own_folders.data_folder())
        return settings
    except ValidationError as error:
        first = next(wrong_values(error))
        raise UsageError(
            f"{first.setting}: {first.text}; `poolctl serve --check` lists all problems"
        ) from None


# ``poolctl serve``.
app = single()


@command(
    app,
    "serve",
    "serve",
    "serve --data /srv/pool --host 0.0.0.0 --self-signed",
    "serve --config /etc/poolctl.toml",
    "serve --config /etc/poolctl.toml --check",
)
def serve(
    invocation: Invocation,
    *,
    data: Annotated[
        Path | None, Option("The pool's data folder; created if missing.", "FOLDER")
    ] = None,
    host: Annotated[
        str | None, Option("The address to listen on. Default: 127.0.0.1, this machine only.")
    ] = None,
    port: Annotated[
        int | None,
        Option("The port to listen on; 0 chooses a free one. Default: 8710.", min=0, max=65535),
    ] = None,
    config: ConfigOption = None,
    self_signed: Annotated[
        bool, Option("Encrypt by a certificate that the pool makes itself, once.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, Option("Encrypt by this certificate (PEM, with those that signed it).")
    ] = None,
    tls_key: Annotated[Path | None, Option("The key of --tls-certificate (PEM).")] = None,
    log_requests: Annotated[bool, Option("Log every request, not only faults.")] = False,
    check: Annotated[
        bool, Option("Check the settings, folder, database and storage, and exit.")
    ] = False,
    show_login: Annotated[
        bool,
        Option("Print a new link for the admin's browser, also while the pool runs, and exit."),
    ] = False,
) -> Reply | None:
    """Run a pool on this machine: SQLite and a folder, no other set-up.

    Prints the address and, at the first start on a terminal, the admin's token and a link for a
    browser. Elsewhere the file first-token of the data folder has it.
    Later a link can be made (--show-login, each works once), or another token ('poolctl admin
    recover'). Ctrl-C finishes the requests under way and stops. Without TLS (--self-signed,
    --tls-certificate, or a proxy), tokens can be read on their way.
    With POOL_SERVER_DATABASE_URL this is one of several servers of a pool on PostgreSQL; run
    'poolctl db upgrade' first.

    With --check, all problems of the settings (environment, file and options) are listed; exit
    code 2 if the pool cannot run. Warnings do not count.
    """
    from pool_server.logs import set_up_logging
    from pool_server.operations.maintenance import admin_login_link, login_link
    from pool_server.server import local_url, run_server
    from pool_server.tls import pin_of

    log_level = "WARNING" if invocation.conventions.quiet else None
    use_config_file(config)
    options = {
        "data_folder": data,
        "host": host,
        "port": port,
        "self_signed": self_signed or None,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    if check:
        values = {key: value for key, value in options.items() if value is not None}
        return check_config(invocation, values)
    settings = read_settings(**options, log_level=log_level, log_requests=log_requests or None)
    if show_login:
        link = admin_login_link(settings, local_url(settings, settings.port))
        invocation.note(
            f"it logs in once, within 24 hours, at the server of port {settings.port} (--port); "
            "its pages make further tokens"
        )
        return Reply({"login_link": link}, link, [link])
    set_up_logging(settings)

    def show_address(url: str, made: str | None) -> None:
        secret, token_file = _hand_over(invocation, settings, made)
        link = None if secret is None else login_link(settings, url, secret)
        pin = pin_of(settings)
        facts = {
            "url": url,
            "address": url + pin,
            "admin_token_file": token_file,
            "data_folder": settings.data_folder,
            "database": settings.database_place,
        }
        rows = [["pool", url + pin], ["data", str(settings.data_folder)]]
        if settings.uses_postgresql:
            rows.append(["database", settings.database_place])
        _note_addresses(invocation, settings, url + pin, has_secret=secret is not None)
        invocation.note("stop with Ctrl-C")
        # Last, so that they are read before the lines of the log.
        if secret is not None:
            rows.append(["admin token", f"{secret}  (shown only now)"])
            rows.append(["in a browser", f"{link}  (logs in once, within 24 hours)"])
        invocation.print_reply(Reply(facts, TableText(["what", "value"], rows), [url]))

    run_server(settings, on_ready=show_address)
    return None


def _note_addresses(
    invocation: Invocation, settings: "PoolSettings", address: str, *, has_secret: bool
) -> None:
    """Say how others reach the pool and log in, and warn where the way is in clear text."""
    from pool_server.operations.configuration import clear_text_remark
    from pool_server.settings import is_this_machine

    if remark := clear_text_remark(settings):
        invocation.warn(remark)
    port = urlsplit(address).port
    if is_this_machine(settings.host):
        invocation.note("others reach it behind a proxy here, or with --host 0.0.0.0")
    else:
        invocation.note(f"other machines reach it by this one's name or address, port {port}")
    if "#" in address:
        invocation.note(
            "sha256 is the certificate's fingerprint: give it to the labs with the address, by "
            "letter or telephone; browsers warn of such a certificate, and show its fingerprint"
        )
    if has_secret:
        invocation.note(f"log in from another window: poolctl auth login {shlex.quote(address)}")
    elif not settings.uses_postgresql:
        folder = shlex.quote(str(settings.data_folder))
        invocation.note(f"log in: poolctl serve --show-login --data {folder} --port {port}")
        invocation.note(f"a new admin token: poolctl admin recover --data {folder}")


# ``poolctl serve --check``: whether a pool can run with its settings.
def check_config(invocation: Invocation, values: Mapping[str, Any]) -> Reply:
    """Check the settings of a pool: from the environment, the file and the options."""
    from pool_server.operations.configuration import check_configuration

    settings, remarks = check_configuration(**values)
    if settings is not None and "data_folder" not in settings.model_fields_set:
        settings, remarks = check_configuration(data_folder=own_folders.data_folder())
    problems = [
        f"{remark.setting}: {remark.text}" for remark in remarks if remark.level == "problem"
    ]
    for remark in remarks:
        if remark.level == "warning":
            invocation.warn(f"{remark.setting}: {remark.text}")
    if problems or settings is None:
        raise CliError(
            "\n".join(["the pool cannot run with these settings:", *problems]),
            Outcome(ExitCode.USAGE, "configuration"),
        )
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
        "findings": remarks,
    }
    return Reply(facts, [TableText(["what", "value"], rows), "the pool can run"])


# ``poolctl admin recover``: run on the pool's own machine, without a token.
# Part of the group `admin`, which has the help.
recover_app = typer.Typer()


@command(
    recover_app,
    "recover",
    "admin recover --data /srv/pool",
    "admin recover --config /etc/poolctl.toml --json",
)
def recover(invocation: Invocation, *, database: DatabaseOptions) -> Reply:
    """Create a new admin token, on the pool's own machine, when the old one is lost.

    Needs no token, only the pool's database: that of the options, or of the pool's settings
    (POOL_SERVER_...). The secret is shown only once, and the audit records it. The pool may keep
    serving. Existing tokens stay valid until they are revoked.
    """
    from pool_server.operations.maintenance import make_admin_token

    settings = database.settings_of_pool()
    made = make_admin_token(settings)
    rows = [
        ["database", settings.database_place],
        ["token", f"{made.site}/{made.name}"],
        ["secret", f"{made.secret}  (shown this once)"],
    ]
    invocation.note("log in with it: poolctl auth login URL")
    invocation.note(
        "then revoke the lost token: poolctl admin people ls tokens, poolctl admin people revoke"
    )
    return Reply(
        {"database": settings.database_place, "token": made},
        TableText(["what", "value"], rows),
        [made.secret],
    )
