"""The sessions of a batch: from a folder of recordings, or from a table with a line a recording."""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from site_agent.errors import ConditioningError, InvalidInputError, SettingsError, TableFileError
from site_agent.eyeblink.openness.traces import TRUTH, looks_like_trace
from site_agent.eyeblink.outputs.registry import ON_REQUEST
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.video.recording import FROM_IMAGES
from site_agent.named_files import find_named
from site_agent.pictures.images import IMAGE_SUFFIXES, is_clutter
from site_agent.settings import list_settings, with_values
from site_agent.text_tables import TableRow, TextTable, read_table
from site_agent.work.files import portable_name

COLUMNS = (
    "session",
    "video",
    "trace",
    "trials",
    "timestamps",
    "participant",
    "session_number",
    "group",
    "frame_rate_hz",
    "detector",
    "landmarks",
    # Of tables that the app writes.
    "recording",
    "added",
)


def read_session_table(path: Path | str) -> "SessionList":
    """Read the sessions of a batch.

    Columns: ``video`` or ``trace`` (one of them in each line; paths relative to the table),
    ``session`` (names the result's folder; the file's name when left out), ``trials``,
    ``timestamps`` (of a video's frames), ``participant``,
    ``session_number``, ``group``, ``frame_rate_hz`` (where a recording has no times, and for
    videos instead of those in the file), ``detector``, ``landmarks``, and any setting by its name
    (``latency_ms``, ``cr_threshold``); empty cells mean the batch's own.

    A missing recording fails its session only.
    """
    table = read_table(Path(path))
    if "video" not in table.columns and "trace" not in table.columns:
        raise TableFileError(
            table.path, f"the columns are {table.named()}; expected video or trace, and session"
        )
    problems: list[tuple[int, str]] = []
    sessions: list[BatchSession] = []
    for row in table.rows:
        try:
            sessions.append(_session(table.path.parent, row))
        except (ValueError, InvalidInputError, ConditioningError) as error:
            problems.append((row.line, str(error)))
    problems += _name_problems(sessions)
    if not len(table):
        problems.append((0, "has a header but no session"))
    if problems:
        raise TableFileError(table.path, sorted(problems))
    return SessionList(tuple(sessions), (*_remarks(table), *_repeated(table, sessions)))


def _session(folder: Path, row: TableRow) -> "BatchSession":
    """Read one line; raise ValueError, naming its fault, if it is wrong."""

    def cell(name: str) -> str:
        return row.cells.get(name, "")

    def number(name: str) -> float:
        try:
            return float(cell(name))
        except ValueError as error:
            raise ValueError(f"{name} is {cell(name)!r}, expected a number") from error

    video, trace = cell("video"), cell("trace")
    if bool(video) == bool(trace):
        raise ValueError(
            "video and trace are both given; expected one of them"
            if video
            else "neither video nor trace is given"
        )
    if cell("filter") not in ("", "none") or cell("bits") not in ("", "16"):
        raise ValueError(
            "filter and bits are no longer settings; empty these cells (make deep video readable "
            "with ffmpeg -vf lut=c0=val*16 for 12 bits)"
        )
    source = find_named(folder, video or trace)
    rate_hz = number("frame_rate_hz") if cell("frame_rate_hz") else None
    if rate_hz is not None and not 0 < rate_hz < 100_000:
        raise ValueError(f"frame_rate_hz is {rate_hz:g}, expected frames per second, more than 0")
    overrides = {name: text for name, text in row.cells.items() if name in SETTING_NAMES and text}
    with_overrides(BlinkAnalysisSettings(), overrides)
    return BatchSession(
        name=cell("session") or _session_name(source.stem),
        source=source,
        is_video=bool(video),
        trials=find_named(folder, cell("trials")) if cell("trials") else None,
        timestamps=find_named(folder, cell("timestamps")) if cell("timestamps") else None,
        participant=cell("participant"),
        group=cell("group"),
        number=number("session_number") if cell("session_number") else math.nan,
        frame_rate_hz=rate_hz,
        detector=_model(folder, cell("detector")),
        landmarks=_model(folder, cell("landmarks")),
        overrides=overrides,
        labels={name: text for name, text in row.cells.items() if _is_label(name)},
        line=row.line,
    )


def _model(folder: Path, word: str) -> str:
    """Return the path of a model file next to the table; keep anything else (a pool address)."""
    beside = find_named(folder, word)
    return str(beside) if word and beside.is_file() else word


def _name_problems(sessions: "list[BatchSession]") -> list[tuple[int, str]]:
    problems = [
        (session.line, problem) for session in sessions if (problem := name_problem(session.name))
    ]
    first: dict[str, int] = {}
    for session in sessions:
        # Some file systems ignore case.
        before = first.setdefault(session.name.casefold(), session.line)
        if before != session.line:
            problems.append((session.line, f"the session {session.name!r} is on line {before} too"))
    return problems


def _remarks(table: TextTable) -> tuple[str, ...]:
    """Name the laboratory's own columns that may be a misspelled column or setting."""
    near = {
        column: get_close_matches(column, [*COLUMNS, *SETTING_NAMES], n=1, cutoff=0.75)
        for column in table.columns
        if _is_label(column)
    }
    return tuple(
        f"{table.path.name}: the column {column!r} is only copied to all_trials.csv; is "
        f"{meant[0]!r} meant?"
        for column, meant in near.items()
        if meant
    )


def _repeated(table: TextTable, sessions: "Iterable[BatchSession]") -> Iterator[str]:
    """Name sessions with the recording of another one, analysed alike."""
    first: dict[str, BatchSession] = {}
    for session in sessions:
        key = repr(replace(session, name="", participant="", group="", number=0, labels={}, line=0))
        before = first.setdefault(key, session)
        if before is not session:
            yield (
                f"{table.path.name}, line {session.line}: {session.name} has the same recording as "
                f"{before.name} ({session.source.name}), so that it counts twice; "
                "delete one of the lines if that is not meant"
            )


def _is_label(column: str) -> bool:
    return column not in COLUMNS and column not in SETTING_NAMES


VIDEO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg"),
        *("mpg", "mts", "mxf", "ogv", "ts", "webm", "wmv", "y4m"),
        # Raw streams.
        *("264", "265", "h264", "h265", "hevc", "mjpeg", "mjpg"),
    )
)
TRACE_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
# Fewer are figures, not a recording.
_FEWEST_IMAGES = 10

TRIALS_NAME = re.compile(r"(.+)[_\-.](trials|events|ttl)", re.IGNORECASE)
_PARTICIPANT = re.compile(r"(?:^|[_\-/. ])sub-([0-9A-Za-z]+)")
_SESSION = re.compile(r"(?:^|[_\-/. ])ses-([0-9A-Za-z]+)")
_LONGEST_NAME = 120
_OF_RESULTS = {"frames.csv", "session.json"}
"""In each folder that ``poolctl blink`` wrote: its trace and its overlay are no recordings."""


@dataclass(frozen=True)
class BatchSession:
    """One recording of a batch."""

    name: str
    source: Path
    is_video: bool
    trials: Path | None = None
    timestamps: Path | None = None
    """Times of a video's frames."""
    participant: str = ""
    group: str = ""
    number: float = math.nan
    """Its number among the participant's sessions; NaN where not known."""
    frame_rate_hz: float | None = None
    """Of a trace that has no times; of a video, instead of those in its file."""
    detector: str = ""
    landmarks: str = ""
    """Model files or pool addresses of this session alone; empty for the batch's."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """The laboratory's other columns: phase, day, animal."""
    line: int = 0


@dataclass(frozen=True)
class SessionList:
    """Sessions in the order of the table, with remarks from reading it."""

    sessions: tuple[BatchSession, ...]
    remarks: tuple[str, ...] = ()


def find_sessions(folder: Path, *, videos: bool, leave_out: Path | None = None) -> SessionList:
    """Return the recordings in a folder and in the folders below it.

    Videos are known by the ending of their names, traces (``.csv``, ``.tsv``, ``.txt``) by their
    content. ``NAME_trials.csv`` (also ``_events`` and ``_ttl``) holds the trials of the recording
    ``NAME``. Names such as ``sub-01_ses-2`` give participant and session.

    Folders of images, and recordings of the other kind, are left out with a remark. Results of
    ``poolctl blink``, and the folder `leave_out`, the study's own, are not searched.
    """
    images: Counter[Path] = Counter()
    by_kind: dict[bool, list[Path]] = {True: [], False: []}  # videos, traces
    trials: dict[Path, Path] = {}
    others: list[Path] = []
    for path in _files(folder, leave_out):
        suffix, named = path.suffix.lower(), TRIALS_NAME.fullmatch(path.stem)
        if suffix in TRACE_SUFFIXES and named:
            trials[path.with_name(named[1])] = path
        elif suffix in VIDEO_SUFFIXES:
            by_kind[True].append(path)
        elif suffix in TRACE_SUFFIXES and not path.stem.endswith("_truth"):
            (by_kind[False] if looks_like_trace(path) else others).append(path)
        elif suffix in IMAGE_SUFFIXES and path.parent != folder:
            images[path.parent] += 1
    remarks = [
        f"{place.relative_to(folder).as_posix()}/: a folder of images, left out; make a video of "
        f"them ({FROM_IMAGES})"
        for place, count in images.items()
        if videos and count >= _FEWEST_IMAGES
    ]
    if others and not videos:
        names = ", ".join(path.name for path in others)
        remarks.append(f"not traces of eye aspect ratios, left out: {names}")
    recordings = by_kind[videos]
    if recordings and (left_out := by_kind[not videos]):
        names = ", ".join(path.name for path in left_out)
        remarks.append(
            f"traces, left out as there are videos: {names}"
            if videos
            else f"videos, left out as there are traces (--landmarks chooses videos): {names}"
        )
    sessions = []
    for path, name in zip(recordings, _names(folder, recordings), strict=True):
        relative = path.relative_to(folder).as_posix()
        participant, session = _PARTICIPANT.search(relative), _SESSION.search(relative)
        sessions.append(
            BatchSession(
                name=name,
                source=path,
                is_video=videos,
                trials=trials.pop(path.with_suffix(""), None),
                participant=participant[1] if participant else "",
                number=session_number(session[1]) if session else math.nan,
            )
        )
    remarks += [f"{path.name}: no recording has this name, left out" for path in trials.values()]
    return SessionList(tuple(sessions), tuple(remarks))


def name_problem(name: str) -> str:
    """Return why a session's folder cannot have this name; empty if it can."""
    if not name:
        return "the session has no name"
    if name.startswith(".") or portable_name(name) != name:
        return f"the session name {name!r} cannot be the name of a folder"
    if len(name.encode("utf-8")) > _LONGEST_NAME:
        return f"the session name {name[:30]!r}... is longer than {_LONGEST_NAME} bytes"
    return ""


def session_number(text: str) -> float:
    """Return the number that a label ends with (``2``, ``ses-02``, ``day3``), NaN without one."""
    match = re.fullmatch(r"[A-Za-z_\- ]*(\d+(?:\.\d+)?)", text.strip())
    return float(match[1]) if match else math.nan


def with_models(
    sessions: Iterable[BatchSession], files: Mapping[str, Path]
) -> tuple[BatchSession, ...]:
    """Return the sessions with the words for their models replaced by files."""
    return tuple(
        replace(
            session,
            detector=str(files.get(session.detector, session.detector)),
            landmarks=str(files.get(session.landmarks, session.landmarks)),
        )
        for session in sessions
    )


def _files(folder: Path, leave_out: Path | None) -> list[Path]:
    files = []
    hidden = leave_out.resolve() if leave_out is not None else None
    for root, folders, names in os.walk(folder):
        here = Path(root)
        if here != folder and set(names) >= _OF_RESULTS:
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if not is_clutter(name) and (here / name).resolve() != hidden
        )
        files += [here / name for name in sorted(names) if not is_clutter(name)]
    return files


def _names(folder: Path, paths: list[Path]) -> list[str]:
    """Name the sessions by their files, with the folders where the names alone repeat."""
    short = [_session_name(path.stem) for path in paths]
    if len({name.casefold() for name in short}) == len(paths):
        return short
    return [_session_name("_".join(path.relative_to(folder).parts)) for path in paths]


def _session_name(text: str) -> str:
    """Return a name that `name_problem` accepts; a long one is cut and gets a digest."""
    name = portable_name(text).lstrip(".") or "_"
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    start = encoded[: _LONGEST_NAME - 9].decode("utf-8", "ignore")
    return portable_name(f"{start}-{digest}")


S = TypeVar("S")

_MISSING = object()

LEFT_OUT = ("outputs", "labels.subject", "labels.session")
"""Settings that neither a settings file nor ``--set`` changes."""

# Settings with columns of their own under other names.
_OTHER_COLUMNS = {"labels.start": "session_start"}
_OUTPUTS = "outputs."


def _columns() -> dict[str, str]:
    names = list_settings(BlinkAnalysisSettings(), LEFT_OUT)
    columns = {_OTHER_COLUMNS.get(name, name.rpartition(".")[2]): name for name in names}
    return columns | {name: f"{_OUTPUTS}{name}" for name in ON_REQUEST}


SETTING_NAMES: Mapping[str, str] = _columns()
"""The full name of each setting by the column of a table that gives it."""


def with_overrides(
    settings: BlinkAnalysisSettings, overrides: Mapping[str, str]
) -> BlinkAnalysisSettings:
    """Return the settings with some of them given as text, by column."""
    named = {SETTING_NAMES[column]: text for column, text in overrides.items()}
    outputs = {name.removeprefix(_OUTPUTS) for name in named if name.startswith(_OUTPUTS)}
    chosen = set(settings.outputs)
    for name in outputs:
        text = named.pop(f"{_OUTPUTS}{name}").strip().lower()
        if text not in TRUTH:
            raise SettingsError(f"{name} is {text!r}, expected true or false")
        chosen = chosen | {name} if TRUTH[text] else chosen - {name}
    return with_values(replace(settings, outputs=frozenset(chosen)), named)


def settings_from_plain(
    defaults: S, stored: Mapping[str, Any], leave_out: Collection[str] = ()
) -> S:
    """Return settings from the JSON types of `plain_json.plain`.

    Names that this version does not know are ignored, those that are missing get their defaults.
    """
    values = {}
    for name in list_settings(defaults, leave_out):
        value: Any = stored
        for part in name.split("."):
            value = value.get(part, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is not _MISSING:
            values[name] = "none" if value is None else value
    return with_values(defaults, values, leave_out)
