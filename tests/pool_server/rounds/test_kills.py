"""A server killed while a round ends: it has ended as a whole, or not at all."""

import signal
import threading
from pathlib import Path

import httpx
import pytest

from pool_server.settings import PoolSettings
from tests.pool_server.merges.merge_driver import OVER, wait_for
from tests.pool_server.pool_driver import PoolDriver, open_client, pool_process
from tests.pool_server.rounds.round_driver import (
    SITES,
    combine,
    contribute,
    contribution_bytes,
    finish,
    show,
    start_round,
    upload_base,
)
from tests.pool_server.transfers.test_kills import wait_for_file

ADDRESS = f"{SITES[0]}/refined"


@pytest.mark.parametrize("moment", [pytest.param("merged", marks=pytest.mark.slow), "published"])
def test_killed_while_the_result_is_published(tmp_path: Path, moment: str) -> None:
    data = tmp_path / "pool"
    with pool_process(data) as (server, url, secret):
        assert secret is not None
        driver = PoolDriver(url, secret, PoolSettings(data_folder=data, port=0))
        with driver.stack:
            base, address = upload_base(driver, "base")
            key = start_round(driver, address, SITES[:2], rounds=2)["round_id"]
            token = driver.secret(SITES[0], "contributor")
            contents = [contribution_bytes(base, seed) for seed in (1, 2)]
            for site, content in zip(SITES, contents, strict=False):
                assert contribute(driver.member(site), key, site, content).status_code == 201
            digest = combine(tmp_path, base, contents)[1].digest
        thread = threading.Thread(target=finish_until_killed, args=(url, token, key))
        thread.start()
        patterns = {"merged": "scratch/*/result", "published": f"storage/blobs/*/{digest}"}
        wait_for_file(data, patterns[moment])
        server.send_signal(signal.SIGKILL)
        server.wait()
        thread.join()
    with pool_process(data) as (_, url, _none), open_client(url, token) as member:
        # The pool goes on with it by itself; at each moment it has ended as a whole, or not at all.
        listed = member.get("/api/v1/models", params={"name": "refined"}).json()["items"]
        round_ = show(member, key)
        if round_["state"] == "open":
            assert (listed, round_["result"], round_["successor"]) == ([], None, None)
        [job] = member.get("/api/v1/merges").json()["items"]
        assert wait_for(member, job["merge_id"], OVER)["state"] == "finished"
        response = finish(member, key, ADDRESS)
        assert response.status_code == 200, response.text
        ended = show(member, key)
        assert (ended["state"], ended["result_digest"]) == ("finished", digest)
        following = show(member, ended["successor"])
        assert (following["number"], following["state"]) == (2, "open")
        assert len(member.get("/api/v1/rounds").json()["items"]) == 2


def finish_until_killed(url: str, token: str, key: str) -> None:
    with open_client(url, token) as client:
        try:
            finish(client, key, ADDRESS)
        except httpx.HTTPError:
            return
