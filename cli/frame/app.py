"""The `poolctl` program: its table of commands, and the one way in and out.

Each command lives in a module of its own that defines ``app``, a `typer.Typer`; a new one is a
new file and one line in `COMMANDS`. Modules load when their command is called, so that
``poolctl --help`` stays quick whatever the commands need.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from cli.frame.help import PlainCommand, PlainGroup

_START, _SHARE, _MAKE, _USE = "Start here", "Share", "Make models", "Use models"


@dataclass(frozen=True)
class CommandEntry:
    """Where a command is, and what the overview says of it."""

    name: str
    module: str
    summary: str
    panel: str


COMMANDS = (
    CommandEntry(
        "quickstart", "cli.quickstart", "Run the whole journey on synthetic faces.", _START
    ),
    CommandEntry("serve", "cli.admin.serve", "Run a pool on this machine.", _START),
    CommandEntry("db", "cli.admin.db", "Create or upgrade a pool's database.", _START),
    CommandEntry("auth", "cli.auth", "Log in, log out, show who you are.", _START),
    CommandEntry("env", "cli.env", "Show versions, folders, extras and the pool.", _START),
    CommandEntry(
        "models",
        "cli.models.group",
        "Search, describe, share and withdraw models in the pool.",
        _SHARE,
    ),
    CommandEntry("upload", "cli.transfers.upload", "Upload a model file to the pool.", _SHARE),
    CommandEntry("uploads", "cli.transfers.uploads", "List or cancel unfinished uploads.", _SHARE),
    CommandEntry("download", "cli.transfers.download", "Download models from the pool.", _SHARE),
    CommandEntry(
        "agent", "cli.merge.agent", "Merge and refine automatically with the pool.", _SHARE
    ),
    CommandEntry("rounds", "cli.merge.rounds", "Refine a model together with other sites.", _SHARE),
    CommandEntry(
        "secure",
        "cli.secure.group",
        "Sum up updates so that no server sees or falsifies them.",
        _SHARE,
    ),
    CommandEntry("admin", "cli.admin.group", "Manage sites, people, tokens and backups.", _SHARE),
    CommandEntry(
        "keys", "cli.keys", "Sign your uploads, and trust the keys of other sites.", _SHARE
    ),
    CommandEntry(
        "bundle", "cli.transfers.bundle", "Move models between pools in one file.", _SHARE
    ),
    CommandEntry("events", "cli.events", "List events that concern your site.", _SHARE),
    CommandEntry("audit", "cli.admin.audit", "Show what was done in the pool (admins).", _SHARE),
    CommandEntry(
        "cache",
        "cli.transfers.cache",
        "List, verify and remove the models cached on this machine.",
        _SHARE,
    ),
    CommandEntry(
        "dataset", "cli.dataset.group", "Check, convert, split annotations; draw faces.", _MAKE
    ),
    CommandEntry(
        "train",
        "cli.vision.train",
        "Train a face detector, a landmark model or a gaze network.",
        _MAKE,
    ),
    CommandEntry("settings", "cli.settings", "Print a file of all settings of a command.", _MAKE),
    CommandEntry("merge", "cli.merge.command", "Merge models of several sites into one.", _MAKE),
    CommandEntry("merges", "cli.merge.central", "Merge models on the pool.", _MAKE),
    CommandEntry(
        "refine", "cli.merge.refine", "Refine a merged landmark model at all sites.", _MAKE
    ),
    CommandEntry(
        "federated", "cli.federated.group", "Train networks together with other sites.", _MAKE
    ),
    CommandEntry("study", "cli.vision.study", "Compare sub-models: alone, merged, refined.", _MAKE),
    CommandEntry("convert", "cli.vision.convert", "Convert a model file to another format.", _MAKE),
    CommandEntry(
        "prune", "cli.vision.prune", "Set the smallest weights of a network to zero.", _MAKE
    ),
    CommandEntry("inspect", "cli.vision.inspect", "Describe a model file.", _USE),
    CommandEntry("predict", "cli.vision.predict", "Find faces, landmarks or gaze in images.", _USE),
    CommandEntry("evaluate", "cli.vision.evaluate", "Score models on annotated images.", _USE),
    CommandEntry("privacy", "cli.privacy", "Measure what something that left reveals.", _USE),
    CommandEntry("blink", "cli.blink.command", "Find eyeblinks in a video or an EAR trace.", _USE),
)


class LazyGroup(PlainGroup):
    """A group that knows its commands by a table and loads each one when it is called."""

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
        command = typer.main.get_command(import_module(entry.module).app)
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


def _print_version(wanted: bool) -> None:
    if wanted:
        from cli.frame.version import installed_version

        print(f"poolctl {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Share, merge and use face models between research sites without sharing images."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors become messages."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    try:
        result = command.main(args=words, prog_name="poolctl", standalone_mode=False)
        if result == 130:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
    except SystemExit:
        raise
    except BaseException as error:
        from cli.frame.errors import report_failure

        return report_failure(error, words)
    return result if isinstance(result, int) else 0
