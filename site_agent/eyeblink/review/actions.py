"""Actions of a reviewer, and the reviewed result: the automatic one with a list of actions.

Laws: the same actions give the same state; an action followed by undo gives the state before it;
undo followed by redo gives the state before both; nothing changes the automatic result.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from site_agent.datasets.landmark_schemes import EYE_POINTS, IBUG_PARTS
from site_agent.errors import BusyError, ReviewActionError, ReviewFolderError, ReviewOutdatedError
from site_agent.eyeblink.blinks.finding import BlinkKind, Completeness
from site_agent.work.locks import locked

TimeS = Annotated[float, Field(ge=-1e7, le=1e7, allow_inf_nan=False)]
PixelPx = Annotated[float, Field(ge=-1e5, le=1e5, allow_inf_nan=False)]
Point = tuple[PixelPx, PixelPx]
FrameNumber = Annotated[int, Field(ge=0)]
BlinkId = Annotated[int, Field(ge=1)]


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Accept(_Action):
    """The blink is right as it stands."""

    action: Literal["accept"] = "accept"
    blink_id: BlinkId


class Correct(_Action):
    """Times in seconds from the start, kind or completeness; None keeps the old value."""

    action: Literal["correct"] = "correct"
    blink_id: BlinkId
    onset_s: TimeS | None = None
    peak_s: TimeS | None = None
    offset_s: TimeS | None = None
    kind: BlinkKind | None = None
    completeness: Completeness | None = None


class Delete(_Action):
    """There is no blink."""

    action: Literal["delete"] = "delete"
    blink_id: BlinkId


class Restore(_Action):
    """Return a blink to its first state, from the analysis or its reviewer; not reviewed."""

    action: Literal["restore"] = "restore"
    blink_id: BlinkId


class Add(_Action):
    """A blink that the analysis missed."""

    action: Literal["add"] = "add"
    onset_s: TimeS
    peak_s: TimeS
    offset_s: TimeS
    kind: BlinkKind = "blink"
    completeness: Completeness = "complete"


class UseFrame(_Action):
    """The frame goes into the training set."""

    action: Literal["use_frame"] = "use_frame"
    frame: FrameNumber
    landmarks: tuple[Point, ...] | None = None
    """As the reviewer left them, in pixels of the upright frame; None without a landmark model.
    They are the 68 of the iBUG scheme, or the 12 of its eyes."""
    moved: tuple[Annotated[int, Field(ge=0, lt=IBUG_PARTS)], ...] = ()
    """Landmarks that the reviewer has moved, counted from 0."""

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        if self.landmarks is None:
            return self
        count = len(self.landmarks)
        if count not in (EYE_POINTS, IBUG_PARTS):
            raise ValueError(f"found {count} landmarks, expected {IBUG_PARTS} or {EYE_POINTS}")
        if any(index >= count for index in self.moved):
            raise ValueError(f"found moved landmark {max(self.moved)}, expected 0 to {count - 1}")
        return self


class DropFrame(_Action):
    """The frame does not go into the training set."""

    action: Literal["drop_frame"] = "drop_frame"
    frame: FrameNumber


class Undo(_Action):
    """Take back the last action that has not been taken back."""

    action: Literal["undo"] = "undo"


class Redo(_Action):
    """Repeat the change undone last, if nothing else has changed since."""

    action: Literal["redo"] = "redo"


Change = Accept | Correct | Delete | Restore | Add | UseFrame | DropFrame
Action = Annotated[Change | Undo | Redo, Field(discriminator="action")]


class ReviewStatus(StrEnum):
    """Status of a blink in a review."""

    UNREVIEWED = "unreviewed"
    LEFT_OUT = "left-out"
    """The analysis did not count it; it is no blink unless the reviewer accepts or corrects it."""
    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    ADDED = "added"
    DELETED = "deleted"


@dataclass(frozen=True)
class ReviewEvent:
    """A blink as it stands; candidates and added ones get the next free numbers."""

    blink_id: int
    kind: BlinkKind
    onset_s: float
    peak_s: float
    offset_s: float
    completeness: Completeness
    status: ReviewStatus = ReviewStatus.UNREVIEWED

    @property
    def awaits_review(self) -> bool:
        return self.status in {ReviewStatus.UNREVIEWED, ReviewStatus.LEFT_OUT}

    @property
    def is_blink(self) -> bool:
        """Return whether the reviewed result has it."""
        return self.status not in {ReviewStatus.DELETED, ReviewStatus.LEFT_OUT}


@dataclass(frozen=True)
class ReviewState:
    """The result of all actions."""

    events: tuple[ReviewEvent, ...]
    """By onset, deleted ones among them."""
    frames: Mapping[int, UseFrame]
    """Chosen for training, by their numbers."""
    undoable: int
    redoable: int


def effective_changes(actions: Sequence[Action]) -> tuple[list[Change], list[Change]]:
    """Return the changes that stand, and those that redo would do again, the next one last."""
    standing: list[Change] = []
    taken_back: list[Change] = []
    for action in actions:
        if isinstance(action, Undo):
            if not standing:
                raise ReviewActionError("there is nothing to take back")
            taken_back.append(standing.pop())
        elif isinstance(action, Redo):
            if not taken_back:
                raise ReviewActionError("there is nothing to do again")
            standing.append(taken_back.pop())
        else:
            standing.append(action)
            taken_back.clear()
    return standing, taken_back


def replay(automatic: Sequence[ReviewEvent], actions: Sequence[Action]) -> ReviewState:
    """Return the state that the actions lead to."""
    standing, taken_back = effective_changes(actions)
    first = {event.blink_id: event for event in automatic}
    events = dict(first)
    frames: dict[int, UseFrame] = {}
    next_id = max(first, default=0) + 1
    for change in standing:
        if isinstance(change, Add):
            added = _add(change, next_id)
            first[next_id] = events[next_id] = added
            next_id += 1
        elif isinstance(change, UseFrame):
            frames[change.frame] = change
        elif isinstance(change, DropFrame):
            if frames.pop(change.frame, None) is None:
                raise ReviewActionError(f"frame {change.frame} is not in the training set")
        else:
            events[change.blink_id] = _change(change, events, first)
    ordered = sorted(events.values(), key=lambda event: (event.onset_s, event.blink_id))
    return ReviewState(tuple(ordered), frames, len(standing), len(taken_back))


def _add(change: Add, blink_id: int) -> ReviewEvent:
    event = ReviewEvent(
        blink_id=blink_id,
        kind=change.kind,
        onset_s=change.onset_s,
        peak_s=change.peak_s,
        offset_s=change.offset_s,
        completeness=change.completeness,
        status=ReviewStatus.ADDED,
    )
    return _check(event)


def _change(
    change: Accept | Correct | Delete | Restore,
    events: Mapping[int, ReviewEvent],
    first: Mapping[int, ReviewEvent],
) -> ReviewEvent:
    event = events.get(change.blink_id)
    if event is None:
        raise ReviewActionError(f"blink {change.blink_id}: no such blink")
    if isinstance(change, Restore):
        return first[change.blink_id]
    if event.status is ReviewStatus.DELETED:
        raise ReviewActionError(f"blink {change.blink_id} is deleted; restore it first")
    if isinstance(change, Delete):
        return replace(event, status=ReviewStatus.DELETED)
    if isinstance(change, Accept):
        return replace(event, status=ReviewStatus.ACCEPTED) if event.awaits_review else event
    return _correct(event, change)


def _correct(event: ReviewEvent, change: Correct) -> ReviewEvent:
    values = change.model_dump(exclude={"action", "blink_id"}, exclude_none=True)
    if not values:
        raise ReviewActionError(f"blink {event.blink_id}: the correction changes nothing")
    # Blinks added by hand stay recognisable as such, however often they are moved.
    status = event.status if event.status is ReviewStatus.ADDED else ReviewStatus.CORRECTED
    return _check(replace(event, **values, status=status))


def _check(event: ReviewEvent) -> ReviewEvent:
    in_order = event.onset_s <= event.peak_s <= event.offset_s
    if not in_order or event.onset_s == event.offset_s:
        raise ReviewActionError(
            f"blink {event.blink_id}: onset {event.onset_s:.3f} s, peak {event.peak_s:.3f} s, "
            f"offset {event.offset_s:.3f} s; expected them in this order"
        )
    return event


SCHEMA: Literal["poolctl-blink-review/1"] = "poolctl-blink-review/1"
LOG_NAME = "corrections.jsonl"


class LogHeader(BaseModel):
    """The first line."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_name: Literal["poolctl-blink-review/1"] = Field(alias="schema")
    result_sha256: str
    created_utc: str


class LogEntry(BaseModel):
    """One action."""

    model_config = ConfigDict(frozen=True)

    number: int
    """Counts from 1 without gaps."""
    utc: str
    """ISO 8601."""
    reviewer: str
    action: Action


@dataclass(frozen=True)
class LogContent:
    """The content of a log."""

    header: LogHeader | None
    entries: tuple[LogEntry, ...]
    whole_bytes: int
    """End of its last complete line."""


def read_log(path: Path) -> LogContent:
    """Read a log, as far as its lines are complete."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return LogContent(None, (), 0)
    except OSError as error:
        raise ReviewFolderError(f"{path}: {error.strerror or error}") from error
    whole_bytes = data.rfind(b"\n") + 1
    lines = data[:whole_bytes].splitlines()
    if not lines:
        return LogContent(None, (), 0)
    header = _parse_header(path, lines[0])
    entries = tuple(_parse_entry(path, number, line) for number, line in enumerate(lines[1:], 1))
    return LogContent(header, entries, whole_bytes)


def _parse_header(path: Path, line: bytes) -> LogHeader:
    try:
        return LogHeader.model_validate_json(line)
    except ValidationError as error:
        raise ReviewFolderError(f"{path}, line 1: is not the header of a review log") from error


def _parse_entry(path: Path, number: int, line: bytes) -> LogEntry:
    try:
        return LogEntry.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise ReviewFolderError(f"{path}, line {number + 1}: is damaged ({problem})") from error


class CorrectionLog:
    """The log of one result, open for writing by one process at a time.

    It begins with the first action: to look at a result leaves no files.
    """

    def __init__(self, folder: Path, result_sha256: str) -> None:
        self.path = folder / LOG_NAME
        self._result_sha256 = result_sha256
        self._opened: ExitStack | None = None
        self.entries: tuple[LogEntry, ...] = ()
        if self.path.exists():
            self._open()

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                in_use = f"{self.path}: another process has this review open; end that one first"
                lock = self.path.with_name(f".{self.path.name}.lock")
                opened.enter_context(locked(lock, busy=BusyError(in_use)))
                self._file = opened.enter_context(self.path.open("ab", buffering=0))
                self.entries = self._begin(self._result_sha256)
                self._opened = opened.pop_all()
        except OSError as error:
            raise ReviewFolderError(f"{self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def append(self, action: Action, reviewer: str) -> LogEntry:
        """Add an action; it is on the disk when this returns."""
        if self._opened is None:
            self._open()
            if self.entries:
                self.close()
                self._opened, self.entries = None, ()
                text = "was begun by another process meanwhile; open the review again"
                raise ReviewFolderError(f"{self.path}: {text}")
        entry = LogEntry(number=len(self.entries) + 1, utc=_now(), reviewer=reviewer, action=action)
        self._write(entry.model_dump_json(exclude_none=True))
        self.entries = (*self.entries, entry)
        return entry

    def _begin(self, result_sha256: str) -> tuple[LogEntry, ...]:
        content = read_log(self.path)
        if content.header is None:
            # New, or left by a process that was killed in the middle of the first line.
            self._file.truncate(0)
            header = LogHeader(schema=SCHEMA, result_sha256=result_sha256, created_utc=_now())
            self._write(header.model_dump_json(by_alias=True))
            return ()
        if content.header.result_sha256 != result_sha256:
            raise ReviewOutdatedError(
                f"{self.path}: these {len(content.entries)} corrections were made to another "
                f"result ({content.header.result_sha256[:12]}..., now "
                f"{result_sha256[:12]}...): the analysis was run again since. Repeat it with the "
                f"old settings, or move {self.path.parent} away to begin a new review"
            )
        self._file.truncate(content.whole_bytes)
        return content.entries

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        size = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(data) != len(data):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            raise ReviewFolderError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
