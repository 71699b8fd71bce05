"""Plain help pages: quick to make, and the same in a terminal, a pager and a log.

Typer's drawn pages cost a tenth of a second for loading rich alone, every time.
"""

from __future__ import annotations

from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


def write_panels(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options, those of a panel under its title."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        is_argument = parameter.param_type_name == "argument"
        title = getattr(parameter, "rich_help_panel", None) or (
            "Arguments" if is_argument else "Options"
        )
        panels.setdefault(title, []).append(record)
    for title, records in panels.items():
        if not records:
            continue
        with formatter.section(title):
            formatter.write_dl(records)


class PlainCommand(TyperCommand):
    """A command whose options stand in panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_panels(self, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group whose commands stand in panels."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = getattr(error, "message", "")
            if message and "Did you mean" not in message and args:
                error.message = f"{message.rstrip('.')}. There are {', '.join(self.commands)}"  # type: ignore[attr-defined]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_panels(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                title = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(title, []).append((name, command.get_short_help_str(limit=60)))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


# Groups in which one command may be called without its name (``poolctl blink VIDEO``).
class _GroupWithDefault(PlainGroup):
    """Hands words that begin with no command of its own to the default command."""

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
        write_panels(self._default, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        self._default.format_epilog(ctx, formatter)

    @property
    def _default(self) -> Any:
        return self.commands[self.default_name]


def group_with_default(default: str) -> typer.Typer:
    """Make the app of a group whose command `default` is meant where none is named.

    A first word that is the name of a command is that command; a file of that name is given as
    ``./NAME``.
    """
    group_type = type("GroupWithDefault", (_GroupWithDefault,), {"default_name": default})
    app = typer.Typer(
        cls=group_type,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _group() -> None:
        pass

    return app
