"""Files as recorders leave them: names, turns, times; frames with their own times."""

import gc
import threading
import wave
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from site_agent.datasets.egocentric import decode_video
from site_agent.errors import VideoFileError
from site_agent.eyeblink.face.finding import FaceCounts
from site_agent.eyeblink.face.landmarks import sample_eyes
from site_agent.eyeblink.records import Gap
from site_agent.eyeblink.video.recording import Recording, frame_timing
from site_agent.eyeblink.video.seeking import SeekableVideo, read_ahead
from site_agent.pictures.frame_pixels import UInt8, grey_picture
from site_agent.pictures.video import write_video as write_pictures
from site_agent.pictures.video_reading import Frame, VideoReader
from tests.site_agent.eyeblink.drawn_videos import write_video

STEADY_S = [number / 30.0 for number in range(60)]


def read_video(path: Path | str) -> tuple[list[Frame], VideoReader]:
    with VideoReader(path) as reader:
        return list(reader.frames()), reader


@pytest.mark.parametrize(
    "name", ["2026-05-04T10:30:00.mp4", "a%03d?#.mp4", "-first.mp4", "two\nlines.mp4", "f:g.mp4"]
)
def test_every_file_name_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = [(time_s, np.full((64, 96, 3), 90, np.uint8)) for time_s in STEADY_S[:5]]
    write_pictures(Path(name), iter(pictures))
    assert len(read_video(name)[0]) == 5
    assert len(list(decode_video(Path(name)))) == 5


CORNERS = np.array([[30, 90], [150, 220]], dtype=np.uint8)

ORIENTATIONS: dict[str, tuple[tuple[int, int, int, int], UInt8]] = {
    "upright": ((1, 0, 0, 1), CORNERS),
    "turned 90": ((0, 1, -1, 0), np.rot90(CORNERS, -1)),
    "turned 180": ((-1, 0, 0, -1), np.rot90(CORNERS, 2)),
    "turned 270": ((0, -1, 1, 0), np.rot90(CORNERS)),
    "mirrored": ((-1, 0, 0, 1), np.fliplr(CORNERS)),
    "upside down": ((1, 0, 0, -1), np.flipud(CORNERS)),
    "transposed": ((0, 1, 1, 0), CORNERS.T),
    "transversed": ((0, -1, -1, 0), np.rot90(CORNERS, 2).T),
}

"""Factors a, b, c, d of the matrix in the track header, and the picture that players show."""


def set_matrix(path: Path, factors: tuple[int, int, int, int]) -> None:
    """Write a display matrix into the track header of an mp4 file."""
    a, b, c, d = factors
    matrix = np.array([a, b, 0, c, d, 0, 0, 0, 0x4000], dtype=">i4") * 0x10000
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 44
    content[start : start + 36] = matrix.astype(">i4").tobytes()
    path.write_bytes(content)


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_all_eight_orientations_come_out_as_players_show_them(tmp_path: Path, name: str) -> None:
    factors, expected = ORIENTATIONS[name]
    path = tmp_path / "phone.mp4"
    stored = np.repeat(np.repeat(CORNERS, 32, axis=0), 48, axis=1)
    write_pictures(path, iter([(0.0, np.dstack([stored] * 3))]))
    set_matrix(path, factors)
    [frame], reader = read_video(path)
    height, width = frame.image.shape
    corners = frame.image[height // 4 :: height // 2, width // 4 :: width // 2].astype(int)
    assert np.abs(corners - expected).max() <= 3
    assert reader.report.mirrored == (name in {"mirrored", "upside down"} or name[:5] == "trans")
    assert [picture.shape[:2] for picture in decode_video(path)] == [(height, width)]


@pytest.mark.parametrize("ending", [".mp4", ".mov", ".mkv", ".ts", ".avi"])
def test_every_container_gives_its_own_times_or_those_of_a_rate_or_a_table(
    tmp_path: Path, ending: str
) -> None:
    path, table = tmp_path / f"film{ending}", tmp_path / "times.csv"
    # An AVI file has a rate and no times, and so no frames that refer to later ones.
    is_avi = ending == ".avi"
    times_s = STEADY_S if is_avi else [t + 0.01 * (n % 3) for n, t in enumerate(STEADY_S)]
    write_video(path, times_s, codec="ffv1" if is_avi else "libx264")
    table.write_text("timestamp_s\n" + "\n".join(f"{n / 50:.3f}" for n in range(60)))

    def read_times(recording: Recording) -> list[float]:
        with closing(recording.open()) as reader:
            return [frame.timestamp_s for frame in reader.frames()]

    assert read_times(Recording(path)) == pytest.approx(times_s, abs=2e-3)
    at_60 = Recording(path, frame_rate_hz=60.0)
    assert read_times(at_60) == pytest.approx(np.arange(60) / 60)
    assert read_times(Recording(path, timestamps=table)) == pytest.approx(np.arange(60) / 50)


def test_slow_motion_is_sought_by_the_times_of_filming(shared_data: Path) -> None:
    path = shared_data / "public_reports/video/slowmo.mp4"
    frames, reader = read_video(path)
    assert reader.info.declared_rate_hz == 240.0
    assert reader.info.duration_s == pytest.approx(10.0, abs=0.01)
    times_s = np.array([frame.timestamp_s for frame in frames])
    seekable = SeekableVideo(path, times_s)
    with VideoReader(path, pixels="rgb") as colours:
        expected = next(frame.image for frame in colours.frames() if frame.index == 1900)
    assert np.array_equal(seekable.picture(1900), expected)
    seekable.close()


def test_an_ordinary_recording_in_the_dark_is_no_slow_motion(tmp_path: Path) -> None:
    path = tmp_path / "dark.mp4"
    metadata = {"com.android.capture.fps": "30.000000"}
    write_video(path, [number / 15 for number in range(30)], metadata=metadata)
    frames, reader = read_video(path)
    assert frames[-1].timestamp_s == pytest.approx(29 / 15, abs=1e-3)
    assert reader.report.warnings == []


def test_texts_of_other_encodings_do_not_stop_a_video(tmp_path: Path) -> None:
    path = tmp_path / "old-camera.mkv"
    write_video(path, STEADY_S[:30], metadata={"title": "Marker"})
    path.write_bytes(path.read_bytes().replace(b"Marker", "Märker".encode("latin-1")))
    frames, _ = read_video(path)
    assert len(frames) == 30


def test_raw_streams_without_a_rate_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "camera.mjpeg"
    write_video(path, STEADY_S[:30], codec="mjpeg", layout="yuvj420p")
    with pytest.raises(VideoFileError, match="give the camera's rate with --frame-rate-hz"):
        Recording(path).open()
    times_s = [frame.timestamp_s for frame in Recording(path, frame_rate_hz=60.0).open().frames()]
    assert times_s == pytest.approx(np.arange(30) / 60.0)


def write_interlaced(
    path: Path, levels: Sequence[int], *, first: str = "tff", codec: str = "libx264"
) -> None:
    """Write pictures of two fields each; the field n is grey of the n-th level, black right."""
    options = {"flags": "+ildct+ilme", **({"crf": "4"} if codec == "libx264" else {"qmax": "2"})}
    marks = av.filter.Graph()
    marks.link_nodes(
        marks.add_buffer(width=96, height=64, format="yuv420p", time_base=Fraction(1, 30)),
        marks.add("setfield", first),
        marks.add("buffersink"),
    ).configure()
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=Fraction(30), options=options)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.gop_size = 10
        for number, (earlier, later) in enumerate(zip(levels[::2], levels[1::2], strict=True)):
            picture = np.zeros((64, 96, 3), np.uint8)
            top, bottom = (earlier, later) if first == "tff" else (later, earlier)
            picture[::2, :48], picture[1::2, :48] = top, bottom
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 30)
            marks.push(frame)
            container.mux(stream.encode(marks.pull()))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("first", ["tff", "bff"])
@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".ts"])
def test_each_field_of_interlaced_video_is_a_frame(tmp_path: Path, first: str, ending: str) -> None:
    path, levels = tmp_path / f"interlaced{ending}", [60 + 3 * number for number in range(40)]
    write_interlaced(path, levels, first=first)
    reader = Recording(path).open()
    with closing(reader):
        frames = list(reader.frames())
    assert [frame.timestamp_s for frame in frames] == pytest.approx(
        [number / 60 for number in range(40)], abs=1e-3
    )
    grey = [float(frame.image[8:-8, 4:44].mean()) for frame in frames]
    assert grey == pytest.approx(levels, abs=2)
    assert [warning.split(":")[0] for warning in reader.report.warnings] == ["interlaced"]
    seeking = SeekableVideo(path, np.array([frame.timestamp_s for frame in frames]))
    for number in (37, 4, 21, 20):
        assert seeking.picture(number)[8:-8, 4:44].mean() == pytest.approx(levels[number], abs=3)
    seeking.close()


def test_interlaced_pictures_stay_whole_where_their_times_are_given(tmp_path: Path) -> None:
    path = tmp_path / "interlaced.mp4"
    write_interlaced(path, [90] * 10)
    reader = Recording(path, frame_rate_hz=30.0).open()
    with closing(reader):
        assert len(list(reader.frames())) == 5
    assert "the eyes seem less open" in reader.report.warnings[0]
    write_video(tmp_path / "progressive.mp4", STEADY_S[:5])
    assert read_video(tmp_path / "progressive.mp4")[1].report.warnings == []


@pytest.mark.parametrize("transfer", [16, 18])
def test_ten_bits_give_the_grey_of_eight(tmp_path: Path, transfer: int) -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None], 64, axis=0)
    greys = []
    for depth, layout in (("8", "yuv420p"), ("10", "yuv420p10le")):
        path = tmp_path / f"{depth}.mkv"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("ffv1", rate=30)
            stream.width, stream.height, stream.pix_fmt = 256, 64, layout
            stream.codec_context.color_trc = 1 if depth == "8" else transfer
            frame = av.VideoFrame.from_ndarray(np.dstack([ramp] * 3), format="rgb24")
            container.mux(stream.encode(frame.reformat(format=layout)))
            container.mux(stream.encode(None))
        [frame_read], reader = read_video(path)
        greys.append(frame_read.image.astype(int))
    assert np.abs(greys[0] - ramp).max() <= 1
    assert np.abs(greys[1] - greys[0]).max() <= 1
    assert "high dynamic range" in reader.report.warnings[0]


def test_frames_are_released_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "steady.mp4"
    write_video(path, STEADY_S)
    gc.collect()
    gc.disable()
    try:
        with VideoReader(path) as reader:
            kept = max(count_decoded_frames() for frame in reader.frames() if frame.index % 25 == 0)
    finally:
        gc.enable()
    # The decoder gives the last ones together.
    assert kept < 20


def count_decoded_frames() -> int:
    return sum(isinstance(thing, av.VideoFrame) for thing in gc.get_objects())


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "bmp", "webp"])
def test_a_still_picture_is_no_video(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"still.{suffix}"
    cv2.imwrite(str(path), np.zeros((64, 96, 3), dtype=np.uint8))
    with pytest.raises(VideoFileError, match="is a still picture, expected a video"):
        VideoReader(path)


def test_the_pictures_are_those_that_opencv_decodes(tmp_path: Path) -> None:
    path = tmp_path / "steady.mp4"
    write_video(path, STEADY_S)
    with VideoReader(path, pixels="rgb") as reader:
        frames = list(reader.frames())
    assert [frame.index for frame in frames] == list(range(60))
    assert [frame.timestamp_s for frame in frames] == pytest.approx(STEADY_S, abs=1e-4)
    assert reader.info.declared_frames == reader.report.decoded_frames == 60
    assert (reader.info.width_px, reader.info.height_px) == (96, 64)
    assert reader.report.warnings == []
    capture = cv2.VideoCapture(str(path))
    for frame in frames:
        decoded, picture = capture.read()
        assert decoded
        difference = np.abs(picture[:, :, ::-1].astype(int) - frame.image)
        assert difference.mean() < 2.0
    assert not capture.read()[0]
    capture.release()


class LevelFollower:
    """Sees no face; keeps the grey levels of the pictures that it is shown."""

    counts = FaceCounts()

    def __init__(self) -> None:
        self.levels: dict[int, float] = {}

    def step(self, image: UInt8, timestamp_s: float) -> None:
        self.levels[round(timestamp_s * 30)] = float(image[:, 5:40].mean())


@pytest.mark.parametrize(
    ("parameters", "key", "part", "unjudged"),
    [
        ("keyint=20:min-keyint=20:scenecut=0:bframes=0", 1, (0, 1), 17),
        ("keyint=20:min-keyint=20:scenecut=0:bframes=0", 1, (0.5, 1), 19),
        ("keyint=20:min-keyint=20:scenecut=0:bframes=0", 0, (0.5, 1), 0),
        ("keyint=40:min-keyint=40:scenecut=0:bframes=3", 1, (0, 1), 35),
        ("keyint=20:min-keyint=20:scenecut=0:bframes=0:open-gop=1", 1, (0, 1), 17),
        ("keyint=1", 1, (0, 1), 0),
    ],
)
def test_frames_behind_a_lost_key_frame_are_not_judged(
    tmp_path: Path, parameters: str, key: int, part: tuple[float, float], unjudged: int
) -> None:
    path = tmp_path / "damaged.mp4"
    write_video(
        path, [n / 30 for n in range(100)], codec_options={"x264-params": f"{parameters}:threads=1"}
    )
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        damaged = [packet for packet in packets if packet.is_keyframe][key]
        start, size = damaged.pos, damaged.size
    assert start is not None
    data = bytearray(path.read_bytes())
    places = slice(start + int(part[0] * size), start + int(part[1] * size))
    data[places] = np.random.default_rng(1).bytes(len(data[places]))
    path.write_bytes(data)
    follower = LevelFollower()
    with VideoReader(path) as reader:
        samples = list(sample_eyes(reader.frames(), follower))
    assert all(abs(level - (40 + 2 * n)) < 4 for n, level in follower.levels.items())
    assert sum(sample.gap is Gap.VIDEO_DAMAGED for sample in samples) == pytest.approx(
        unjudged, abs=unjudged / 3
    )
    assert max(follower.levels) == 99  # and times are right behind the damage
    [warning] = [text for text in reader.report.warnings if "could not be decoded (" in text]
    assert ("are not judged; all other" in warning) == (unjudged > 0)
    assert reader.report.repaired_times == 0


@pytest.mark.parametrize("name", ["session.mp4", "session.mkv"])
def test_a_video_copied_in_part_gives_its_frames_and_says_so_first(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    write_video(path, [number / 30.0 for number in range(300)], faststart=name.endswith("mp4"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 6 // 10])
    frames, reader = read_video(path)
    assert 100 < len(frames) < 250
    assert reader.report.warnings[0].startswith("the video is not whole: ")
    assert "copy the file again" in reader.report.warnings[0]


def test_a_later_part_of_a_recording_is_whole(tmp_path: Path) -> None:
    write_video(tmp_path / "part2.mkv", [600 + number / 30.0 for number in range(60)])
    frames, reader = read_video(tmp_path / "part2.mkv")
    assert (len(frames), frames[0].timestamp_s, reader.report.warnings) == (60, 0.0, [])
    assert reader.info.duration_s == pytest.approx(2.0, abs=0.04)


def test_fields_behind_a_key_frame_that_is_silently_lost_are_not_judged(tmp_path: Path) -> None:
    path, levels = tmp_path / "interlaced.mp4", [60 + 2 * number for number in range(80)]
    write_interlaced(path, levels, codec="mpeg2video")
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    lost = [packet for packet in packets if packet.is_keyframe][1]
    start, size = lost.pos, lost.size
    assert start is not None
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(size)  # The decoder finds no picture, and no error.
    path.write_bytes(data)
    reader = Recording(path).open()
    with closing(reader):
        frames = list(reader.frames())
    assert 10 <= sum(frame.damaged for frame in frames) <= 44
    for frame in frames:
        if not frame.damaged:
            level = levels[round(frame.timestamp_s * 60)]
            assert frame.image[8:-8, 4:44].mean() == pytest.approx(level, abs=3)
    assert "a key frame is missing" in " ".join(reader.report.warnings)


def test_a_second_stream_of_video_is_named(tmp_path: Path) -> None:
    path = tmp_path / "two.mkv"
    with av.open(str(path), "w") as container:
        for side in (64, 96):
            stream = container.add_stream("ffv1", rate=30)
            stream.width, stream.height, stream.pix_fmt = side, side, "yuv420p"
        for stream in container.streams.video:
            picture = np.zeros((stream.height, stream.width, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    [frame_read], reader = read_video(path)
    assert frame_read.image.shape == (64, 64)
    assert "2 video streams (64 x 64, 96 x 96), of which the first" in reader.report.warnings[0]


@pytest.mark.parametrize("rate_hz", [30, 120, 240])
def test_the_rate_does_not_depend_on_the_digits_of_times(rate_hz: int) -> None:
    times_s = np.round(np.arange(400) / rate_hz, 3)
    assert frame_timing(times_s).frame_rate_hz == pytest.approx(rate_hz, rel=0.002)
    lost = np.delete(times_s, [50, 51, 120])
    assert frame_timing(lost).frame_rate_hz == pytest.approx(rate_hz, rel=0.002)


@pytest.mark.parametrize(
    ("aspect", "rotation_deg", "size"),
    [(Fraction(4, 3), 0, (128, 64)), (Fraction(3, 4), 90, (85, 96)), (Fraction(1), 0, (96, 64))],
)
def test_pictures_have_square_pixels(
    tmp_path: Path, aspect: Fraction, rotation_deg: int, size: tuple[int, int]
) -> None:
    path = tmp_path / "anamorphic.mp4"
    write_video(path, STEADY_S[:5], rotation_deg=rotation_deg, pixel_aspect=aspect)
    with VideoReader(path) as reader:
        shapes = {frame.image.shape[:2] for frame in reader.frames()}
    assert shapes == {size[::-1]}
    assert any("stretched" in warning for warning in reader.report.warnings) == (aspect != 1)


def test_files_that_are_not_videos(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("no video" * 100)
    cut = tmp_path / "cut.mp4"
    write_video(cut, STEADY_S)
    cut.write_bytes(cut.read_bytes()[:-200])  # the index stands at the end
    sound = tmp_path / "sound.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
        file.writeframes(bytes(16000))
    for path, message in (
        (text, "cannot be opened as a video"),
        (cut, "cannot be opened as a video"),
        (sound, "found audio, expected a video stream"),
        (tmp_path / "missing.mp4", "no such file"),
    ):
        with pytest.raises(VideoFileError, match=message) as error:
            VideoReader(path)
        assert str(path) in str(error.value)


def test_reading_ahead_passes_errors_on_after_the_items_before() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise VideoFileError("broken")

    ahead = read_ahead(numbers)
    assert next(ahead) == 1
    with pytest.raises(VideoFileError, match="broken"):
        next(ahead)


def test_reading_ahead_stops_with_its_reader_and_is_bounded() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10**9):
            made.append(number)
            yield number

    ahead = read_ahead(numbers, depth=4)
    assert next(ahead) == 0
    ahead.close()
    assert len(made) < 20
    assert not any(thread.name == "read-ahead" for thread in threading.enumerate())


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuvj420p", "nv12", "gray", "rgb24"])
@pytest.mark.parametrize("full_range", [False, True])
def test_grey_is_what_the_general_conversion_gives(pixel_format: str, full_range: bool) -> None:
    rng = np.random.default_rng(0)
    # 50 pixels: lines with padding at their ends.
    picture = cv2.resize(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8), (50, 36))
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pixel_format)
    if full_range and pixel_format in {"yuv420p", "nv12"}:
        frame.color_range = 2
    grey = grey_picture(frame)
    assert grey.shape == (36, 50)
    assert grey.flags.c_contiguous
    expected = frame.to_ndarray(format="gray").astype(int)
    assert np.abs(grey.astype(int) - expected).max() <= 1
