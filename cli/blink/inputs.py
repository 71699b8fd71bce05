"""Inputs of ``poolctl blink``: a video or a trace."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings
from site_agent.eyeblink import pipeline
from site_agent.eyeblink.batch.sessions import LEFT_OUT
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.eyeblink.study import write_criteria
from site_agent.eyeblink.study.criteria import (
    CriteriaComparison,
    CriterionRow,
    compare_criteria,
    default_criteria,
    read_criteria,
)
from site_agent.eyeblink.study.learning_curve import CHANGE_UNITS
from site_agent.eyeblink.study.sessions import read_study
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
SessionsArgument = Annotated[list[Path], Argument("Studies of 'blink batch'.", "STUDY...")]
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
        Path, Argument("Any video, or a trace of eye aspect ratios (.csv, .tsv, .txt).", "VIDEO")
    ]
    frame_rate_hz: Annotated[
        float | None,
        Option(
            "Frame rate of a trace without timestamps. For a video it replaces the timestamps in "
            "the file, which are wrong for high-speed video stored to play slowly."
        ),
    ] = None
    timestamps: Annotated[
        Path | None, Option("Times of the video's frames (timestamp_s).", "CSV")
    ] = None

    def check(self) -> None:
        """Refuse contradicting options and missing files."""
        for path in (self.video, self.timestamps):
            if path is not None and not path.exists():
                raise InputMissingError(f"{path}: no such file")
        if self.timestamps is not None and self.is_trace:
            raise UsageError("--timestamps goes with a video only")
        if self.timestamps is not None and self.frame_rate_hz is not None:
            raise UsageError("--timestamps and --frame-rate-hz contradict each other")

    def require_own_folder(self, folder: Path) -> None:
        """Refuse a folder that holds the results of another recording.

        Analysing the same recording again replaces its results.
        """
        try:
            provenance = (folder / "provenance.json").read_text(encoding="utf-8")
            there = {source["role"]: source for source in json.loads(provenance)["sources"]}
            held = next((there[role]["name"] for role in ("video", "trace") if role in there), "")
            digest = there["video"]["sha256"] if "video" in there else None
        except (OSError, ValueError, KeyError, TypeError):
            return
        same = held == self.video.name
        if same and digest is not None and self.video.is_file():
            # Cameras give one name in many folders; a trace that was mended keeps its name.
            same = self.recording.digest == digest
            held = f"another {held}"
        if not same:
            raise UsageError(
                f"{folder}: holds the results of {held or 'another recording'}; give another "
                "folder with -o, or delete it"
            )

    @property
    def is_trace(self) -> bool:
        """Return whether the recording is a trace and no video."""
        return self.video.suffix.lower() in {".csv", ".tsv", ".txt"}

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.video, self.timestamps, self.frame_rate_hz)

    @property
    def title(self) -> str:
        return self.video.resolve().name

    def folder(self) -> Path:
        """Return the default folder of the results."""
        path = self.video
        return Path(f"{path.stem if path.is_file() else path.resolve().name}_blinks")


def run_input(
    invocation: Invocation, chosen: BlinkInput, models: Mapping[str, str], common: Mapping[str, Any]
) -> BlinkSession:
    """Analyse the chosen recording."""
    if chosen.is_trace:
        with invocation.progress(f"blink {chosen.title}") as report:
            trace = pipeline.TraceFile(chosen.video, chosen.frame_rate_hz)
            return pipeline.run_blink_analysis(trace, progress=report, **common)
    files = _model_files(invocation, models, chosen.recording)
    arguments: dict[str, Any] = {
        **common,
        "landmarks": files["landmarks"].path,
        "detector": files["detector"].path if "detector" in files else None,
        "addresses": {
            role: file.version.address for role, file in files.items() if file.version is not None
        },
    }
    with invocation.progress(f"blink {chosen.title}") as report:
        return pipeline.run_blink_analysis(chosen.recording, progress=report, **arguments)


def _model_files(
    invocation: Invocation, models: Mapping[str, str], recording: Recording
) -> dict[str, ModelFile]:
    named = {role: word for role, word in models.items() if word}
    if "landmarks" not in named:
        named["landmarks"] = default_landmarks(invocation, lambda: recording.open().close())
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
    effect = f"effect ({CHANGE_UNITS[comparison.measure]})"
    columns = ["criterion", effect, "95 %", "p", "agrees", "CR %", "trials", "rejected"]
    first, *others = comparison.rows
    differing = [row for row in others if not row.agrees]
    text = f"{len(differing)} of {count_words(len(others), 'other criterion', 'other criteria')}"
    return [
        TableText(columns, [_row(row) for row in (first, *differing)]),
        f"{text} would change the conclusion, or leave none; criteria.csv lists all",
    ]


def _row(row: CriterionRow) -> list[str]:
    counts = [f"{row.cr_percent:.1f}", str(row.n_valid), str(row.n_rejected)]
    effect = row.effect
    if effect is None or row.problem:
        return [row.criterion, row.problem, "", "", "no", *counts]
    numbers = [f"{effect.estimate:+.3g}", effect.interval, f"{effect.p_value:.3g}"]
    return [row.criterion, *numbers, "yes" if row.agrees else "no", *counts]
