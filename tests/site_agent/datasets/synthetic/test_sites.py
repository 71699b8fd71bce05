"""Drawn data sets: files, truth, determinism, and that models can be trained on them."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import dataset_digest, part_names, parts_array
from site_agent.datasets.synthetic.persons import person
from site_agent.datasets.synthetic.portraits import eye_aspect_ratios
from site_agent.datasets.synthetic.sites import SITE_STYLES, write_face_dataset
from site_agent.errors import InvalidInputError


def truth_of(xml: Path) -> list[dict[str, str]]:
    with xml.with_name(f"{xml.stem}_truth.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_writes_a_sound_data_set_with_its_truth(tmp_path: Path) -> None:
    seen: list[float] = []
    xml = write_face_dataset(
        tmp_path / "new", 6, 3, 1, first_person=20, progress=lambda part, _: seen.append(part)
    )
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    dataset = read_imglab_xml(xml)
    assert check_datasets([dataset]) == []
    assert part_names(dataset) == tuple(f"{i:02d}" for i in range(68))
    rows = truth_of(xml)
    assert [row["person"] for row in rows] == ["20", "21", "22"] * 2
    for (image, box), row in zip(dataset.boxes(), rows, strict=True):
        assert image.path == xml.parent / row["file"]
        assert f"person-{int(row['person']):03d}_" in image.path.name
        assert (box.left, box.width) == (int(row["box_left"]), int(row["box_width"]))
        ratio = eye_aspect_ratios(parts_array(box, part_names(dataset)))
        assert ratio[0] == pytest.approx(float(row["ear_right"]), abs=0.12)  # whole pixels
        assert row["age_group"] == person(int(row["person"])).age_group


def test_same_seed_same_files_other_seed_others(tmp_path: Path) -> None:
    first = write_face_dataset(tmp_path / "a", 3, 3, 5)
    again = write_face_dataset(tmp_path / "b", 3, 3, 5)
    other = write_face_dataset(tmp_path / "c", 3, 3, 6)
    assert first.read_bytes() == again.read_bytes()
    assert truth_of(first) == truth_of(again)
    digests = [dataset_digest(read_imglab_xml(xml)) for xml in (first, again, other)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("style", SITE_STYLES)
def test_sites_differ(tmp_path: Path, style: str) -> None:
    xml = write_face_dataset(tmp_path, 12, 12, style=style, name=style, image_size=(96, 96))
    rows = truth_of(xml)
    ages = [row["age_group"] for row in rows]
    with Image.open(xml.parent / rows[0]["file"]) as picture:
        grey = (np.ptp(np.asarray(picture), axis=2) == 0).all()
    assert grey == (style == "air-puff")
    assert (ages.count("infant") >= 8) == (style == "infant-lab")
    assert (ages.count("elder") >= 5) == (style == "ward")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"images": 0}, "0 images"), ({"style": "moon"}, "no site style 'moon'; there are: mixed")],
)
def test_refuses_impossible_wishes(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        write_face_dataset(tmp_path, **({"images": 1} | arguments))
    assert not list(tmp_path.iterdir())
