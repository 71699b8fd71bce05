"""The study of personalised rounds: eight methods on clips, and the same on eyes.

Each person is a site. In a *world* of drawn persons the heterogeneity says how much their choices
of things to look at differ: 0 for equal persons, 1 for unrelated ones; ``eyes`` has gaze networks
of drawn persons in place of clips. Every method is given the learning rate that is best
for it on validation clips of other persons and another start, of equally many candidates, and is
tested on clips (or sessions) that nobody trained with. Each seed draws other persons, so that an
interval over persons and seeds covers both. The sweeps change one option of FedCPF at a time.
In drawn worlds all methods begin with a network that clips of other persons have trained, so that
the rounds show the gain from knowing the person, not how long a network learns to see.

Its folder and its runs are those of `site_agent.studies.runs`.

Source: the FedCPF paper, tables of methods and curves over rho and acc.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from site_agent.datasets.egocentric import ClipSamples, EgocentricDataset
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.studies.egocentric import (
    DATA,
    EYES,
    METHODS,
    EgocentricStudySettings,
    Run,
    choose_rates,
    first_rates,
    one_run,
    plan_runs,
    plan_tuning,
    worlds_of,
)
from site_agent.studies.egocentric.report import write_report
from site_agent.studies.runs import Conduct, StudyResults, open_study
from site_agent.training.saliency import clip_shape
from site_agent.work import Progress, part_of

SCHEMA = "poolctl-egocentric-study/2"
_READING = 0.02


def conduct_egocentric_study(
    folder: Path,
    dataset: EgocentricDataset | None,
    settings: EgocentricStudySettings,
    conduct: Conduct,
) -> StudyResults:
    """Do all runs of a study, and write its tables and pictures.

    `folder`: Made where absent. A study that was interrupted goes on in it. `dataset`: None: worlds
    are drawn.
    """
    if unknown := [name for name in settings.methods if name not in METHODS]:
        raise InvalidInputError(f"method {unknown[0]}: expected some of {', '.join(METHODS)}")
    worlds = worlds_of(settings, dataset)
    with open_study(folder, SCHEMA, conduct) as study:
        study.describe(settings, {"data": None if dataset is None else dataset.digest})
        data = _Data(study.hidden, dataset, settings)
        tuning = plan_tuning(worlds, settings)
        total = len(tuning) + len(plan_runs(worlds, settings, first_rates(settings)))

        def do(runs: Sequence[Run], progress: Progress) -> StudyResults:
            def payload(run: Run) -> one_run.RunJob:
                def drawing(_share: float | None, text: str) -> None:
                    progress(None, f"drawing {run.world}: {text}")

                first = data.first(run, progress)
                return one_run.RunJob(run, data.file(run, drawing), first, settings)

            by_key = {run.key: run for run in runs}
            return study.do(
                by_key,
                data.facts,
                one_run.do_run,
                payload,
                cost=lambda run: 0.5 if run.world == EYES else 1.0,
                progress=progress,
            )

        tuned_by = len(tuning) / total
        first = do(tuning, part_of(conduct.progress, _READING, tuned_by))
        rates = first_rates(settings) | choose_rates(tuning, first.results)
        runs = plan_runs(worlds, settings, rates)
        tuned = do(runs, part_of(conduct.progress, tuned_by, 1))
        results = {**first.results, **tuned.results}
        files, findings = write_report(folder, runs, results, list(conduct.repeat))
    return replace(
        tuned,
        results=results,
        failed={**first.failed, **tuned.failed},
        kept=first.kept + tuned.kept,
        files=tuple(files),
        findings=tuple(findings),
    )


class _Data:
    """The samples of the worlds: drawn or read once, in a file each for the workers."""

    def __init__(
        self, folder: Path, dataset: EgocentricDataset | None, settings: EgocentricStudySettings
    ) -> None:
        self._folder, self._dataset, self.settings = folder, dataset, settings

    def file(self, run: Run, progress: Progress) -> Path:
        seed = 0 if run.world == DATA else run.seed
        path = self._folder / f"{run.world}-seed{seed}-{self._size(run.world)}.npz"
        if not path.is_file():
            if self._dataset is not None:
                samples: ClipSamples | GazeSamples = self._dataset.read(
                    shape=clip_shape(self.settings.architecture), progress=progress
                )
            else:
                samples = one_run.draw_world(run.world, seed, self.settings, progress)
            one_run.write_samples(samples, path)
        return path

    def _size(self, world: str) -> str:
        names = ("eye_people", "eye_frames") if world == EYES else ("people", "videos", "seconds")
        return "x".join(str(getattr(self.settings, name)) for name in names)

    def first(self, run: Run, progress: Progress) -> Path | None:
        """Return the network with which all methods begin; None where they begin with a new one."""
        settings = self.settings
        if run.world in (DATA, EYES) or not settings.first_people:
            return None
        parts = (
            settings.architecture,
            settings.first_people,
            settings.videos,
            settings.first_epochs,
        )
        path = self._folder / f"first-{'-'.join(map(str, parts))}.safetensors"
        if not path.is_file():
            one_run.train_first(settings, path, progress)
        return path

    def facts(self, run: Run) -> dict[str, Any]:
        """Return the facts besides the run on which its result depends."""
        settings = self.settings
        names = ["people", "videos", "seconds", "held_out", "rounds", "epochs", "architecture"]
        names += ["first_people", "first_epochs"]
        if run.world == EYES:
            names = ["eye_people", "eye_frames", "eye_rounds"]
        data = "" if self._dataset is None else self._dataset.digest
        return {"data": data, **{n: getattr(settings, n) for n in names}}
