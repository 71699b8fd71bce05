"""``poolctl secure`` against a real pool, from the keys to a sum, a void session and a liar."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from aggregators.methods.networks.round_files import read_network_contribution
from site_agent import PoolClient
from site_agent.secure.charter import require_accepted
from site_agent.secure.lab import Lab
from site_agent.secure.party import Board
from site_agent.secure.session import new_descriptor
from tests.cli.conftest import Run, start_process
from tests.cli.secure.parties import LABS, SERVERS, agree, serve
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.live_pool import UnreliableLine
from tests.site_agent.secure.vectors import encoded_vector, trial_layout, trial_vector
from tests.waiting import wait_until

PARAMETERS = 50


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as running:
        yield running


@dataclass
class Parties:
    """Labs and servers with folders of their own, that the commands have set up."""

    pool: PoolDriver
    folder: Path
    charter: str

    def client(self, name: str) -> PoolClient:
        return PoolClient(self.pool.url, self.pool.secret(name, "contributor"))

    def open(self, parameters: int = PARAMETERS) -> str:
        charter = require_accepted(self.folder / LABS[0], self.charter)
        descriptor = new_descriptor(charter, trial_layout(parameters), time.time())
        with self.client(LABS[0]) as client:
            return Board(client.secure, charter=charter).open_session(descriptor.to_bytes())

    def serve(self) -> None:
        serve(self.pool, self.charter, self.folder.joinpath)

    def visit(self, session: str, *, share: int = 0, addresses: Sequence[str] = ()) -> None:
        """Let each lab act, at an address of its own; `share`: the number of its parameters."""
        for number, name in enumerate(LABS):
            address = addresses[number] if addresses else self.pool.url
            with PoolClient(address, self.pool.secret(name, "contributor")) as client:
                lab = Lab(self.folder / name, name, self.charter, Board(client.secure))
                if share:
                    lab.approve_base(trial_layout(share).base_digest)
                    numbers = encoded_vector(number, share, lab.charter.budget)
                    assert lab.share(session, trial_layout(share), numbers)
                else:
                    lab.visit(session)


@pytest.fixture
def as_party(pool: PoolDriver, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def change(name: str) -> None:
        monkeypatch.setenv("POOL_ENDPOINT", pool.url)
        monkeypatch.setenv("POOL_TOKEN", pool.secret(name, "contributor"))

    return change


@pytest.fixture
def parties(pool: PoolDriver, tmp_path: Path, poolctl: Run) -> Parties:
    """Make keys and a charter with the commands, and accept it everywhere."""
    charter = agree(pool, poolctl, tmp_path / "charter.toml", tmp_path.joinpath)
    return Parties(pool, tmp_path, charter)


def test_a_secure_round_asks_first_for_the_charter(parties: Parties, poolctl: Run) -> None:
    file = parties.folder / "charter.toml"
    arguments = ("--base", "lab-a/eyes", "--sites", ",".join(LABS), "--deadline", "1d", "--json")
    refused = poolctl("rounds", "start", *arguments, "--secure", file).error
    assert "was not accepted here" in refused["message"]
    assert f"then accept it: poolctl secure charter accept {file}" in refused["hint"]


def test_a_charter_is_written_shown_and_kept(parties: Parties, poolctl: Run) -> None:
    file = parties.folder / "charter.toml"
    shown = poolctl("secure", "charter", "accept", file, "--json").data
    assert shown["digest"] == parties.charter
    assert [server["name"] for server in shown["servers"]] == [*SERVERS]
    place = ("--folder", parties.folder / LABS[0], "--json")
    assert poolctl("secure", "charter", "accept", file, "0" * 64, *place).code == 2
    text = poolctl("secure", "charter", "accept", file).out
    assert text.startswith("Not accepted yet: compare these words")
    assert parties.charter in "".join(text.split())
    assert max(map(len, text.splitlines()[-4:])) <= 80
    arguments = [
        word
        for server in shown["servers"]
        for word in ("--server", f"{server['name']}={server['key']}")
    ]
    arguments += [
        word for lab in shown["labs"] for word in ("--lab", f"{lab['name']}={lab['key']}")
    ]
    alone = poolctl("secure", "charter", "create", "eyes", *arguments[2:], "-o", file, "--json")
    assert "found 1 server, expected at least 2" in alone.error["message"]
    again = poolctl("secure", "charter", "create", "eyes", *arguments, "-o", file, "-q")
    assert again.out.strip() == parties.charter
    other = poolctl("secure", "charter", "create", "other", *arguments, "-o", file, "--json")
    assert other.error["code"] == "file_exists"
    # A key that is there is shown, and not replaced.
    kept = poolctl("secure", "keygen", "--site", LABS[0], *place).data
    assert kept["key"] == shown["labs"][0]["key"]


def test_a_sum_is_followed_and_verified(
    parties: Parties, as_party: Callable[[str], None], poolctl: Run
) -> None:
    session, place = parties.open(), ["--folder", parties.folder / LABS[1]]
    as_party(LABS[1])
    parties.serve()
    status = poolctl("secure", "status", session[:12], *place, "--json").data
    assert (status["phase"], status["waiting"]) == ("receipt", [*SERVERS])
    assert poolctl("secure", "verify", session, *place, "--json").code != 0
    parties.visit(session, share=PARAMETERS)
    parties.serve()
    parties.visit(session)
    parties.serve()
    listed = poolctl("secure", "status", *place)
    assert session[:16] in listed.out
    assert "complete" in listed.out
    outputs = [parties.folder / name for name in ("signed", "full")]
    for output, arguments in zip(outputs, ([], ["--full"]), strict=True):
        verified = poolctl("secure", "verify", session, "-o", output, *arguments, *place, "--json")
        assert verified.data["labs"] == [*LABS]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    drawn = [trial_vector(number, PARAMETERS) for number in range(len(LABS))]
    mean = np.average([values for values, _ in drawn], axis=0, weights=[w for _, w in drawn])
    read = read_network_contribution(outputs[0])
    assert np.abs(read.network.tensors["vector"] - mean).max() < 1e-7
    assert poolctl("secure", "status", session, *place, "--json").data["faults"] == []
    as_party(SERVERS[0])
    late = poolctl(
        "secure", "void", session, "--reason", "late", "-y", "--json",
        "--folder", parties.folder / SERVERS[0],
    )  # fmt: skip
    assert late.error["code"] == "conflict"


def test_all_servers_can_give_a_session_up(
    parties: Parties, as_party: Callable[[str], None], poolctl: Run
) -> None:
    session = parties.open()
    parties.serve()
    parties.visit(session, share=PARAMETERS)
    states = []
    for name in SERVERS:
        as_party(name)
        arguments = ["--reason", "a lab left", "--folder", parties.folder / name, "-y", "--json"]
        states.append(poolctl("secure", "void", session, *arguments).data["phase"])
    assert states == ["receipt", "void"]


def test_a_server_serves_until_it_is_stopped(
    parties: Parties, as_party: Callable[[str], None], poolctl: Run
) -> None:
    session, place = parties.open(), ["--folder", parties.folder / SERVERS[0]]
    as_party(SERVERS[0])
    process = start_process("secure", "serve", parties.charter, *place)
    with parties.client(LABS[0]) as client:
        board = Board(client.secure)
        wait_until(lambda: bool(board.posts(session)))
    process.send_signal(signal.SIGTERM)
    assert process.wait(540) == 0


def test_a_lab_sends_one_explicit_share_and_little_else(parties: Parties) -> None:
    session = parties.open(50_000)
    parties.serve()
    with ExitStack() as stack:
        relays = [stack.enter_context(UnreliableLine(parties.pool.url)) for _ in LABS]
        addresses = [relay.url for relay in relays]
        parties.visit(session, share=50_000, addresses=addresses)
        parties.serve()
        parties.visit(session, addresses=addresses)
    assert all(8 * 50_000 < relay.sent_bytes < 8 * 50_000 + 150_000 for relay in relays)
