"""Pictures of predictions."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.errors import InvalidInputError
from site_agent.faces.prediction import (
    ImagePrediction,
    PredictedFace,
    draw_overlay,
    overlay_paths,
    write_overlays,
)
from site_agent.pictures.images import read_image

LANDMARK = np.array([80, 255, 200])
BOX = np.array([255, 210, 0])


def grey(width: int, height: int) -> np.ndarray:
    return np.full((height, width, 3), 128, dtype=np.uint8)


def test_landmarks_and_boxes_are_where_they_should_be() -> None:
    image = grey(600, 500)
    points = np.array([[200.0, 150.0], [300.5, 250.25]])
    drawn = draw_overlay(image, [PredictedFace((100, 80, 399, 379), landmarks=points)])
    assert drawn.shape == image.shape
    assert (drawn[150, 200] == LANDMARK).all()
    assert np.abs(drawn[200, 100].astype(int) - BOX).max() < 3
    assert (drawn[30, 30] == 128).all()
    assert (image == 128).all()
    # The disc around (300.5, 250.25) lies about its own centre, not about a pixel.
    y, x = np.nonzero((drawn[240:261, 290:312] != 128).any(axis=2))
    assert (x.mean() + 290, y.mean() + 240) == pytest.approx((300.5, 250.25), abs=0.3)


@settings(deadline=None)
@given(
    st.tuples(*[st.floats(-1e4, 1e4)] * 4),
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=4),
    st.none() | st.floats(-5, 5),
)
def test_nothing_outside_the_image_is_an_error(
    box: tuple[float, float, float, float], points: list[tuple[float, float]], score: float | None
) -> None:
    landmarks = np.array(points).reshape(-1, 2)
    draw_overlay(grey(40, 30), [PredictedFace(box, score, 0, landmarks)])


def test_each_image_gets_a_picture_of_its_own(tmp_path: Path) -> None:
    from PIL import Image

    predictions = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "face.jpg"
        path.parent.mkdir()
        Image.fromarray(grey(300, 260)).save(path)
        predictions.append(ImagePrediction(path, 300, 260, (PredictedFace((9, 9, 200, 200), 1.5),)))
    written = write_overlays(predictions, tmp_path / "out" / "deep")
    assert [path.name for path in written] == ["face.png", "face-2.png"]
    assert all(read_image(path).shape[1] % 300 == 0 for path in written)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_overlays(predictions, tmp_path / "file")


def test_the_images_themselves_are_never_drawn_over(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "face.png"
    Image.fromarray(grey(30, 20)).save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"face\.png: is one of the images themselves"):
        write_overlays([ImagePrediction(path, 30, 20, ())], tmp_path)
    assert path.read_bytes() == before


def test_names_differ_in_more_than_case() -> None:
    images = [Path("a/face.jpg"), Path("b/Face.png"), Path("c/face-2.jpg"), Path("d/face.bmp")]
    names = [path.name for path in overlay_paths(images, "out")]
    assert names == ["face.png", "Face-2.png", "face-2-2.png", "face-3.png"]
