"""A round over a real server process, with a site that is killed and one that falls silent."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aggregators.formats import write_model
from aggregators.methods.refitting import RefitSettings
from pool_server.settings import PoolSettings
from pool_server.wire.rounds import RoundResponse
from site_agent import ModelCache, PoolClient
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.refinement import RefinementPlan, SiteSource, load_site, read_base, refine_sites
from tests.aggregators.small_models import as_trained, make_predictor
from tests.cli.conftest import Outcome, run_here, start_process
from tests.pool_server.pool_driver import pool_process
from tests.pool_server.rounds.round_driver import pass_deadline
from tests.site_agent.live_pool import UnreliableLine
from tests.waiting import wait_until

SITES = ("site-a", "site-b", "site-c")
PART_BYTES = 256 * 1024
LINE_BYTES_PER_S = 800_000


class Lab:
    """One site: its token, its faces, and a home of its own for its processes."""

    def __init__(self, folder: Path, name: str, url: str, token: str, seed: int) -> None:
        self.name, self.token, self.home = name, token, folder / f"home-{name}"
        self.faces = write_face_dataset(folder / name, 6, 3, seed, image_size=(160, 160))
        self.environment = {
            "POOL_ENDPOINT": url,
            "POOL_TOKEN": token,
            "POOL_HOME": str(self.home),
            "NUMBA_NUM_THREADS": "1",
        }

    def contribute_command(self, key: str) -> tuple[str, ...]:
        command = ("rounds", "contribute", key, "--data", str(self.faces), "--threads", "1")
        return (*command, "--least-others", "1", "--json")

    def run(self, *arguments: str, **environment: str) -> Outcome:
        return run_here(*arguments, **(self.environment | environment))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    environment = {"POOL_SERVER_PART_BYTES": str(PART_BYTES)}
    with pool_process(tmp_path / "pool", **environment) as (_, url, secret):
        assert secret is not None
        yield url, secret


def open_labs(folder: Path, url: str, secret: str) -> list[Lab]:
    labs = []
    with PoolClient(url, secret, cache=ModelCache(folder / "no-cache")) as admin:
        for seed, name in enumerate(SITES, start=1):
            admin.sites.create(name)
            token = admin.tokens.create(name, "desk").secret
            labs.append(Lab(folder, name, url, token, seed))
    return labs


def states(round_: RoundResponse) -> dict[str, str]:
    return {participant.site: participant.state for participant in round_.participants}


@pytest.mark.slow
def test_a_killed_site_comes_back_and_a_silent_one_is_left_out(
    tmp_path: Path, server: tuple[str, str]
) -> None:
    url, secret = server
    a, b, c = open_labs(tmp_path, url, secret)
    base = tmp_path / "base.dat"
    parts = len(next(iter(read_imglab_xml(a.faces).boxes()))[1].parts)
    write_model(as_trained(make_predictor(3, parts=parts, depths=((5,) * 40,) * 3)), base)
    # Homes that are there already share the base, so that the slow line is there for sending.
    for lab in (a, b, c):
        with PoolClient(url, lab.token, cache=ModelCache(lab.home / "cache")) as client:
            if lab is a:
                client.upload(base, "site-a/merged")
            client.download("site-a/merged")
    pool = PoolClient(url, a.token, cache=ModelCache(tmp_path / "cache"))
    started = pool.rounds.start(
        "site-a/merged", SITES, datetime.now(UTC) + timedelta(hours=1), options={"starts": 5}
    )
    key = started.round_id
    assert a.run(*a.contribute_command(key)).data["site"] == "site-a"

    # One is killed while it sends, another stops in the middle and no longer answers.
    with UnreliableLine(url) as line_b, UnreliableLine(url) as line_c:
        line_b.bytes_per_s = line_c.bytes_per_s = LINE_BYTES_PER_S
        for lab, line in ((b, line_b), (c, line_c)):
            trusting = lab.run("rounds", "trust", "site-a", POOL_ENDPOINT=line.url)
            assert trusting.code == 0, trusting.err
        on_line_b = b.environment | {"POOL_ENDPOINT": line_b.url}
        killed = start_process(*b.contribute_command(key), **on_line_b)
        wait_until(lambda: line_b.sent_bytes > 3 * PART_BYTES)
        killed.kill()
        killed.communicate()
        silent = start_process(
            *c.contribute_command(key), **(c.environment | {"POOL_ENDPOINT": line_c.url})
        )
        try:
            wait_until(lambda: line_c.sent_bytes > 2 * PART_BYTES)
            os.kill(silent.pid, signal.SIGSTOP)
            assert states(pool.rounds.get(key)) == {
                "site-a": "contributed", "site-b": "waiting", "site-c": "waiting",
            }  # fmt: skip
            assert len(list((b.home / "cache" / "rounds").rglob("*.contribution"))) == 1

            line_b.bytes_per_s = None
            back = b.run(*b.contribute_command(key), POOL_ENDPOINT=line_b.url).data
            assert not back["computed"], "what was computed is not computed again"
            assert 0 < back["sent_bytes"] < back["size_bytes"], "nor is sent what had arrived"

            early = b.run("rounds", "finish", key, "--json")
            assert early.code == 7
            assert "site-c" in early.error["message"]
            pass_deadline(PoolSettings(data_folder=tmp_path / "pool"), key)
            finished = b.run("rounds", "finish", key, "--name", "refined", "--json").data
            assert finished["left_out"] == ["site-c"]
            assert finished["version"]["site"] == "site-b"
            assert len(finished["version"]["parent_digests"]) == 3
            assert states(pool.rounds.get(key))["site-c"] == "missing"

            os.kill(silent.pid, signal.SIGCONT)
            line_c.bytes_per_s = None
            out, _ = silent.communicate(timeout=540)
            assert silent.returncode == 7, out
            assert "round_closed" in out or "no longer takes contributions" in out
        finally:
            for process in (killed, silent):
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    assert states(pool.rounds.get(key))["site-c"] == "late"
    listed = [version.name for version in pool.models.find()]
    assert sorted(listed) == ["merged", "refined"], "contributions are no models"

    forest = read_base(base)
    sources = [
        SiteSource(lab.name, load_site(read_imglab_xml(lab.faces), forest.part_count))
        for lab in (a, b)
    ]
    together = refine_sites(
        base, sources, tmp_path / "together.dat", RefinementPlan(RefitSettings(starts=5))
    )
    assert together.digest == finished["version"]["digest"], "as if all were on one machine"
    pool.close()
