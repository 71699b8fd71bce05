"""Still images of every kind come out as 8-bit RGB, turned as they are shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.gaze.generic_layout import Row, read_patch
from site_agent.datasets.records import FaceDataset
from site_agent.errors import ImageFileError
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.pictures import images
from site_agent.pictures.images import UInt8, list_images, read_image
from site_agent.training.ert import ErtSettings, train_ert
from tests.site_agent.pictures.turned import STORED, save_turned

PICTURE = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "ppm", "webp"])
def test_lossless_formats_keep_every_pixel_in_rgb_order(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"picture.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(PICTURE).save(path, **options)
    image = read_image(path)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, PICTURE)


def test_grey_palette_alpha_and_16_bit(tmp_path: Path) -> None:
    grey = PICTURE[:, :, 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png"), np.dstack([grey] * 3))
    Image.fromarray(PICTURE).quantize(256).save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png").shape == (6, 8, 3)
    alpha = np.dstack([PICTURE, np.full((6, 8), 128, np.uint8)])
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    np.testing.assert_array_equal(read_image(tmp_path / "alpha.png"), PICTURE)
    cv2.imwrite(str(tmp_path / "deep.png"), PICTURE[:, :, ::-1].astype(np.uint16) * 256 + 7)
    np.testing.assert_array_equal(read_image(tmp_path / "deep.png"), PICTURE)


def test_12_bits_stored_as_16_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_warned", [])
    path = tmp_path / "deep.png"
    cv2.imwrite(str(path), np.linspace(0, 4095, 48).reshape(6, 8).astype(np.uint16))
    read_image(path)
    read_image(path)
    [warning] = caplog.messages
    assert "deep.png: only 12 of its 16 bits are used" in warning


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_the_upper_8_of_16_bits_are_kept(tmp_path: Path, suffix: str) -> None:
    deep = np.linspace(0, 65535, 48).reshape(6, 8).astype(np.uint16)
    path = tmp_path / f"deep.{suffix}"
    cv2.imwrite(str(path), deep)
    np.testing.assert_array_equal(read_image(path)[:, :, 0], deep >> 8)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_files_cut_off_are_refused(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / f"picture.{suffix}"
    Image.fromarray(noise).save(path)
    whole, pixels = path.read_bytes(), read_image(path)
    path.write_bytes(whole + b"\0\0\0\x18ftypmp42" + b"\xff\xda video " * 1000)
    np.testing.assert_array_equal(read_image(path), pixels), "telephones append a video"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(ImageFileError, match=r"picture\..*: the file is damaged"):
        read_image(path)


def test_what_is_not_an_image(tmp_path: Path) -> None:
    text = tmp_path / "note.jpg"
    text.write_text("not a picture")
    empty = tmp_path / "empty.png"
    empty.touch()
    for path, message in (
        (text, "is not an image"),
        (empty, "cannot be decoded"),
        (tmp_path, "Is a directory"),
        (tmp_path / "missing.png", "No such file"),
    ):
        with pytest.raises(ImageFileError, match=message):
            read_image(path)


def test_a_folder_is_listed_by_name(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "notes.txt", "c.tiff", "._a.jpg"):
        (tmp_path / name).touch()
    assert [path.name for path in list_images(tmp_path)] == ["a.jpg", "b.PNG", "c.tiff"]
    assert list_images(tmp_path / "notes.txt") == [tmp_path / "notes.txt"]
    with pytest.raises(ImageFileError, match="no such file"):
        list_images(tmp_path / "missing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ImageFileError, match="holds no image"):
        list_images(tmp_path / "bare")


UPRIGHT = np.random.default_rng(1).integers(0, 256, (36, 60), dtype=np.uint8)

QUICK = ErtSettings(cascade_depth=2, num_trees_per_cascade_level=10, tree_depth=2)


def read_eye(path: Path) -> UInt8:
    row = Row(1, path.name, "p", "s", 0, "left", (0.0, 0.0, 0.0, 0.0))
    return read_patch(path.parent / "gaze.csv", row)


READERS: dict[str, Callable[[Path], UInt8]] = {
    "predict": lambda path: read_image(path)[..., 0],
    "eye patches": read_eye,
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("reader", READERS)
def test_pictures_alone_are_read_as_they_are_shown(
    tmp_path: Path, reader: str, orientation: int
) -> None:
    path = save_turned(Image.fromarray(UPRIGHT), tmp_path / "1.png", orientation)
    np.testing.assert_array_equal(READERS[reader](path), UPRIGHT)


def test_annotated_pictures_are_read_as_they_are_stored(
    test_faces: FaceDataset, tmp_path: Path
) -> None:
    """Training, test and check of pictures with and without the EXIF data are the same."""
    models, scores = [], []
    for orientation in (1, 6):
        folder = tmp_path / str(orientation)
        folder.mkdir()
        images = []
        for image in test_faces.images[:4]:
            path, exif = folder / f"{image.path.stem}.png", Image.Exif()
            exif[ExifTags.Base.Orientation] = orientation
            with Image.open(image.path) as picture:
                picture.save(path, exif=exif)
                width, height = picture.size
            images.append(replace(image, path=path, width_px=width, height_px=height))
        faces = replace(test_faces, path=None, images=tuple(images))
        result = train_ert(faces, folder / "a.dat", QUICK, despite_findings=True)
        models.append(result.model_path.read_bytes())
        scored = evaluate_model(result.model_path, faces, despite_findings=True)
        scores.append(scored.metrics)
        codes = [finding.code for finding in check_datasets([faces])]
        assert set(codes) <= {"exif-orientation"}
    assert models[0] == models[1]
    assert scores[0] == scores[1]
