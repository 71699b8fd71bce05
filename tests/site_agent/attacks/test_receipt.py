"""Receipts: attacks on a site's artifacts, with chance and controls that leak."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import file_digest
from aggregators.methods.refitting import RefitSettings, contribute, write_contribution
from pool_server.wire.cards import AttackFinding, PrivacyReceipt
from site_agent.attacks.receipt import leaf_sums, networks, smashed_data, sub_models
from site_agent.attacks.receipt.pages import receipt_page
from site_agent.attacks.receipt.probing import probe
from site_agent.attacks.receipt.sub_models import FaceSides, know_faces
from site_agent.attacks.table import Attack, Share, Trial, score_of
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.split import by_pattern
from site_agent.errors import InvalidInputError
from site_agent.refinement import load_site, read_base

PATTERN = "person-([0-9]+)"


@pytest.fixture(scope="module")
def sides(training_faces: FaceDataset, test_faces: FaceDataset) -> FaceSides:
    known = (
        know_faces(faces, by_pattern(faces, PATTERN)) for faces in (training_faces, test_faces)
    )
    return FaceSides(*known)


def findings_of(receipt: PrivacyReceipt) -> dict[str, AttackFinding]:
    return {finding.name: finding for finding in receipt.attacks}


def test_landmark_models_know_the_faces_that_trained(
    sides: FaceSides, trained_landmarks: Path
) -> None:
    probed = probe(trained_landmarks, "sub-model", sides)
    assert probed.receipt.artifact_digest == file_digest(trained_landmarks)
    assert (probed.receipt.persons, probed.receipt.held_out_persons) == (12, 6)
    findings = findings_of(probed.receipt)
    error = findings["membership of faces: landmark error"]
    assert error.found.value > 0.9
    for finding in findings.values():
        assert finding.chance == 0.5
        assert finding.control is not None
        assert finding.control.value > 0.9
    assert findings["membership of faces: mean shape"].found.value < 0.8
    ((caption, picture),) = probed.pictures.items()
    page = receipt_page(probed.receipt, probed.pictures, "<model>.dat")
    assert caption in page
    assert picture.startswith(b"<svg")
    assert "&lt;model&gt;.dat" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "the site itself" in page


def test_leaf_sums_show_no_face_and_a_camera_base_all_of_them(
    sides: FaceSides, trained_landmarks: Path, tmp_path: Path
) -> None:
    base = read_base(trained_landmarks)
    faces = load_site(sides.members.dataset, 68).faces
    guarded, open_ = tmp_path / "guarded.contribution", tmp_path / "open.contribution"
    write_contribution(contribute(base, faces, RefitSettings(starts=4)), guarded)
    loose = RefitSettings(starts=1, min_faces=1, jitter=0.0)
    write_contribution(contribute(base, faces, loose), open_)
    first, second = (
        findings_of(probe(findings, "leaf-sums", sides, base=trained_landmarks).receipt)
        for findings in (guarded, open_)
    )
    few, camera = "leaves with few faces", "camera base"
    assert (first[few].found.value, first[camera].found.value) == (0.0, 0.0)
    assert second[few].found.value > 0.1
    assert second[camera].found.value > 0.8
    for contribution in (first, second):
        shown = contribution["landmarks recovered from residuals"]
        assert shown.control is not None
        assert shown.control.value > 0.9 > shown.found.value
        assert contribution["membership of faces: recovered landmarks"].control.value > 0.9  # type: ignore[union-attr]


def test_held_out_persons_are_required(sides: FaceSides, trained_landmarks: Path) -> None:
    half = len(sides.members.dataset.images) // 2
    parts = [
        replace(sides.members.dataset, images=sides.members.dataset.images[chosen])
        for chosen in (slice(half), slice(half, None))
    ]
    known = [know_faces(part, by_pattern(part, PATTERN)) for part in parts]
    with pytest.raises(InvalidInputError, match="persons are in --data and in --holdout: 0"):
        probe(trained_landmarks, "sub-model", FaceSides(*known))
    renamed = know_faces(sides.members.dataset, lambda image: f"other {image.path.name}")
    with pytest.raises(InvalidInputError, match="24 pictures are in --data and in --holdout"):
        probe(trained_landmarks, "sub-model", FaceSides(sides.members, renamed))
    one = know_faces(sides.others.dataset, lambda _: "one")
    with pytest.raises(InvalidInputError, match="--holdout has 1 persons; expected at least 2"):
        probe(trained_landmarks, "sub-model", FaceSides(sides.members, one))


def test_intervals_of_shares() -> None:
    share = score_of(Share(1, 10))
    # Wilson's interval of 1 in 10, as in Newcombe 1998.
    assert (share.low, share.high) == pytest.approx((0.0179, 0.4042), abs=1e-4)
    assert score_of(Share(0, 5)).low == 0.0
    assert score_of(Share(5, 5)).high == 1.0


ROWS = (
    *networks.ATTACKS, *sub_models.DETECTOR_ATTACKS, *sub_models.LANDMARK_ATTACKS,
    *leaf_sums.ATTACKS, *smashed_data.ATTACKS,
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_of_the_table_is_documented_and_attacks_have_chance_and_control(row: Any) -> None:
    page = Path("site_agent/attacks/README.md").read_text()
    assert f"| {row.name} | {row.needs} |" in page
    assert not row.reveals or (row.chance is not None and row.control is not None)


def test_a_row_that_fails_or_whose_control_fails_is_a_line_that_is_not_judged() -> None:
    def fail(_: object) -> Any:
        raise InvalidInputError("the loss is nan")

    rows: list[Attack[str]] = [
        Attack(name="alone", needs="", score=fail),
        Attack(name="both", needs="", score=lambda case: {f"both {case}": 0.9}, control=fail),
        Attack(
            name="good",
            needs="",
            score=lambda case: {"line": len(case) / 4},
            control=lambda _: "leak",
        ),
    ]  # fmt: skip
    alone, both, good = Trial("me", 0).judge(rows)
    assert (alone.measure, alone.note) == ("none", "could not be judged: the loss is nan")
    assert (both.name, both.control, both.note) == ("both me", None, alone.note)
    assert good.control is not None
    assert (good.found.value, good.chance, good.control.value) == (0.5, 0.5, 1.0)
    assert [finding.is_judged for finding in (alone, both, good)] == [False, False, True]
