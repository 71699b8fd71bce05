"""Register commands: their conventions, groups of options, and recurring options.

A command is a function that takes an `Invocation` and its own parameters and returns a `Reply`;
`command` registers it and adds ``--json``, ``--quiet``, ``--no-progress``, ``--profile`` and
``--debug``. Parameters with the metavar ``ADDRESS`` get one's own site where none was given.

Options that several commands share, or that belong together, are the fields of a frozen dataclass::

    @dataclass(frozen=True)
    class Listing:
        state: Annotated[str, Option("Only models in this state.")] = ""
        label: Annotated[Sequence[str], Option("A label of the models.", "KEY=VALUE")] = ()

A parameter of such a type, ``listing: Listing``, stands for all of its options in the help, and the
function receives an instance. Sequences default to ``()``, in groups and elsewhere.
"""

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from cli.frame.app import PlainCommand, PlainGroup, new_app
from cli.frame.output import Conventions, Invocation, Reply

CommandFunction = Callable[..., Reply | None]

_LETTERS = {
    "--config": ("-c",), "--label": ("-l",), "--metric": ("-m",),
    "--name": ("-n",), "--output": ("-o",), "--quiet": ("-q",), "--yes": ("-y",),
}  # fmt: skip
"""The options with a letter, the same for all commands."""


def Option(  # noqa: N802
    text: str,
    metavar: str | None = None,
    *,
    name: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
) -> Any:
    """Declare an option in an `Annotated` type: ``Annotated[int, Option("Seed.", "N", min=0)]``.

    It is named like its parameter unless `name` says otherwise; paths are ``FILE`` by default.
    """
    names = () if name is None else (name,)
    return typer.Option(*names, metavar=metavar, help=text, min=min, max=max)


def Argument(text: str, metavar: str | None = None) -> Any:  # noqa: N802
    """Declare an argument in an `Annotated` type."""
    return typer.Argument(metavar=metavar, help=text)


def command(
    app: typer.Typer, name: str, *examples: str
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a command with the conventions of all commands."""

    def register(function: CommandFunction) -> CommandFunction:
        _, *declared = inspect.signature(function, eval_str=True).parameters.values()
        groups = {
            parameter.name: parameter.annotation
            for parameter in declared
            if is_dataclass(parameter.annotation)
        }
        options = [option for parameter in declared for option in _options_of(parameter)]
        addresses = [option.name for option in options if _is_address(option)]

        def run(**values: Any) -> None:
            invocation = Invocation(_take(Conventions, values))
            for key in addresses:
                if isinstance(value := values[key], str):
                    values[key] = value and invocation.address(value)
                elif value is not None:
                    values[key] = [invocation.address(word) for word in value]
            # All are taken before any is put back: a group may have the name of an option.
            values |= {key: _take(kind, values) for key, kind in groups.items()}
            reply = function(invocation, **values)
            if reply is not None:
                invocation.print_reply(reply)

        run.__doc__ = inspect.getdoc(function)
        run.__name__ = function.__name__
        run.__annotations__ = {}
        signature = inspect.Signature([*options, *_fields_of(Conventions)])
        run.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(f"  poolctl {example}" for example in examples)
        # \b keeps the lines as they are.
        app.command(name, cls=PlainCommand, epilog=f"\b\nExamples:\n{lines}")(run)
        return function

    return register


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of one parameter of a command: many where it is a group of them."""
    if is_dataclass(parameter.annotation):
        return _fields_of(parameter.annotation)
    return [_for_typer(parameter.name, parameter.annotation, parameter.default)]


def _fields_of(group_type: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group_type, include_extras=True)
    return [
        _for_typer(field.name, hints[field.name], field.default) for field in fields(group_type)
    ]


def _for_typer(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer reads it, which knows lists but no other sequences."""
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if get_origin(kind) is Sequence:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
        default = [] if default == () else default
    notes = [copy(note) for note in notes]
    for note in notes:
        # typer gives every switch a second name --no-NAME; only what is on by default needs one.
        # typer keeps the first name in `default`.
        is_unnamed = isinstance(note, OptionInfo) and note.default is ...
        if is_unnamed and not (kind is bool and default is True):
            flag = f"--{name.rstrip('_').replace('_', '-')}"
            note.param_decls = (flag, *_LETTERS.get(flag, ()))
        if kind in (Path, Path | None):
            note.metavar = note.metavar or "FILE"
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, *notes] if notes else kind,
        default=inspect.Parameter.empty if default is MISSING else default,
    )


def _take(group_type: Any, values: dict[str, Any]) -> Any:
    """Take the options of a group out of the values, and return the group."""
    options = {field.name: values.pop(field.name) for field in fields(group_type)}
    # Tuples, as the defaults are: groups can be compared.
    lists = {key: tuple(value) for key, value in options.items() if isinstance(value, list)}
    return group_type(**(options | lists))


def _is_address(parameter: inspect.Parameter) -> bool:
    notes = getattr(parameter.annotation, "__metadata__", ())
    return any(getattr(note, "metavar", None) == "ADDRESS" for note in notes)


def group(summary: str) -> typer.Typer:
    """Make the app of a command group (``poolctl models ...``)."""
    return new_app(PlainGroup, help=summary, no_args_is_help=True)


def single() -> typer.Typer:
    """Make the app of a top-level command (``poolctl upload``)."""
    return new_app()


SiteOption = Annotated[str, Option("The site. Default: your own.", "SITE")]
NewestArgument = Annotated[
    str, Argument("[SITE/]NAME[@VERSION]. Default: the newest one.", "ADDRESS")
]
VersionArgument = Annotated[str, Argument("[SITE/]NAME@VERSION.", "ADDRESS")]
FolderArgument = Annotated[Path, Argument("A folder; created if missing.", "FOLDER")]
ReportOption = Annotated[
    Path | None, Option("Write all findings to this JSON file.", name="--report")
]
ProcessesOption = Annotated[int, Option("Number of processes; 0: one for each core.", min=0)]
FormatOption = Annotated[
    str, Option("Format of the output. Default: by its suffix.", "NAME", name="--format")
]
DespiteWithdrawalOption = Annotated[
    bool, Option("Go on although something that goes into the result was withdrawn.")
]
DespiteFindingsOption = Annotated[
    bool, Option("Use data despite findings that must be mended; the result says so.")
]
YesOption = Annotated[bool, Option("Do not ask for confirmation.")]
DryRunOption = Annotated[bool, Option("Show what would be done, and do nothing.")]
ForceOption = Annotated[bool, Option("Replace an existing file.")]
LimitOption = Annotated[int, Option("Maximum number of lines.", "N", min=1, max=10_000)]
LabelOption = Annotated[
    Sequence[str], Option("A label, for example population=infant.", "KEY=VALUE")
]
