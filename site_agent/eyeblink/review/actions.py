"""Actions of a reviewer, and the reviewed result: the automatic one with a list of actions.

Laws: the same actions give the same state; an action followed by undo gives the state before it;
undo followed by redo gives the state before both; nothing changes the automatic result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from site_agent.datasets.landmark_schemes import EYE_POINTS, IBUG_PARTS
from site_agent.errors import ReviewActionError
from site_agent.eyeblink.blinks.finding import BlinkKind, Completeness

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
    """Back to what the analysis, or the reviewer who added it, had said; not reviewed."""

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
    """The frame goes into the training set.

    The landmarks are as the reviewer left them, in pixels of the upright frame; None without a
    landmark model. They are the 68 of the iBUG scheme, or the 12 of its eyes. `moved` are those
    that the reviewer has moved, counted from 0.
    """

    action: Literal["use_frame"] = "use_frame"
    frame: FrameNumber
    landmarks: tuple[Point, ...] | None = None
    moved: tuple[Annotated[int, Field(ge=0, lt=IBUG_PARTS)], ...] = ()

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
    """Do again what was taken back last, if nothing else was done since."""

    action: Literal["redo"] = "redo"


Change = Accept | Correct | Delete | Restore | Add | UseFrame | DropFrame
Action = Annotated[Change | Undo | Redo, Field(discriminator="action")]


class ReviewStatus(StrEnum):
    """Status of a blink in a review."""

    UNREVIEWED = "unreviewed"
    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    ADDED = "added"
    DELETED = "deleted"


@dataclass(frozen=True)
class ReviewEvent:
    """A blink as it stands; added ones get the next free numbers."""

    blink_id: int
    kind: BlinkKind
    onset_s: float
    peak_s: float
    offset_s: float
    completeness: Completeness
    status: ReviewStatus = ReviewStatus.UNREVIEWED

    @property
    def duration_ms(self) -> float:
        return (self.offset_s - self.onset_s) * 1000.0


@dataclass(frozen=True)
class TrainingFrame:
    """A frame chosen for training; see `actions.UseFrame`."""

    frame: int
    landmarks: tuple[Point, ...] | None
    moved: tuple[int, ...]


@dataclass(frozen=True)
class ReviewState:
    """The result of all actions: `events` by onset, deleted ones among them."""

    events: tuple[ReviewEvent, ...]
    frames: Mapping[int, TrainingFrame]
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
    """Return the state that the actions lead to.

    Raises
    ------
    ReviewActionError
        An action that does not apply: no such blink, a deleted one, times out of order.
    """
    standing, taken_back = effective_changes(actions)
    first = {event.blink_id: event for event in automatic}
    events = dict(first)
    frames: dict[int, TrainingFrame] = {}
    next_id = max(first, default=0) + 1
    for change in standing:
        if isinstance(change, Add):
            added = _add(change, next_id)
            first[next_id] = events[next_id] = added
            next_id += 1
        elif isinstance(change, UseFrame):
            frames[change.frame] = TrainingFrame(change.frame, change.landmarks, change.moved)
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
        confirmed = event.status is not ReviewStatus.UNREVIEWED
        return event if confirmed else replace(event, status=ReviewStatus.ACCEPTED)
    return _correct(event, change)


def _correct(event: ReviewEvent, change: Correct) -> ReviewEvent:
    given = change.model_dump(exclude={"action", "blink_id"}, exclude_none=True)
    if not given:
        raise ReviewActionError(f"blink {event.blink_id}: the correction changes nothing")
    # What was added by hand stays recognisable as such, however often it is moved.
    status = event.status if event.status is ReviewStatus.ADDED else ReviewStatus.CORRECTED
    return _check(replace(event, **given, status=status))


def _check(event: ReviewEvent) -> ReviewEvent:
    in_order = event.onset_s <= event.peak_s <= event.offset_s
    if not in_order or event.onset_s == event.offset_s:
        raise ReviewActionError(
            f"blink {event.blink_id}: onset {event.onset_s:.3f} s, peak {event.peak_s:.3f} s, "
            f"offset {event.offset_s:.3f} s; expected them in this order"
        )
    return event
