"""Conditioning sessions with known responses, at any frame rate."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.synthetic.settings import Drawing, TrialsDrawing
from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.tables import Table, columns_of
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]

_LEAD_IN_S, _LEAD_OUT_S = 3.0, 2.0
_MOST_ATTEMPTS = 1000
# FEC of a response that is too small to be a CR.
_WEAK_AMPLITUDE = (0.01, 0.04)
_UR_LATENCY_MS, _UR_RISE_MS, _UR_FALL_MS = 35.0, 60.0, 220.0
_UR_AMPLITUDE = 0.95
_OPEN_EAR, _CLOSED_EAR = 0.30, 0.08
_DRIFT_FEC = 0.03
_CS_US_MS = 450.0
_CR_ONSET_MS, _CR_ONSET_SD_MS = 220.0, 50.0
"""After the CS."""


@dataclass(frozen=True)
class ConditioningDesign:
    """The design of a drawn session."""

    n_trials: int = 60
    share_cs_only: float = 0.2
    share_us_only: float = 0.05
    """Of the trials; the others are paired."""
    trial_interval_s: tuple[float, float] = (6.0, 9.0)
    """(shortest, longest): From one trial to the next."""
    cr_probability: tuple[float, float] = (0.2, 0.9)
    """(first, last): Over the trials of the session, straight in between."""
    cr_peak_ms: float = -10.0
    cr_peak_sd_ms: float = 35.0
    """After the US, before it when negative."""
    cr_amplitude: tuple[float, float] = (0.25, 0.9)
    """(least, most): FEC at the peak."""
    least_in_window: float = 0.16
    """A CR is drawn again until its mean FEC in the 40 to 2 ms before the US reaches this."""
    weak_share: float = 0.3
    """Share of the trials without CR that hold a response too small to be one."""
    straight_rise: bool = False
    """CRs rise in a straight line instead of smoothly."""
    startle_share: float = 0.0
    """Share of trials with a CS that hold a short closure 20-50 ms after it."""
    blinks_per_min: float = 8.0
    """Spontaneous blinks, anywhere."""
    noise_fec: float = 0.02
    """Standard deviation of the noise of each frame."""


@dataclass(frozen=True)
class TrialTruth:
    """The responses drawn into one trial; NaN and False where there are none.

    Onset and peak of the CR are after the CS, the peak of the UR after the US.
    """

    cr: bool = False
    onset_ms: float = math.nan
    peak_ms: float = math.nan
    amplitude: float = math.nan
    window_mean: float = math.nan
    """Mean FEC of the response alone, 40 to 2 ms before the US."""
    ur_peak_ms: float = math.nan
    startle: bool = False
    blink_near: bool = False
    """No analysis can tell a spontaneous blink from a response here."""


@dataclass(frozen=True, eq=False)
class SyntheticConditioning:
    """A drawn session, seen by a camera with an even rate."""

    timestamps_s: Float64
    fec: Float64
    ear: Float64
    """Belongs to `fec`."""
    trials: tuple[Trial, ...]
    truth: tuple[TrialTruth, ...]
    blinks_s: Float64
    """Onsets of the spontaneous blinks."""


@dataclass(frozen=True)
class _Closure:
    """A closing and opening of the lid; times in seconds."""

    start_s: float
    rise_s: float
    fall_s: float
    amplitude: float
    straight: bool = False


def write_drawn_trials(
    path: Path, settings: TrialsDrawing, progress: Progress = no_progress
) -> Drawing:
    """Write a table as ``all_trials.csv`` of a study: animals with levels and slopes of their own.

    Rows are in the order of animal and session.
    """
    rng = np.random.default_rng(settings.seed)
    shape = (settings.animals, settings.sessions, settings.trials)
    animal, session, _ = (axis.ravel() for axis in np.indices(shape))
    level, slope = rng.normal(-2.0, 0.6, shape[0]), rng.normal(0.35, 0.15, shape[0])
    group = animal % len(settings.groups)
    log_odds = level[animal] + (slope[animal] - 0.15 * (group > 0)) * session
    hits = rng.random(len(log_odds)) < 1.0 / (1.0 + np.exp(-log_odds))
    rows = (
        [f"animal-{settings.seed}-{number}", at + 1, settings.groups[place], True, hit, ""]
        for number, at, place, hit in zip(animal, session, group, hits.tolist(), strict=True)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = columns_of("participant session_number group valid cr cr_amplitude")
    Table("trials", columns).write_csv(path, rows)
    progress(1.0, f"{len(animal)} trials drawn")
    return Drawing(path, {"animals": settings.animals, "trials": len(animal)})


def draw_conditioning_session(
    seed: int, frame_rate_hz: float = 200.0, design: ConditioningDesign | None = None
) -> SyntheticConditioning:
    """Draw a session of eyeblink conditioning.

    Events are the same for all frame rates: the noise has random numbers of its own.

    `frame_rate_hz`: 1..2000.
    """
    design = design or ConditioningDesign()
    if not 1 <= frame_rate_hz <= 2000 or design.n_trials < 1:
        raise ConditioningError(
            f"frame rate {frame_rate_hz:g} and {design.n_trials} trials: expected 1..2000 frames "
            "a second and at least one trial"
        )
    events, camera = (np.random.default_rng([seed, stream]) for stream in range(2))
    trials = _draw_trials(events, design)
    duration_s = max(trial.reference_s for trial in trials) + _LEAD_OUT_S
    blinks = _draw_blinks(events, design, duration_s)
    drawn = [
        _draw_response(events, design, trial, index / max(design.n_trials - 1, 1))
        for index, trial in enumerate(trials)
    ]
    truth = tuple(
        _with_blinks(trial, trial_truth, blinks)
        for trial, (trial_truth, _) in zip(trials, drawn, strict=True)
    )
    times_s = np.round(np.arange(int(duration_s * frame_rate_hz) + 1) / frame_rate_hz, 6)
    fec = _rest(events, times_s) + design.noise_fec * camera.standard_normal(len(times_s))
    open_share = np.ones(len(times_s))
    for closure in [*blinks, *(item for _, closures in drawn for item in closures)]:
        _add(open_share, times_s, closure)
    fec += 1.0 - open_share
    ear = _OPEN_EAR - fec * (_OPEN_EAR - _CLOSED_EAR)
    starts_s = np.array([blink.start_s for blink in blinks])
    return SyntheticConditioning(times_s, fec, ear, trials, truth, starts_s)


def _rise(share: Float64, *, straight: bool = False) -> Float64:
    """Return the way from 0 to 1 of a closing lid; `share` of the rise's time, any number."""
    u = np.clip(share, 0.0, 1.0)
    return u if straight else u**3 * (10.0 - 15.0 * u + 6.0 * u**2)


def _draw_trials(events: np.random.Generator, design: ConditioningDesign) -> tuple[Trial, ...]:
    types = [TrialType.CS_ONLY] * round(design.n_trials * design.share_cs_only)
    types += [TrialType.US_ONLY] * round(design.n_trials * design.share_us_only)
    types = types[: design.n_trials]
    types += [TrialType.PAIRED] * (design.n_trials - len(types))
    order = events.permutation(design.n_trials)
    intervals_s = events.uniform(*design.trial_interval_s, design.n_trials)
    onsets_s = _LEAD_IN_S + np.concatenate([[0.0], np.cumsum(intervals_s)[:-1]])
    trials = []
    for number, (onset_s, place) in enumerate(zip(onsets_s, order, strict=True), start=1):
        trial_type = types[place]
        cs_s = math.nan if trial_type is TrialType.US_ONLY else float(onset_s)
        us_s = float(onset_s) + _CS_US_MS / 1000.0
        us_s = math.nan if trial_type is TrialType.CS_ONLY else us_s
        trials.append(Trial(str(number), trial_type, cs_s, us_s))
    return tuple(trials)


def _draw_blinks(
    events: np.random.Generator, design: ConditioningDesign, duration_s: float
) -> list[_Closure]:
    count = events.poisson(design.blinks_per_min * duration_s / 60.0)
    starts_s = np.sort(events.uniform(0.5, duration_s, count))
    return [
        _Closure(
            float(start_s),
            float(events.uniform(0.07, 0.11)),
            float(events.uniform(0.12, 0.22)),
            float(events.uniform(0.75, 1.0)),
        )
        for start_s in starts_s
    ]


def _draw_response(
    events: np.random.Generator, design: ConditioningDesign, trial: Trial, progress: float
) -> tuple[TrialTruth, list[_Closure]]:
    closures: list[_Closure] = []
    is_cr = startle = False
    values: dict[str, Any] = {}
    if trial.trial_type is not TrialType.US_ONLY:
        first, last = design.cr_probability
        is_cr = bool(events.uniform() < first + (last - first) * progress)
        startle = bool(events.uniform() < design.startle_share)
        response = _draw_cr(events, design, trial.cs_onset_s, is_cr)
        if startle:
            start_s = trial.cs_onset_s + float(events.uniform(0.02, 0.05))
            closures.append(_Closure(start_s, 0.04, 0.06, float(events.uniform(0.12, 0.3))))
        if response is not None:
            closures.append(response)
            values["window_mean"] = _window_mean(response, trial.cs_onset_s)
        if is_cr and response is not None:
            values["onset_ms"] = (response.start_s - trial.cs_onset_s) * 1000.0
            values["peak_ms"] = values["onset_ms"] + response.rise_s * 1000.0
            values["amplitude"] = response.amplitude
    if trial.trial_type is not TrialType.CS_ONLY:
        start_s = trial.us_onset_s + _UR_LATENCY_MS / 1000.0
        closures.append(_Closure(start_s, _UR_RISE_MS / 1000, _UR_FALL_MS / 1000, _UR_AMPLITUDE))
        values["ur_peak_ms"] = _UR_LATENCY_MS + _UR_RISE_MS
    return replace(TrialTruth(cr=is_cr, startle=startle), **values), closures


def _draw_cr(
    events: np.random.Generator, design: ConditioningDesign, cs_onset_s: float, is_cr: bool
) -> _Closure | None:
    latest_ms = _CS_US_MS - 120.0
    for _ in range(_MOST_ATTEMPTS):
        onset_ms = float(np.clip(events.normal(_CR_ONSET_MS, _CR_ONSET_SD_MS), 90.0, latest_ms))
        peak_ms = _CS_US_MS + float(events.normal(design.cr_peak_ms, design.cr_peak_sd_ms))
        peak_ms = min(max(peak_ms, onset_ms + 90.0), _CS_US_MS + 80.0)
        amplitudes = design.cr_amplitude if is_cr else _WEAK_AMPLITUDE
        amplitude = float(events.uniform(*amplitudes))
        fall_s = float(events.uniform(0.25, 0.4))
        response = _Closure(
            cs_onset_s + onset_ms / 1000.0,
            (peak_ms - onset_ms) / 1000.0,
            fall_s,
            amplitude,
            design.straight_rise,
        )
        if not is_cr:
            return response if events.uniform() < design.weak_share else None
        if _window_mean(response, cs_onset_s) >= design.least_in_window:
            return response
    raise ConditioningError(
        f"no CR reaches a mean of {design.least_in_window:g} FEC before the US with amplitudes of "
        f"{design.cr_amplitude} FEC"
    )


def _window_mean(response: _Closure, cs_onset_s: float) -> float:
    us_s = cs_onset_s + _CS_US_MS / 1000.0
    return float(_closure_at(np.linspace(us_s - 0.040, us_s - 0.002, 200), response).mean())


def _with_blinks(trial: Trial, truth: TrialTruth, blinks: list[_Closure]) -> TrialTruth:
    from_s, to_s = trial.reference_s - 0.5, trial.reference_s + 0.5
    near = any(
        blink.start_s < to_s and blink.start_s + blink.rise_s + blink.fall_s > from_s
        for blink in blinks
    )
    return replace(truth, blink_near=near)


def _rest(events: np.random.Generator, times_s: Float64) -> Float64:
    phases = events.uniform(0.0, 2.0 * np.pi, 3)
    periods_s = np.array([47.0, 83.0, 131.0])
    waves = np.sin(2.0 * np.pi * times_s[:, None] / periods_s + phases)
    return np.asarray(_DRIFT_FEC * waves.mean(axis=1), dtype=np.float64)


def _add(open_share: Float64, times_s: Float64, closure: _Closure) -> None:
    """Close the part still open: two closures together never close more than the whole eye."""
    end_s = closure.start_s + closure.rise_s + closure.fall_s
    first, last = np.searchsorted(times_s, [closure.start_s, end_s])
    open_share[first:last] *= 1.0 - _closure_at(times_s[first:last], closure)


def _closure_at(times_s: Float64, closure: _Closure) -> Float64:
    since_s = times_s - closure.start_s
    closing = _rise(since_s / closure.rise_s, straight=closure.straight)
    opening = _rise((since_s - closure.rise_s) / closure.fall_s)
    return closure.amplitude * closing * (1.0 - opening)
