"""Videos of 16 bits a pixel from cameras that use fewer."""

from pathlib import Path
from typing import Literal

import av
import numpy as np
import pytest

from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.pictures.video_reading import VideoReader

LAYOUTS = [("a.avi", "ffv1", "gray16le"), ("a.mov", "png", "rgb48be")]


def write_deep(path: Path, codec: str, layout: str, pictures: list[np.ndarray]) -> None:
    """Write grey pictures, uint16, in a format of 16 bits."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.height, stream.width = pictures[0].shape
        stream.pix_fmt = layout
        for picture in pictures:
            pixels = np.dstack([picture] * 3) if layout.startswith("rgb") else picture
            made_as = "rgb48le" if layout.startswith("rgb") else "gray16le"
            frame = av.VideoFrame.from_ndarray(pixels, format=made_as)
            container.mux(stream.encode(frame.reformat(format=layout)))
        container.mux(stream.encode(None))


def film(bits: int, count: int = 30) -> list[np.ndarray]:
    """Return pictures of noise that gets brighter."""
    rng = np.random.default_rng(bits)
    tops = np.linspace(0.2, 1.0, count) * (2**bits - 1)
    return [rng.integers(0, int(top) + 1, (48, 64), dtype=np.uint16) for top in tops]


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("bits", [12, 16])
@pytest.mark.parametrize("pixels", ["grey", "rgb"])
def test_the_upper_8_of_the_used_bits_are_kept(
    kind: tuple[str, str, str], bits: int, pixels: Literal["grey", "rgb"], tmp_path: Path
) -> None:
    name, codec, layout = kind
    path, pictures = tmp_path / name, film(bits)
    write_deep(path, codec, layout, pictures)
    with VideoReader(path, pixels=pixels, bits=bits) as reader:
        frames = list(reader.frames())
    for frame, picture in zip(frames, pictures, strict=True):
        grey = frame.image if pixels == "grey" else frame.image[:, :, 1]
        np.testing.assert_allclose(grey.astype(int), picture >> (bits - 8), atol=bits == 16)
    assert frames[0].image.shape == ((48, 64) if pixels == "grey" else (48, 64, 3))


def test_a_review_shows_what_was_measured(tmp_path: Path) -> None:
    path, pictures = tmp_path / "a.mkv", film(12)
    write_deep(path, "ffv1", "gray16le", pictures)
    with VideoReader(path, bits=12) as reader:
        frames = list(reader.frames())
    video = SeekableVideo(path, np.array([frame.timestamp_s for frame in frames]), 12)
    np.testing.assert_array_equal(video.picture(20)[:, :, 0], frames[20].image)
    video.close()
