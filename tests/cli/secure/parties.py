"""Labs and servers of secure sums that the commands set up, on a real pool."""

import json
from collections.abc import Callable
from pathlib import Path

from site_agent import PoolClient
from site_agent.secure.party import Board
from site_agent.secure.server import Server
from tests.cli.conftest import Run
from tests.pool_server.pool_driver import PoolDriver

SERVERS, LABS = ("sum-1", "sum-2"), ("lab-a", "lab-b", "lab-c")
Place = Callable[[str], Path]
"""Returns the folder of a party."""


def agree(pool: PoolDriver, poolctl: Run, file: Path, place_of: Place, *options: object) -> str:
    """Make sites and keys of all parties, have each accept a charter, and return its digest."""
    parties: list[object] = []
    for name in (*SERVERS, *LABS):
        pool.secret(name, "contributor")
        place = ("--site", name, "--folder", place_of(name))
        made = poolctl("secure", "keygen", *place, "-q")
        assert made.code == 0, made.err
        parties += ["--server" if name in SERVERS else "--lab", f"{name}={made.out.strip()}"]
    created = poolctl("secure", "charter", "create", "eyes", *parties, *options, "-o", file, "-q")
    digest = created.out.strip()
    for name in (*SERVERS, *LABS):
        place = ("--folder", place_of(name), "--json")
        accepted = poolctl("secure", "charter", "accept", file, digest, *place)
        assert accepted.data["accepted"]
    return digest


def serve(pool: PoolDriver, charter: str, place_of: Place) -> None:
    """Let the servers take all their steps in the sessions of a charter."""
    for name in SERVERS * 3:
        with PoolClient(pool.url, pool.secret(name, "contributor")) as client:
            server = Server(place_of(name), name, charter, Board(client.secure))
            for session in server.board.sessions():
                if json.loads(server.board.descriptor(session))["charter"] == charter:
                    server.act(session)
