"""Small studies of eyeblink conditioning as a laboratory would hand them over: a table, files."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import statsmodels.api as models

from site_agent.datasets.synthetic.conditioning import (
    ConditioningDesign,
    SyntheticConditioning,
    draw_conditioning_session,
    write_drawn_trials,
)
from site_agent.datasets.synthetic.settings import TrialsDrawing
from site_agent.eyeblink.records import Float64, Int64
from site_agent.eyeblink.study.joint_model import LabTrials
from site_agent.eyeblink.study.study_trials import StudyTrials
from tests.site_agent.eyeblink.drawn_traces import write_trace


def write_session(
    folder: Path, name: str, seed: int, probability: float = 0.6, *, n_trials: int = 6
) -> SyntheticConditioning:
    """Write ``NAME.csv`` and ``NAME_trials.csv``."""
    design = replace(ConditioningDesign(n_trials=n_trials), cr_probability=(probability,) * 2)
    drawn = draw_conditioning_session(seed, 60, design)
    folder.mkdir(parents=True, exist_ok=True)
    write_trace(folder / f"{name}.csv", drawn.timestamps_s, drawn.ear)
    onsets = [
        [trial.trial, str(trial.trial_type)]
        + ["" if math.isnan(at) else repr(at) for at in (trial.cs_onset_s, trial.us_onset_s)]
        for trial in drawn.trials
    ]
    tones = [f"{4 + number % 2}" for number in range(len(onsets))]
    table = ["trial,trial_type,cs_onset_s,us_onset_s,tone_khz"]
    table += [",".join([*row, tone]) for row, tone in zip(onsets, tones, strict=True)]
    (folder / f"{name}_trials.csv").write_text("\n".join(table) + "\n")
    return drawn


def write_study_files(folder: Path, participants: int, sessions: int = 2) -> Path:
    """Write sessions of learning participants, and the table of them all."""
    lines = ["session,trace,trials,participant,session_number,group,phase"]
    for person in range(participants):
        for number in range(1, sessions + 1):
            name = f"p{person}s{number}"
            write_session(folder, name, 100 * person + number, 0.1 + 0.7 * (number - 1))
            lines.append(f"{name},{name}.csv,{name}_trials.csv,p{person},{number},,phase {number}")
    table = folder / "sessions.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


def write_long_trace(path: Path, frames: int) -> None:
    """Write a trace that takes a worker some seconds."""
    values = [0.3 - 0.2 * math.exp(-(((frame % 300) - 150) ** 2) / 20.0) for frame in range(300)]
    path.write_text("\n".join(f"{values[frame % 300]:.5f}" for frame in range(frames)) + "\n")


def draw_study_trials(seed: int, animals: int = 6, groups: Sequence[str] = ("",)) -> StudyTrials:
    """Return the trials of learning animals, which `write_drawn_trials` draws."""
    drawing = TrialsDrawing(seed=seed, animals=animals, groups=tuple(groups))
    with TemporaryDirectory() as folder:
        return StudyTrials.read(write_drawn_trials(Path(folder) / "trials.csv", drawing).path)


def pool_trials(labs: Sequence[LabTrials]) -> tuple[Float64, Float64, Float64, Int64, Float64]:
    """Return hits, trials, design, animals and the animals' columns of all labs, in one place.

    The design ends with an intercept for each lab.
    """
    member = np.repeat(np.arange(len(labs)), [len(lab.of) for lab in labs])
    shared = np.concatenate([lab.design for lab in labs])
    intercepts = (member[:, None] == np.arange(len(labs))) * 1.0
    animal = np.concatenate([1000 * place + lab.animal for place, lab in enumerate(labs)])
    hits, of = (np.concatenate([getattr(lab, name) for lab in labs]) for name in ("hits", "of"))
    varying = np.column_stack([np.ones(len(of)), shared[:, 0]])
    return hits, of, np.column_stack([shared, intercepts]), animal, varying


def fit_pooled_logistic(labs: Sequence[LabTrials]) -> tuple[Float64, Float64]:
    """Return coefficients and errors of statsmodels' logistic GEE of all trials in one place."""
    hits, of, design, animal, _ = pool_trials(labs)
    row = np.repeat(np.arange(len(of)), of.astype(np.int64))
    place = np.concatenate([np.arange(count) for count in of])
    pooled = models.GEE(
        (place < hits[row]) * 1.0,
        design[row],
        groups=animal[row],
        family=models.families.Binomial(),
        cov_struct=models.cov_struct.Independence(),
    ).fit(ctol=1e-12, maxiter=100)
    return pooled.params, pooled.bse
