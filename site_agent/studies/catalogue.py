"""The studies of networks by name: the runs that each would do, and how it is held."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_agent.studies import egocentric
from site_agent.studies.egocentric.conducting import conduct_egocentric_study
from site_agent.studies.eyes import conduct_study
from site_agent.studies.kinds import GAZE, GAZE_TUNING
from site_agent.studies.privacy.conducting import conduct_privacy_study
from site_agent.studies.runs import Conduct, StudyResults

_KINDS = {"gaze": GAZE, "gaze-paper": GAZE, "gaze-tuning": GAZE_TUNING}


@dataclass(frozen=True)
class StudyPlan:
    """The runs that a study would do."""

    summary: str
    runs: Sequence[Any] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def plan_study(name: str, dataset: Any, settings: Any) -> StudyPlan:
    """Return the runs of a study; nothing is written. Without a data set, persons are drawn."""
    if name == "privacy":
        return StudyPlan(
            f"would hold {settings.rounds} rounds of {settings.victims} victims with each of "
            f"{settings.seeds} seeds, and attack 4 leaks and {len(settings.sweep)} sums"
        )
    if name == "egocentric":
        worlds = egocentric.worlds_of(settings, dataset)
        runs = egocentric.plan_tuning(worlds, settings)
        return StudyPlan(
            f"would choose rates by {len(runs)} runs, and compare in {', '.join(worlds)}",
            runs,
            ("world", "method", "learning rate"),
            [[run.world, run.method, f"{run.rate:g}"] for run in runs],
        )
    kind = _KINDS[name]
    planned = kind.runs(dataset, settings)
    rows = [[_cell(getattr(run, column)) for column in kind.columns] for run in planned]
    return StudyPlan(f"would do {len(planned)} runs", planned, kind.columns, rows)


def hold_study(
    name: str, folder: Path, dataset: Any, settings: Any, conduct: Conduct
) -> StudyResults:
    """Do all runs of a study that are missing, and write its tables and pictures."""
    if name == "privacy":
        return conduct_privacy_study(folder, dataset, settings, conduct)
    if name == "egocentric":
        return conduct_egocentric_study(folder, dataset, settings, conduct)
    return conduct_study(_KINDS[name], folder, dataset, settings, conduct)


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
