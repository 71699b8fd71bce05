"""Boxes that a detector cannot learn are told before training, as training itself would."""

import dataclasses
from pathlib import Path

import pytest

from site_agent.datasets.check import Finding
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.training.detector_plan import HogSvmSettings, plan_detector
from site_agent.training.ert import unlearnable_boxes


@pytest.mark.parametrize("size", [(80, 80), (60, 90)])
def test_the_same_boxes_as_training_leaves_out(size: tuple[int, int], shared_data: Path) -> None:
    for name in ("training", "testing"):
        dataset = read_imglab_xml(shared_data / "dlib_faces" / f"{name}.xml")
        settings = HogSvmSettings(target_size_px=size, ignore_unreachable=True)
        findings = unlearnable_boxes(dataset, settings)
        left_out = plan_detector(dataset, settings).left_out
        assert [finding.line for finding in findings] == [line for line, _ in left_out]
        assert all("upsample=" in finding.text for finding in findings)
        assert unlearnable_boxes(dataset, dataclasses.replace(settings, upsample=2)) == []


def test_doublings_are_advised_only_where_they_help(tmp_path: Path) -> None:
    def found(boxes: list[FaceBox], upsample: int = 0) -> list[Finding]:
        images = [AnnotatedImage(tmp_path / "a.png"), AnnotatedImage(tmp_path / "b.png", (*boxes,))]
        return unlearnable_boxes(
            FaceDataset(None, images=tuple(images)), HogSvmSettings(upsample=upsample)
        )

    [small] = found([FaceBox(10, 10, 44, 44)])
    assert small.file == tmp_path / "b.png"
    assert small.text.endswith("; with upsample=1 it is reached")
    [twice] = found([FaceBox(10, 10, 100, 100)] * 2)
    assert "falls on the same window position" in twice.text
    [tiny] = found([FaceBox(10, 10, 3, 3)], 4)
    assert not any("upsample" in finding.text for finding in (twice, tiny))


def test_data_without_any_box_to_learn(training_faces: FaceDataset) -> None:
    findings = unlearnable_boxes(training_faces, HogSvmSettings(target_size_px=(300, 300)))
    assert len(findings) == 24
    assert {finding.severity for finding in findings} == {"warning"}
    assert unlearnable_boxes(FaceDataset(None)) == []
