"""Leaf refinement by secure sums: two sums equal the sum of plain contributions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import write_model
from aggregators.methods.refitting import read_contribution
from pool_server.wire.rounds import RoundResponse, RoundTerms
from site_agent import PoolClient
from site_agent.pool.signing import create_key
from site_agent.rounds.kinds import LeafRefitPart
from site_agent.rounds.secure import visit_sums
from site_agent.secure.charter import Charter, accept_charter, create_charter
from site_agent.secure.party import Board
from site_agent.secure.server import Server
from site_agent.secure.sums import SumVisit
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.pool_server.rounds.round_driver import (
    SITES,
    base_model,
    contribution_bytes,
    finish,
    start_round,
    upload_base,
)

SERVERS, LABS = ("sum-1", "sum-2"), (*SITES, "round-d")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as running:
        yield running


@pytest.fixture(scope="module")
def clients(pool: PoolDriver) -> Iterator[dict[str, PoolClient]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(PoolClient(pool.url, pool.secret(name, "contributor")))
            for name in SERVERS + LABS
        }


@pytest.fixture
def charter(tmp_path: Path) -> Charter:
    """Make the keys of all parties, and have each accept a charter."""
    keys = {
        name: create_key(tmp_path / name / "secure", name).key.public.text
        for name in SERVERS + LABS
    }
    made = create_charter(
        "leaves", {name: keys[name] for name in SERVERS}, {name: keys[name] for name in LABS}
    )
    for name in keys:
        accept_charter(tmp_path / name / "secure", made, made.digest)
    return made


@pytest.mark.slow
def test_leaves_that_three_labs_reach_get_their_plain_mean(
    pool: PoolDriver,
    clients: dict[str, PoolClient],
    charter: Charter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, address = upload_base(pool, "leaves", seed=6001)
    base = base_model(6001)
    base_file = tmp_path / "base.dat"
    write_model(base, base_file)
    terms = {"charter": charter.digest, "servers": [*SERVERS]}
    started = start_round(pool, address, LABS, secure=terms)
    round_ = RoundResponse.model_validate(started)
    for number, lab in enumerate(LABS):
        (tmp_path / lab / "own").write_bytes(contribution_bytes(base, 70 + number))

    servers = [
        Server(tmp_path / name / "secure", name, charter.digest, Board(clients[name].secure))
        for name in SERVERS
    ]

    def visit(lab: str) -> SumVisit:
        monkeypatch.setenv("POOL_HOME", str(tmp_path / lab))
        folder = tmp_path / lab
        files = folder / "own", base_file, folder / "own.sum"
        visit = visit_sums(
            clients[lab], round_, lab, lambda sums: LeafRefitPart.take_part(sums, *files),
            terms=RoundTerms.of(round_), wait=False, progress=lambda _fraction, _text: None,
        )  # fmt: skip
        if visit.total is not None:
            clients[lab].rounds.send_contribution(round_.round_id, visit.total, lab)
        return visit

    def serve() -> None:
        for server in servers * 3:
            for session in server.board.sessions():
                server.act(session)

    for _ in range(10):
        visits = [visit(lab) for lab in LABS]
        serve()
        if all(visit.total is not None for visit in visits):
            break
    assert len({visit.total.read_bytes() for visit in visits if visit.total is not None}) == 1

    contributions = [read_contribution(tmp_path / lab / "own") for lab in LABS]
    total = read_contribution(tmp_path / LABS[0] / "own.sum")
    reached = sum((item.counts > 0).astype(int) for item in contributions)
    counts = sum(item.counts.astype(np.int64) for item in contributions)
    kept = reached >= charter.terms.least_labs
    assert 0 < kept.sum() < len(kept)
    assert (total.counts == np.where(kept, counts, 0)).all()
    weighted = sum(
        item.counts[:, None, None] * item.changes.astype(np.float64) for item in contributions
    )
    mean = weighted[kept] / counts[kept][:, None, None]
    assert np.abs(total.changes[kept] - mean).max() < 1e-6
    assert not total.changes[~kept].any()
    finished = finish(pool.member(SITES[0]), round_.round_id, f"{SITES[0]}/refined")
    assert finished.status_code == 200, finished.text
