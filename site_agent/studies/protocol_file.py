"""The protocol of a study: a TOML file with settings, factors, steps, tables, verdicts and figures.

The shipped ones lie in ``protocols/``; `site_agent/studies/README.md` explains each entry. SQL
reads the settings as ``:name`` (several values as a JSON array).
"""

import json
import sqlite3
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings, with_values

SHIPPED = Path(__file__).parent / "protocols"
Values = Mapping[str, Any]
_LIMITS = ("ge", "gt", "le", "lt")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepPart(_Part):
    """The runs of one function or command, one for each combination of the factors."""

    name: str = Field(pattern="^[a-z][a-z0-9_]*$")
    """Of the table of its results in SQL, too."""
    do: str = ""
    """The function, as ``module:function``; or `command`."""
    command: str = ""
    """Words of a command; ``{factor}``, ``{setting}``, ``{folder}`` and ``{data}`` are replaced."""
    factors: dict[str, Any] = {}
    """Values by name: a list, or the name of a setting or of a list of the data; or a table with
    ``of`` (such a name) and ``count`` (only the first; 0: all), or ``start`` and ``count``."""
    where: str = ""
    """SQL condition on factors and settings."""
    needs: tuple[str, ...] = ()
    """Steps with results that it takes: of the runs with equal values of common factors."""
    ignores: tuple[str, ...] = ()
    """Settings on which the results do not depend; those of its factors are not listed."""
    measures: tuple[str, ...] = ()
    """Columns of its results, besides the factors."""
    place: str = "files"
    """Folder, within that of the study, for the files that it makes."""
    cost: float = Field(default=1.0, gt=0)
    """Duration relative to other steps."""


class TablePart(_Part):
    """A table of results."""

    name: str
    sql: str
    """Its rows; later SQL reads it by its name."""
    title: str = ""
    formats: dict[str, str] = {}
    """Format of numbers, such as ``.2f``: names of columns with it, or ``*`` for all others."""
    only: Literal["", "csv", "markdown", "sql"] = ""
    """Restrict the table to this output."""
    skip_empty: bool = False
    """Leave out columns without any value."""


class VerdictPart(_Part):
    """Sentences about results; those of the first verdict come first."""

    sql: str
    """A row for each sentence; `bound` and `text` use its columns."""
    text: str
    """``{column:.2f}`` are replaced, ``{verdict}`` by one of `outcomes`, the first if the bound
    holds."""
    bound: str = ""
    """SQL condition on a row."""
    outcomes: tuple[str, str] = ("holds", "does not hold")


class PanelPart(_Part):
    """A plot of rows with x, y, and optionally low, high (ends of an interval) and series.

    Of a matrix: with x, y and value.
    """

    sql: str
    kind: Literal["lines", "bars", "matrix"] = "lines"
    title: str = ""
    x: str = ""
    y: str = ""
    log: bool = False
    lowest: float | None = None


class FigurePart(_Part):
    """A picture of panels side by side."""

    name: str
    panels: tuple[PanelPart, ...]


class _Content(_Part):
    title: str
    summary: str = ""
    notes: str = ""
    data: str = ""
    plan: str = ""
    check: str = ""
    workers: str = ""
    settings: dict[str, Any] = {}
    values: dict[str, Any] = {}
    quick: dict[str, Any] = {}
    labels: dict[str, str] = {}
    facts: dict[str, tuple[str, ...]] = {}
    steps: tuple[StepPart, ...] = ()
    tables: tuple[TablePart, ...] = ()
    verdicts: tuple[VerdictPart, ...] = ()
    figures: tuple[FigurePart, ...] = ()


@dataclass(frozen=True)
class Step:
    """One run of a study."""

    key: str
    """The name of its record, without the ending."""
    name: str
    """Of the step in the protocol."""
    do: str
    factors: Values
    needs: tuple[str, ...] = ()
    """Keys of the runs with results that it takes; they come before it."""
    ignores: frozenset[str] = frozenset()
    """Settings on which the result does not depend."""
    place: str = "files"
    cost: float = 1.0
    options: Values = field(default_factory=dict)
    """Further arguments of its function."""
    uses: tuple[str, ...] | None = None
    """Parts of the data on which the result depends; None: all."""


@dataclass(frozen=True)
class StepJob:
    """A run with all that it takes: the argument of its function."""

    step: Step
    settings: SimpleNamespace
    data: Path
    """The folder with the files that `prepare` of the data wrote."""
    folder: Path
    """For files; they are moved to `Step.place`."""
    study: Path
    inputs: Mapping[str, Any]
    """Results of the runs that it needs, by key."""
    threads: int = 1
    """That it may use; the result does not depend on it."""

    @property
    def factors(self) -> SimpleNamespace:
        return SimpleNamespace(**self.step.factors)


@dataclass(frozen=True)
class Protocol:
    """A protocol as it was read."""

    file: Path
    text: str
    content: _Content

    @property
    def name(self) -> str:
        return self.file.stem

    @cached_property
    def settings(self) -> Settings:
        """The settings without ``--quick``."""
        kind = _settings_class("Settings", self.content.settings)
        settings: Settings = with_values(kind(), self.content.values)
        return settings

    @property
    def source(self) -> str:
        """The words that name it again: a shipped protocol, or a file."""
        return self.name if self.file.parent == SHIPPED else str(self.file.absolute())

    @property
    def quick(self) -> Settings:
        return with_values(self.settings, self.content.quick)

    @property
    def data(self) -> Any:
        """The module that opens, lists, draws and prepares the data; None without data."""
        return _import(self.content.data) if self.content.data else None

    def steps(self, dataset: Any, settings: Any) -> list[Step]:
        """Return all runs of a study, each after those that it needs; nothing is written.

        Raises `InvalidInputError`: a function of the protocol does not exist, or settings are
        refused.
        """
        for part in self.content.steps:
            if not (part.command or self.content.plan):
                load(part.do)
        names = self.data.list_names(dataset, settings) if self.data else {}
        if self.content.check:
            load(self.content.check)(settings, names)
        steps = [step for part in self.content.steps for step in _runs(part, names, settings)]
        if self.content.plan:
            return [*load(self.content.plan)(dataset, settings)]
        return [_with_needs(step, self.content.steps, steps) for step in steps]


def shipped() -> list[str]:
    """Return the names of the shipped protocols."""
    return sorted(path.stem for path in SHIPPED.glob("[!_]*.toml"))


def read_protocol(name: str) -> Protocol:
    """Read a shipped protocol by its name, or a protocol file.

    Raises `InvalidInputError`: there is none, or it is no protocol.
    """
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    if not path.is_file():
        raise InvalidInputError(
            f"{name}: no such study; expected {', '.join(shipped())}, or a file NAME.toml"
        )
    try:
        text = path.read_text(encoding="utf-8")
        content = _read_whole(tomllib.loads(text))
        return Protocol(path, text, _Content.model_validate(content))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InvalidInputError(f"{path}: {place}: {problem['msg']}") from None
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: no protocol ({error})") from error


def _read_whole(content: dict[str, Any]) -> dict[str, Any]:
    """Complete a protocol by the one that it extends; its own entries take precedence.

    Its `words` replace ``${name}`` in the text of the other.
    """
    if base := content.pop("extends", ""):
        text = Template((SHIPPED / f"{base}.toml").read_text(encoding="utf-8"))
        return tomllib.loads(text.safe_substitute(content.pop("words", {}))) | content
    return content


def load(name: str) -> Any:
    """Return the function ``module:function``."""
    module, _, function = name.partition(":")
    value = getattr(_import(module), function or "?", None)
    if value is None:
        raise InvalidInputError(f"{name}: no such function; expected module:function")
    return value


def _import(name: str) -> Any:
    try:
        return import_module(name or "?")
    except ModuleNotFoundError as error:
        # The command line tells which extra has a library that is missing.
        if not f"{name}.".startswith(f"{error.name}.") and error.name != "?":
            raise
        raise InvalidInputError(f"{name or 'no name'}: no such module") from error


def namespace(settings: Any) -> SimpleNamespace:
    """Return settings as plain values that can be pickled."""
    return SimpleNamespace(
        **{
            name: namespace(value) if type(value).__module__ == __name__ else value
            for name, value in vars(settings).items()
            if not name.startswith("_")
        }
    )


def parameters(settings: Any) -> dict[str, Any]:
    """Return settings by the last parts of their names, as SQL takes them."""
    values: dict[str, Any] = {}
    for name, value in vars(settings).items():
        if is_dataclass(value) or isinstance(value, SimpleNamespace):
            values |= parameters(value)
        elif not name.startswith("_"):
            values[name] = json.dumps(value) if isinstance(value, tuple) else value
    return values


def _settings_class(name: str, table: Values) -> Any:
    """Make a class of settings of a table: values, descriptions of values, groups."""
    fields: dict[str, Any] = {"__module__": __name__, "__annotations__": {}, "__doc__": ""}
    for key, entry in table.items():
        if key == "about":
            fields["__doc__"] = entry
        elif isinstance(entry, dict) and "of" in entry:
            kind = load(entry["of"])
            fields["__annotations__"][key], fields[key] = kind, Field(default_factory=kind)
        elif isinstance(entry, dict) and "value" not in entry:
            kind = _settings_class(key.capitalize(), entry)
            fields["__annotations__"][key], fields[key] = kind, Field(default_factory=kind)
        else:
            described = entry if isinstance(entry, dict) else {"value": entry}
            fields["__annotations__"][key], fields[key] = _setting(key, described)
    new: Any = type
    return new(name, (Settings,), fields, error=InvalidInputError, from_source=False)


def _setting(name: str, entry: Values) -> tuple[Any, Any]:
    """Return the type and the field of a setting."""
    if unknown := set(entry) - {"value", "text", "choices", *_LIMITS}:
        raise InvalidInputError(f"setting {name}: unknown {', '.join(sorted(unknown))}")
    value, limits = entry["value"], {key: entry[key] for key in _LIMITS if key in entry}
    items = value if isinstance(value, list) else [value]
    kinds = {type(item) for item in items}
    kind: Any = float if kinds == {int, float} else (kinds.pop() if len(kinds) == 1 else str)
    if "choices" in entry:
        kind = Literal[tuple(entry["choices"])]
    text = entry.get("text", "")
    if isinstance(value, list):
        element: Any = Annotated[kind, Field(**limits)] if limits else kind
        default: Any = tuple(float(item) if kind is float else item for item in value)
        return tuple[element, ...], Field(default=default, description=text)
    return kind, Field(default=value, description=text, **limits)


def _runs(part: StepPart, names: Mapping[str, Sequence[str]], settings: Any) -> Iterator[Step]:
    known = {**parameters(settings), **names}
    columns = {factor: _values_of(spec, names, settings) for factor, spec in part.factors.items()}
    sources = {
        str(source)
        for spec in part.factors.values()
        for source in (spec.values() if isinstance(spec, dict) else [spec])
        if not isinstance(source, list) and str(source) in known
    }
    do, options = part.do, dict[str, Any]()
    if part.command:
        do, options = (
            "site_agent.studies.commands:run_command",
            {"command": part.command, "measures": part.measures},
        )
        # Its words show all that it takes.
        sources |= {name for name in parameters(settings) if f"{{{name}" not in part.command}
    for combination in product(*columns.values()):
        factors = dict(zip(columns, combination, strict=True))
        if part.where and not _holds(part.where, {**parameters(settings), **factors}):
            continue
        texts = [
            value if isinstance(value, str) else f"{name}{value:g}"
            for name, value in factors.items()
        ]
        key = "_".join([part.name, *texts]).replace(" ", "-").replace("/", "-").replace(":", "-")
        yield Step(
            key, part.name, do, factors, part.needs, frozenset({*part.ignores, *sources}),
            part.place, part.cost, options,
        )  # fmt: skip


def _values_of(spec: Any, names: Mapping[str, Sequence[str]], settings: Any) -> Sequence[Any]:
    """Return the values of a factor."""

    def number(value: Any) -> int:
        return int(_look_up(value, names, settings)) if isinstance(value, str) else int(value)

    if isinstance(spec, list):
        return spec
    if isinstance(spec, dict):
        count = number(spec["count"]) if "count" in spec else 0
        if "of" in spec:
            values = _values_of(spec["of"], names, settings)
            return values[:count] if count else values
        start = number(spec.get("start", 0))
        return range(start, start + count)
    values = _look_up(spec, names, settings) if isinstance(spec, str) else spec
    return range(values) if isinstance(values, int) else cast("Sequence[Any]", values)


def _look_up(name: str, names: Mapping[str, Sequence[str]], settings: Any) -> Any:
    if name in names:
        return names[name]
    value = settings
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise InvalidInputError(f"factor {name!r}: no setting, and nothing that the data list")
    return value


def _holds(condition: str, values: Values) -> bool:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            (holds,) = database.execute(f"SELECT ({condition})", values).fetchone()
        except sqlite3.Error as error:
            raise InvalidInputError(f"where = {condition!r}: {error}") from error
    return bool(holds)


def _with_needs(step: Step, parts: Sequence[StepPart], steps: Sequence[Step]) -> Step:
    if not step.needs:
        return step
    if unknown := set(step.needs) - {part.name for part in parts}:
        raise InvalidInputError(f"step {step.name} needs {unknown.pop()!r}, which is no step")
    keys = tuple(
        other.key
        for other in steps
        if other.name in step.needs
        and all(other.factors[name] == step.factors[name]
                for name in step.factors.keys() & other.factors.keys())
    )  # fmt: skip
    return Step(**{**vars(step), "needs": keys})
