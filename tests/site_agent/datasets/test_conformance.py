"""Every format of annotations keeps the laws of all."""

from pathlib import Path

from site_agent.datasets.conversion import ANNOTATION_FORMATS
from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.records import FaceDataset
from tests.conformance.annotation_formats import AnnotationFormatLaws
from tests.site_agent.datasets.other_layouts import write_coco_keypoints, write_pts_folder


class TestImglab(AnnotationFormatLaws):
    format_name = "imglab"

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        place.mkdir()
        write_imglab_xml(dataset, place / "faces.xml")
        return place / "faces.xml"


class TestCoco(AnnotationFormatLaws):
    format_name = "coco"

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        write_coco_keypoints(dataset, place / "faces.json")
        return place / "faces.json"


class TestPts(AnnotationFormatLaws):
    format_name = "pts"
    holds_boxes = False

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        write_pts_folder(dataset, place)
        return place


def test_every_format_is_looked_at() -> None:
    looked_at = {member.format_name for member in AnnotationFormatLaws.__subclasses__()}
    assert looked_at == set(ANNOTATION_FORMATS)
