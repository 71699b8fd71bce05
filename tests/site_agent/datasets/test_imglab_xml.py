"""dlib's annotation files: reading, and refusals that name the line."""

from dataclasses import replace
from pathlib import Path

import dlib
import pytest

from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    numbered_parts,
    part_names,
    parts_array,
)
from site_agent.errors import AnnotationFileError


def written(folder: Path, body: str, encoding: str = "utf-8") -> Path:
    path = folder / "faces.xml"
    path.write_bytes(f"<?xml version='1.0' encoding='{encoding}'?>\n{body}".encode(encoding))
    return path


def one_box(attributes: str, inner: str = "") -> str:
    return (
        "<dataset>\n<images>\n<image file='a.png'>\n"
        f"<box {attributes}>{inner}</box>\n</image>\n</images>\n</dataset>\n"
    )


WHOLE = "top='1' left='2' width='3' height='4'"


def test_everything_that_imglab_writes_is_read_and_written_back(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "<?xml-stylesheet type='text/xsl' href='image_metadata_stylesheet.xsl'?>\n"
        "<dataset>\n<name>Faces</name>\n<comment>by hand</comment>\n<images>\n"
        "  <image file='sub/caf\u00e9 &amp; b.png' width='640' height='480'>\n"
        "    <box top='-5' left='2' width='30' height='40' ignore='1' difficult='1' occluded='1'"
        " truncated='1' pose='0.5' detection_score='1.5' gender='female'>\n"
        "      <label>&lt;&amp;&gt;'\"</label>\n"
        "      <part name='right_eye' x='3' y='4.0'/><part name='left_eye' x='1' y='2.25'/>\n"
        "    </box>\n"
        "    <box top='12.0' left='2' width='3' height='4'/>\n"
        "  </image>\n  <image file='none.png'/>\n</images>\n</dataset>\n",
        "iso-8859-1",
    )
    dataset = read_imglab_xml(path)
    assert (dataset.name, dataset.comment) == ("Faces", "by hand")
    first, second = dataset.images
    assert first.path == tmp_path / "sub" / "caf\u00e9 & b.png"
    assert (first.width_px, first.height_px, first.line) == (640, 480, 7)
    assert (second.boxes, second.width_px) == ((), None)
    marked, plain = first.boxes
    assert marked.corners == (2, -5, 31, 34)
    assert marked.ignore
    assert marked.difficult
    assert marked.occluded
    assert marked.truncated
    assert (marked.detection_score, marked.label) == (1.5, "<&>'\"")
    assert list(marked.parts.items()) == [("right_eye", (3.0, 4.0)), ("left_eye", (1.0, 2.25))]
    assert plain == FaceBox(2, 12, 3, 4)
    assert plain.line == 12
    assert list(dataset.boxes()) == [(first, plain)]
    write_imglab_xml(dataset, path)
    whole = replace(marked, parts={**marked.parts, "left_eye": (1.0, 2.0)})
    rounded = replace(dataset, images=(replace(first, boxes=(whole, plain)), second))
    assert read_imglab_xml(path) == rounded
    assert [path.name for path in tmp_path.iterdir()] == ["faces.xml"]


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        (one_box("top='1' left='2' width='3'"), 5, "without the attribute 'height'"),
        (one_box("top='1' left='x' width='3' height='4'"), 5, "left is 'x', not a number"),
        (one_box("top='1' left='2.5' width='3' height='4'"), 5, "not a whole number"),
        (one_box("top='1' left='2' width='0' height='4'"), 5, "0 x 4 pixels"),
        (one_box(WHOLE, "\n<part x='1' y='2'/>"), 6, "<part> without the attribute 'name'"),
        (one_box(WHOLE, "\n<part name='0' x='1' y='1'/>" * 2), 7, "part '0' twice"),
        ("<dataset>\n<images>\n<image width='3'/></images></dataset>", 4, "attribute 'file'"),
        ("<annotation/>", 2, "begins with <annotation>"),
        ("<dataset>\n<images>\n", 4, "not well-formed XML: no element found"),
        ("<!DOCTYPE d [<!ENTITY a 'b'>]>\n<dataset/>", 2, "document type"),
        ("<!DOCTYPE d SYSTEM 'file:///etc/hostname'>\n<dataset/>", 2, "document type"),
    ],
)
def test_refuses_with_file_and_line(tmp_path: Path, body: str, line: int, message: str) -> None:
    path = written(tmp_path, body)
    with pytest.raises(AnnotationFileError) as caught:
        read_imglab_xml(path)
    assert message in str(caught.value)
    assert f"{path}, line {line}: " in str(caught.value)
    assert caught.value.line == line


def test_refuses_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(AnnotationFileError, match="cannot be read: No such file"):
        read_imglab_xml(tmp_path / "absent.xml")
    with pytest.raises(AnnotationFileError, match="cannot be read"):
        read_imglab_xml(tmp_path)
    with pytest.raises(AnnotationFileError, match="cannot be written"):
        write_imglab_xml(FaceDataset(None), tmp_path / "absent" / "faces.xml")


def test_part_names_have_the_order_of_dlib(tmp_path: Path) -> None:
    def box(*names: str, ignore: bool = False) -> FaceBox:
        return FaceBox(0, 0, 9, 9, dict.fromkeys(names, (1.0, 2.0)), ignore=ignore)

    image = AnnotatedImage(
        tmp_path / "a.png", (box("2", "10", "1"), box("nose", "B"), box("zz", ignore=True))
    )
    dataset = FaceDataset(None, images=(image,))
    assert part_names(dataset) == ("1", "10", "2", "B", "nose")
    assert parts_array(box("2"), ["1", "2"]).tolist()[1] == [1.0, 2.0]
    assert list(numbered_parts(parts_array(box(), ["x"] * 101)))[-1] == "100"


def test_real_files_read_and_survive_a_round_trip(shared_data: Path, tmp_path: Path) -> None:
    expected = {
        "training.xml": (4, 18, 0),
        "testing.xml": (5, 25, 0),
        "training_with_face_landmarks.xml": (4, 18, 68),
        "testing_with_face_landmarks.xml": (5, 25, 68),
    }
    for name, counts in expected.items():
        dataset = read_imglab_xml(shared_data / "dlib_faces" / name)
        read = (len(dataset.images), sum(1 for _ in dataset.boxes()), len(part_names(dataset)))
        assert read == counts
        assert all(image.path.is_file() for image in dataset.images)
        copy = tmp_path / name
        write_imglab_xml(dataset, copy)
        again = read_imglab_xml(copy)
        assert [i.boxes for i in again.images] == [i.boxes for i in dataset.images]
        assert [i.path.resolve() for i in again.images] == [
            i.path.resolve() for i in dataset.images
        ]
        by_dlib = dlib.image_dataset_metadata.load_image_dataset_metadata(str(copy))
        assert [len(i.boxes) for i in by_dlib.images] == [len(i.boxes) for i in dataset.images]
        for image, other in zip(dataset.images, by_dlib.images, strict=True):
            for box, theirs in zip(image.boxes, other.boxes, strict=True):
                rect = theirs.rect
                assert box.corners == (rect.left(), rect.top(), rect.right(), rect.bottom())
                points = {key: (float(p.x), float(p.y)) for key, p in theirs.parts.items()}
                assert points == dict(box.parts)
