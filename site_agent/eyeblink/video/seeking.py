"""Single frames of a video by their number, in any order, and frames decoded ahead in a thread.

The number of a frame is the one that `VideoReader` gives it: its place among all frames that can be
decoded. Containers do not know it, so the times of all frames must be known, from frames.csv. A
frame is found by seeking to the key frame before it and decoding up to it, or from the start of the
file where that does not lead to it.
"""

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from site_agent.errors import VideoFileError
from site_agent.eyeblink.records import Float64
from site_agent.pictures.frame_pixels import UInt8
from site_agent.pictures.video_reading import VideoInfo, VideoReader, origin_of

if TYPE_CHECKING:
    from av.video.frame import VideoFrame


Item = TypeVar("Item")


class _End:
    """Marks the end of a stream in a queue, or the error that ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(items: Callable[[], Iterator[Item]], depth: int = 8) -> Generator[Item, None, None]:
    """Run a generator in a thread of its own, at most `depth` items ahead.

    Decoding leaves the interpreter's lock, so that frames are decoded while others are analysed.
    An error of the generator is raised here, after the items before it. When the caller stops
    early, the thread ends, too.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for item in items():
                if not put(item):
                    return
            put(_End())
        except BaseException as error:
            put(_End(error))

    thread = threading.Thread(target=run, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
        thread.join()


CACHE_BYTES = 128 * 1024 * 1024
"""Pictures between two key frames of a webcam fit: 250 of 640 x 480."""
MOST_STEPS_FORWARD = 100
"""Frames ahead up to which decoding on is cheaper than seeking."""
SEEK_AHEAD_S = 2.0
"""Containers seek by decoding times, which lie before those of presentation."""


class _Decoder(VideoReader):
    """The reader's way of decoding, from anywhere in the file."""

    def __init__(self, path: Path, interval_s: float) -> None:
        super().__init__(path, pixels="rgb")
        # The analysis made frames of fields if they are closer than the pictures of the file.
        self._fields = interval_s < 0.75 / (self.info.declared_rate_hz or 30.0)
        self._origin_s = origin_of(self._container, self._stream)

    def pictures_from(self, time_s: float | None) -> "Iterator[VideoFrame]":
        """Decode from the key frame at or before a time; None: a file that was just opened."""
        if time_s is not None:
            try:
                # Without a stream, times are microseconds.
                played_s = time_s * self._slowed + self._origin_s
                self._container.seek(max(0, round(played_s * 1e6)), backward=True)
            except (OSError, ValueError):
                return iter(())
            self._stream.codec_context.flush_buffers()
        return self._pictures()

    @property
    def counts_from_start(self) -> bool:
        """Say whether pictures have times by counting, and may be lost after a key frame."""
        return self._in_decoding_order and self._stream.codec_context.has_b_frames

    def time_s(self, picture: "VideoFrame") -> float | None:
        return self._time_s(picture, self._origin_s)

    def upright(self, picture: "VideoFrame") -> UInt8:
        return self._upright(picture)


class SeekableVideo:
    """Decodes the frames that are asked for and keeps those around them; safe between threads.

    `timestamps_s` (float64, shape (n,)): Times of all frames as `VideoReader` gives them, from the
    start of the recording.
    """

    def __init__(self, path: Path | str, timestamps_s: Float64) -> None:
        self.path = Path(path)
        self.frame_count = len(timestamps_s)
        self._timestamps_s = timestamps_s
        # Times in frames.csv are rounded to a microsecond.
        steps_s = np.diff(timestamps_s)
        self._tolerance_s = min(2e-5, float(steps_s.min()) / 3.0) if len(steps_s) else 2e-5
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, VideoFrame] = OrderedDict()
        self._interval_s = float(np.median(steps_s)) if len(steps_s) else 1.0
        self._decoder = _Decoder(self.path, self._interval_s)
        self._pictures: Iterator[VideoFrame] = iter(())
        self._position: int | None = None
        self._key_frame_seen = False

    @property
    def info(self) -> VideoInfo:
        return self._decoder.info

    def close(self) -> None:
        with self._lock:
            self._pictures = iter(())
            self._decoder.close()

    def picture(self, frame: int) -> UInt8:
        """Return one frame: uint8, shape (height, width, 3), RGB, upright."""
        if not 0 <= frame < self.frame_count:
            raise VideoFileError(f"{self.path}: has no frame {frame}, only {self.frame_count}")
        with self._lock:
            picture = self._cache.get(frame)
            if picture is None:
                picture = self._decode(frame)
            else:
                self._cache.move_to_end(frame)
            return self._decoder.upright(picture)

    def _decode(self, frame: int) -> "VideoFrame":
        picture = None
        if self._position is not None and 0 < frame - self._position <= MOST_STEPS_FORWARD:
            picture = self._advance(frame)
        time_s = float(self._timestamps_s[frame])
        starts_s = (time_s, time_s - SEEK_AHEAD_S, None)
        for start_s in starts_s[-1:] if self._decoder.counts_from_start else starts_s:
            if picture is None:
                self._start(start_s)
                picture = self._advance(frame)
        if picture is None:
            raise VideoFileError(
                f"{self.path}: frame {frame} cannot be decoded; the file is another one than the "
                "one that was analysed, or is damaged"
            )
        return picture

    def _start(self, time_s: float | None) -> None:
        """Go to the key frame before a time, or to the start of the file."""
        self._position, self._key_frame_seen = None, False
        if time_s is None:
            self._decoder.close()
            self._decoder = _Decoder(self.path, self._interval_s)
            self._position, self._key_frame_seen = -1, True
        self._pictures = self._decoder.pictures_from(time_s)

    def _advance(self, frame: int) -> "VideoFrame | None":
        """Decode up to a frame; return None if the stream does not have it."""
        for picture in self._pictures:
            # Pictures shown before the key frame may refer to others that were not decoded.
            self._key_frame_seen = self._key_frame_seen or bool(picture.key_frame)
            number = self._number_of(picture)
            if number is None:
                continue
            self._position = number
            if not self._key_frame_seen:
                continue
            self._keep(number, picture)
            if number == frame:
                return picture
            if number > frame:
                return None
        self._position = None
        return None

    def _number_of(self, picture: "VideoFrame") -> int | None:
        """Return the number of the decoder's next picture; None while it is unknown.

        Counted on from the picture before, as the reader counts. Its time says more only when
        pictures were left out in between: not all damaged ones are found from everywhere.
        """
        counted = None if self._position is None else self._position + 1
        time_s = self._decoder.time_s(picture)
        if time_s is None:
            return counted
        near = int(np.searchsorted(self._timestamps_s, time_s - self._tolerance_s))
        if near == self.frame_count or self._timestamps_s[near] - time_s > self._tolerance_s:
            return counted
        return near if counted is None else max(near, counted)

    def _keep(self, number: int, picture: "VideoFrame") -> None:
        self._cache[number] = picture
        self._cache.move_to_end(number)
        size = max(1, picture.width * picture.height * 3 // 2)
        while len(self._cache) > max(8, CACHE_BYTES // size):
            self._cache.popitem(last=False)
