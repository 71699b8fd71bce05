"""A secure sum from the descriptor to the combined contribution."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.methods.networks.round_files import read_network_contribution
from site_agent.errors import ConflictError, InvalidInputError, PoolUnreachableError, SecureSumError
from site_agent.secure.server import serve
from site_agent.secure.session import new_descriptor
from site_agent.secure.verification import verify_result
from tests.site_agent.secure.folder_board import FolderBoard
from tests.site_agent.secure.parties import LAYOUT, contribution, create_parties


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


def test_a_server_acts_in_all_sessions_of_its_charter(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    other = create_parties(folder / "other", labs=3, board=parties.board).open()
    lines: list[str] = []

    def stop() -> bool:
        """Let everybody else act between two looks of the server."""
        for name in ("server-1", "server-2"):
            parties.server(name).act(session)
        for name in parties.charter.labs:
            if parties.lab(name).share(session, LAYOUT, parties.numbers(name)):
                parties.lab(name).visit(session)
        return any("complete" in line for line in lines)

    server = parties.server("server-0", _AwayAtFirst(folder / "board"))
    serve(server, poll_seconds=0, stop=stop, report=lines.append)
    assert lines[0] == "board: the board does not answer"
    refused = [line for line in lines if line.startswith(other[:16])]
    assert len(refused) == 1
    assert "not served: the session is under the charter" in refused[0]
    states = [line.split(": ")[1] for line in lines if line.startswith(session[:16])]
    assert states[-1] == "complete"
    assert len(states) == len(set(states)) <= 6
