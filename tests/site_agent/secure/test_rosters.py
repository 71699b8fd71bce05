"""Rosters of summed labs, and the conditions on them before a lab tags."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from aggregators.models import StateDict
from aggregators.secure_sum.layout import network_layout
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.secure.lab import RosterPolicy
from site_agent.secure.session import new_descriptor
from site_agent.secure.sums import encode_leaf_presence, encode_leaf_sums, read_presence
from tests.pool_server.rounds.round_driver import base_model, contribution_bytes
from tests.site_agent.secure.parties import BASE, LAYOUT, Parties, create_parties

_SAME_SUM = "of the same sum has another roster and is not void"


def test_a_lab_that_does_not_tag_is_named_and_a_smaller_roster_works(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.up_to("tag", session)
    parties.tag(session, "lab-0", "lab-1", "lab-2")
    parties.serve(session)
    assert parties.view(session).waiting == ("lab-3",)
    others = parties.open(attempt=2, labs=["lab-0", "lab-1", "lab-2"])
    parties.serve(others)
    parties.share(others, "lab-0", "lab-1", "lab-2")
    # The first session may still be opened, so the roster must not change: servers refuse.
    parties.serve(others)
    assert any("another roster" in reason for reason in parties.reasons(others))
    parties.clock.pass_hours(300)
    parties.serve(session)
    assert parties.view(session).is_void
    assert any("tag: lab-3 did not post in time" in reason for reason in parties.reasons(session))
    again = parties.open(attempt=3, labs=["lab-0", "lab-1", "lab-2"])
    parties.serve(again)
    parties.share(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    parties.tag(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    assert parties.lab("lab-1").finish(again, folder / "result", "full").weight == 6


def test_labs_do_not_tag_a_second_roster(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.up_to("complete", session)
    again = parties.open(attempt=2, labs=["lab-0", "lab-1", "lab-2"])
    for name in parties.charter.servers:  # all servers forget: they are at fault together
        (folder / name / "ledger.jsonl").unlink()
    parties.serve(again)
    parties.share(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    with pytest.raises(ConflictError, match="had other labs"):
        parties.lab("lab-0").visit(again)
    parties.clock.pass_hours(300)
    parties.serve(again)
    other = parties.open(attempt=3)
    parties.serve(other)
    with pytest.raises(ConflictError, match="had other numbers"):
        parties.lab("lab-0").share(other, LAYOUT, parties.numbers("lab-1"))
    same = parties.open(attempt=4)
    parties.up_to("complete", same)
    assert parties.view(same).phase == "complete"


class TestRosters:
    """Each lab decides on the labs that it is summed with, not the opener of the session."""

    @pytest.fixture
    def parties(self, tmp_path: Path) -> Parties:
        return create_parties(tmp_path, servers=2, labs=5, least_labs=3)

    def test_two_labs_cannot_isolate_a_third_in_a_session_of_their_own(
        self, parties: Parties
    ) -> None:
        session = parties.open(labs=("lab-0", "lab-1", "lab-2"))
        parties.serve(session)
        victim, labs = parties.lab("lab-2"), [f"lab-{number}" for number in range(5)]
        with pytest.raises(InvalidInputError, match=r"invites lab-0, lab-1, lab-2, expected lab-0"):
            victim.share(session, LAYOUT, parties.numbers("lab-2"), labs)
        assert not parties.view(session).posted("share", "lab-2")

    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            (RosterPolicy(least_others=4), "this lab asks for 4 others"),
            (RosterPolicy(insists_on=frozenset({"lab-3"})), "this lab insists on lab-3"),
        ],
    )
    def test_a_lab_tags_no_roster_that_its_policy_forbids(
        self, parties: Parties, policy: RosterPolicy, text: str
    ) -> None:
        session = parties.open()
        parties.serve(session)
        parties.share(session, "lab-0", "lab-1", "lab-2", "lab-4")
        parties.clock.pass_hours(49)
        parties.serve(session)
        shown: list[Sequence[str]] = []
        with pytest.raises(ConflictError, match=text):
            parties.lab("lab-0").visit(session, policy, shown.append)
        assert (parties.lab("lab-0").has_said(session, "tag"), shown) == (False, [])
        parties.lab("lab-1").visit(session, RosterPolicy(least_others=3), shown.append)
        assert shown == [["lab-0", "lab-1", "lab-2", "lab-4"]]

    def test_leaves_are_summed_over_the_labs_that_were_counted(
        self, parties: Parties, tmp_path: Path
    ) -> None:
        """Three labs reach a leaf; two of them stay away from its sum, which shows the third."""
        budget, base = parties.charter.budget, base_model(8)
        files = {}
        for number in range(5):
            files[f"lab-{number}"] = tmp_path / f"{number}.contribution"
            files[f"lab-{number}"].write_bytes(contribution_bytes(base, number))
        present = {name: encode_leaf_presence(file, budget) for name, file in files.items()}
        counted = read_presence(parties.sum_of(present, tmp_path / "counted"))
        few = {
            name: encode_leaf_sums(files[name], counted, 3, budget)
            for name in ("lab-0", "lab-1", "lab-2")
        }
        with pytest.raises(ConflictError, match="were counted among lab-0, lab-1, lab-2, lab-3"):
            parties.sum_of(few, tmp_path / "summed")
        parties.clock.pass_hours(200)
        for session in parties.board.sessions():
            parties.serve(session)  # given up, as nobody has tagged it
        all_of_them = {
            name: encode_leaf_sums(file, counted, 3, budget) for name, file in files.items()
        }
        assert parties.sum_of(all_of_them, tmp_path / "summed").is_file()


def test_equal_weights_in_two_files_are_one_subject() -> None:
    """Otherwise {a, b, c, d} on one file less {a, b, c} on the other is d's contribution."""
    other = StateDict(BASE.tensors, BASE.infos, {"note": "the same weights"})
    first, second = network_layout(BASE, "ab" * 32), network_layout(other, "cd" * 32)
    assert first.digest != second.digest
    assert first.subject == second.subject
    moved = dict(BASE.tensors) | {"weight": np.asarray(BASE.tensors["weight"]) + 1}
    assert network_layout(StateDict(moved, BASE.infos), "ab" * 32).subject != first.subject


def test_a_second_sum_of_equal_weights_over_fewer_labs_is_given_up(tmp_path: Path) -> None:
    parties = create_parties(tmp_path, servers=2, labs=4)
    session = parties.open()
    parties.up_to("complete", session)
    same = LAYOUT.model_copy(update={"base_digest": "cd" * 32})
    descriptor = new_descriptor(parties.charter, same, parties.clock.now)
    second = parties.board.open_session(descriptor.to_bytes())
    parties.serve(second)
    names = ("lab-0", "lab-1", "lab-2")
    for name in names:
        parties.lab(name).approve_base("cd" * 32)
        assert parties.lab(name).share(second, same, parties.numbers(name))
    parties.clock.pass_hours(49)
    parties.serve(second)
    # The servers remember, as each lab would.
    assert any(reason.endswith(_SAME_SUM) for reason in parties.reasons(second))
    assert not parties.view(second).posted("opening", "server-0")
