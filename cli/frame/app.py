"""The `poolctl` program: its entry point, its table of commands, and its help pages.

The commands of a noun are in one module that defines ``app``, a `typer.Typer`; a new noun is a
new file and one line in `_PANELS`. Modules load when their command is called, so that
``poolctl --help`` stays quick.
"""

import gc
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


# Plain help pages, the same in a terminal, a pager and a log: typer's drawn pages cost a tenth of a
# second for loading rich alone, every time.
class PlainCommand(TyperCommand):
    """A command that names itself in the hints of its errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Most lists are commands 'ls' of a group, so these understand the word, too.
        is_list = self.name in {"log", "merges", "methods", "uploads"}
        try:
            return super().parse_args(ctx, args[1:] if is_list and args[:1] == ["ls"] else args)
        except Exception as error:
            # An option without its value knows no command, whose help the hint names.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise


class PlainGroup(TyperGroup):
    """A group with its commands in panels."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = getattr(error, "message", "")
            if message and "Did you mean" not in message and args:
                error.message = f"{message.rstrip('.')}. There are {', '.join(self.commands)}"  # type: ignore[attr-defined]
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                title = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(title, []).append((name, command.get_short_help_str(limit=200)))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


class GroupWithDefault(PlainGroup):
    """A group in which one command may be called without its name (``poolctl blink VIDEO``).

    A first word that is the name of a command is that command; a file of that name is given as
    ``./NAME``.
    """

    default_name: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_for_help = args[:1] in (["-h"], ["--help"])
        if not asks_for_help and (not args or args[0] not in self.commands):
            args = [self.default_name, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        pieces = self._default.collect_usage_pieces(ctx)
        formatter.write_usage(ctx.command_path, " ".join(pieces))
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="   or: ")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        self._default.format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self._default.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        self._default.format_epilog(ctx, formatter)

    @property
    def _default(self) -> Any:
        return self.commands[self.default_name]


def new_app(group_type: type[TyperGroup] | None = None, **settings: Any) -> typer.Typer:
    """Make an app with plain help pages; with the type of a group, one that has commands."""
    app = typer.Typer(
        cls=group_type or TyperGroup,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )
    if group_type is not None:
        app.callback()(lambda: None)
    return app


@dataclass(frozen=True)
class CommandEntry:
    """A command: its module, and its line in the overview."""

    name: str
    module: str
    app: str
    summary: str
    panel: str


_PANELS = {
    "Start here": (
        ("quickstart", "quickstart", "Run the whole journey on synthetic faces."),
        ("serve", "server", "Run a pool on this machine."),
        ("db", "server:db_app", "Create or upgrade a pool's database."),
        ("auth", "auth", "Log in, log out, show who you are."),
        ("env", "env", "Show versions, folders, extras and the pool."),
    ),
    "Share": (
        ("models", "models", "Search, describe, share and withdraw models in the pool."),
        ("upload", "transfers.upload", "Upload a model file to the pool."),
        ("uploads", "transfers.upload:uploads_app", "List or cancel unfinished uploads."),
        ("download", "transfers.download", "Download models from the pool."),
        ("agent", "merge.agent", "Merge and refine automatically with the pool."),
        ("rounds", "merge.rounds", "Refine a model together with other sites."),
        ("secure", "secure", "Sum up updates so that no server sees or falsifies them."),
        ("admin", "admin", "Manage sites, people, tokens and backups."),
        ("keys", "keys", "Sign your uploads, and trust the keys of other sites."),
        ("log", "log", "List events that concern your site, or the audit of the pool."),
        (
            "cache",
            "transfers.download:cache_app",
            "List, verify and remove the models cached on this machine.",
        ),
    ),
    "Make models": (
        ("dataset", "dataset", "Check, convert, split annotations; draw faces."),
        ("train", "vision.train", "Train a face detector, a landmark model or a network."),
        ("settings", "env:settings_app", "Print a file of all settings of a command."),
        ("methods", "methods", "List the aggregation methods and their options."),
        ("merge", "merge", "Merge models into one, on this machine or on the pool."),
        ("merges", "merge.central", "List or cancel merges on the pool."),
        ("refine", "merge.refine", "Refine a merged landmark model, on this machine."),
        ("federated", "federated", "Train networks together with other sites."),
        ("split", "split", "Train a network in two parts, at sites and a server."),
        ("live", "live", "Run the services of live trainings."),
        ("personal", "personal", "Show and export what your site keeps of a network."),
        ("study", "vision.study", "Compare models: alone, merged, refined, federated."),
        ("convert", "vision.files", "Convert a model file to another format."),
    ),
    "Use models": (
        ("inspect", "vision.files:inspect_app", "Describe a model file."),
        ("predict", "vision.predict", "Find faces in images, or where a person looks in videos."),
        ("evaluate", "vision.evaluate", "Score models on annotated images."),
        ("privacy", "privacy", "Measure what something that left reveals."),
        ("blink", "blink", "Find eyeblinks in a video or an EAR trace."),
        ("app", "app", "Open the page for work without a terminal."),
        ("jobs", "jobs", "List, stop and repeat long work that was asked for."),
        ("status", "jobs:status_app", "Show how far a study, a batch or a simulation is."),
    ),
}
"""By the title of its panel, each command's name, module (``MODULE:app``), and summary."""

COMMANDS = tuple(
    CommandEntry(
        name, f"cli.{place.partition(':')[0]}", place.partition(":")[2] or "app", summary, panel
    )
    for panel, entries in _PANELS.items()
    for name, place, summary in entries
)


class LazyGroup(PlainGroup):
    """A group with a table of commands that loads a command only when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entries = {entry.name: entry for entry in COMMANDS}
        self._listing = False
        for entry in COMMANDS:
            self.commands[entry.name] = PlainCommand(
                entry.name, help=entry.summary, rich_help_panel=entry.panel
            )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self._entries.get(cmd_name)
        if entry is None or self._listing:
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(getattr(import_module(entry.module), entry.app))
        command.name = entry.name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False


app = typer.Typer(
    name="poolctl",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with 'poolctl quickstart'. Every command has --help.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from migrations import newest_revision
        from pool_server.wire.versions import API_VERSION

        schema = f"API {API_VERSION}, database schema {newest_revision()}"
        print(f"poolctl {installed_version()} ({schema})")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the versions of the program, its API and its schema.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    """Share, merge and use face models between research sites without sharing images."""


class _WarningLines(logging.Handler):
    """Prints warnings and remarks that other packages log."""

    def emit(self, record: logging.LogRecord) -> None:
        from cli.frame.terminal import print_labelled, printable

        if record.levelno >= logging.WARNING:
            print_labelled("Warning:", "33", record.getMessage())
        else:
            print(printable(record.getMessage(), sys.stderr), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors become messages."""
    # Loaded objects stay: looking through them for garbage would take a fifth of the time.
    gc.set_threshold(50_000)
    warnings = logging.getLogger("site_agent")
    if not warnings.handlers:
        warnings.addHandler(_WarningLines())
    for stream in (sys.stdout, sys.stderr):
        # The end of hours of work must not fail for a name that the terminal cannot show.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    quiet = {"-q", "--quiet"} & set(command_line)
    warnings.setLevel(logging.WARNING if quiet else logging.INFO)
    command = typer.main.get_command(app)
    try:
        result = command.main(args=command_line, prog_name="poolctl", standalone_mode=False)
        if result == 130:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
    except SystemExit:
        raise
    except BaseException as error:
        from cli.frame.errors import report_failure

        return report_failure(error, command_line)
    return result if isinstance(result, int) else 0


def installed_version() -> str:
    """Return the installed distribution's version; ``0+source`` when run from a bare checkout."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+source"
