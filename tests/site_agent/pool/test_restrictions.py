"""Terms of use at a site."""

from pathlib import Path

import pytest

from pool_server.wire.data_use import Term
from site_agent.errors import TermsFileError
from site_agent.pool.restrictions import MOST_FILE_BYTES, read_terms_file


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
