"""The settings of an agent: ``agent.toml``, read and checked before anything is done.

The file has the grammar of all settings (`site_agent.settings`): `AgentSettings` at its top, and a
table ``[merge.NAME]`` of `MergeSettings` for each merged model. ``poolctl settings agent run``
prints one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from aggregators.errors import first_problem
from aggregators.methods import METHODS
from pool_server.wire.evaluations import SCORES
from pool_server.wire.names import NAME_PATTERN
from site_agent.errors import SettingsError
from site_agent.rounds.contract import ContributionRules
from site_agent.settings import Settings, naming, read_toml_table, settings_toml, with_values

METRICS: dict[str, tuple[str, ...]] = {
    "ert": (
        "mean_error", "median_error", "failure_rate", "failure_rate_at_10", "auc", "eye_error",
        "ear_error", "closed_ear_error", "ear_range",
    ),
    "hog-svm": ("f1", "recall", "precision", "average_precision"),
}  # fmt: skip
"""Metrics of each kind; the first one decides where the settings name none."""

_LEFT_OUT = ("rounds.rules.trusted", "rounds.rules.approved")
"""Rules that are no settings of an agent: ``poolctl rounds trust`` names the trusted sites."""


class MergeSettings(Settings):
    """A merged model that the agent keeps good, uploaded as YOUR-SITE/NAME."""

    own_models: tuple[str, ...] = ()
    """Model files of your own, which are always merged. Without any, those that your site has in
    the pool are merged."""
    validation: str = ""
    """Annotated faces of your own, on which all models are scored; they never leave this machine.
    'poolctl dataset convert' reads further formats."""
    labels: tuple[str, ...] = ()
    """Labels of the models of the pool to merge, as in 'poolctl models ls': all must hold. The
    result gets them, too. Models of the eyes, which suit blinks best, have parts=12."""
    sites: tuple[str, ...] = ()
    """Merge models of these sites only; of all if empty."""
    method: str = "wba-cascade"
    """wba-cascade or wba-final for landmark models, mwma for face detectors."""
    options: tuple[str, ...] = ()
    """Options of the method, such as step=1.1, which is usual for wba-cascade."""
    metric: str = ""
    """Score that must improve. Empty: mean_error of landmark models, f1 of detectors."""
    margin_pct: float = Field(default=1.0, ge=-100, le=100)
    """Percentage by which the result must beat the best of your own models, its inputs and the
    version in the pool. Negative: a result that is worse by less is good enough."""
    upload: bool = True
    """Upload the result; otherwise the best model is only kept in the workspace."""

    def __post_init__(self) -> None:
        fitting = [
            name
            for name, method in METHODS.items()
            if method.kind in METRICS and method.contribution is None and not method.personal
        ]
        if self.method not in fitting:
            raise self.refused("method", self.method, f"one of {', '.join(fitting)}")
        if self.metric and self.metric not in METRICS[self.kind]:
            raise self.refused("metric", self.metric, f"one of {', '.join(METRICS[self.kind])}")
        options_type = METHODS[self.method].options_type
        try:
            options_type.model_validate(self.method_options)
        except ValidationError as error:
            known = ", ".join(options_type.model_fields) or "none"
            expected = f"options of {self.method} ({known}): {first_problem(error)}"
            raise self.refused("options", ", ".join(self.options), expected) from error

    @property
    def kind(self) -> str:
        """The kind of the models: ``ert`` or ``hog-svm``."""
        return METHODS[self.method].kind

    @property
    def method_options(self) -> dict[str, Any]:
        """The options; by default with the step that suits photographs."""
        usual = {"step": 1.1} if self.method == "wba-cascade" else {}
        return usual | dict(map(_read_option, self.options))

    @property
    def metric_name(self) -> str:
        """The metric that must improve."""
        return self.metric or METRICS[self.kind][0]

    @property
    def lower_is_better(self) -> bool:
        return SCORES[self.metric_name].smaller_is_better

    def is_better(self, value: float, than: float) -> bool:
        """Return whether a score is better than another by the margin."""
        gain = than - value if self.lower_is_better else value - than
        return gain >= self.margin_pct / 100 * abs(than) and (gain > 0 or self.margin_pct < 0)


class RoundSettings(Settings):
    """Rounds started by sites that you trust ('poolctl rounds trust')."""

    data: tuple[str, ...] = ()
    """Your annotated faces, your gaze data, or both; only changes of models leave this machine.
    Empty: the agent contributes to no rounds."""
    persons: tuple[str, ...] = ()
    """Persons of the gaze data; all if empty."""
    finish: bool = False
    """Let the pool combine rounds to which all sites have contributed."""
    rules: ContributionRules = ContributionRules()


class AgentSettings(Settings):
    """The work of an agent."""

    workspace: str = "agent"
    """Folder of the agent's state, downloads and models; one agent at a time uses it."""
    interval_minutes: float = Field(default=15.0, gt=0)
    """Minutes from the beginning of one cycle to the next."""
    threads: int = Field(default=0, ge=0, le=256)
    """Processors to use; 0: all."""
    rounds: RoundSettings = RoundSettings()


@dataclass(frozen=True)
class AgentConfig:
    """A whole ``agent.toml``; relative paths in it start at its folder."""

    path: Path
    settings: AgentSettings
    goals: Mapping[str, MergeSettings]
    """By the name of the merged model."""

    @cached_property
    def workspace(self) -> Path:
        return self.path.parent / self.settings.workspace


def read_config(path: Path | str) -> AgentConfig:
    """Read and check the settings of an agent."""
    path = Path(path).absolute()
    table = read_toml_table(path)
    tables = table.pop("merge", {})
    with naming(f"{path}"):
        settings = with_values(AgentSettings(), table, _LEFT_OUT)
        rounds = replace(settings.rounds, data=_files(path, "rounds.data", settings.rounds.data))
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise SettingsError("merge: expected a table [merge.NAME] for each merged model")
        goals = {name: _read_goal(path, name, entries) for name, entries in tables.items()}
        config = AgentConfig(path, replace(settings, rounds=rounds), goals)
        if not goals and not rounds.data:
            raise SettingsError("nothing to do; expected a table [merge.NAME], or rounds.data")
        if config.workspace.exists() and not config.workspace.is_dir():
            raise SettingsError(f"workspace is the file {config.workspace}, expected a folder")
    return config


def _read_goal(path: Path, name: str, table: Mapping[str, Any]) -> MergeSettings:
    with naming(f"merge.{name}"):
        if not re.fullmatch(NAME_PATTERN, name):
            raise SettingsError("expected a name of lower-case letters, digits, '.', '_' and '-'")
        goal = with_values(MergeSettings(), table)
        [validation] = _files(path, "validation", [goal.validation])
        own_models = _files(path, "own_models", goal.own_models)
        return replace(goal, validation=validation, own_models=own_models)


def _files(config: Path, name: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of files, relative ones from the folder of the settings on."""
    paths = [config.parent / Path(file).expanduser() for file in files]
    for file, path in zip(files, paths, strict=True):
        if not file or not path.exists():
            raise SettingsError(f"{name} is {file!r}, expected a file that exists")
    return tuple(map(str, paths))


def example_toml() -> str:
    """Return an ``agent.toml`` with every setting explained."""
    goal = MergeSettings(
        own_models=("mine.dat",),
        validation="drawn/faces-test.xml",
        labels=("population=infant", "parts=12"),
    )
    settings = AgentSettings(rounds=RoundSettings(data=("drawn/faces-train.xml",)))
    return (
        "# The work of this site's agent. Try it with upload = false and data = []: then nothing\n"
        "# is sent. Paths are relative to the folder of this file.\n\n"
        f"{settings_toml(settings, _LEFT_OUT)}\n"
        "# A merged model that the agent keeps good, uploaded as YOUR-SITE/eyes-merged. There may\n"
        "# be several such tables, or none.\n[merge.eyes-merged]\n\n"
        f"{settings_toml(goal)}"
    )


def _read_option(text: str) -> tuple[str, Any]:
    """Return name and value of KEY=VALUE; the value is JSON where it can be."""
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
