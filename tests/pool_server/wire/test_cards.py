"""Parsed cards: text from strangers is read, and never executed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.wire.cards import read_card, write_card

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
keys = st.text(min_size=1, max_size=10)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=4), st.text(max_size=50))
def test_a_written_card_reads_back_unchanged(front: dict[str, object], body: str) -> None:
    card = read_card(write_card(front, body))
    assert card.front_matter == front
    assert card.body == body


def test_a_card_without_front_matter_is_all_body() -> None:
    assert read_card("# Title\n---\nnot: yaml\n---\n").front_matter == {}
    assert read_card("").body == ""


def test_front_matter_holds_only_what_json_can() -> None:
    card = read_card(
        "---\nday: 2026-01-31\nnumber: .inf\n1: one\nbig: 123456789012345678901\n---\n"
    )
    assert card.front_matter == {
        "day": "2026-01-31", "number": "inf", "1": "one", "big": "123456789012345678901",
    }  # fmt: skip
    json.dumps(card.front_matter, allow_nan=False)


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("a: &x [1]\nb: *x", "line 2: anchors"),
        ("a: !!python/object/apply:os.system [ls]", "line 2: tags"),
        ("just words", "expected 'key: value' lines"),
        ("a: " + "[" * 40 + "]" * 40, "levels deep"),
        ("a: [" + "1," * 6000 + "]", "more than 5,000 entries"),
        ("a: " + "x" * 70_000, "expected at most 64,000"),
        (r'a: "\ud800"', r"\\ud800 is half of a character"),
    ],
    ids=lambda text: text[:20],
)
def test_harmful_front_matter_is_refused(front: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_card(f"---\n{front}\n---\n")


def test_an_unterminated_front_matter_is_refused() -> None:
    with pytest.raises(ValueError, match="no second '---'"):
        read_card("---\na: 1\n")
    with pytest.raises(ValueError, match="expected at most 200,000"):
        read_card("x" * 200_001)
