"""The endpoints of the review page: JSON, pictures and numbers."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from site_agent.errors import ReviewActionError, SiteAgentError
from site_agent.eyeblink.records import Float64, Gap, Int64
from site_agent.eyeblink.review.actions import Action, ReviewEvent
from site_agent.eyeblink.review.review_session import ReviewSession
from site_agent.eyeblink.review.reviewed_session import doubt_of, suggest_blink
from site_agent.plain_json import plain


@dataclass(frozen=True, eq=False)
class TraceWindow:
    """A part of the signals, frame by frame or in bins."""

    frames: Int64
    """The first frame of each bin."""
    times_s: Float64
    """The middle of each bin."""
    lows: Mapping[str, Float64]
    highs: Mapping[str, Float64]
    is_exact: bool
    """Single frames; otherwise the extent of the signals in each bin."""


def trace_window(
    timestamps_s: Float64,
    signals: Mapping[str, Float64],
    from_s: float,
    to_s: float,
    most_points: int,
) -> TraceWindow:
    """Return the signals between two times, with one frame more on either side.

    Minimum and maximum of each bin are kept, so that no blink is lost however far the view is
    zoomed out.
    """
    count = len(timestamps_s)
    first = max(0, int(np.searchsorted(timestamps_s, from_s)) - 1)
    last = min(count, int(np.searchsorted(timestamps_s, to_s, side="right")) + 1)
    if last - first <= most_points:
        part = slice(first, last)
        values = {name: signal[part] for name, signal in signals.items()}
        return TraceWindow(np.arange(first, last), timestamps_s[part], values, values, True)
    edges_s = np.linspace(from_s, to_s, most_points + 1)
    starts = np.searchsorted(timestamps_s, edges_s)
    filled = np.flatnonzero(np.diff(starts) > 0)
    begins = starts[filled]
    # reduceat's last bin reaches to the end of what it is given.
    part = slice(int(begins[0]), int(starts[filled[-1] + 1]))
    return TraceWindow(
        frames=begins,
        times_s=(edges_s[filled] + edges_s[filled + 1]) / 2.0,
        lows=_reduce(np.fmin, signals, part, begins),
        highs=_reduce(np.fmax, signals, part, begins),
        is_exact=False,
    )


def _reduce(
    reduction: np.ufunc, signals: Mapping[str, Float64], part: slice, begins: Int64
) -> dict[str, Float64]:
    return {
        name: reduction.reduceat(signal[part], begins - part.start)
        for name, signal in signals.items()
    }


def gap_runs(
    timestamps_s: Float64, gap_codes: np.typing.NDArray[np.uint8]
) -> list[tuple[float, float, int]]:
    """Return where the eyes were not seen: from, to, code of the reason; one entry a run."""
    if len(gap_codes) == 0:
        return []
    changes = np.flatnonzero(np.diff(gap_codes)) + 1
    starts = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [len(gap_codes)]])
    return [
        (float(timestamps_s[start]), float(timestamps_s[end - 1]), int(gap_codes[start]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if gap_codes[start]
    ]


STATIC = Path(__file__).parent / "static"
DRAWN_SIGNALS = ("fec", "fec_left", "fec_right", "ear", "confidence")
MOST_POINTS = 4000
LARGEST_SIDE_PX = 4096
JPEG_QUALITY = 90

Read = Callable[[Request], Response]


class ActionRequest(BaseModel):
    """A change that the page asks for."""

    model_config = ConfigDict(extra="forbid")

    revision: Annotated[int, Field(ge=0)]
    """Number of actions that the page has seen."""
    action: Action


class _BadRequestError(Exception):
    """A query that makes no sense; only the page itself sends any."""


def review_application(review: ReviewSession, reword: Callable[[str], str] = str) -> Starlette:
    """Return the application behind the guard; `reword`: For remarks of the analysis."""
    views = _Views(review, reword)
    return Starlette(
        routes=[
            Route("/", _page, name="page"),
            Route("/api/session", views.session),
            Route("/api/timestamps", views.timestamps),
            Route("/api/state", views.state),
            Route("/api/trace", views.trace),
            Route("/api/frames/{frame:int}.jpg", views.picture),
            Route("/api/frames/{frame:int}", views.frame),
            Route("/api/suggestions/{frame:int}", views.suggestion),
            Route("/api/actions", views.act, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={
            ReviewActionError: _error_response(409),
            SiteAgentError: _error_response(500),
            _BadRequestError: _error_response(400),
        },
    )


def _error_response(status: int) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return JSONResponse({"error": str(error)}, status)

    return respond


def _page(request: Request) -> Response:  # noqa: ARG001
    html = (STATIC / "index.html").read_bytes()
    return Response(html, media_type="text/html")


class _Views:
    """One method an address; those that compute run in threads."""

    def __init__(self, review: ReviewSession, reword: Callable[[str], str]) -> None:
        self._review, self._reword = review, reword
        self._doubts = {
            event.blink_id: doubt_of(event, review.result) for event in review.result.events
        }

    def session(self, request: Request) -> Response:  # noqa: ARG002
        """Return the facts that stay the same during a review."""
        review = self._review
        frames = review.result.frames
        warnings = [*review.warnings, *review.result.session.warnings]
        source = review.result.source("video") or review.result.source("trace")
        height_px, width_px = review.video.picture(0).shape[:2] if review.video else (None, None)
        return JSONResponse(
            {
                "name": source.name if source else review.result.folder.name,
                "folder": review.result.folder.resolve().name,
                "reviewer": review.reviewer,
                "frames": len(frames.timestamps_s),
                "first_s": float(frames.timestamps_s[0]),
                "last_s": float(frames.timestamps_s[-1]),
                "video": {"width_px": width_px, "height_px": height_px} if review.video else None,
                "landmarks": review.finder is not None,
                "has_fec": bool(np.isfinite(review.result.signals["fec"]).any()),
                "complete_fec": review.result.session.settings.blinks.complete_fec,
                "gaps": gap_runs(frames.timestamps_s, frames.gaps),
                "gap_reasons": [gap.text for gap in Gap],
                "warnings": list(map(self._reword, warnings)),
            }
        )

    def timestamps(self, request: Request) -> Response:  # noqa: ARG002
        """Return the times of all frames: little-endian float64."""
        data = self._review.result.frames.timestamps_s.astype("<f8").tobytes()
        return Response(data, media_type="application/octet-stream")

    def state(self, request: Request) -> Response:  # noqa: ARG002
        return JSONResponse(self._described_state())

    def trace(self, request: Request) -> Response:
        """Return the signals between two times, at most `points` of them."""
        frames = self._review.result.frames
        from_s, to_s = _number(request, "from_s"), _number(request, "to_s")
        points = int(min(max(_number(request, "points"), 16), MOST_POINTS))
        if not from_s < to_s:
            raise _BadRequestError("expected from_s below to_s")
        signals = {name: self._review.result.signals[name] for name in DRAWN_SIGNALS}
        window = trace_window(frames.timestamps_s, signals, from_s, to_s, points)
        content: dict[str, Any] = {
            "exact": window.is_exact,
            "frames": window.frames,
            "times_s": np.round(window.times_s, 6),
            "high": {name: np.round(values, 4) for name, values in window.highs.items()},
            "low": {name: np.round(values, 4) for name, values in window.lows.items()},
        }
        return JSONResponse(plain(content))

    def frame(self, request: Request) -> Response:
        """Return the values of one frame, and the places of its landmarks."""
        number = self._frame_number(request)
        frames = self._review.result.frames
        box = frames.box(number)
        content: dict[str, Any] = {
            "frame": number,
            "time_s": float(frames.timestamps_s[number]),
            "reason": Gap(int(frames.gaps[number])).text,
            "box": [box.left, box.top, box.right, box.bottom] if box else None,
            "landmarks": None,
            **{name: signal[number] for name, signal in self._review.result.signals.items()},
        }
        chosen = self._review.state.frames.get(number)
        if chosen is not None and chosen.landmarks is not None:
            content["landmarks"] = [list(point) for point in chosen.landmarks]
        elif request.query_params.get("landmarks") == "1":
            landmarks = self._review.landmarks(number)
            if landmarks is not None:
                content["landmarks"] = np.round(landmarks.landmarks, 3)
                content["box"] = [
                    landmarks.box.left, landmarks.box.top, landmarks.box.right, landmarks.box.bottom
                ]  # fmt: skip
        return JSONResponse(plain(content))

    def picture(self, request: Request) -> Response:
        """Return one frame as JPEG, not larger than `side`."""
        video = self._review.video
        if video is None:
            raise _BadRequestError("there is no video")
        image = Image.fromarray(video.picture(self._frame_number(request)))
        side = int(min(max(_number(request, "side", 1280), 16), LARGEST_SIDE_PX))
        if side < max(image.size):
            image.thumbnail((side, side), Image.Resampling.BILINEAR, reducing_gap=2.0)
        data = io.BytesIO()
        image.save(data, "JPEG", quality=JPEG_QUALITY)
        # The page keeps what it has shown; the address holds the secret and ends with it.
        headers = {"cache-control": "private, max-age=3600"}
        return Response(data.getvalue(), media_type="image/jpeg", headers=headers)

    def suggestion(self, request: Request) -> Response:
        """A blink around a frame, for the reviewer to add and correct."""
        suggested = suggest_blink(self._review.result, self._frame_number(request))
        return JSONResponse(suggested.model_dump())

    async def act(self, request: Request) -> Response:
        body = await request.body()
        try:
            asked = ActionRequest.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            raise _BadRequestError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        await run_in_threadpool(self._review.act, asked.action, asked.revision)
        return JSONResponse(self._described_state())

    def _described_state(self) -> dict[str, Any]:
        review = self._review
        state = review.state
        return {
            "revision": review.revision,
            "events": [self._described_event(event) for event in state.events],
            "training": [
                {"frame": frame.frame, "moved": list(frame.moved)}
                for frame in sorted(state.frames.values(), key=lambda frame: frame.frame)
            ],
            "undoable": state.undoable,
            "redoable": state.redoable,
        }

    def _described_event(self, event: ReviewEvent) -> dict[str, Any]:
        doubt = self._doubts.get(event.blink_id)
        return {
            "id": event.blink_id,
            "kind": event.kind,
            "completeness": event.completeness,
            "onset_s": event.onset_s,
            "peak_s": event.peak_s,
            "offset_s": event.offset_s,
            "status": event.status.value,
            "confidence": plain(self._review.result.confidences.get(event.blink_id)),
            "doubt": doubt.score if doubt else 0.0,
            "reasons": list(doubt.reasons) if doubt else [],
        }

    def _frame_number(self, request: Request) -> int:
        number = int(request.path_params["frame"])
        count = len(self._review.result.frames.timestamps_s)
        if not 0 <= number < count:
            raise _BadRequestError(f"there is no frame {number}, only {count}")
        return number


def _number(request: Request, name: str, default: float | None = None) -> float:
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _BadRequestError(f"{name} is {text!r}, expected a number")
    return value
