"""The whole eyeblink analysis: from a video, or from a trace, to the files of a session.

How it works. `run_blink_analysis` takes a recording through the stages, each a folder:

1. *Video*: `video.recording` opens a file (`pictures.video_reading`) as a stream of frames.
2. *Face*: a detector finds the face now and then, and `face.finding` follows it in between,
   or watches a fixed place. `session.FaceModels` opens the models.
3. *Landmarks*: `face.boxes` places them, and `face.landmarks` measures the eyes of each frame.
4. *Openness*: `openness.sampling` collects a trace of eye aspect ratios (a trace in a file enters
   here, by `openness.traces`) and smooths it; `openness.signal` calibrates it to eyelid closure.
5. *Blinks*: `blinks.finding` finds blinks and closures in the trace.
6. *Conditioning*, if there are trials: `conditioning.trials` reads them, `conditioning.led_onsets`
   times them by a light in the picture, and `conditioning.analysis` measures the responses.
7. *Outputs*: `outputs.registry` writes the files of the session, all or none.

`batch` does this for many sessions in worker processes; `review` corrects the blinks afterwards.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.trials import TrialType
from site_agent.errors import ConditioningError, InvalidInputError
from site_agent.eyeblink.blinks.finding import judge_blinks, quality_warnings
from site_agent.eyeblink.conditioning.analysis import ConditioningResult, analyse_conditioning
from site_agent.eyeblink.conditioning.led_onsets import LightMeter, light_regions, trials_by_lights
from site_agent.eyeblink.conditioning.trials import TrialList, read_trials
from site_agent.eyeblink.face.finding import VideoFootage
from site_agent.eyeblink.openness import sampling
from site_agent.eyeblink.openness import signal as openness_signal
from site_agent.eyeblink.openness.traces import OPEN_EAR, read_trace, value_remarks
from site_agent.eyeblink.outputs.registry import check_requested, write_outputs
from site_agent.eyeblink.records import EyeTrace, as_written
from site_agent.eyeblink.session import (
    AnalysedSession,
    BlinkAnalysisSettings,
    BlinkSession,
    FaceModels,
    Footage,
    measured_trace,
    range_doubts,
    summarise,
)
from site_agent.eyeblink.session_folder import (
    RecordingStart,
    SessionLabels,
    SourceFile,
    source_file,
)
from site_agent.eyeblink.video import recording as recordings
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.work import Progress, no_progress, part_of


@dataclass(frozen=True)
class TraceFile:
    """A file of eye aspect ratios (see `openness.traces`); the rate where it has no times."""

    path: Path
    frame_rate_hz: float | None = None


Source = Path | str | recordings.Recording | TraceFile


def run_blink_analysis(
    source: Source,
    *,
    out_dir: Path | str,
    landmarks: Path | str | None = None,
    detector: Path | str | None = None,
    trials: Path | str | None = None,
    settings: BlinkAnalysisSettings = BlinkAnalysisSettings(),
    progress: Progress = no_progress,
    addresses: Mapping[str, str] | None = None,
) -> BlinkSession:
    """Find the blinks of a recording and write the session's files.

    `source`: A video file; one with other times as a `Recording`; or a trace.
    `landmarks`: A landmark model of 68 parts, or of the eyes' 12: ``.dat`` or forest file. Not for
    a trace. `trials`: The trials of a conditioning session: a list, or a log of stimulus pulses
    (see `conditioning.trials.read_trials`). ``settings.trial_timing`` corrects their times.

    Examples
    --------
    >>> session = run_blink_analysis(TraceFile(Path("ear.csv")), out_dir="session")
    >>> session.blinks
    2
    """
    out_dir = Path(out_dir)
    listed = _prepare(out_dir, settings, trials)
    if isinstance(source, TraceFile):
        recorded = _read_trace(source, settings)
    else:
        if landmarks is None:
            raise InvalidInputError("a landmark model is needed for everything but a trace")
        models = FaceModels.open(landmarks, detector, settings.faces, addresses or {})
        follower = models.new_follower()
        if not isinstance(source, recordings.Recording):
            source = recordings.Recording(Path(source))
        regions = light_regions(settings.trial_timing)
        with closing(LightMeter(source.open(), regions)) as meter:
            trace = sampling.sample_face(meter, follower, progress)
        listed, remarks = _timed_by_lights(meter, listed, settings)
        remarks = (*remarks, *sampling.count_remarks(follower.counts, settings.faces.face))
        remarks = (*remarks, *models.doubts)
        recorded = _recorded(source, meter, trace, models, remarks, labels=settings.labels)
    session = _analyse(recorded, listed, settings)
    written = write_outputs(session, out_dir, progress=part_of(progress, 0.95, 1.0))
    progress(1.0, "done")
    return summarise(replace(session, warnings=written.warnings), written.files)


@dataclass(frozen=True, eq=False)
class _Recorded:
    """A trace and the facts of its recording, before blinks are sought."""

    trace: EyeTrace
    picture_rate_hz: float
    """Of different pictures."""
    sources: tuple[SourceFile, ...]
    recording: Mapping[str, Any]
    warnings: tuple[str, ...]
    start: RecordingStart
    footage: Footage | None = None
    pictures: Callable[[], SeekableVideo] | None = None
    closed_share: float | None = None


def _recorded(
    recording: recordings.Recording,
    meter: LightMeter,
    trace: EyeTrace,
    models: FaceModels,
    remarks: tuple[str, ...],
    *,
    labels: SessionLabels,
) -> _Recorded:
    """Return the trace and the facts of the recording once all frames have been read."""
    info, report = meter.info, meter.report
    timing = recordings.frame_timing(trace.timestamps_s)
    repeats = recordings.repeated_pictures(meter.changes, trace.timestamps_s)
    noticed = (
        recordings.rate_remark(timing.frame_rate_hz),
        timing.remark(),
        repeats.remark,
        recordings.other_times(meter, timing),
    )
    return _Recorded(
        trace,
        repeats.rate_hz,
        (*recording.sources(), *models.sources),
        recordings.describe_recording(info, report, timing, repeats),
        (*report.warnings, *(remark for remark in noticed if remark), *remarks),
        recordings.recording_start(recording.path, labels, info.creation_time),
        VideoFootage(recording, models.new_follower),
        partial(recording.seekable, trace.timestamps_s),
        models.closed_share,
    )


def _read_trace(source: TraceFile, settings: BlinkAnalysisSettings) -> _Recorded:
    if light_regions(settings.trial_timing):
        raise InvalidInputError("a trace has no picture in which a light could be watched")
    path = Path(source.path)
    trace = read_trace(path, frame_rate_hz=source.frame_rate_hz, decimal=settings.files.decimal)
    rate_hz = trace.frame_rate_hz
    return _Recorded(
        trace,
        rate_hz,
        (source_file("trace", path),),
        {"frames": len(trace.frames), "frame_rate_hz": rate_hz},
        tuple(filter(None, [recordings.rate_remark(rate_hz), *value_remarks(trace)])),
        recordings.recording_start(path, settings.labels, None),
    )


def _prepare(
    out_dir: Path, settings: BlinkAnalysisSettings, trials: Path | str | None
) -> TrialList | None:
    """Check inputs and outputs before the analysis, which may take an hour."""
    if out_dir.exists() and not out_dir.is_dir():
        raise InvalidInputError(f"{out_dir}: is a file, expected a folder for the results")
    check_requested(settings.outputs)
    light_regions(settings.trial_timing)
    return (
        None
        if trials is None
        else read_trials(trials, settings.trial_timing, settings.files.decimal)
    )


def _timed_by_lights(
    meter: LightMeter, listed: TrialList | None, settings: BlinkAnalysisSettings
) -> tuple[TrialList | None, tuple[str, ...]]:
    """Time the trials by lights in the picture; without onsets the rest of the session stays."""
    if not light_regions(settings.trial_timing):
        return listed, ()
    try:
        return trials_by_lights(meter, listed, settings.trial_timing), ()
    except ConditioningError as error:
        return None, (f"no trials could be taken from the light in the picture: {error}",)


def _analyse(
    recorded: _Recorded, trials: TrialList | None, settings: BlinkAnalysisSettings
) -> AnalysedSession:
    trace = as_written(recorded.trace)
    signal = measured_trace(trace, settings)
    calibration, remarks = _calibrated(
        signal, trials, settings.blinks.calibration, recorded.closed_share
    )
    judged = judge_blinks(signal, settings.blinks, calibration)
    sources = recorded.sources
    if trials is not None and trials.path is not None:
        sources = (*sources, source_file("trials", trials.path))
    session = AnalysedSession(
        trace=trace,
        filtered=signal,
        calibration=calibration,
        blinks=judged.blinks,
        left_out=judged.left_out,
        settings=settings,
        sources=sources,
        recording=recorded.recording,
        warnings=(
            *recorded.warnings,
            *remarks,
            *quality_warnings(trace, calibration.reliable, judged, recorded.picture_rate_hz),
        ),
        footage=recorded.footage,
        pictures=recorded.pictures,
        start=recorded.start,
    )
    return session if trials is None else _with_trials(session, trials)


def _calibrated(
    signal: EyeTrace,
    trials: TrialList | None,
    settings: openness_signal.CalibrationSettings,
    model_share: float | None,
) -> tuple[openness_signal.Calibration, tuple[str, ...]]:
    if settings.closed_from == "as-given":
        if not signal.of_closure:
            raise InvalidInputError(
                "closed_from is as-given, which is for traces of closures (a column fec)"
            )
        return openness_signal.Calibration(OPEN_EAR, 0.0, True), ()
    calibration = openness_signal.calibrate(signal.ear, settings)
    closed_ear, lacking, remarks = None, "", list[str]()
    if settings.closed_from == "model":
        closed_ear = None if model_share is None else model_share * calibration.open_ear
        lacking = "no evaluation on other faces lies next to the landmark model (evaluate --save)"
    elif settings.closed_from == "air-puffs":
        # A trial of the CS alone may say when the puff would have come; none came.
        puffs_s = [
            trial.us_onset_s
            for trial in (trials.trials if trials is not None else ())
            if trial.trial_type is not TrialType.CS_ONLY and np.isfinite(trial.us_onset_s)
        ]
        closed_ear = openness_signal.closed_ear_at_puffs(signal.timestamps_s, signal.ear, puffs_s)
        lacking = "no air puff (us_onset_s) falls on frames in which the eyes are seen"
    if closed_ear is not None:
        calibration = openness_signal.calibrate(signal.ear, settings, closed_ear)
    elif lacking:
        instead = f"the closed eye is the {settings.closed_percentile:g}th percentile instead"
        remarks.append(f"{lacking}: {instead}")
    calibration = replace(calibration, model_share=model_share)
    if settings.closed_from != "model" or closed_ear is None:
        remarks += range_doubts(calibration)
    return calibration, tuple(remarks)


def _with_trials(session: AnalysedSession, trials: TrialList) -> AnalysedSession:
    """Measure the trials; if that fails, the rest of the session stays."""
    conditioning: ConditioningResult | None = None
    try:
        conditioning = analyse_conditioning(
            session.trace.timestamps_s, session.fec(), trials.trials, session.settings.conditioning
        )
        remarks = (*trials.remarks, *conditioning.remarks)
    except ConditioningError as error:
        remarks = (*trials.remarks, f"the trials could not be measured: {error}")
    return replace(
        session,
        conditioning=conditioning,
        trials=tuple(trials.trials),
        warnings=(*session.warnings, *remarks),
    )
