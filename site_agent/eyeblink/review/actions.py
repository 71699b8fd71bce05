"""Actions of a reviewer, as the page sends them and the log keeps them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    landmark model. `moved` are those that the reviewer has moved, counted from 0.
    """

    action: Literal["use_frame"] = "use_frame"
    frame: FrameNumber
    landmarks: Annotated[tuple[Point, ...], Field(min_length=68, max_length=68)] | None = None
    moved: tuple[Annotated[int, Field(ge=0, lt=68)], ...] = ()


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
