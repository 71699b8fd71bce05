"""The configuration of an agent: ``agent.toml``, read and checked before anything is done.

``example.toml`` is such a file with every key explained; ``poolctl agent init`` writes it.
"""

import math
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from aggregators.methods import METHODS
from pool_server.wire.data_use_rules import IntendedUse, Purpose
from pool_server.wire.names import LabelKey, LabelValue, Name
from site_agent.datasets.conversion import ReadingOptions
from site_agent.errors import AgentConfigError
from site_agent.rounds.contract import ContributionRules

Baseline = Literal["own", "published", "inputs"]
AgentKind = Literal["ert", "hog-svm"]

LOWER_IS_BETTER = frozenset(
    {
        "mean_error",
        "median_error",
        "failure_rate",
        "failure_rate_at_10",
        "eye_error",
        "ear_error",
        "closed_ear_error",
    }
)
METRICS: dict[AgentKind, tuple[str, ...]] = {
    "ert": (
        "mean_error", "median_error", "failure_rate", "failure_rate_at_10", "auc", "eye_error",
        "ear_error", "closed_ear_error", "ear_range",
    ),
    "hog-svm": ("f1", "recall", "precision", "average_precision"),
}  # fmt: skip
"""Metrics of each kind; the first one decides where the configuration names none."""

EXAMPLE_CONFIG = files(__package__).joinpath("example.toml").read_text(encoding="utf-8")

OWN = "own"
_SPAN = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|h|d)$")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$")


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """Return a path of the configuration, which may be relative to the folder of its file."""
    if path == Path():
        raise ValueError("expected a path")
    return Path(info.context or "", path.expanduser())


def _folder_there(path: Path) -> Path:
    if not path.is_dir():
        raise _absent(f"{str(path)!r}", "a folder that is there")
    return path


def _file_there(path: Path) -> Path:
    if not path.exists():
        raise _absent(f"{str(path)!r}, which is not there", "a file")
    return path


def _absent(value: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError(_ABSENT, "{words}", {"words": f"|{value}|{expected}"})


_ABSENT = "absent"
_AnyPath = Annotated[Path, Strict(False), AfterValidator(_absolute)]
_File = Annotated[_AnyPath, AfterValidator(_file_there)]
_Folder = Annotated[_AnyPath, AfterValidator(_folder_there)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _FacesTable(_Table):
    """A table that names annotated faces, with the facts missing from their files."""

    pts_origin: float = ReadingOptions.pts_origin
    box_margin: float = Field(default=ReadingOptions.box_margin, ge=-0.4, le=2.0)
    images: "Annotated[_Folder | None, BeforeValidator(lambda value: value or None)]" = None

    @property
    def reading(self) -> ReadingOptions:
        """Options for reading the faces."""
        return ReadingOptions(self.pts_origin, self.box_margin, self.images)


class MergeGoal(_FacesTable):
    """One merged model that the agent keeps good; a ``[[merge]]`` table."""

    name: Name
    kind: AgentKind
    validation: _File
    labels: list[str] = []
    metrics: list[str] = []
    sites: list[Name] = []
    text: str = ""
    merged_too: bool = False
    most: int = Field(default=50, ge=1, le=1000)
    purposes: list[Purpose] = []
    diseases: list[str] = []
    own_models: list[_File] = []
    method: str = ""
    options: dict[str, Any] = {}
    weight_by: str = ""
    weights: dict[str, float] = {}
    metric: str = ""
    margin: float | str = "1%"
    against: list[Baseline] = ["own", "published", "inputs"]
    normaliser: str | None = None
    parts: list[str] = []
    upload: bool = True
    upload_labels: dict[LabelKey, LabelValue] = {}
    description: str = ""

    @field_validator("margin")
    @classmethod
    def _known_margin(cls, value: float | str) -> float | str:
        margin_of(value)
        return value

    @field_validator("weights")
    @classmethod
    def _positive_weights(cls, value: dict[str, float]) -> dict[str, float]:
        for site, weight in value.items():
            if not weight > 0:
                raise ValueError(f"expected numbers above 0, for {site!r} too")
        return value

    @model_validator(mode="after")
    def _fitting(self) -> "MergeGoal":
        method = METHODS.get(self.method_name)
        if method is None or method.name not in _methods_of(self.kind):
            fitting = _methods_of(self.kind)
            raise ValueError(f"method|{self.method!r}|one of {', '.join(fitting)} for {self.kind}")
        if self.metric and self.metric not in METRICS[self.kind]:
            known = ", ".join(METRICS[self.kind])
            raise ValueError(f"metric|{self.metric!r}|one of {known} for {self.kind}")
        try:
            method.options_type.model_validate(self.options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(step) for step in first["loc"])
            known = ", ".join(method.options_type.model_fields) or "none"
            raise ValueError(
                f"options.{name}|{first['input']!r}|an option of {method.name} ({known}): "
                f"{first['msg']}"
            ) from error
        return self

    @property
    def use(self) -> IntendedUse | None:
        """The intended use of the merged model, as far as the configuration says."""
        if not self.purposes and not self.diseases:
            return None
        return IntendedUse(purposes=tuple(self.purposes), diseases=tuple(self.diseases))

    @property
    def method_name(self) -> str:
        """The method, or the usual one of the kind."""
        return self.method or {"ert": "wba-cascade", "hog-svm": "mwma"}[self.kind]

    @property
    def method_options(self) -> dict[str, Any]:
        """The options; the step that is good on photographs where nothing else is said."""
        usual = {"step": 1.1} if self.method_name == "wba-cascade" else {}
        return usual | self.options

    @property
    def metric_name(self) -> str:
        """The metric that has to become better."""
        return self.metric or METRICS[self.kind][0]

    @property
    def lower_is_better(self) -> bool:
        return self.metric_name in LOWER_IS_BETTER

    def is_better(self, value: float, than: float) -> bool:
        """Return whether a score is better than another by the margin."""
        amount, relative = margin_of(self.margin)
        needed = amount * abs(than) if relative else amount
        gain = than - value if self.lower_is_better else value - than
        return gain >= needed and gain > 0


class RoundsConfig(_FacesTable):
    """Rounds that the agent takes part in, with faces, gaze data or both; ``[rounds]``."""

    data: _File | None = None
    gaze: _File | None = None
    persons: list[str] = []
    started_by: list[Name] = Field(min_length=1)
    trust: list[Name] = []
    min_starts: int = Field(default=ContributionRules.min_starts, ge=1)
    min_faces: int = Field(default=ContributionRules.min_faces, ge=1)
    faces_per_leaf: float = Field(default=ContributionRules.faces_per_leaf, ge=0)
    secure_only: bool = False
    least_others: int = Field(default=ContributionRules.least_others, ge=1)
    max_hours: float = Field(default=ContributionRules.max_hours, gt=0)
    parts: list[str] = []
    seed: int = Field(default=0, ge=0)
    finish: bool = False

    @property
    def rules(self) -> ContributionRules:
        """Conditions on which the site contributes to a round."""
        return ContributionRules(
            trusted=frozenset(self.trust),
            min_starts=self.min_starts,
            min_faces=self.min_faces,
            faces_per_leaf=self.faces_per_leaf,
            secure_only=self.secure_only,
            least_others=self.least_others,
            max_hours=self.max_hours,
        )

    @model_validator(mode="after")
    def _with_data(self) -> "RoundsConfig":
        if self.data is None and self.gaze is None:
            raise ValueError("data|nothing|annotated faces, or gaze data in 'gaze'")
        return self


class AgentConfig(_Table):
    """A whole ``agent.toml``; paths in it are absolute here."""

    path: Path
    workspace: _AnyPath
    profile: str = ""
    interval: float | str = "15m"
    retry_after: float | str = "30s"
    threads: int = Field(default=0, ge=0, le=256)
    merge: list[MergeGoal] = []
    rounds: RoundsConfig | None = None

    @field_validator("interval", "retry_after")
    @classmethod
    def _known_span(cls, value: float | str) -> float | str:
        span_s(value)
        return value

    @property
    def interval_s(self) -> float:
        """Seconds between the beginnings of cycles."""
        return span_s(self.interval)

    @property
    def retry_after_s(self) -> float:
        """Seconds to wait after the pool did not answer for the first time."""
        return span_s(self.retry_after)


def span_s(value: float | str) -> float:
    """Return a length of time in seconds: a number of them, or ``"15m"``, ``"2h"``, ``"1d"``."""
    if isinstance(value, str):
        match = _SPAN.fullmatch(value.strip())
        seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
    else:
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ValueError('expected seconds, or a text such as "30s", "15m", "2h", "1d"')
    return seconds


def margin_of(value: float | str) -> tuple[float, bool]:
    """Return a margin and whether it is relative to the score to beat."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip())
        if match is None:
            raise ValueError('expected a number, or a percentage such as "1%"')
        return float(match[1]) / 100, True
    if not 0 <= value < math.inf:
        raise ValueError("expected a number from 0")
    return float(value), False


def read_config(path: Path | str) -> AgentConfig:
    """Read and check an agent's configuration."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AgentConfigError(path, "", str(error), "a file in the TOML format") from error
    except OSError as error:
        raise AgentConfigError(
            path, "", error.strerror or str(error), "a configuration; poolctl agent init makes one"
        ) from error
    try:
        config = AgentConfig.model_validate(
            {**content, "path": path.absolute()}, context=path.absolute().parent
        )
    except ValidationError as error:
        raise _config_error(path, error) from error
    return _require_usable(config)


def _require_usable(config: AgentConfig) -> AgentConfig:
    if not config.merge and config.rounds is None:
        raise AgentConfigError(config.path, "merge", "nothing", "[[merge]] or [rounds], or both")
    names = [goal.name for goal in config.merge]
    for number, goal in enumerate(config.merge):
        key = f"merge[{number}]"
        if names.index(goal.name) != number:
            raise AgentConfigError(
                config.path, f"{key}.name", f"{goal.name!r} again", "another name for each"
            )
    if config.workspace.exists() and not config.workspace.is_dir():
        raise AgentConfigError(
            config.path, "workspace", f"the file {config.workspace}", "a folder, made where absent"
        )
    return config


def _config_error(path: Path, error: ValidationError) -> AgentConfigError:
    # Syntax errors come before missing files.
    first = min(error.errors(include_url=False), key=lambda detail: detail["type"] == _ABSENT)
    key = _key_words(first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return AgentConfigError(path, key, "nothing", "a value; it has to be given")
    if first["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(first["loc"]))
        return AgentConfigError(path, key, "an unknown key", f"one of: {known}")
    if message.count("|") >= 2:  # a check that knows better which key is at fault
        inner, value, expected = message.split("|", 2)
        return AgentConfigError(path, ".".join(filter(None, (key, inner))), value, expected)
    expected = re.sub(r"^(Input should be|expected) ", "", message)
    expected = expected.replace("an instance of Path", "a path in quotation marks")
    return AgentConfigError(path, key, repr(first["input"]), expected)


def _key_words(steps: tuple[int | str, ...]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step not in {"float", "str", "int"}:  # members of a union, no keys
            path += f".{step}" if path else step
    return path


def _known_keys(steps: tuple[int | str, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {"merge": MergeGoal, "rounds": RoundsConfig}
    table = tables.get(str(steps[0]), AgentConfig) if len(steps) > 1 else AgentConfig
    return [name for name in table.model_fields if name != "path"]


def _methods_of(kind: AgentKind) -> list[str]:
    return [
        name
        for name, method in METHODS.items()
        if method.kind == kind and method.contribution is None and not method.personal
    ]
