"""Doing one step of a study into a folder of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aggregators.methods import merge
from aggregators.methods.refitting import contribute, write_contribution
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.refinement import CROP_MARGIN, load_site, read_base
from site_agent.studies.parts import StudyPart, read_union
from site_agent.studies.steps import TEST_PART, Contribute, Merge, Score, Step, Train, result_name
from site_agent.studies.table import Scores, write_scores
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training.hog_svm import train_hog_svm
from site_agent.wording import count_words
from site_agent.work import Progress

_READING = 0.1
_CHECKED = {"training_scores": False, "despite_findings": True}
"""Options of trainings: `describe_parts` has checked the data of the study."""


@dataclass(frozen=True)
class StepJob:
    """A step with all that it takes."""

    step: Step
    folder: Path
    data: Mapping[str, StudyPart]
    inputs: Mapping[str, Path]
    """Results of the steps that it takes, by key."""
    threads: int
    """That it may use; the result does not depend on it."""


def run_job(job: StepJob, progress: Progress) -> list[str]:
    """Do a step.

    Returns
    -------
    list of str
        Warnings.
    """
    job.folder.mkdir(parents=True)
    output = job.folder / result_name(job.step)
    if isinstance(job.step, Train):
        return list(_train(job, job.step, output, progress))
    if isinstance(job.step, Merge):
        return list(_merge(job, job.step, output, progress))
    if isinstance(job.step, Contribute):
        return list(_contribute(job, job.step, output, progress))
    return list(_score(job, job.step, output, progress))


def _train(job: StepJob, step: Train, output: Path, progress: Progress) -> tuple[str, ...]:
    dataset = read_union(job.data[part] for part in step.parts)
    settings = step.settings
    if isinstance(settings, ErtSettings):
        result = train_ert(dataset, output, settings, progress, **_CHECKED)
    else:
        settings = replace(settings, threads=job.threads)
        result = train_hog_svm(dataset, output, settings, progress, **_CHECKED)
    return result.record.warnings


def _merge(job: StepJob, step: Merge, output: Path, progress: Progress) -> tuple[str, ...]:
    merged = merge(
        step.method,
        [job.inputs[key] for key in step.inputs],
        weights=step.weights or None,
        options=dict(step.options),
        output=output,
        progress=progress,
    )
    return merged.warnings


def _contribute(
    job: StepJob, step: Contribute, output: Path, progress: Progress
) -> tuple[str, ...]:

    base = read_base(job.inputs[step.base])
    site = load_site(
        job.data[step.part].read(),
        base.part_count,
        parts=step.landmarks,
        margin=CROP_MARGIN + step.settings.jitter,
        progress=lambda share, text: progress((share or 0.0) * _READING, text),
    )
    contribution = contribute(
        base,
        site.faces,
        step.settings,
        threads=job.threads,
        progress=lambda share, text: progress(_READING + share * (1 - _READING), text),
    )
    write_contribution(contribution, output)
    if not site.left_out:
        return ()
    line, text = site.left_out[0]
    return (
        f"{count_words(len(site.left_out), 'face')} left out of refinement (line {line}: {text})",
    )


def _score(job: StepJob, step: Score, output: Path, progress: Progress) -> tuple[str, ...]:
    write_scores(_measure(job, step, progress), output)
    return ()


def _measure(job: StepJob, step: Score, progress: Progress) -> Scores:
    model, test = job.inputs[step.model], job.data[TEST_PART].read()
    if not step.landmarks:
        # More than one worker would be processes, of which this is one already.
        return evaluate_model(
            model, test, step.settings, workers=1, despite_findings=True, progress=progress
        )
    # A merged model has no training record that would say which landmarks it places.
    return evaluate_landmarks(
        model,
        test,
        normaliser=step.settings.normaliser,
        parts=step.landmarks,
        resamples=step.settings.resamples,
        seed=step.settings.seed,
        workers=job.threads,
        progress=progress,
    )
