"""Studies and their recordings: a study is a folder of ``blink batch`` with a table of its own.

``recordings.csv`` in it is a table that ``blink batch`` reads, so each can go on with the work of
the other. Pages name recordings by the random number in the column ``recording``, never by paths.
"""

import csv
import io
import json
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole
from site_agent.app.places import found_below
from site_agent.errors import NotFoundError, StudyFolderError
from site_agent.eyeblink.batch.record import SessionRecord, read_record
from site_agent.eyeblink.batch.sessions import (
    TRACE_SUFFIXES,
    TRIALS_NAME,
    VIDEO_SUFFIXES,
    BatchSession,
    read_session_table,
)
from site_agent.eyeblink.review.reviewed_session import REVIEWED, as_reviewed
from site_agent.eyeblink.session_folder import RECORD_NAME, REVIEW_FOLDER
from site_agent.jobs.analysing import TABLE_NAME
from site_agent.jobs.folder import JobState, JobView
from site_agent.pictures.images import is_clutter
from site_agent.plain_json import write_json
from site_agent.wording import count_words
from site_agent.work.files import ends_digest, portable_name

_PATTERNS = (
    # Tried in this order; the one that explains most names wins, the first of equals.
    ("sub, then ses", r"sub-(?P<who>[0-9A-Za-z]+).*?ses-(?P<when>\d+)"),
    ("P, then session", r"(?P<who>[A-Za-z]+-?\d+)[_\-. ]s(?:es|ession)?[_\-. ]?(?P<when>\d+)"),
    ("P, then number", r"(?P<who>[A-Za-z]+\d+)[_\-. ](?P<when>\d{1,2})(?!\d)"),
    ("participant only", r"(?P<who>(?:sub-|P|S|VP|subject)\d+)(?P<when>)"),
)
_EYES_SEEN_PCT = 80.0
_COLUMNS = (
    *("session", "video", "trials", "participant", "session_number", "group"),
    *("landmarks", "recording", "added"),
)


_KEPT_IN_BIN = timedelta(days=30)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Recording:
    """A row of the table of a study."""

    session: str
    video: str
    trials: str = ""
    participant: str = ""
    session_number: str = ""
    group: str = ""
    landmarks: str = ""
    recording: str = field(default_factory=lambda: secrets.token_hex(5))
    added: str = field(default_factory=_now)

    @property
    def file_name(self) -> str:
        return Path(self.video).name


@dataclass(frozen=True)
class Standing:
    """The state of a recording, with the facts that its row shows."""

    recording: Recording
    state: str
    """``new``, ``waiting``, ``running``, ``failed``, ``review`` or ``done``."""
    record: SessionRecord | None = None
    job: JobView | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a look at the video: length, rate, or the problem."""

    @property
    def blinks(self) -> str:
        """The number of blinks in words; not 0 where the eyes were never seen."""
        summary = self.record.summary if self.record else {}
        is_known = bool(summary.get("valid_pct"))
        if not is_known:
            return "blinks not known"
        counted = count_words(summary["blinks"], "blink")
        if (waiting := summary.get("unreviewed")) is None:
            return counted
        return f"{counted}, {f'{waiting} not reviewed' if waiting else 'reviewed'}"

    @property
    def weaknesses(self) -> list[str]:
        """The remarks that can change the result, the strongest first."""
        if self.record is None:
            return []
        seen = self.record.summary.get("valid_pct") or 0.0
        text = f"The eyes were seen in {seen:.0f} % of the frames only"
        return [*([text] if seen < _EYES_SEEN_PCT else []), *self.record.warnings]

    @property
    def reason(self) -> str:
        reason = self.job.state.reason if self.job else ""
        reason = reason or self.facts.get("problem", "")
        return reason.removeprefix(f"{self.recording.video}: ")


@dataclass(frozen=True)
class Study:
    """A study: its name, the folder of its results, and the added folders of videos."""

    id: str
    name: str
    folder: str
    added: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        return Path(self.folder)

    @property
    def table(self) -> Path:
        return self.place / TABLE_NAME

    @property
    def bin(self) -> Path:
        """A table of the recordings that were taken out in the last 30 days."""
        return self.place / ".batch" / "bin.csv"

    @property
    def looks(self) -> Path:
        """The folder of pictures and facts of recordings."""
        return self.place / ".batch" / "looks"

    def recordings(self, table: Path | None = None) -> list[Recording]:
        """Return the recordings, in the order in which they were added."""
        try:
            text = (table or self.table).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            return []
        names = {item.name for item in fields(Recording)}
        rows = csv.DictReader(io.StringIO(text, newline=""))
        return [
            Recording(**{key: value or "" for key, value in row.items() if key in names})
            for row in rows
        ]

    def write(self, recordings: Iterable[Recording], table: Path | None = None) -> None:
        """Write the table, whole."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(recording) for recording in recordings)
        (table or self.table).parent.mkdir(parents=True, exist_ok=True)
        write_whole(table or self.table, text.getvalue())

    def sessions(self) -> dict[str, BatchSession]:
        """Return the recordings as ``blink batch`` reads them, by the name of the session."""
        return {session.name: session for session in read_session_table(self.table).sessions}

    def find(self, number: str) -> Recording:
        """Return the recording of this number."""
        for recording in self.recordings():
            if recording.recording == number:
                return recording
        raise NotFoundError(f"the study {self.name!r} has no recording {number}")


class Studies:
    """The studies of this lab; ``POOL_HOME/app/studies.json`` names their folders."""

    def __init__(self, place: Path, results: Path) -> None:
        self.folder, self._path, self._results = place, place / "studies.json", results
        self.lock = threading.RLock()
        self._records: dict[Path, tuple[tuple[int, int], SessionRecord]] = {}

    def current(self) -> Study:
        """Return the study that pages show; the first one is made silently."""
        return (self.all() or [self.first()])[-1]

    def first(self) -> Study:
        """Return the study that is made silently."""
        known = {study.id: study for study in self.all()}
        place = self._results / "my-recordings"
        return known.get("first", Study("first", "My recordings", str(place)))

    def all(self) -> list[Study]:
        """Return the studies, the one shown last at the end."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(self._path.read_text(encoding="utf-8"))
            return [
                Study(**{**study, "added": tuple(study["added"])}) for study in content["studies"]
            ]
        return []

    def forget(self, numbers: set[str]) -> None:
        """Take recordings out of the current study; files and results stay where they are."""
        with self.lock:
            study = self.current()
            rows = study.recordings()
            # The bin keeps the time of removal in the place of that of adding.
            removed = [replace(row, added=_now()) for row in rows if row.recording in numbers]
            study.write([*self.binned(study), *removed], study.bin)
            study.write(row for row in rows if row.recording not in numbers)

    def binned(self, study: Study) -> list[Recording]:
        """Return the recordings that were taken out in the last 30 days, the latest at the end."""
        oldest = (datetime.now(UTC) - _KEPT_IN_BIN).isoformat(timespec="seconds")
        return [row for row in study.recordings(study.bin) if row.added >= oldest]

    def restore(self, numbers: set[str]) -> None:
        """Bring back recordings; without numbers those that were taken out last."""
        with self.lock:
            study = self.current()
            rows, binned = study.recordings(), self.binned(study)
            last = {row.recording for row in binned if row.added == binned[-1].added}
            known = {row.video for row in rows}
            back = [row for row in binned if row.recording in (numbers or last)]
            study.write([*rows, *(row for row in back if row.video not in known)])
            study.write((row for row in binned if row not in back), study.bin)

    def follow_moved(self, study: Study, folders: Iterable[Path], *, by_name: bool = False) -> int:
        """Find videos, and their trials, that were moved into these folders or one level below.

        Return the number of videos found.

        Size, beginning and end of a video tell it from another one of its name. `by_name`: Also
        videos that nobody has looked at: a person said so.
        """
        with self.lock:
            rows = study.recordings()
            lost = [row for row in rows if not Path(row.video).exists()]
            # Folders of two days may hold videos of one name.
            known = {row.video for row in rows}
            hits = found_below(folders, {row.file_name for row in lost}) if lost else {}
            moved = {}
            for row in lost:
                ends = _facts(study, row).get("ends")
                fitting = [
                    path for path in hits.get(row.file_name, ())
                    if str(path) not in known
                    and (ends_digest(path) == ends if ends else by_name)
                ]  # fmt: skip
                if len(fitting) == 1:
                    moved[row.recording] = {"video": str(fitting[0])}
                    trials = fitting[0].parent / Path(row.trials).name
                    if row.trials and trials.is_file():
                        moved[row.recording]["trials"] = str(trials)
            if moved:
                self.change(study, moved)
            return len(moved)

    def keep(self, study: Study) -> None:
        """Write a study, and show it from now on."""
        studies = [*(other for other in self.all() if other.id != study.id), study]
        write_json(self._path, {"studies": list(map(asdict, studies))}, mode=0o600)

    def add(self, folder: Path, videos: Sequence[Path], trials: Mapping[Path, Path]) -> Study:
        """Add videos of one folder to the current study, those that it lacks."""
        with self.lock:
            study = self.current()
            rows = study.recordings()
            known = {row.video for row in rows}
            used = {row.session.casefold() for row in (*rows, *self.binned(study))}
            readings = read_names(videos)
            for path in videos:
                if str(path) in known:
                    continue
                who, when = readings[path]
                name = _free_name(portable_name(path.stem.lstrip(".")), used)
                used.add(name.casefold())
                table = trials.get(path)
                rows.append(Recording(name, str(path), str(table or ""), who, when))
            study.write(rows)
            added = tuple(dict.fromkeys((*study.added, str(folder))))
            study = replace(study, added=added)
            self.keep(study)
            return study

    def change(self, study: Study, changed: Mapping[str, Mapping[str, str]]) -> None:
        """Change cells of recordings, by number and column."""
        with self.lock:
            rows = study.recordings()
            study.write(replace(row, **changed.get(row.recording, {})) for row in rows)

    def standings(self, study: Study, jobs: Sequence[JobView]) -> list[Standing]:
        """Return the state of every recording."""
        newest = {
            view.job.request["session"]["name"]: view
            for view in jobs
            if view.job.kind == "analyse" and view.job.request["study"] == study.folder
        }
        looks = {view.job.id: view.state.state for view in jobs if view.job.kind == "look"}
        return [
            self._standing(study, recording, newest.get(recording.session), looks)
            for recording in study.recordings()
        ]

    def _standing(
        self, study: Study, recording: Recording, job: JobView | None, looks: Mapping[str, JobState]
    ) -> Standing:
        facts = _facts(study, recording)
        look = looks.get(facts.pop("look", ""))
        facts["is_looked_at"] = look in ("waiting", "running")
        if look == "failed":
            facts["problem"] = "cannot be read: the look at it failed, see the page Jobs"
        record = self._record(study.place / recording.session)
        if job is not None and job.state.state in ("waiting", "running", "failed"):
            return Standing(recording, job.state.state, record, job, facts)
        if record is None:
            return Standing(recording, "failed" if facts["problem"] else "new", None, job, facts)
        waits = record.summary.get("unreviewed", record.summary["blinks"])
        return Standing(recording, "review" if waits else "done", record, job, facts)

    def _record(self, folder: Path) -> SessionRecord | None:
        try:
            changed_ns = ((folder / RECORD_NAME).stat().st_mtime_ns, reviewed_ns(folder))
            if self._records.get(folder, (0,))[0] != changed_ns:
                self._records[folder] = (changed_ns, as_reviewed(read_record(folder), folder))
            return self._records[folder][1]
        except (OSError, StudyFolderError):
            return None


def copies(standings: Sequence[Standing]) -> dict[str, str]:
    """Return recordings that share size and ends with an earlier one, and its name of a file."""
    first: dict[str, Recording] = {}
    shared: dict[str, str] = {}
    for standing in standings:
        recording, ends = standing.recording, standing.facts.get("ends")
        if ends and first.setdefault(ends, recording) != recording:
            shared[recording.recording] = first[ends].file_name
    return shared


def reviewed_ns(folder: Path) -> int:
    """Return when a session was last reviewed, in nanoseconds since 1970; 0: never."""
    try:
        return (folder / REVIEW_FOLDER / REVIEWED.file_name).stat().st_mtime_ns
    except OSError:
        return 0


def _facts(study: Study, recording: Recording) -> dict[str, Any]:
    """Return length, rate and ends of a video, or its problem, as a look at it found them."""
    facts: dict[str, Any] = {"seconds": None, "rate_hz": None, "problem": ""}
    with suppress(OSError, ValueError):
        path = study.looks / f"{recording.recording}.json"
        facts |= json.loads(path.read_text(encoding="utf-8"))
        if facts["problem"] and Path(recording.video).stat().st_ctime > path.stat().st_mtime:
            facts["problem"] = ""  # another file since
    return facts


def _free_name(name: str, used: set[str]) -> str:
    number, free = 2, name
    while free.casefold() in used:
        free, number = f"{name}-{number}", number + 1
    return free


def read_names(paths: Sequence[Path]) -> dict[Path, tuple[str, str]]:
    """Read participant and number of the session from names, by one pattern for all.

    >>> read_names([Path("P03_s2.mp4"), Path("P03_s10.mp4")])[Path("P03_s10.mp4")]
    ('P03', '10')
    """
    readings = []
    for _, pattern in _PATTERNS:
        matches = {path: re.search(pattern, path.stem, re.IGNORECASE) for path in paths}
        readings.append({path: match for path, match in matches.items() if match})
    best = max(readings, key=len)
    return {
        path: (best[path]["who"], best[path]["when"].lstrip("0")) if path in best else ("", "")
        for path in paths
    }


def videos_in(
    folder: Path, most: int | None = None
) -> tuple[list[Path], dict[Path, Path], Counter[str]]:
    """Return the videos of a folder, their tables of trials, and its number of files by kind.

    `most`: No more videos than these, the first by name.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    # Texts where paths would do: a folder can hold 100,000 files.
    parts = {name: os.path.splitext(name) for name in names if not is_clutter(name)}  # noqa: PTH122
    videos = [name for name, (_, suffix) in parts.items() if suffix.lower() in VIDEO_SUFFIXES]
    tables = {
        named[1]: name
        for name, (stem, suffix) in parts.items()
        if suffix.lower() in TRACE_SUFFIXES and (named := TRIALS_NAME.fullmatch(stem))
    }
    chosen = {name: folder / name for name in videos[:most]}
    trials = {
        path: folder / tables[stem] for name, path in chosen.items()
        if (stem := parts[name][0]) in tables
    }  # fmt: skip
    return list(chosen.values()), trials, Counter(suffix.lower() for _, suffix in parts.values())
