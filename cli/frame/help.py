"""Plain help pages: quick to make, and the same in a terminal, a pager and a log.

Typer's drawn pages cost a tenth of a second for loading rich alone, every time.
"""

from __future__ import annotations

from typing import Any

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
