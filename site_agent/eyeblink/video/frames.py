"""Video files as streams of frames with their presentation times.

PyAV rather than OpenCV's `VideoCapture`: the latter hides decoding errors (a damaged video just
ends), derives times from the nominal rate on some back ends, so that variable frame rates shift
every blink, and reports a lost frame as the end of the file. PyAV gives each frame's own
time, the rotation that a phone wrote, and every error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import VideoFileError
from site_agent.pictures.images import FULL_BITS, to_8_bits
from site_agent.wording import count_words

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


UInt8 = NDArray[np.uint8]

SQUARE_WITHIN = 0.01
"""Scaled videos often declare pixels that are not quite square, as their sides are rounded."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture: uint8, (height, width) grey or (height, width, 3) RGB, upright."""

    index: int
    timestamp_s: float
    image: UInt8


@dataclass(frozen=True)
class VideoInfo:
    """The container's own description, before anything is decoded; None where it says nothing."""

    path: Path
    container: str
    codec: str
    width_px: int
    height_px: int
    declared_frames: int | None
    declared_rate_hz: float | None
    duration_s: float | None
    creation_time: str | None = None


@dataclass
class DecodingReport:
    """A report on the decoding; complete once the frames have been read."""

    decoded_frames: int = 0
    decoding_errors: int = 0
    first_error: str = ""
    repaired_times: int = 0
    """Frames without a time of their own, or one not after the frame before: they got the time of
    the frame before plus one frame interval."""
    rotation_deg: int = 0
    last_time_s: float = 0.0
    times_from: str = "container"
    """Where the times of frames come from: ``container``, ``camera``, ``table NAME`` or ``frame
    rate N Hz``."""
    warnings: list[str] = field(default_factory=list)


class FrameSource(Protocol):
    """A source of frames: a video file, a folder of images, a camera.

    `info` is known before the first frame, `report` complete after the last one.
    """

    @property
    def info(self) -> VideoInfo: ...

    @property
    def report(self) -> DecodingReport: ...

    def frames(self) -> Iterator[Frame]: ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Times of frames to use instead of those in the file (see `times`)."""

    @property
    def source(self) -> str: ...

    def time_s(self, frame: int, /) -> float: ...


class VideoReader:
    """Reads one video file from the beginning, once."""

    def __init__(
        self,
        path: Path | str,
        *,
        pixels: Literal["grey", "rgb"] = "grey",
        clock: Clock | None = None,
        bits: int = FULL_BITS,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._grey = pixels == "grey"
        self._container, self._stream = _open(self.path)
        self.info = _describe(self.path, self._container, self._stream)
        self.report = DecodingReport(times_from=clock.source if clock else "container")
        self._bits = bits
        self._aspect = float(self._stream.sample_aspect_ratio or 1)

    def __enter__(self) -> "VideoReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._container.close()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in presentation order."""
        interval_s = 1.0 / (self.info.declared_rate_hz or 30.0)
        origin_s = origin_of(self._container, self._stream)
        last_s = float("-inf")
        for picture in self._pictures():
            if self._clock is not None:
                if self.report.decoding_errors:
                    raise VideoFileError(
                        f"{self.path}: is damaged ({self.report.first_error}); the frames behind "
                        f"the damage cannot get their times from the {self._clock.source}"
                    )
                time_s: float | None = self._clock.time_s(self.report.decoded_frames)
            else:
                time_s = self._time_s(picture, origin_s)
            if time_s is None or time_s <= last_s:
                self.report.repaired_times += 1
                time_s = last_s + interval_s if self.report.decoded_frames else 0.0
            last_s = self.report.last_time_s = time_s
            index = self.report.decoded_frames
            self.report.decoded_frames += 1
            yield Frame(index, time_s, self._upright(picture))
        self._conclude()

    def _time_s(self, picture: "VideoFrame", origin_s: float) -> float | None:
        # The frame's own time base is unset for the last ones, which the decoder had kept back.
        if picture.pts is None or self._stream.time_base is None:
            return None
        return float(picture.pts * self._stream.time_base) - origin_s

    def _pictures(self) -> "Iterator[VideoFrame]":
        """Decode packet by packet, past the damaged ones."""
        for packet in self._packets():
            try:
                pictures = self._stream.codec_context.decode(packet)
            except (OSError, ValueError) as error:  # FFmpeg's errors are both
                self._note(error)
                continue
            for picture in pictures:
                if picture.is_corrupt:
                    self._note(ValueError("damaged picture"))
                else:
                    yield picture

    def _packets(self) -> "Iterator[Packet[VideoStream] | None]":
        """Yield the packets of the stream that hold data, and None at the end to flush."""
        try:
            for packet in self._container.demux(self._stream):
                if packet.size:
                    yield packet
        except (OSError, ValueError) as error:
            self._note(error)
        yield None

    def _note(self, error: Exception) -> None:
        if isinstance(error, EOFError):
            return
        self.report.decoding_errors += 1
        self.report.first_error = self.report.first_error or str(error)

    def _upright(self, picture: "VideoFrame") -> UInt8:
        if self._bits < FULL_BITS and is_deep(picture):
            pixels = deep_picture(picture, self._bits, grey=self._grey)
        else:
            pixels = grey_picture(picture) if self._grey else _rgb_picture(picture)
        pixels = _with_square_pixels(pixels, self._aspect)
        turn_deg = round(picture.rotation / 90.0) * 90 % 360
        self.report.rotation_deg = turn_deg
        # FFmpeg's display matrix counts anticlockwise, as rot90 does.
        upright = np.rot90(pixels, turn_deg // 90) if turn_deg else pixels
        return np.ascontiguousarray(upright)

    def _conclude(self) -> None:
        report, info = self.report, self.info
        if report.decoded_frames == 0:
            raise VideoFileError(
                f"{self.path}: no frame of the {info.codec} video could be decoded; "
                "the file is damaged or cut off before its first frame"
            )
        if report.decoding_errors:
            report.warnings.append(
                f"{count_words(report.decoding_errors, 'packet')} could not be decoded "
                f"({report.first_error}); all other frames are used"
            )
        declared = info.declared_frames
        if declared is not None and declared != report.decoded_frames:
            report.warnings.append(
                f"the file declares {declared} frames, {report.decoded_frames} could be decoded"
            )
        elif declared is None and info.duration_s and self._clock is None:
            interval_s = 1.0 / (info.declared_rate_hz or 30.0)
            if report.last_time_s < 0.95 * info.duration_s - interval_s:
                report.warnings.append(
                    f"the file declares {info.duration_s:.1f} s, its frames end at "
                    f"{report.last_time_s:.1f} s"
                )
        if abs(self._aspect - 1.0) >= SQUARE_WITHIN:
            report.warnings.append(
                f"pixels are {self._aspect:.3g} times as wide as high; pictures of "
                f"{info.width_px} x {info.height_px} were stretched to square pixels"
            )
        if report.repaired_times:
            report.warnings.append(
                f"{count_words(report.repaired_times, 'frame')} had no time of their own or "
                "one that did not come after the frame before: given the next interval"
            )


def _open(path: Path) -> "tuple[InputContainer, VideoStream]":
    import av

    if not path.is_file():
        raise VideoFileError(f"{path}: no such file")
    try:
        container = av.open(str(path), metadata_errors="replace")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise VideoFileError(
            f"{path}: cannot be opened as a video ({getattr(error, 'strerror', None) or error}); "
            "it is not a video, or it was cut off before its index was written"
        ) from error
    if container.format.name == "image2" or container.format.name.endswith("_pipe"):
        container.close()
        raise VideoFileError(
            f"{path}: is a still picture, expected a video, or a folder of pictures with their "
            "times"
        )
    videos = container.streams.video
    streams = [stream for stream in videos if "attached_pic" not in str(stream.disposition).lower()]
    if not streams:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        container.close()
        raise VideoFileError(f"{path}: found {kinds}, expected a video stream")
    stream = streams[0]
    # The type says that there always is one; for a codec unknown to FFmpeg there is not.
    if getattr(stream, "codec_context", None) is None:
        container.close()
        raise VideoFileError(f"{path}: no decoder is known for its video stream")
    stream.thread_type = "AUTO"
    return container, stream


def _with_square_pixels(pixels: UInt8, aspect: float) -> UInt8:
    """Stretch a picture of DV and other anamorphic video; eyes would seem more or less open."""
    if abs(aspect - 1.0) < SQUARE_WITHIN:
        return pixels
    import cv2

    height, width = pixels.shape[:2]
    size = (round(width * max(aspect, 1.0)), round(height / min(aspect, 1.0)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def _rgb_picture(picture: "VideoFrame") -> UInt8:
    return picture.to_ndarray(format="rgb24").astype(np.uint8, copy=False)


def _describe(path: Path, container: "InputContainer", stream: "VideoStream") -> VideoInfo:
    duration_s = float(container.duration) / 1e6 if container.duration else None
    rate = stream.average_rate or stream.guessed_rate
    return VideoInfo(
        path=path,
        container=container.format.name,
        codec=stream.codec_context.name,
        width_px=stream.codec_context.width,
        height_px=stream.codec_context.height,
        declared_frames=stream.frames or None,
        declared_rate_hz=float(rate) if rate else None,
        duration_s=duration_s,
        creation_time=container.metadata.get("creation_time"),
    )


def origin_of(container: "InputContainer", stream: "VideoStream") -> float:
    """Return the time that a player shows as 0: where the container starts."""
    container_start: int | None = container.start_time  # None for raw streams
    if container_start is not None:
        return float(container_start) / 1e6
    if stream.start_time is not None and stream.time_base is not None:
        return float(stream.start_time * stream.time_base)
    return 0.0


BRIGHTNESS_FIRST = frozenset(
    {"yuv410p", "yuv411p", "yuv420p", "yuv422p", "yuv440p", "yuv444p"}
    | {"yuva420p", "yuva422p", "yuva444p", "nv12", "nv16", "nv21", "nv24"}
)
"""Pixel formats of 8 bits with the brightness in their first plane."""
FULL_RANGE = frozenset({"gray", "yuvj411p", "yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p"})
"""The same, 0..255 by definition."""
_FULL_RANGE_FLAG = 2  # AVCOL_RANGE_JPEG


def grey_picture(picture: "VideoFrame") -> UInt8:
    """Return a frame's brightness, 0 black and 255 white: uint8 (height, width), its own memory.

    Most video counts black as 16 and white as 235 ("limited range"); it is stretched as FFmpeg
    does, so that one model serves videos and photographs.
    """
    name = picture.format.name
    if name in FULL_RANGE:
        return _first_plane(picture).copy()
    if name in BRIGHTNESS_FIRST:
        if int(picture.color_range) == _FULL_RANGE_FLAG:
            return _first_plane(picture).copy()
        return _stretched(_first_plane(picture))
    return np.ascontiguousarray(picture.to_ndarray(format="gray"), dtype=np.uint8)


def is_deep(picture: "VideoFrame") -> bool:
    """Return whether a frame has 16 bits a pixel, grey or RGB."""
    layout = picture.format
    return layout.components[0].bits == FULL_BITS and (layout.is_rgb or len(layout.components) == 1)


def deep_picture(picture: "VideoFrame", bits: int, *, grey: bool) -> UInt8:
    """Return a frame of 16 bits with `bits` in use; brighter values become white.

    Returns uint8, shape (height, width) if `grey`, else (height, width, 3): Grey or RGB.
    """
    import cv2

    layout = "rgb48le" if picture.format.is_rgb else "gray16le"
    pixels = to_8_bits(picture.to_ndarray(format=layout).astype(np.uint16, copy=False), bits)
    if pixels.ndim == 2:
        return pixels if grey else np.dstack([pixels] * 3)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8) if grey else pixels


def _first_plane(picture: "VideoFrame") -> UInt8:
    """Return a view of the first plane without the padding at the end of its lines."""
    plane = picture.planes[0]
    lines = np.frombuffer(plane, dtype=np.uint8).reshape(-1, plane.line_size)  # type: ignore[call-overload]
    return np.asarray(lines[: picture.height, : picture.width], dtype=np.uint8)


def _stretched(brightness: UInt8) -> UInt8:
    import cv2

    return np.asarray(cv2.LUT(brightness, _limited_to_full()), dtype=np.uint8)


@lru_cache(maxsize=1)
def _limited_to_full() -> UInt8:
    levels = (np.arange(256) - 16.0) * (255.0 / 219.0)
    return np.clip(np.round(levels), 0, 255).astype(np.uint8)
