"""A secure sum from the descriptor to the combined contribution, and the labs in it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aggregators.errors import FormatError, IncompatibleModelsError
from aggregators.formats import write_model
from aggregators.methods.leaf_refit import mean_change
from aggregators.methods.networks.round_files import (
    read_network_contribution,
    write_network_contribution,
)
from aggregators.methods.refitting import RefitSettings, read_contribution, write_contribution
from aggregators.models import LeafContribution, StateDict
from aggregators.secure_sum.layout import (
    BitBudget,
    encode_network,
    leaf_presence_layout,
    leaf_sums_layout,
    network_layout,
)
from site_agent.errors import ConflictError, InvalidInputError, PoolUnreachableError, SecureSumError
from site_agent.rounds.kinds import LeafRefitPart
from site_agent.secure.lab import RosterPolicy
from site_agent.secure.server import serve
from site_agent.secure.session import new_descriptor
from site_agent.secure.sums import (
    SecureSums,
    SumVisit,
    encode_leaf_presence,
    encode_leaf_sums,
    encode_network_file,
    read_presence,
    visit_until_summed,
)
from site_agent.secure.verification import verify_result
from site_agent.work import no_progress
from tests.pool_server.rounds.round_driver import base_model, contribution_bytes
from tests.site_agent.secure.folder_board import FolderBoard
from tests.site_agent.secure.parties import (
    BASE,
    BASE_DIGEST,
    LAYOUT,
    Parties,
    contribution,
    create_parties,
)


def test_all_labs_get_the_same_exact_mean(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.up_to("complete", session)
    view = parties.view(session)
    assert (view.phase, view.rejected, len(view.roster)) == ("complete", 0, 4)
    written = set()
    for mode in ("servers", "full"):
        for lab in parties.charter.labs:
            target = folder / f"{lab}.{mode}"
            parties.lab(lab).finish(session, target, mode)  # type: ignore[arg-type]
            written.add(target.read_bytes())
    assert len(written) == 1
    combined = read_network_contribution(target)
    assert (combined.samples, combined.network.tensors["steps"]) == (10, 5)
    change = sum(
        (n + 1) * contribution(n).network.tensors["weight"].astype(float) for n in range(4)
    )
    assert np.abs(combined.network.tensors["weight"] - change / 10).max() <= 1e-7
    assert not list(folder.glob("*/sessions/*"))  # all secrets are deleted


def test_parties_that_start_again_at_every_step_sum_once(folder: Path) -> None:
    parties = create_parties(folder, servers=2, labs=3)
    session = parties.open()
    for _ in range(8):
        for name in parties.charter.servers:
            parties.server(name).act(session)
        for name in parties.charter.labs:
            if parties.lab(name).share(session, LAYOUT, parties.numbers(name)):
                parties.lab(name).visit(session)
    assert parties.view(session).phase == "complete"
    posted = [(post.phase, post.sender) for post in parties.board.posts(session)]
    assert len(set(posted)) == len(posted) == 2 * 6 + 3 * 2


def test_the_labs_that_came_in_time_are_summed(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0", "lab-2", "lab-3")
    parties.serve(session)
    assert parties.view(session).phase == "receipt"
    parties.clock.pass_hours(49)
    parties.serve(session)
    assert sorted(parties.view(session).roster) == ["lab-0", "lab-2", "lab-3"]
    with pytest.raises(ConflictError, match="takes no more shares"):
        parties.lab("lab-1").share(session, LAYOUT, parties.numbers("lab-1"))
    parties.tag(session, "lab-0", "lab-2", "lab-3")
    parties.serve(session)
    written = parties.lab("lab-2").finish(session, folder / "result", "full")
    assert (written.labs, written.weight) == (("lab-0", "lab-2", "lab-3"), 8)


def test_a_waiting_lab_takes_part_again_after_a_session_of_too_few_labs(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0", "lab-2")
    parties.clock.pass_hours(49)
    for name in parties.charter.servers:
        parties.server(name).act(session)

    def step() -> SumVisit:
        """End with the visit after the session has been given up."""
        assert parties.lab("lab-0").visit(session).is_void
        return SumVisit(session, "complete", (), folder)

    with pytest.raises(SecureSumError, match="received 2 labs; the charter asks for 3"):
        visit_until_summed(step, wait=False, progress=no_progress)
    visit_until_summed(step, wait=True, progress=lambda *_: parties.serve(session))


def test_a_lab_gives_only_what_it_wants_to_give(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open(labs=["lab-0", "lab-1", "lab-2"])
    lab, numbers = parties.lab("lab-0"), parties.numbers("lab-0")
    assert lab.share(session, LAYOUT, numbers) is False  # the servers have no keys yet
    parties.serve(session)
    other = LAYOUT.model_copy(update={"base_digest": "cd" * 32})
    with pytest.raises(InvalidInputError, match="sums something else"):
        lab.share(session, other, numbers)
    with pytest.raises(InvalidInputError, match="does not invite lab-3"):
        parties.lab("lab-3").share(session, LAYOUT, parties.numbers("lab-3"))
    elsewhere = parties.open(attempt=2)
    assert lab.share(session, LAYOUT, numbers)
    assert lab.share(session, LAYOUT, numbers)
    with pytest.raises(ConflictError, match="other numbers were shared"):
        lab.share(session, LAYOUT, parties.numbers("lab-1"))
    with pytest.raises(InvalidInputError, match="did not tag"):
        lab.finish(elsewhere, folder / "result")
    parties.serve(session)
    view = parties.view(session)
    with pytest.raises(SecureSumError, match=r"^receipt: .* waits for server-0, server-1"):
        verify_result(view, parties.board, folder / "result")


def test_a_base_that_the_lab_did_not_approve_is_refused(folder: Path) -> None:
    parties = create_parties(folder)
    layout = LAYOUT.model_copy(update={"base_digest": "cd" * 32})
    descriptor = new_descriptor(parties.charter, layout, parties.clock.now)
    session = parties.board.open_session(descriptor.to_bytes())
    parties.serve(session)
    with pytest.raises(InvalidInputError, match="base cdcdcdcdcdcdcdcd was not approved"):
        parties.lab("lab-0").share(session, layout, parties.numbers("lab-0"))
    parties.lab("lab-0").approve_base("cd" * 32)
    assert parties.lab("lab-0").share(session, layout, parties.numbers("lab-0"))


class _AwayAtFirst(FolderBoard):
    """A board that does not answer the first question."""

    asked = False

    def sessions(self) -> list[str]:
        if not self.asked:
            self.asked = True
            raise PoolUnreachableError("the board does not answer")
        return super().sessions()


def test_a_server_acts_in_all_sessions_of_its_charter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    other = create_parties(folder / "other", labs=3, board=parties.board).open()
    lines: list[str] = []

    def others_act(_seconds: float) -> None:
        """Let everybody else act between two looks of the server, which ends with the sum."""
        for name in ("server-1", "server-2"):
            parties.server(name).act(session)
        for name in parties.charter.labs:
            if parties.lab(name).share(session, LAYOUT, parties.numbers(name)):
                parties.lab(name).visit(session)
        if any("complete" in line for line in lines):
            raise KeyboardInterrupt

    server = parties.server("server-0", _AwayAtFirst(folder / "board"))
    monkeypatch.setattr("site_agent.secure.server.time", SimpleNamespace(sleep=others_act))
    with pytest.raises(KeyboardInterrupt):
        serve(server, report=lines.append)
    assert lines[0] == "board: the board does not answer"
    refused = [line for line in lines if line.startswith(other[:16])]
    assert len(refused) == 1
    assert "not served: the session is under the charter" in refused[0]
    states = [line.split(": ")[1] for line in lines if line.startswith(session[:16])]
    assert states[-1] == "complete"
    assert len(states) == len(set(states)) <= 6


@pytest.mark.parametrize(("mean", "weight"), [("samples", 117), ("sites", 1)])
def test_a_file_of_differences_counts_by_its_samples_or_as_a_site(
    tmp_path: Path, mean: str, weight: int
) -> None:
    base, file, budget = tmp_path / "base.safetensors", tmp_path / "a.contribution", BitBudget()
    made = replace(contribution(1, 117), base_digest=write_model(BASE, base))
    write_network_contribution(made, file)
    encoded = encode_network_file(file, base, budget, mean=mean)
    expected = encode_network(encoded.layout, replace(made, samples=weight), BASE, budget)
    assert np.array_equal(encoded.numbers, expected)
    with pytest.raises(FormatError):
        encode_network_file(base, base, budget)


def test_secure_leaf_refinement_equals_the_plain_one_where_three_labs_reach(folder: Path) -> None:
    parties = create_parties(folder, labs=5)
    generator = np.random.default_rng(3)
    settings = RefitSettings().shared()
    labs, files = [], {}
    for name in parties.charter.labs:
        counts = generator.integers(1, 60, 64) * (generator.random(64) < 0.5)
        changes = generator.normal(0, 0.02, (64, 4, 2)) * (counts > 0)[:, np.newaxis, np.newaxis]
        labs.append(
            LeafContribution(
                changes.astype(np.float32), counts.astype(np.uint32), BASE_DIGEST, settings
            )
        )
        files[name] = folder / f"{name}.contribution"
        write_contribution(labs[-1], files[name])

    def visit(name: str) -> SumVisit:
        sums: Any = SecureSums(parties.lab(name), (*files,), "leaves", RosterPolicy())
        return LeafRefitPart.take_part(sums, files[name], Path(), folder / f"{name}.sum")

    visits: list[SumVisit] = []
    while not visits or any(made.total is None for made in visits):
        visits = [visit(name) for name in files]
        for session in parties.board.sessions():
            parties.serve(session)
    assert len({(folder / f"{name}.sum").read_bytes() for name in files}) == 1
    reached = read_presence(folder / "lab-0.presence")
    assert reached.tolist() == np.sum([lab.counts > 0 for lab in labs], axis=0).tolist()
    least = parties.charter.terms.least_labs
    combined = read_contribution(folder / "lab-0.sum")
    plain = mean_change([(lab.changes, lab.counts.astype(np.float64)) for lab in labs])
    kept = reached >= least
    assert 0 < kept.sum() < 64
    assert np.abs(combined.changes[kept] - plain[kept]).max() < 1e-7
    assert not combined.changes[~kept].any()
    assert combined.counts[kept].tolist() == np.sum([x.counts for x in labs], axis=0)[kept].tolist()
    assert not combined.counts[~kept].any()
    with pytest.raises(IncompatibleModelsError, match="labs per leaf"):
        leaf_sums_layout(leaf_presence_layout(labs[0]), reached, 6)
    (folder / "odd").write_bytes(b"123")
    with pytest.raises(InvalidInputError, match="not the result of a session"):
        read_presence(folder / "odd")


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
