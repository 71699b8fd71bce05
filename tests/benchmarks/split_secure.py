"""Rounds of split training with and without secure sums of client parts (thesis, table 4.2).

    python -m tests.benchmarks.split_secure [--frames 200] [--rounds 3]

Three sites, each with the eyes of one drawn person, their services and 3 or 4 aggregation servers
share this process and talk through sockets; the board is that of a pool. Bytes are those of all
sites; error is that of the network on a fourth person.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from site_agent import PoolClient
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, drawn_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.networks.modules import predict_gaze, to_module
from site_agent.secure.lab import Lab
from site_agent.secure.party import Board
from site_agent.secure.server import Server
from site_agent.split.client import SplitClient
from site_agent.split.parts import join_parts
from site_agent.split.plan import SplitPlan
from site_agent.training.gaze.loop import repeatable
from site_agent.work import no_progress
from tests.pool_server.pool_driver import pool_in_thread
from tests.site_agent.live_pool import UnreliableLine
from tests.site_agent.secure.parties import Parties, create_parties
from tests.site_agent.split.live_split import LiveSplit, make_kits


@dataclass
class PoolParties(Parties):
    """Parties with a board each: that of a pool, as their accounts see it."""

    boards: dict[str, Board] = field(default_factory=dict)

    def server(self, name: str, _board: Board | None = None) -> Server:
        return Server(self.folder / name, name, self.charter.digest, self.boards[name])

    def lab(self, name: str, _board: Board | None = None) -> Lab:
        return Lab(self.folder / name, name, self.charter.digest, self.boards[name])


class DrawnSplit(LiveSplit):
    """A split training of drawn persons."""

    samples: dict[str, GazeSamples]

    def client(self, site: str, _samples: GazeSamples | None = None) -> SplitClient:
        return super().client(site, self.samples[site])


def pool_parties(
    stack: ExitStack, folder: Path, servers: int
) -> tuple[PoolParties, UnreliableLine]:
    """Return parties with accounts in a pool, and the relay that counts the labs' bytes."""
    pool = stack.enter_context(pool_in_thread(folder / "pool"))
    relay = stack.enter_context(UnreliableLine(pool.url))
    plain = create_parties(folder / "parties", servers=servers, labs=3, lab_prefix="site")
    boards = {}
    for name in (*plain.charter.servers, *plain.charter.labs):
        url = relay.url if name in plain.charter.labs else pool.url
        client = stack.enter_context(PoolClient(url, pool.secret(name, "contributor")))
        boards[name] = Board(client.secure, charter=plain.charter)
    first = boards["server-0"]
    return PoolParties(plain.folder, plain.charter, first, boards=boards), relay


def measure(plan: SplitPlan, people: dict[str, GazeSamples], servers: int) -> str:
    """Hold a training, and return its row of the table."""
    *known, test = people.values()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parties, relay = None, None
        if servers:
            parties, relay = pool_parties(stack, folder, servers)
        charter = None if parties is None else parties.charter
        live = DrawnSplit(make_kits(folder / "kits", plan, charter=charter), parties)
        live.samples = {f"site-{number}": samples for number, samples in enumerate(known)}
        stack.enter_context(repeatable())
        stack.enter_context(live)
        began_s = time.monotonic()
        reports = live.run_clients()
        seconds = time.monotonic() - began_s
        network = join_parts(live.aggregator.rounds.model.network, live.server.rounds.model.network)
    predicted = predict_gaze(to_module(network), test.patches, test.head)
    error = angular_errors_deg(predicted, test.gaze).mean()
    moved = sum(report.server_bytes + report.aggregator_bytes for report in reports.values())
    shared = 0 if relay is None else relay.sent_bytes + relay.received_bytes
    name = f"{servers} servers" if servers else "no sum"
    return f"{name:10} {seconds:8.1f} s {moved / 1e6:8.2f} MB {shared / 1e6:8.2f} MB {error:9.4f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    drawing = RenderSettings(persons=4, frames_per_person=options.frames, skews=Skews(amount=1.0))
    people = dict(drawn_dataset(drawing).read_each(no_progress))
    plan = SplitPlan(rounds=options.rounds)
    print("setup          time    services    the board  error (degrees)")
    for servers in (0, 3, 4):
        print(measure(plan, people, servers), flush=True)


if __name__ == "__main__":
    main()
