"""Cards taken apart: what strangers wrote is read, and never run."""

from __future__ import annotations

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
def test_what_was_written_is_read_again(front: dict[str, object], body: str) -> None:
    card = read_card(write_card(front, body))
    assert card.front_matter == front
    assert card.body == body


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
def test_front_matter_that_is_refused(front: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_card(f"---\n{front}\n---\n")
