"""What is refused before anything is computed, fetched or kept for it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from site_agent.errors import InvalidInputError
from site_agent.secure.session import new_descriptor, parse_descriptor
from tests.site_agent.secure.parties import LAYOUT, create_parties


class TestLimits:
    """What costs a sentence to send must not cost minutes to look at."""

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
        refused = [each.body.refused for signed in receipts.values() for each in signed.values()]  # type: ignore[union-attr]
        assert any("too large" in reason for one in refused for reason in one.values())
