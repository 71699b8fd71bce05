"""Cameras as streams of frames, recorded with the time of each: the one door to `VideoCapture`."""

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import InvalidInputError, VideoFileError
from site_agent.pictures.frame_pixels import UInt8
from site_agent.pictures.video import Encoder
from site_agent.pictures.video_reading import DecodingReport, Frame, VideoInfo, file_url

if TYPE_CHECKING:
    from av.container import OutputContainer


class VideoRecorder:
    """Writes H.264 in the container that the name asks for.

    A Matroska file (``.mkv``) can be read up to where it ends even when the program is killed;
    an ``.mp4`` cannot. A file that is there is replaced with the first picture, not before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = False
        self._container: OutputContainer | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unsettled-", dir=path.parent) as folder:
                _opened(Path(folder) / path.name).close()
        except (OSError, ValueError) as error:
            raise self._refused(error) from error

    def write(self, picture: NDArray[np.uint8], time_s: float) -> None:
        """Add a picture, uint8 (height, width, 3) BGR; an odd last row or column is left out."""
        if self._container is None:
            try:
                self._container = _opened(self.path)
            except (OSError, ValueError) as error:
                raise self._refused(error) from error
            self._encoder, self.begun = Encoder(self._container, quality_crf=18), True
        height, width = picture.shape[0] // 2 * 2, picture.shape[1] // 2 * 2
        self._encoder.add(np.ascontiguousarray(picture[:height, :width, ::-1]), time_s)

    def close(self) -> None:
        if self._container is not None:
            self._encoder.finish()
            self._container.close()
            self._container = None

    def _refused(self, error: Exception) -> VideoFileError:
        reason = getattr(error, "strerror", None) or error
        return VideoFileError(
            f"{self.path}: cannot be written as a video ({reason}); expected a name such as "
            "recording.mkv or recording.mp4"
        )


def _opened(path: Path) -> "OutputContainer":
    import av

    return av.open(file_url(path), "w")


class CameraReader:
    """Reads a camera until it is stopped.

    Times are those of this machine's monotonic clock when a picture arrived, from the first one:
    the times that cameras report themselves differ too much. They contain the camera's own delay.

    `frame_rate_hz`: asked of the camera, which may choose another. `record`: write the analysed
    pictures to a video, with the same times; an existing file is replaced with the first picture.
    """

    def __init__(
        self,
        device: int | str,
        *,
        seconds: float | None = None,
        frame_rate_hz: float | None = None,
        record: Path | str | None = None,
    ) -> None:
        import cv2

        self.name = f"camera {device}"
        self._seconds = seconds
        self._stopped = threading.Event()
        _silence_opencv()
        self._capture = cv2.VideoCapture(device)
        if not self._capture.isOpened():
            raise InvalidInputError(
                f"{self.name} cannot be opened: no camera of this number, no permission, or "
                "another program uses it"
            )
        if frame_rate_hz is not None:
            self._capture.set(cv2.CAP_PROP_FPS, frame_rate_hz)
        rate_hz = float(self._capture.get(cv2.CAP_PROP_FPS))
        self.info = VideoInfo(
            path=Path(self.name),
            container="camera",
            codec=str(self._capture.getBackendName()).lower(),
            width_px=int(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH)),
            height_px=int(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT)),
            declared_frames=None,
            declared_rate_hz=rate_hz if rate_hz > 0 else None,
            duration_s=seconds,
        )
        self.report = DecodingReport(times_from="camera")
        self._recorder = VideoRecorder(Path(record)) if record is not None else None

    @property
    def recording(self) -> Path | None:
        """Where the recording is; None where there is none, or nothing to record came."""
        return self._recorder.path if self._recorder and self._recorder.begun else None

    def stop(self) -> None:
        """End after the frame that is being read; from any thread."""
        self._stopped.set()

    def close(self) -> None:
        self.stop()
        self._capture.release()
        if self._recorder is not None:
            self._recorder.close()

    def frames(self) -> Iterator[Frame]:
        """Yield grey frames as they come."""
        import cv2

        report = self.report
        start_s: float | None = None
        while not self._stopped.is_set():
            delivered, picture = self._capture.read()
            arrived_s = time.monotonic()
            if not delivered:
                self._note_end()
                return
            start_s = arrived_s if start_s is None else start_s
            time_s = arrived_s - start_s
            if self._seconds is not None and time_s > self._seconds:
                return
            if report.decoded_frames:
                # The clock's ticks may be as long as a fast camera's frames.
                time_s = max(time_s, report.last_time_s + 1e-6)
            if self._recorder is not None:
                self._recorder.write(np.asarray(picture, dtype=np.uint8), time_s)
            report.last_time_s = time_s
            index = report.decoded_frames
            report.decoded_frames += 1
            yield Frame(index, time_s, _grey(picture, cv2.COLOR_BGR2GRAY))

    def _note_end(self) -> None:
        if self.report.decoded_frames == 0:
            raise InvalidInputError(
                f"{self.name} is open but delivers no picture: is it covered by another program, "
                "or does it not know this size?"
            )
        self.report.warnings.append(
            f"{self.name} delivered no more pictures after {self.report.last_time_s:.1f} s"
        )


@contextmanager
def stopped_by_interrupt(camera: CameraReader) -> Iterator[None]:
    """Let Ctrl-C end the recording instead of the program; a second one ends the program.

    Only in the main thread, where signals arrive; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(_number: int, _frame: FrameType | None) -> None:
        camera.stop()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _grey(picture: object, code: int) -> UInt8:
    import cv2

    pixels = np.asarray(picture, dtype=np.uint8)
    if pixels.ndim == 2:
        return pixels
    return np.asarray(cv2.cvtColor(pixels, code), dtype=np.uint8)


def _silence_opencv() -> None:
    """Silence OpenCV's messages about missing cameras; the error says enough."""
    import cv2

    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
