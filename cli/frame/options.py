"""What all commands have in common, said once: the conventions and recurring parameters.

A command is a function that takes an `Invocation` and its own parameters and returns a `Reply`;
`command` registers it and adds ``--json``, ``--quiet``, ``--no-progress``, ``--profile`` and
``--debug``. What has the metavar ``ADDRESS`` arrives with its site, one's own where none was given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.frame.help import PlainCommand, PlainGroup
from cli.frame.output import Conventions, Invocation, Reply

_PANEL = "Every command"

_CONVENTIONS: tuple[tuple[str, Any, Any], ...] = (
    (
        "as_json",
        Annotated[
            bool,
            typer.Option(
                "--json", help="One JSON object on standard output.", rich_help_panel=_PANEL
            ),
        ],
        False,
    ),
    (
        "quiet",
        Annotated[
            bool,
            typer.Option(
                "--quiet", "-q", help="Print identifiers or paths only.", rich_help_panel=_PANEL
            ),
        ],
        False,
    ),
    (
        "no_progress",
        Annotated[
            bool, typer.Option("--no-progress", help="No progress bars.", rich_help_panel=_PANEL)
        ],
        False,
    ),
    (
        "profile",
        Annotated[
            str,
            typer.Option(
                "--profile",
                metavar="NAME",
                help="The login to use (see 'poolctl auth switch').",
                show_default=False,
                rich_help_panel=_PANEL,
            ),
        ],
        "",
    ),
    (
        "debug",
        Annotated[
            bool,
            typer.Option("--debug", help="Show the traceback of errors.", rich_help_panel=_PANEL),
        ],
        False,
    ),
)

CommandFunction = Callable[..., Reply | None]


def command(
    app: typer.Typer, name: str, *, examples: Sequence[str], parameters: Sequence[Any] = ()
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a command with the conventions of all commands.

    The further options in `parameters` reach the function as ``**settings``.
    """

    def register(function: CommandFunction) -> CommandFunction:
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        addresses = [each.name for each in own if _metavar(each) == "ADDRESS"]

        def run(
            *,
            as_json: bool,
            quiet: bool,
            no_progress: bool,
            profile: str,
            debug: bool,
            **arguments: Any,
        ) -> None:
            conventions = Conventions(as_json, quiet, not no_progress, profile, debug)
            invocation = Invocation(conventions)
            for key in addresses:
                if isinstance(words := arguments[key], str):
                    arguments[key] = words and invocation.address(words)
                elif words is not None:
                    arguments[key] = [invocation.address(word) for word in words]
            reply = function(invocation, **arguments)
            if reply is not None:
                invocation.print_reply(reply)

        run.__doc__ = inspect.getdoc(function)
        run.__name__ = function.__name__
        run.__annotations__ = {}
        shared = [
            inspect.Parameter(
                parameter, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
            )
            for parameter, annotation, default in _CONVENTIONS
        ]
        keyword_only = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in [*own[1:], *parameters]
        ]
        run.__signature__ = inspect.Signature([*keyword_only, *shared])  # type: ignore[attr-defined]
        lines = "\n".join(f"  poolctl {example}" for example in examples)
        # \b keeps the lines as they are.
        app.command(name, cls=PlainCommand, epilog=f"\b\nExamples:\n{lines}")(run)
        return function

    return register


def _metavar(parameter: inspect.Parameter) -> str | None:
    given = getattr(parameter.annotation, "__metadata__", ())
    return next((each.metavar for each in given if hasattr(each, "metavar")), None)


def group(summary: str) -> typer.Typer:
    """Make the app of a command group (``poolctl models ...``)."""
    app = typer.Typer(
        cls=PlainGroup,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _group() -> None:
        pass

    return app


def single() -> typer.Typer:
    """Make the app of a top-level command (``poolctl upload``)."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


DespiteWithdrawalOption = Annotated[
    bool,
    typer.Option(
        "--despite-withdrawal",
        help="Go on although something that goes into the result was withdrawn.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
LimitOption = Annotated[
    int, typer.Option(min=1, max=10_000, metavar="N", help="Maximum number of lines.")
]
LongOption = Annotated[
    bool, typer.Option("--long", help="Show more columns; lines may be longer than 100 characters.")
]
LabelOption = Annotated[
    list[str],
    typer.Option(
        "--label", "-l", metavar="KEY=VALUE", help="A label, for example population=infant."
    ),
]
OutputFileOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write the result.")
]


def key_value_pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Take ``KEY=VALUE`` words apart."""
    from cli.frame.errors import UsageError

    pairs: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key or not value:
            raise UsageError(f"{option} {word!r}: expected KEY=VALUE")
        if key in pairs:
            raise UsageError(f"{option} {key}: given twice ({pairs[key]!r} and {value!r})")
        pairs[key] = value
    return pairs


def numbers(text: str, option: str) -> list[float]:
    """Read a list of numbers separated by commas (``1.5,1,1``)."""
    from cli.frame.errors import UsageError

    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected numbers separated by commas, for example 1.5,1,1"
        ) from None
