"""The whole eyeblink analysis: from a video, or from a trace, to the files of a session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.errors import BlinkAnalysisError, ConditioningError
from site_agent.eyeblink.blinks.doubts import doubts_of
from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.conditioning.analysis import ConditioningResult, analyse_conditioning
from site_agent.eyeblink.conditioning.light_meter import LightMeter, light_regions, trials_by_lights
from site_agent.eyeblink.conditioning.trial_files import read_trials
from site_agent.eyeblink.conditioning.trials import TrialList, TrialType
from site_agent.eyeblink.face.models import FaceModels
from site_agent.eyeblink.openness.filters import filtered_trace
from site_agent.eyeblink.openness.sampling import Progress, count_remarks, sample_crowd, sample_face
from site_agent.eyeblink.openness.signal import (
    Calibration,
    CalibrationSettings,
    calibrate,
    closed_ear_at_puffs,
)
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.outputs import check_requested, write_outputs
from site_agent.eyeblink.records import EyeTrace, as_written
from site_agent.eyeblink.session import (
    AnalysedSession,
    BlinkAnalysisSettings,
    BlinkSession,
    Footage,
    RecordingStart,
    SourceFile,
    source_file,
    summarise,
)
from site_agent.eyeblink.video.camera import CameraReader
from site_agent.eyeblink.video.footage import VideoFootage
from site_agent.eyeblink.video.frame_timing import frame_timing
from site_agent.eyeblink.video.frames import FrameSource
from site_agent.eyeblink.video.recording import Recording, describe_recording, other_times
from site_agent.eyeblink.video.recording_start import recording_start


def run_blink_analysis(
    video: Path | str | Recording,
    *,
    landmarks: Path | str,
    out_dir: Path | str,
    detector: Path | str | None = None,
    trials: Path | str | None = None,
    settings: BlinkAnalysisSettings | None = None,
    progress: Progress | None = None,
    addresses: Mapping[str, str] | None = None,
) -> BlinkSession:
    """Analyse a video and write the session's files.

    Parameters
    ----------
    video : path or Recording
        A video file; a folder of images with ``timestamps.csv``; either with other times as a
        `Recording`.
    landmarks : path
        A landmark model of 68 parts, or of the eyes' 12: ``.dat`` or forest file.
    out_dir : path
        Gets the files of `site_agent.eyeblink.outputs`; nothing is there before the analysis is
        complete.
    detector : path, optional
        A HOG-SVM detector (``.svm``); dlib's stock frontal detector when not given. None is
        used with ``settings.faces.region``.
    trials : path, optional
        The trials of a conditioning session: a list, or a log of stimulus pulses (see
        `trial_files.read_trials`). Their times are put right by ``settings.trial_timing``.
    progress : callable, optional
        Called with the finished share (0..1) and what is being done.
    addresses : mapping of str to str, optional
        Pool addresses of the models by role (``detector``, ``landmarks``), for the provenance.

    Raises
    ------
    VideoFileError, FaceModelError, TableFileError, BlinkAnalysisError, MissingExtraError
    """
    settings = settings or BlinkAnalysisSettings()
    listed = _prepare(Path(out_dir), settings, trials)
    started_s = time.monotonic()
    recording = video if isinstance(video, Recording) else Recording(Path(video))
    models = FaceModels.open(landmarks, detector, settings.faces, addresses or {})
    follower = models.new_follower()
    with closing(_metered(recording.open(), settings)) as source:
        trace = sample_face(source, follower, progress)
    listed, light_remarks = _timed_by_lights(source, listed, settings)
    recorded = _recorded(
        source,
        trace,
        (*recording.sources(), *models.sources, *_trial_sources(listed)),
        recording_start(recording.path, settings.labels, source.info.creation_time),
        VideoFootage(recording, models.new_follower),
    )
    remarks = (
        *recorded.warnings,
        *light_remarks,
        *count_remarks(follower.counts, settings.faces.face),
    )
    session = _analyse(replace(recorded, warnings=remarks), listed, settings, started_s)
    return _finish(session, Path(out_dir), progress)


def run_all_faces_analysis(
    video: Path | str | Recording,
    *,
    landmarks: Path | str,
    out_dir: Path | str,
    detector: Path | str | None = None,
    trials: Path | str | None = None,
    settings: BlinkAnalysisSettings | None = None,
    progress: Progress | None = None,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, BlinkSession]:
    """Do the same for every face of a video: ``face-1`` (leftmost), ``face-2`` ... in `out_dir`.

    Persons are told apart by their places only. There are no overlay videos.

    Returns
    -------
    dict of str to BlinkSession
        By folder; empty, and nothing is written, where no face is seen for a second or more.

    Raises
    ------
    VideoFileError, FaceModelError, TableFileError, BlinkAnalysisError, MissingExtraError
    """
    settings = settings or BlinkAnalysisSettings()
    if settings.faces.region:
        raise BlinkAnalysisError("all faces of a video are found by a detector, not in a region")
    listed = _prepare(Path(out_dir), settings, trials)
    started_s = time.monotonic()
    recording = video if isinstance(video, Recording) else Recording(Path(video))
    models = FaceModels.open(landmarks, detector, settings.faces, addresses or {})
    with closing(_metered(recording.open(), settings)) as source:
        traces, left_out = sample_crowd(source, models.new_crowd(), progress)
    listed, light_remarks = _timed_by_lights(source, listed, settings)
    sources = (*recording.sources(), *models.sources, *_trial_sources(listed))
    start = recording_start(recording.path, settings.labels, source.info.creation_time)
    remarks = [f"{left_out} faces were seen for less than a second and left out"] * (left_out > 0)
    sessions = {}
    for number, trace in enumerate(traces, start=1):
        recorded = _recorded(source, trace, sources, start, None)
        recorded = replace(recorded, warnings=(*recorded.warnings, *light_remarks, *remarks))
        session = _analyse(recorded, listed, settings, started_s)
        name = f"face-{number}"
        sessions[name] = _finish(session, Path(out_dir) / name, progress)
    return sessions


def run_camera_analysis(
    camera: CameraReader,
    *,
    landmarks: Path | str,
    out_dir: Path | str,
    detector: Path | str | None = None,
    settings: BlinkAnalysisSettings | None = None,
    progress: Progress | None = None,
    addresses: Mapping[str, str] | None = None,
) -> BlinkSession:
    """Analyse a camera's pictures until it is stopped, and write the session's files.

    The camera is closed in the end. What it recorded (`CameraReader.recording`) is the session's
    video.

    Raises
    ------
    CameraError, VideoFileError, FaceModelError, BlinkAnalysisError, MissingExtraError
    """
    with closing(camera):
        settings = settings or BlinkAnalysisSettings()
        _prepare(Path(out_dir), settings, None)
        models = FaceModels.open(landmarks, detector, settings.faces, addresses or {})
        follower = models.new_follower()
        started_s, begun = time.monotonic(), datetime.now(UTC).replace(microsecond=0)
        meter = _metered(camera, settings)
        trace = sample_face(meter, follower, progress)
    listed, light_remarks = _timed_by_lights(meter, None, settings)
    taken = SourceFile("camera", camera.name, None)
    footage = None
    if camera.recording is not None:
        taken = Recording(camera.recording).source()
        footage = VideoFootage(Recording(camera.recording), models.new_follower)
    recorded = _recorded(
        camera,
        trace,
        (taken, *models.sources),
        RecordingStart(settings.labels.start or begun, "from this machine's clock"),
        footage,
    )
    remarks = (
        *recorded.warnings,
        *light_remarks,
        *count_remarks(follower.counts, settings.faces.face),
    )
    session = _analyse(replace(recorded, warnings=remarks), listed, settings, started_s)
    return _finish(session, Path(out_dir), progress)


def run_trace_analysis(
    trace_file: Path | str,
    *,
    out_dir: Path | str,
    frame_rate_hz: float | None = None,
    trials: Path | str | None = None,
    settings: BlinkAnalysisSettings | None = None,
    progress: Progress | None = None,
) -> BlinkSession:
    """Do the same from a file of eye aspect ratios (see `traces.read_trace`).

    Raises
    ------
    TableFileError, BlinkAnalysisError, MissingExtraError
    """
    settings = settings or BlinkAnalysisSettings()
    listed = _prepare(Path(out_dir), settings, trials)
    if light_regions(settings.trial_timing):
        raise BlinkAnalysisError("a trace has no picture in which a light could be watched")
    started_s = time.monotonic()
    trace = read_trace(trace_file, frame_rate_hz=frame_rate_hz, decimal=settings.files.decimal)
    recorded = _Recorded(
        trace,
        (source_file("trace", Path(trace_file)), *_trial_sources(listed)),
        {"frames": len(trace.frames), "frame_rate_hz": trace.frame_rate_hz},
        (),
        recording_start(Path(trace_file), settings.labels, None),
        None,
    )
    session = _analyse(recorded, listed, settings, started_s)
    return _finish(session, Path(out_dir), progress)


@dataclass(frozen=True, eq=False)
class _Recorded:
    """What is known of a recording before it is analysed."""

    trace: EyeTrace
    sources: tuple[SourceFile, ...]
    recording: Mapping[str, Any]
    warnings: tuple[str, ...]
    start: RecordingStart
    footage: Footage | None


def _recorded(
    source: FrameSource,
    trace: EyeTrace,
    sources: tuple[SourceFile, ...],
    start: RecordingStart,
    footage: Footage | None,
) -> _Recorded:
    timing = frame_timing(trace.timestamps_s)
    described = describe_recording(source.info, source.report, timing)
    remarks = [remark for remark in (timing.remark(), other_times(source, timing)) if remark]
    warnings = (*source.report.warnings, *remarks)
    return _Recorded(trace, sources, described, warnings, start, footage)


def _prepare(
    out_dir: Path, settings: BlinkAnalysisSettings, trials: Path | str | None
) -> TrialList | None:
    """Find out before an hour of analysis whether all can be read and written."""
    if out_dir.exists() and not out_dir.is_dir():
        raise BlinkAnalysisError(f"{out_dir}: is a file, expected a folder for the results")
    check_requested(settings.outputs)
    settings.filter.check()
    light_regions(settings.trial_timing)
    settings.blinks.calibration.check()
    return (
        None
        if trials is None
        else read_trials(trials, settings.trial_timing, settings.files.decimal)
    )


def _metered(source: FrameSource, settings: BlinkAnalysisSettings) -> LightMeter:
    return LightMeter(source, light_regions(settings.trial_timing))


def _timed_by_lights(
    meter: LightMeter, listed: TrialList | None, settings: BlinkAnalysisSettings
) -> tuple[TrialList | None, tuple[str, ...]]:
    """Let lights in the picture say when the trials were; where they cannot, the rest stays."""
    if not light_regions(settings.trial_timing):
        return listed, ()
    try:
        return trials_by_lights(meter, listed, settings.trial_timing), ()
    except ConditioningError as error:
        return None, (f"no trials could be taken from the light in the picture: {error}",)


def _trial_sources(trials: TrialList | None) -> tuple[SourceFile, ...]:
    return () if trials is None or trials.path is None else (source_file("trials", trials.path),)


def _analyse(
    recorded: _Recorded, trials: TrialList | None, settings: BlinkAnalysisSettings, started_s: float
) -> AnalysedSession:
    trace = as_written(recorded.trace)
    signal = filtered_trace(trace, settings.filter)
    calibration, remarks = _calibrated(signal, trials, settings.blinks.calibration)
    session = AnalysedSession(
        trace=trace,
        filtered=signal,
        calibration=calibration,
        blinks=tuple(find_blinks(signal, settings.blinks, calibration)),
        settings=settings,
        sources=recorded.sources,
        recording=recorded.recording,
        warnings=(*recorded.warnings, *remarks, *doubts_of(trace, calibration.reliable)),
        analysis_s=time.monotonic() - started_s,
        footage=recorded.footage,
        start=recorded.start,
    )
    return session if trials is None else _with_trials(session, trials)


def _calibrated(
    signal: EyeTrace, trials: TrialList | None, settings: CalibrationSettings
) -> tuple[Calibration, tuple[str, ...]]:
    if settings.closed_from == "percentile":
        return calibrate(signal.ear, settings), ()
    # A trial of the CS alone may say when the puff would have come; none came.
    puffs_s = [
        trial.us_onset_s
        for trial in (trials.trials if trials is not None else ())
        if trial.trial_type is not TrialType.CS_ONLY and np.isfinite(trial.us_onset_s)
    ]
    closed_ear = closed_ear_at_puffs(signal.timestamps_s, signal.ear, puffs_s)
    if closed_ear is None:
        remark = (
            "no air puff (us_onset_s) falls on frames in which the eyes are seen: the closed eye "
            f"is the {settings.closed_percentile:g}th percentile instead"
        )
        return calibrate(signal.ear, settings), (remark,)
    return calibrate(signal.ear, settings, closed_ear), ()


def _with_trials(session: AnalysedSession, trials: TrialList) -> AnalysedSession:
    """Measure the trials; where that cannot be done, the rest of the session stays."""
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


def _finish(session: AnalysedSession, out_dir: Path, progress: Progress | None) -> BlinkSession:
    def report(share: float, text: str) -> None:
        if progress is not None:
            progress(0.95 + 0.05 * share, text)

    begun_s = time.monotonic()
    written = write_outputs(session, out_dir, progress=report)
    writing_s = time.monotonic() - begun_s
    report(1.0, "done")
    return summarise(replace(session, warnings=written.warnings), written.files, writing_s)


__all__ = [
    "BlinkAnalysisSettings",
    "BlinkSession",
    "run_all_faces_analysis",
    "run_blink_analysis",
    "run_camera_analysis",
    "run_trace_analysis",
]
