"""Inputs of ``poolctl blink``: a video, images, a camera, a trace."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings
from site_agent.eyeblink import pipeline
from site_agent.eyeblink.batch.sessions import LEFT_OUT
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.eyeblink.study import write_criteria
from site_agent.eyeblink.study.criteria import (
    CriteriaComparison,
    CriterionRow,
    compare_criteria,
    default_criteria,
    read_criteria,
)
from site_agent.eyeblink.study.sessions import read_study
from site_agent.eyeblink.video.camera import CameraReader, stopped_by_interrupt
from site_agent.eyeblink.video.recording import Recording
from site_agent.tasks.batches import default_landmarks
from site_agent.tasks.model_files import ModelFile
from site_agent.wording import count_words

DetectorOption = Annotated[
    str, Option("A face detector (.svm). Default: dlib's own.", "FILE|ADDRESS")
]
LandmarksOption = Annotated[
    str,
    Option(
        "A landmark model of 68 landmarks, or of the eyes only. Default: the last one given with "
        "--remember.",
        "FILE|ADDRESS",
    ),
]
SessionsArgument = Annotated[
    list[Path],
    Argument(
        "A study of 'blink batch', a BIDS dataset, or folders of sessions.", "STUDY|SESSION..."
    ),
]
ANALYSIS_SETTINGS = CommandSettings(BlinkAnalysisSettings(), LEFT_OUT)


@dataclass(frozen=True)
class ExtraFiles:
    """The files that an analysis writes besides tables and report."""

    overlay: Annotated[bool, Option("Write the video with landmarks and blinks drawn in.")] = False
    nwb: Annotated[bool, Option("Write a file of Neurodata Without Borders.")] = False

    @property
    def names(self) -> frozenset[str]:
        """The outputs of an analysis that were asked for."""
        options = {"overlay": self.overlay, "nwb": self.nwb}
        return frozenset(name for name, is_set in options.items() if is_set)


@dataclass(frozen=True)
class BlinkInput:
    """The recording that is analysed, and how it is read."""

    video: Annotated[
        Path | None,
        Argument(
            "Any video, a folder of images with timestamps.csv (file, timestamp_s), or a trace of "
            "eye aspect ratios (.csv, .tsv, .txt).",
            "VIDEO",
        ),
    ] = None
    frame_rate_hz: Annotated[
        float | None,
        Option(
            "Frame rate of a trace or of images without timestamps. For a video it "
            "replaces the timestamps in the file, which are wrong for high-speed video "
            "stored to play slowly."
        ),
    ] = None
    timestamps: Annotated[
        Path | None,
        Option(
            "Times of images (file, timestamp_s) or of the video's frames (timestamp_s).", "CSV"
        ),
    ] = None
    camera: Annotated[
        str | None, Option("Use a camera instead of a video; 0 is the first.", "NUMBER|DEVICE")
    ] = None
    seconds: Annotated[float | None, Option("Stop the camera after this many seconds.")] = None
    record: Annotated[Path | None, Option("Save the camera's video (.mkv, .mp4).")] = None
    all_faces: Annotated[
        bool, Option("Analyse every face, in DIR/face-1, DIR/face-2 ...; excludes --overlay.")
    ] = False

    def check(self, *, trials: bool = False, overlay: bool = False) -> None:
        """Refuse contradicting options and missing files."""
        if (self.video is None) == (self.camera is None):
            raise UsageError("expected a VIDEO, or --camera NUMBER")
        for path in (self.video, self.timestamps):
            if path is not None and not path.exists():
                raise InputMissingError(f"{path}: no such file")
        is_filmed = self.video is not None and not self.is_trace
        for is_set, option, needed, fits in (
            (self.seconds, "--seconds", "--camera", self.camera is not None),
            (self.record, "--record", "--camera", self.camera is not None),
            (self.timestamps, "--timestamps", "a video", is_filmed),
            (self.all_faces or None, "--all-faces", "a video", is_filmed),
        ):
            if is_set is not None and not fits:
                raise UsageError(f"{option} goes with {needed} only")
        if self.record is not None and self.record.exists():
            raise UsageError(f"--record {self.record}: already exists; choose another name")
        if trials and self.camera is not None:
            raise UsageError(
                "--trials goes with a recording only: the times of its trials are those of a "
                "recording that is there. Record the camera (--record FILE), then analyse that"
            )
        if overlay and self.all_faces:
            raise UsageError(
                "--overlay shows one face, --all-faces writes none: leave one of them out, or "
                "choose the face of the overlay with --set face=NUMBER"
            )
        if self.timestamps is not None and self.frame_rate_hz is not None:
            raise UsageError("--timestamps and --frame-rate-hz contradict each other")

    def require_own_folder(self, folder: Path) -> None:
        """Refuse a folder that holds the results of another recording.

        Analysing the same recording again replaces its results; camera frames are not kept.
        """
        try:
            provenance = (folder / "provenance.json").read_text(encoding="utf-8")
            there = {source["role"]: source["name"] for source in json.loads(provenance)["sources"]}
        except (OSError, ValueError, KeyError, TypeError):
            return
        held = next(
            (there[role] for role in ("video", "images", "trace", "camera") if role in there), ""
        )
        if self.video is None or held != self.video.name:
            raise UsageError(
                f"{folder}: holds the results of {held or 'another recording'}; give another "
                "folder with -o, or delete it"
            )

    @property
    def is_trace(self) -> bool:
        """Return whether the recording is a trace and no video."""
        return self.video is not None and self.video.suffix.lower() in {".csv", ".tsv", ".txt"}

    @property
    def title(self) -> str:
        return self.video.resolve().name if self.video is not None else f"camera {self.camera}"

    def folder(self) -> Path:
        """Return the default folder of the results."""
        path = self.video
        if path is None:
            return Path(f"camera-{Path(self.camera or '').name}_blinks")
        return Path(f"{path.stem if path.is_file() else path.resolve().name}_blinks")


def run_input(
    invocation: Invocation, chosen: BlinkInput, models: Mapping[str, str], common: Mapping[str, Any]
) -> dict[str, BlinkSession]:
    """Analyse the chosen recordings."""
    if chosen.video is not None and chosen.is_trace:
        with invocation.progress(f"blink {chosen.title}") as report:
            trace = pipeline.TraceFile(chosen.video, chosen.frame_rate_hz)
            session = pipeline.run_blink_analysis(trace, progress=report, **common)
        return {"": session}
    recording = None
    if chosen.video is not None:
        recording = Recording(chosen.video, chosen.timestamps, chosen.frame_rate_hz)
    files = _model_files(invocation, models, recording)
    arguments: dict[str, Any] = {
        **common,
        "landmarks": files["landmarks"].path,
        "detector": files["detector"].path if "detector" in files else None,
        "addresses": {
            role: file.version.address for role, file in files.items() if file.version is not None
        },
    }
    with invocation.progress(f"blink {chosen.title}") as report:
        arguments["progress"] = report
        if recording is None:
            return {"": _run_camera(invocation, chosen, arguments)}
        if chosen.all_faces:
            return pipeline.run_all_faces_analysis(recording, **arguments)
        return {"": pipeline.run_blink_analysis(recording, **arguments)}


def _run_camera(
    invocation: Invocation, chosen: BlinkInput, arguments: dict[str, Any]
) -> BlinkSession:
    arguments.pop("trials", None)
    word = chosen.camera or "0"
    camera = CameraReader(
        int(word) if word.isdecimal() else word,
        seconds=chosen.seconds,
        frame_rate_hz=chosen.frame_rate_hz,
        record=chosen.record,
    )
    if chosen.seconds is None:
        invocation.note("Ctrl-C ends the recording; its results are written then.")
    with stopped_by_interrupt(camera):
        return run_blink_analysis(camera, **arguments)


def _model_files(
    invocation: Invocation, models: Mapping[str, str], recording: Recording | None
) -> dict[str, ModelFile]:
    named = {role: word for role, word in models.items() if word}
    if "landmarks" not in named:
        named["landmarks"] = default_landmarks(
            invocation, lambda: None if recording is None else recording.open().close()
        )
    files = invocation.model_files(list(named.values()))
    return dict(zip(named, files, strict=True))


# ``poolctl blink compare-criteria``.
app = single()


@command(
    app,
    "compare-criteria",
    "blink compare-criteria study/",
    "blink compare-criteria study/ --question groups --measure amplitude_all",
    'blink compare-criteria study/ --criteria fec:0.05 --criteria "fec:0.1 smoothing_ms=20"',
)
def compare(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    criteria: Annotated[
        Sequence[str],
        Option(
            "RULE:THRESHOLD (fec, ur-share, baseline-sd); repeatable. Default: the usual.",
            "CRITERION",
        ),
    ] = (),
    question: Annotated[
        Literal["learning", "groups"],
        Option("Does the measure change over sessions (learning), or between two groups?"),
    ] = "learning",
    measure: Annotated[
        Literal["cr_percent", "amplitude_all", "amplitude_cr"], Option("The measure to compare.")
    ] = "cr_percent",
    output: Annotated[
        Path | None,
        Option("Folder of the results. Default: STUDY, or the folder criteria.", "FOLDER"),
    ] = None,
) -> Reply:
    """Test whether a study's conclusion depends on the definition of a response.

    Recomputes the study under many reasonable criteria, from the signals of its sessions, and shows
    whether the conclusion holds. Writes criteria.csv and criteria.json.
    """
    study = read_study(places)
    for remark in study.remarks:
        invocation.warn(remark)
    chosen = (
        read_criteria(criteria, study.settings) if criteria else default_criteria(study.settings)
    )
    with invocation.progress("compare criteria") as report:
        comparison = compare_criteria(
            study, chosen, question=question, measure=measure, progress=report
        )
    is_study = len(places) == 1 and (places[0] / "batch.csv").is_file()
    folder = output or (places[0] if is_study else Path("criteria"))
    files = write_criteria(folder, comparison, chosen)
    data = {**comparison.to_dict(), "sessions": len(study), "files": files}
    written = TableText(["what", "value"], [[name, str(path)] for name, path in files.items()])
    return Reply(
        data, [f"{comparison.conclusion}.", *_tables(comparison), written], [str(files["csv"])]
    )


def _tables(comparison: CriteriaComparison) -> list[str | TableText]:
    """Return the study's own criterion and those that differ from it; the files have all."""
    columns = ["criterion", "trials", "rejected", "CR %", "effect", "95 %", "p", "agrees"]
    keep = ("effect", "p", "95 %", "agrees", "CR %", "trials")
    first, *others = comparison.rows
    differing = [row for row in others if not row.agrees]
    text = f"{len(differing)} of {count_words(len(others), 'other criterion', 'other criteria')}"
    return [
        TableText(columns, [_row(row) for row in (first, *differing)], keep=keep),
        f"{text} would change the conclusion; criteria.csv lists all",
    ]


def _row(row: CriterionRow) -> list[str]:
    counts = [row.criterion, str(row.n_valid), str(row.n_rejected), f"{row.cr_percent:.1f}"]
    if row.effect is None:
        return [*counts, row.problem, "", "", "no"]
    effect = row.effect
    interval = f"{effect.low:+.3g} to {effect.high:+.3g}"
    p_value = f"{effect.p_value:.3g}"
    return [*counts, f"{effect.estimate:+.3g}", interval, p_value, "yes" if row.agrees else "no"]
