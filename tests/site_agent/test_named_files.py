"""One rule of file names, for every list that names files."""

import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.egocentric import open_egocentric
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.datasets.split import by_table
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.named_files import find_named

COMPOSED = "Jürgen é.png"
APART = unicodedata.normalize("NFD", COMPOSED)


def picture(path: Path, size: tuple[int, int] = (60, 36)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 90).save(path, format="PNG")
    return path


def in_imglab(folder: Path, name: str) -> Path:
    listed = folder / "faces.xml"
    box = "<box top='1' left='1' width='9' height='9'/>"
    listed.write_text(f"<dataset><images><image file='{name}'>{box}</image></images></dataset>")
    return read_imglab_xml(listed).images[0].path


def in_coco(folder: Path, name: str) -> Path:
    content = {"images": [{"id": 1, "file_name": name}], "annotations": [], "categories": []}
    (folder / "faces.json").write_text("\ufeff" + json.dumps(content, ensure_ascii=False))
    return read_coco_keypoints(folder / "faces.json").images[0].path


def in_sessions(folder: Path, name: str) -> Path:
    (folder / "sessions.csv").write_text(f"video;frame_rate_hz\n{name};29,97\n")
    (session,) = read_session_table(folder / "sessions.csv").sessions
    assert session.frame_rate_hz == 29.97
    return session.source


def in_gaze(folder: Path, name: str) -> Path:
    header = "file;person;session;frame;eye;yaw;pitch;head_yaw;head_pitch"
    (folder / "gaze.csv").write_text(f"sep=;\n{header}\n{name};p;s;0;left;0,1;0,2;0;0\n")
    samples = open_gaze(folder).read()
    assert samples.gaze[0].tolist() == [0.1, 0.2]
    assert samples.patches.mean() == 90
    return find_named(folder, name)


def in_clips(folder: Path, name: str) -> Path:
    (folder / "gaze.csv").write_text("clip;frame;x;y;kind\na;0;0,25;0,5;fixation\n")
    (folder / "clips.csv").write_text(f"clip;file;person;split\na;{name};P1;train\n")
    (clip,) = open_egocentric(folder).clips
    assert clip.gaze.tolist() == [[0.25, 0.5]]
    return clip.path


@pytest.mark.parametrize("read", [in_imglab, in_coco, in_sessions, in_gaze, in_clips])
@pytest.mark.parametrize(
    ("there", "written"),
    [
        ("in/a.png", "in\\a.png"),
        (COMPOSED, APART),
        (APART, COMPOSED),
        (f"{APART}/{COMPOSED}", f"{COMPOSED}\\{APART}"),
    ],
)
def test_names_of_other_systems_are_found(
    read: Callable[[Path, str], Path], there: str, written: str, tmp_path: Path
) -> None:
    made = picture(tmp_path / there)
    assert read(tmp_path, written).samefile(made)


def test_a_file_that_is_named_as_written_comes_first(tmp_path: Path) -> None:
    picture(tmp_path / "back" / "slash.png")
    made = picture(tmp_path / "back\\slash.png")
    assert in_imglab(tmp_path, "back\\slash.png").samefile(made)
    assert find_named(tmp_path, "no\\such.png") == tmp_path / "no/such.png"
    assert find_named(tmp_path / "other", str(tmp_path / "no.png")) == tmp_path / "no.png"


@pytest.mark.parametrize("on_disk", [b"J\xc3\xbcrgen.png", b"J\xfcrgen.png"])
def test_bytes_that_dlib_declares_to_be_latin_are_those_of_the_file_system(
    on_disk: bytes, tmp_path: Path
) -> None:
    made = picture(tmp_path / os.fsdecode(on_disk))
    for declared in (b"ISO-8859-1", b"UTF-8"):
        (tmp_path / "faces.xml").write_bytes(
            b"<?xml version='1.0' encoding='" + declared + b"'?><dataset><images><image file='"
            + on_disk + b"'><box top='1' left='1' width='9' height='9'>"
            b"<label>" + on_disk + b"</label></box></image></images></dataset>"
        )  # fmt: skip
        (image,) = read_imglab_xml(tmp_path / "faces.xml").images
        assert image.path.samefile(made)
        assert image.boxes[0].label == "Jürgen.png"


def test_points_with_marks_and_commas_belong_to_pictures_in_any_spelling(tmp_path: Path) -> None:
    picture(tmp_path / COMPOSED)
    points = "\ufeffversion: 1\nn_points: 4\n{\n1,5 2,5\n3.5, 4\n5;6\n7,8\n}\n"
    (tmp_path / APART).with_suffix(".pts").write_text(points, encoding="utf-8")
    (image,) = read_faces(tmp_path).images
    assert image.path.samefile(tmp_path / COMPOSED)
    assert list(image.boxes[0].parts.values()) == [(0.5, 1.5), (2.5, 3), (4, 5), (6, 7)]


def test_persons_are_found_by_names_in_any_spelling(tmp_path: Path) -> None:
    images = (AnnotatedImage(picture(tmp_path / "in" / COMPOSED), (FaceBox(1, 1, 9, 9),)),)
    table = tmp_path / "persons.csv"
    table.write_text(f"file;person\nin\\{APART};Ä\n", encoding="utf-16")
    faces = FaceDataset(tmp_path / "faces.xml", images=images)
    assert by_table(faces, table)(images[0]) == "Ä"
