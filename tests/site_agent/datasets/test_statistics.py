"""Numbers of a data set."""

from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.datasets.statistics import dataset_statistics
from tests.site_agent.datasets.drawn import faces_in


def test_counts_and_measures(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 4)
    first = dataset.images[0]
    box = first.boxes[0]
    boxes = (box, replace(box, parts={}, difficult=True, label="side"), replace(box, ignore=True))
    empty = replace(first, boxes=())
    statistics = dataset_statistics(
        replace(dataset, images=(replace(first, boxes=boxes), empty, *dataset.images[1:]))
    )
    assert (
        statistics.images,
        statistics.images_without_faces,
        statistics.faces,
        statistics.ignored,
    ) == (5, 1, 5, 1)
    assert (statistics.faces_with_all_parts, statistics.faces_without_parts) == (4, 1)
    assert (statistics.marks["difficult"], statistics.labels) == (1, {"": 4, "side": 1})
    spread = statistics.distributions
    assert spread["box_width_px"].median == 46
    assert spread["faces_per_image"].high == 2
    # The eye centres of the mean face are 100 units apart, drawn at 0.2.
    assert spread["inter_ocular_px"].median == pytest.approx(20, abs=1)
    assert spread["inter_ocular_px"].count == 4
    assert 0.1 < spread["eye_aspect_ratio"].median < 0.5
    plain = statistics.to_dict()["distributions"]["inter_ocular_px"]
    assert sum(plain["histogram"]["counts"]) == plain["count"] == 4
    assert plain["p5"] <= plain["p50"] <= plain["p95"]
