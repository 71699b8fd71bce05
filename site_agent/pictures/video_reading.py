"""Video files as streams of frames with their presentation times.

PyAV rather than OpenCV's `VideoCapture`: the latter hides decoding errors (a damaged video just
ends), derives times from the nominal rate on some back ends, so that variable frame rates shift
every blink, and reports a lost frame as the end of the file. PyAV gives each frame's own
time, the rotation that a phone wrote, and every error.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from site_agent.errors import VideoFileError
from site_agent.pictures.frame_pixels import (
    SQUARE_WITHIN,
    Placement,
    UInt8,
    grey_picture,
    rgb_picture,
    with_square_pixels,
)
from site_agent.wording import count_words

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture: uint8, (height, width) grey or (height, width, 3) RGB, upright."""

    index: int
    timestamp_s: float
    image: UInt8
    damaged: bool = False
    """Decoded from lost pictures: it may show closed eyes as open, or the reverse."""


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
    capture_rate_hz: float | None = None
    """Rate of filming of slow motion; None for a video that plays at its own speed."""
    slowed: float = 1.0
    """Factor by which slow motion plays more slowly; rates and times here are those of filming."""


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
    mirrored: bool = False
    hidden_frames: int = 0
    """Frames before the start or after the end of an edit list, which no player shows."""
    interlaced_frames: int = 0
    fields: bool = False
    """Each field of an interlaced picture is a frame."""
    last_time_s: float = 0.0
    times_from: str = "container"
    """Where the times of frames come from: ``container``, ``camera``, ``table NAME``, ``frame rate
    N Hz``, ``rate of filming`` or ``rate of the stream``."""
    warnings: list[str] = field(default_factory=list)


class FrameSource(Protocol):
    """A source of frames: a video file.

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
        fields: bool = False,
    ) -> None:
        """Open a video.

        `fields`: Make a frame of each field of interlaced video, which are half a frame apart;
        with a clock they stay together, as its times are those of whole frames.
        """
        self.path = Path(path)
        self._clock = clock
        self._grey = pixels == "grey"
        self._container, self._stream = _open(self.path)
        self.info = _describe(self.path, self._container, self._stream)
        self._untimed = self._container.format.name in _UNTIMED
        # AVI has places instead of times, in the order of decoding.
        self._in_decoding_order = self._container.format.name == "avi"
        self._slowed = self.info.slowed
        self.report = DecodingReport(times_from=clock.source if clock else self._times_from())
        self._aspect = float(self._stream.sample_aspect_ratio or 1)
        self._fields = fields and clock is None
        self._time_base = self._stream.time_base
        self._decoded_pictures = 0
        self._damage = _Damage()
        self._damaged_frames = 0
        self._rotation: int | None = None
        self._placement = Placement()

    def __enter__(self) -> "VideoReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._container.close()

    def _times_from(self) -> str:
        if self._untimed:
            return "rate of the stream"
        return "container" if self._slowed == 1.0 else "rate of filming"

    def require_times(self) -> None:
        """Raise `VideoFileError` if neither file nor clock says when the frames were taken."""
        if self._untimed and self._clock is None and self.info.declared_rate_hz is None:
            raise VideoFileError(
                f"{self.path}: is a raw stream, in which neither the frames have times nor a frame "
                "rate is written; give the camera's rate with --frame-rate-hz, or the times of the "
                "frames with --timestamps"
            )

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in presentation order."""
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
            elif self._untimed:
                time_s = self.report.decoded_frames * self._interval_s
            else:
                time_s = self._time_s(picture, origin_s)
            if time_s is None or time_s <= last_s:
                self.report.repaired_times += 1
                time_s = last_s + self._interval_s if self.report.decoded_frames else 0.0
            last_s = self.report.last_time_s = time_s
            index = self.report.decoded_frames
            self.report.decoded_frames += 1
            damaged = self._damage.spoils(fields=self.report.fields)
            self._damaged_frames += damaged
            yield Frame(index, time_s, self._upright(picture), damaged)
        self._conclude()

    @property
    def _interval_s(self) -> float:
        """The time between two frames where they have no times of their own."""
        interval_s = 1.0 / (self.info.declared_rate_hz or 30.0)
        return interval_s / 2 if self.report.fields else interval_s

    def _time_s(self, picture: "VideoFrame", origin_s: float) -> float | None:
        # The frame's own time base is unset for the last ones, which the decoder had kept back.
        # For raw streams without times FFmpeg invents some, at 25 frames a second.
        if self._untimed or picture.pts is None or self._time_base is None:
            return None
        return (float(picture.pts * self._time_base) - origin_s) / self._slowed

    def _pictures(self) -> "Iterator[VideoFrame]":
        """Decode; of interlaced video yield the fields where they are wanted."""
        decoded = self._decoded()
        first = next(decoded, None)
        if first is None:
            return
        whole = chain([first], decoded)
        if self._fields and first.interlaced_frame:
            self.report.fields = True
            self._time_base = (self._stream.time_base or Fraction(1)) / 2
            yield from _fields_of(whole, self._stream)
        else:
            yield from whole

    def _decoded(self) -> "Iterator[VideoFrame]":
        """Decode packet by packet, past the damaged ones."""
        places: deque[int | None] = deque()
        damage = self._damage = _Damage()
        for packet in self._packets():
            if packet is not None and damage.send(packet):
                self._note(ValueError("damaged packet"))
            if self._in_decoding_order and packet is not None:
                places.append(packet.dts)
            try:
                pictures = self._stream.codec_context.decode(packet)
            except (OSError, ValueError) as error:  # FFmpeg's errors are both
                self._note(error)
                damage.begin()
                if places:
                    places.pop()
                continue
            for picture in pictures:
                if places:
                    # Frames that refer to later ones are shown in another order, at the same times.
                    picture.pts = places.popleft()
                if picture.is_corrupt:
                    self._note(ValueError("damaged picture"))
                    if self._decoded_pictures or picture.key_frame:
                        damage.begin()
                    continue
                if damage.misses_key(picture):
                    self._note(ValueError("a key frame is missing"))
                if damage.take(picture, reorders=self._stream.codec_context.has_b_frames):
                    self._decoded_pictures += 1
                    self.report.interlaced_frames += bool(picture.interlaced_frame)
                    yield picture

    def _packets(self) -> "Iterator[Packet[VideoStream] | None]":
        """Yield the packets of the stream that hold data, and None at the end to flush."""
        try:
            for packet in self._container.demux(self._stream):
                if packet.size:
                    self.report.hidden_frames += packet.is_discard
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
        pixels = grey_picture(picture) if self._grey else rgb_picture(picture)
        pixels = with_square_pixels(pixels, self._aspect)
        if picture.rotation != self._rotation:
            # PyAV's side data and their frame keep each other: read of each frame, they filled the
            # memory with frames until garbage was collected.
            self._rotation, self._placement = picture.rotation, Placement.of(picture)
            self.report.rotation_deg = self._placement.turn_deg
            self.report.mirrored = self._placement.mirrored
        return self._placement.show(pixels)

    def _conclude(self) -> None:
        report, info = self.report, self.info
        if report.decoded_frames == 0:
            raise VideoFileError(
                f"{self.path}: no frame of the {info.codec} video could be decoded; "
                "the file is damaged or cut off before its first frame"
            )
        if report.decoding_errors:
            behind = (
                f"{count_words(self._damaged_frames, 'frame')} behind them, up to the next key "
                "frame, may show remains of earlier pictures and are not judged; "
            )
            report.warnings.append(
                f"{count_words(report.decoding_errors, 'packet')} could not be decoded "
                f"({report.first_error}); {behind * bool(self._damaged_frames)}"
                "all other frames that are there are used"
            )
        declared = info.declared_frames
        shown = None if declared is None else declared - report.hidden_frames
        if shown is not None and self._decoded_pictures < _WHOLE * shown:
            # First: everything else is about a part of the recording.
            report.warnings.insert(
                0,
                f"the video is not whole: {self._decoded_pictures} of its {shown} frames are "
                f"there, up to {report.last_time_s:.1f} s; copy the file again from its source",
            )
        elif shown is not None and shown != self._decoded_pictures:
            report.warnings.append(
                f"the file declares {shown} frames, {self._decoded_pictures} could be decoded"
            )
        elif (
            declared is None
            and info.duration_s
            and self._clock is None
            and report.last_time_s < _WHOLE * info.duration_s - self._interval_s
        ):
            report.warnings.insert(
                0,
                f"the video is not whole: its frames end at {report.last_time_s:.1f} of "
                f"{info.duration_s:.1f} s; copy the file again from its source",
            )
        report.warnings.extend(self._remarks())

    def _remarks(self) -> Iterator[str]:
        report, info = self.report, self.info
        streams = _video_streams(self._container)
        if len(streams) > 1:
            sizes = ", ".join(f"{stream.width} x {stream.height}" for stream in streams)
            yield (
                f"the file has {len(streams)} video streams ({sizes}), of which the first was "
                "read; for another one make a copy: ffmpeg -i VIDEO -map 0:v:1 -c copy COPY.mkv"
            )
        if self._clock is None and info.capture_rate_hz is not None:
            yield (
                f"slow motion: the file plays at {info.capture_rate_hz / info.slowed:.4g} frames/s "
                f"and says that it was filmed at {info.capture_rate_hz:.4g}; all times are those "
                "of filming (if that is wrong, give the true rate with --frame-rate-hz)"
            )
        if report.fields:
            yield (
                "interlaced: each picture of the file shows two moments, half a frame apart, line "
                "by line; each is a frame here, so there are twice as many frames a second"
            )
        elif report.interlaced_frames > report.decoded_frames // 2:
            yield (
                "interlaced: each frame shows two moments, half a frame apart, line by line; the "
                "eyes seem less open as they move. Give a copy with each field as a frame ('ffmpeg "
                "-i VIDEO -vf bwdif COPY.mkv') for responses and exact onsets"
            )
        transfer = _HIGH_RANGE.get(int(self._stream.codec_context.color_trc))
        if transfer:
            yield (
                f"the brightness is stored for high dynamic range ({transfer}), in which models "
                "for ordinary pictures see paler faces"
            )
        if abs(self._aspect - 1.0) >= SQUARE_WITHIN:
            yield (
                f"pixels are {self._aspect:.3g} times as wide as high; pictures of "
                f"{info.width_px} x {info.height_px} were stretched to square pixels"
            )
        if report.repaired_times:
            yield (
                f"{count_words(report.repaired_times, 'frame')} had no time of their own or "
                "one that did not come after the frame before: given the next interval"
            )


# FFmpeg's number.
_I_PICTURE = 1
_WHOLE = 0.95
"""Least share of the declared frames, or of the length, of a video that is not cut off."""
_MOST_KEPT_BACK = 16
"""Pictures that a decoder may keep back to show them in order, in any codec."""


class _Damage:
    """Tells which pictures were decoded from lost ones: all up to the next key picture.

    FFmpeg marks the lost ones themselves at best; those that refer to them look whole.
    """

    def __init__(self) -> None:
        self._spoiled = self._spoiled_before = self._in_packets = False
        self._since = 0
        self._key_sent = self._depends = self._behind = self._at_key = False
        self._keys: set[int] = set()
        self._behind_packets: set[int] = set()
        self._last: int | None = None
        self._shortest_step = math.inf

    def send(self, packet: "Packet[VideoStream]") -> bool:
        """Note a packet that is sent to the decoder; return whether the container damaged it."""
        self._depends |= not packet.is_keyframe
        self._key_sent |= packet.is_keyframe
        self._behind = packet.is_corrupt or (self._behind and not packet.is_keyframe)
        if packet.pts is not None and not packet.is_discard:
            if self._behind:
                self._behind_packets.add(packet.pts)
            elif packet.is_keyframe and (self._last is None or packet.pts > self._last):
                self._keys.add(packet.pts)
        return packet.is_corrupt

    def begin(self) -> None:
        """Note that a picture is lost."""
        self._spoiled = True
        # A key picture that comes soon may be one from before, which the decoder had kept back.
        self._since = 0 if self._key_sent else _MOST_KEPT_BACK

    def misses_key(self, picture: "VideoFrame") -> bool:
        """Return whether a key picture that should come before this one has silently got lost."""
        self._at_key = False
        if picture.pts is None:
            return False
        passed = {pts for pts in self._keys if pts <= picture.pts}
        # The I picture of an open group is a key to the container alone.
        self._at_key = picture.pts in passed and int(picture.pict_type) == _I_PICTURE
        self._keys -= passed
        if self._last is None:
            return False
        passed.discard(picture.pts)
        if picture.interlaced_frame:
            # The second field of the picture before may be a packet of its own.
            passed = {pts for pts in passed if pts > self._last + 0.75 * self._shortest_step}
        if not passed:
            return False
        was_spoiled = self._spoiled
        self.begin()
        return not was_spoiled

    def take(self, picture: "VideoFrame", *, reorders: bool) -> bool:
        """Judge the decoder's next picture; return False for a spoiled one that comes too late."""
        self._spoiled_before = self._spoiled
        held = reorders and self._depends and self._since < _MOST_KEPT_BACK
        if (picture.key_frame or self._at_key) and not held:
            self._spoiled = False
        self._since += 1
        pts = picture.pts
        self._in_packets = pts in self._behind_packets
        if pts is None or self._last is None or pts > self._last:
            if pts is not None and self._last is not None:
                self._shortest_step = min(self._shortest_step, pts - self._last)
            self._last = pts
            return True
        return not self._spoiled

    def spoils(self, *, fields: bool) -> bool:
        """Return whether the picture taken last is spoiled; its fields come one picture late."""
        return self._spoiled or self._in_packets or (fields and self._spoiled_before)


def _fields_of(pictures: "Iterator[VideoFrame]", stream: "VideoStream") -> "Iterator[VideoFrame]":
    """Yield each field as a whole picture, its missing lines filled in from both its neighbours."""
    from av.error import EOFError as EndOfFile
    from av.filter import Graph

    graph: Graph | None = None
    for picture in chain(pictures, [None]):
        if graph is None:
            assert picture is not None, "no first picture"
            graph = Graph()
            source = graph.add_buffer(
                width=picture.width,
                height=picture.height,
                format=picture.format,
                time_base=stream.time_base,
            )
            chosen = graph.add("bwdif", "mode=send_field:deint=interlaced")
            sink = graph.add("buffersink")
            source.link_to(chosen)
            chosen.link_to(sink)
            graph.configure()
        if picture is not None:
            picture.time_base = stream.time_base or picture.time_base
        graph.push(picture)
        with suppress(BlockingIOError, EndOfFile):
            while True:
                yield cast("VideoFrame", graph.pull())


_UNTIMED = frozenset(
    {"h264", "hevc", "vvc", "mjpeg", "mjpeg_2000", "m4v", "mpegvideo", "h261", "h263", "vc1", "obu"}
)
"""Raw streams: FFmpeg numbers their frames at 25 a second where it gives them times at all."""
_HIGH_RANGE = {16: "PQ", 18: "HLG"}
"""By FFmpeg's number of the transfer function."""


def file_url(path: Path | str) -> str:
    """Return a file's name for FFmpeg, which takes ``2026-05-04T10:30:00.mp4`` for a protocol."""
    return f"file:{path}"


def _video_streams(container: "InputContainer") -> "list[VideoStream]":
    """Return the streams of video, without covers and previews."""
    videos = container.streams.video
    return [stream for stream in videos if "attached_pic" not in str(stream.disposition).lower()]


def _open(path: Path) -> "tuple[InputContainer, VideoStream]":
    import av

    if not path.is_file():
        raise VideoFileError(f"{path}: no such file")
    if not path.stat().st_size:
        raise VideoFileError(f"{path}: is empty (0 bytes)")
    # From 19 on PyAV reads texts in any encoding, before only if told so.
    lenient: Any = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "replace"}
    try:
        container = av.open(file_url(path), **lenient)
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
    streams = _video_streams(container)
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


def _describe(path: Path, container: "InputContainer", stream: "VideoStream") -> VideoInfo:
    duration_s = float(container.duration) / 1e6 if container.duration else None
    if duration_s and "matroska" in container.format.name:
        # Counted from 0 and not from the first frame, as in the parts of a recording.
        duration_s -= origin_of(container, stream)
    rate = stream.average_rate or stream.guessed_rate
    if container.format.name in _UNTIMED:
        rate = stream.codec_context.framerate
    rate_hz = float(rate) if rate else None
    filmed_hz = _capture_rate_hz(path, {**container.metadata, **stream.metadata}, rate_hz)
    slowed = 1.0
    if filmed_hz and rate_hz:
        slowed = filmed_hz / rate_hz
        # The mean rate of a file is not quite that at which its frames play.
        slowed = round(slowed) if abs(slowed / round(slowed) - 1.0) < 0.02 else slowed
    return VideoInfo(
        path=path,
        container=container.format.name,
        codec=stream.codec_context.name,
        width_px=stream.codec_context.width,
        height_px=stream.codec_context.height,
        declared_frames=stream.frames or None,
        declared_rate_hz=filmed_hz or rate_hz,
        duration_s=duration_s / slowed if duration_s else None,
        creation_time=container.metadata.get("creation_time"),
        capture_rate_hz=filmed_hz,
        slowed=slowed,
    )


def _capture_rate_hz(
    path: Path, metadata: Mapping[str, str], playing_hz: float | None
) -> float | None:
    """Return the rate of filming of slow motion; None for a video that plays at its own speed.

    Android writes the rate into every video, which in the dark plays at fewer frames a second, too:
    only fast rates tell slow motion. Sony writes it into a text behind the pictures.
    """
    text = metadata.get("com.android.capture.fps", "")
    if not text:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST_BYTES))
            match = re.search(rb'\bcaptureFps="(\d+(?:\.\d+)?)[pi]?"', file.read())
        text = match[1].decode() if match else ""
    try:
        filmed_hz = float(text)
    except ValueError:
        return None
    fast = playing_hz and _SLOW_MOTION_HZ <= filmed_hz < 1e6 and filmed_hz >= 1.5 * playing_hz
    return filmed_hz if fast else None


_LAST_BYTES = 1 << 18
_SLOW_MOTION_HZ = 100.0


def origin_of(container: "InputContainer", stream: "VideoStream") -> float:
    """Return the time that a player shows as 0: where the container starts."""
    container_start: int | None = container.start_time  # None for raw streams
    if container_start is not None:
        return float(container_start) / 1e6
    if stream.start_time is not None and stream.time_base is not None:
        return float(stream.start_time * stream.time_base)
    return 0.0
