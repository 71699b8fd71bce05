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
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from cli.frame.app import PlainCommand, PlainGroup, new_app
from cli.frame.output import Conventions, Invocation, Reply

CommandFunction = Callable[..., Reply | None]

_PANEL = "Every command"

_LETTERS = {
    "--config": "-c", "--follow": "-f", "--label": "-l", "--metric": "-m", "--name": "-n",
    "--output": "-o", "--quiet": "-q", "--yes": "-y",
}  # fmt: skip
"""The options with a letter, the same for all commands."""


def Option(  # noqa: N802
    text: str,
    metavar: str | None = None,
    *,
    name: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
    panel: str | None = None,
) -> Any:
    """Declare an option in an `Annotated` type: ``Annotated[int, Option("Seed.", "N", min=0)]``.

    It is named like its parameter unless `name` says otherwise; paths are ``FILE`` by default.
    """
    names = () if name is None else (name,)
    return typer.Option(*names, metavar=metavar, help=text, min=min, max=max, rich_help_panel=panel)


@dataclass(frozen=True)
class _ConventionOptions:
    """The options that every command has."""

    as_json: Annotated[
        bool, Option("One JSON object on standard output.", name="--json", panel=_PANEL)
    ] = False
    quiet: Annotated[bool, Option("Print identifiers or paths only.", panel=_PANEL)] = False
    no_progress: Annotated[bool, Option("No progress bars.", panel=_PANEL)] = False
    profile: Annotated[
        str, Option("The login to use (see 'poolctl auth switch').", "NAME", panel=_PANEL)
    ] = ""
    debug: Annotated[bool, Option("Show the traceback of errors.", panel=_PANEL)] = False

    def conventions(self) -> Conventions:
        """Return them as an `Invocation` needs them."""
        return Conventions(self.as_json, self.quiet, not self.no_progress, self.profile, self.debug)


def Argument(text: str, metavar: str | None = None) -> Any:  # noqa: N802
    """Declare an argument in an `Annotated` type."""
    return typer.Argument(metavar=metavar, help=text)


def command(
    app: typer.Typer, name: str, *examples: str, parameters: Sequence[Any] = ()
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a command with the conventions of all commands.

    The further options in `parameters` reach the function as ``**settings``.
    """

    def register(function: CommandFunction) -> CommandFunction:
        declared = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ][1:]
        groups = {
            parameter.name: parameter.annotation
            for parameter in declared
            if is_dataclass(parameter.annotation)
        }
        options = [
            option for parameter in [*declared, *parameters] for option in _options_of(parameter)
        ]
        addresses = [parameter.name for parameter in options if _metavar(parameter) == "ADDRESS"]
        conventions = _options_of_group(_ConventionOptions)

        def run(**arguments: Any) -> None:
            invocation = Invocation(_take(_ConventionOptions, arguments).conventions())
            for key in addresses:
                if isinstance(value := arguments[key], str):
                    arguments[key] = value and invocation.address(value)
                elif value is not None:
                    arguments[key] = [invocation.address(word) for word in value]
            # All are taken before any is put back: a group may have the name of an option.
            group_values = {key: _take(group_type, arguments) for key, group_type in groups.items()}
            arguments |= group_values
            reply = function(invocation, **arguments)
            if reply is not None:
                invocation.print_reply(reply)

        run.__doc__ = inspect.getdoc(function)
        run.__name__ = function.__name__
        run.__annotations__ = {}
        run.__signature__ = inspect.Signature([*options, *conventions])  # type: ignore[attr-defined]
        lines = "\n".join(f"  poolctl {example}" for example in examples)
        # \b keeps the lines as they are.
        app.command(name, cls=PlainCommand, epilog=f"\b\nExamples:\n{lines}")(run)
        return function

    return register


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of one parameter of a command: many where it is a group of them."""
    if is_dataclass(parameter.annotation):
        return _options_of_group(parameter.annotation)
    return [_for_typer(parameter.name, parameter.annotation, parameter.default)]


def _options_of_group(group_type: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group_type, include_extras=True)
    return [
        _for_typer(
            field.name,
            hints[field.name],
            inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group_type)
    ]


def _for_typer(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer reads it, which knows lists but no other sequences."""
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if get_origin(kind) is Sequence:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
        default = [] if default == () else default
    # typer gives every switch a second name --no-NAME; only what is on by default needs one.
    if notes and not (kind is bool and default is True):
        notes = [_named(name, note) for note in notes]
    if kind in (Path, Path | None):
        notes = [_with(note, metavar=note.metavar or "FILE") for note in notes]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, *notes] if notes else kind,
        default=default,
    )


def _named(name: str, note: Any) -> Any:
    """Give an option without a name that of its parameter, and the letter that goes with it."""
    if not isinstance(note, OptionInfo) or note.param_decls or note.default is not ...:
        return note
    flag = f"--{name.rstrip('_').replace('_', '-')}"
    return _with(note, param_decls=(flag, _LETTERS[flag]) if flag in _LETTERS else (flag,))


def _with(note: Any, **changes: Any) -> Any:
    changed = copy(note)
    vars(changed).update(changes)
    return changed


def _take(group_type: Any, arguments: dict[str, Any]) -> Any:
    """Take the options of a group out of the arguments, and return the group."""
    values = {field.name: arguments.pop(field.name) for field in fields(group_type)}
    # Tuples, as the defaults are: groups can be compared.
    return group_type(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def _metavar(parameter: inspect.Parameter) -> str | None:
    notes = getattr(parameter.annotation, "__metadata__", ())
    return next((note.metavar for note in notes if hasattr(note, "metavar")), None)


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
UndoOption = Annotated[bool, Option("Undo it: let in again what was kept out.")]
DryRunOption = Annotated[bool, Option("Show what would be done, and do nothing.")]
ForceOption = Annotated[bool, Option("Replace an existing file.")]
LimitOption = Annotated[int, Option("Maximum number of lines.", "N", min=1, max=10_000)]
LongOption = Annotated[bool, Option("Show more columns; lines may be longer than 100 characters.")]
LabelOption = Annotated[
    Sequence[str], Option("A label, for example population=infant.", "KEY=VALUE")
]
OutputFileOption = Annotated[Path | None, Option("Where to write the result.")]
