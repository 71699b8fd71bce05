"""Inputs that are refused before anything is computed, fetched or kept for them."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aggregators.secure_sum.layout import BitBudget, decode_sum, encode
from aggregators.secure_sum.sharing import add_to
from site_agent.errors import InvalidInputError
from site_agent.secure.session import new_descriptor, parse_descriptor
from tests.site_agent.secure.parties import LAYOUT, create_parties


class TestLimits:
    """A message that is cheap to send must not take minutes to check."""

    def test_a_small_descriptor_of_a_huge_sum_is_refused_before_anything_is_made_of_it(
        self, tmp_path: Path
    ) -> None:
        charter = create_parties(tmp_path, servers=2, labs=3).charter
        good = new_descriptor(charter, LAYOUT, 1_000_000.0).model_dump(mode="json")
        for layout in (
            {"kind": "leaf-sums", "base_digest": "ab" * 32, "leaves": 2**31, "parts": 1},
            {"kind": "leaf-presence", "base_digest": "ab" * 32, "leaves": 2**31},
            {
                "kind": "network", "base_digest": "ab" * 32,
                "entries": [{"name": "steps", "dtype": "I64", "shape": [2**31, 2**31]}],
            },
            {
                "kind": "network", "base_digest": "ab" * 32,
                "entries": [{"name": "w", "dtype": "F32", "shape": [2**31]}],
            },
        ):  # fmt: skip
            tracemalloc.start()
            with pytest.raises(InvalidInputError):
                parse_descriptor(json.dumps(good | {"layout": layout}).encode(), charter)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2**20

    def test_the_deadlines_are_those_of_the_charter(self, tmp_path: Path) -> None:
        parties = create_parties(tmp_path, servers=2, labs=3)
        descriptor = new_descriptor(parties.charter, LAYOUT, parties.clock.now)
        hurried = descriptor.deadlines.model_copy(update={"tag": descriptor.deadlines.commit + 60})
        content = descriptor.model_copy(update={"deadlines": hurried}).to_bytes()
        with pytest.raises(InvalidInputError, match=r"until tag; the charter gives 48 h"):
            parse_descriptor(content, parties.charter)
        late = new_descriptor(parties.charter, LAYOUT, parties.clock.now + 90 * 24 * 3600)
        session = parties.board.open_session(late.to_bytes())
        parties.serve(session)
        with pytest.raises(InvalidInputError, match="for longer than the charter's 48 h"):
            parties.lab("lab-0").share(session, LAYOUT, parties.numbers("lab-0"))

    def test_a_share_that_is_too_large_is_not_fetched(self, tmp_path: Path) -> None:
        parties = create_parties(tmp_path, servers=2, labs=3)
        session = parties.open()
        parties.serve(session)
        parties.share(session)
        large = next(parties.folder.rglob("blobs/*"))
        large.write_bytes(large.read_bytes() + bytes(10_000))
        parties.serve(session)
        receipts = parties.view(session)._messages["receipt"]
        refused = [item.body.refused for signed in receipts.values() for item in signed.values()]  # type: ignore[union-attr]
        assert any("too large" in reason for one in refused for reason in one.values())

    def test_a_sum_that_some_lab_made_without_samples_is_no_result(self) -> None:
        budget = BitBudget()
        vectors = [
            encode(np.full((1, 2), 0.5), np.array([weight], dtype=np.int64), budget)
            for weight in (0, 1, 1)
        ]
        total = vectors[0] * 0
        for vector in vectors:
            add_to(total, vector)
        assert decode_sum(total, 1, 3, budget)[1] == 2
        with pytest.raises(ValueError, match="sums of weights from 2 to 2, expected 3 to"):
            decode_sum(total, 1, 3, budget, 1)
