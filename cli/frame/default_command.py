"""Groups in which one command may be called without its name (``poolctl blink VIDEO``)."""

from __future__ import annotations

from typing import Any, ClassVar

import typer

from cli.frame.help import PlainGroup, write_panels


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
