"""Terms of use at a site, and the parts of a measurement that leave it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pool_server.wire.data_use import Term
from site_agent.errors import PoolRefusedRequestError, TermsFileError
from site_agent.evaluation.landmark_scores import FaceErrors, LandmarkScores
from site_agent.pool.resources.models import DatasetWords, scores_to_send
from site_agent.pool.restrictions import MOST_FILE_BYTES, read_terms_file


def measured() -> LandmarkScores:
    face = FaceErrors("patient-7.png", 0, 3, 10.0, np.array([0.0625, 0.0625]))
    return LandmarkScores(
        mean_error=0.0625,
        median_error=math.nan,
        failure_rate=0.0,
        failure_rate_at_10=0.0,
        auc=0.2,
        mean_error_px=0.6,
        eye_error=None,
        ear_error=None,
        closed_ear_error=None,
        ear_range=None,
        normaliser="inter-ocular",
        images=1,
        faces=1,
        parts=2,
        skipped_faces=0,
        intervals={"mean_error": (0.05, 0.075), "auc": (math.nan, math.nan)},
        per_landmark=np.array([0.0625, 0.0625]),
        names=("left-pupil", "right-pupil"),
        per_face=(face,),
    )


def test_metrics_and_intervals_are_sent_and_nothing_of_a_face() -> None:
    sent = scores_to_send(measured())
    assert sent == {
        "mean_error": {"value": 0.0625, "low": 0.05, "high": 0.075},
        "failure_rate": {"value": 0.0},
        "failure_rate_at_10": {"value": 0.0},
        "auc": {"value": 0.2},
    }
    json.dumps(sent, allow_nan=False)
    assert measured().protocol == "inter-ocular, 2 landmarks"


def test_data_without_a_name_are_called_by_their_digest() -> None:
    assert DatasetWords("ab" * 32).shown_name == "dataset-abababababab"
    assert DatasetWords("ab" * 32, "ward 2026").shown_name == "ward 2026"


@pytest.mark.parametrize("name", ["/data/ward", "..\\ward", "a\nb", "x" * 129])
def test_a_path_is_no_name(name: str) -> None:
    with pytest.raises(PoolRefusedRequestError, match="dataset"):
        DatasetWords("ab" * 32, name)


def test_a_file_of_terms(tmp_path: Path) -> None:
    path = tmp_path / "a.terms"
    path.write_text("\ufeff# of our ward\nGRU\n\n  MOR = 2027-01-31\nGRU\n", encoding="utf-8")
    assert read_terms_file(path) == [
        Term(code="DUO:0000042"), Term(code="DUO:0000024", detail="2027-01-31"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"GRU\nXYZ\nMOR=soon\n", "line 3"),
        (b"\xff\xfe", "no UTF-8"),
        (b"#" * (MOST_FILE_BYTES + 1), "expected terms"),
    ],
    ids=["words", "bytes", "long"],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "a.terms"
    path.write_bytes(content)
    with pytest.raises(TermsFileError, match=expected):
        read_terms_file(path)
