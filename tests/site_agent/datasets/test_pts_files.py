"""Landmarks in .pts files: the convention, what is refused, folders of pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.pts_files import read_pts
from site_agent.errors import AnnotationFileError

WITH_HEADER = "version: 1\nn_points:  3\n{\n1.0 1.0\n3.5 2\n11 21.25\n}\n"
EXPECTED = [[0.0, 0.0], [2.5, 1.0], [10.0, 20.25]]


@pytest.mark.parametrize(
    "text",
    [
        WITH_HEADER,
        WITH_HEADER.replace("\n", "\r\n"),
        "{\n1 1\n3.5 2\n11 21.25\n}",
        "1 1\n3.5 2\n\n11 21.25\n",
    ],
)
def test_the_same_landmarks_in_every_spelling(text: str, tmp_path: Path) -> None:
    file = tmp_path / "face.pts"
    file.write_bytes(text.encode())
    np.testing.assert_array_equal(read_pts(file), EXPECTED)
    np.testing.assert_array_equal(read_pts(file, origin=0), np.array(EXPECTED) + 1)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("version: 1\nn_points: 4\n{\n1 1\n2 2\n", 0, "has 2 landmarks, while n_points is 4"),
        ("version: 1\nn_points: 2\n{\n1 1\n2 b\n}\n", 5, "'2 b'"),
        ("1 1\n2 2 2\n", 2, "'2 2 2'"),
        ("1 1\n2 inf\n", 2, "beyond any image"),
        ("version: 1\nn_points: 0\n{\n}\n", 0, "no landmarks"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    text: str, line: int, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "face.pts"
    file.write_text(text)
    with pytest.raises(AnnotationFileError) as caught:
        read_pts(file)
    assert (caught.value.path, caught.value.line) == (file, line)
    assert words in caught.value.problem
