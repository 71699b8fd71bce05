"""A server killed while a round ends: it has ended as a whole, or not at all."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import httpx
import pytest

from pool_server.settings import PoolSettings
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, open_client, pool_process, send_parts
from tests.pool_server.rounds.round_driver import (
    announce_result,
    bring_result,
    combine,
    contribute,
    contribution_bytes,
    show,
    start_round,
    upload_base,
)
from tests.pool_server.transfers.test_kills import wait_for_file

SITE = "round-a"


@pytest.mark.parametrize("moment", [pytest.param("assembled", marks=pytest.mark.slow), "published"])
def test_killed_while_the_result_is_completed(tmp_path: Path, moment: str) -> None:
    data = tmp_path / "pool"
    with pool_process(data) as (server, url, secret):
        assert secret is not None
        driver = PoolDriver(url, secret, PoolSettings(data_folder=data, port=0))
        with driver.stack:
            base, address = upload_base(driver, "base")
            key = start_round(driver, address, (SITE,), rounds=2)["round_id"]
            member, token = driver.member(SITE), driver.secret(SITE, "contributor")
            content = contribution_bytes(base, 1)
            assert contribute(member, key, SITE, content).status_code == 201
            path, merged = combine(tmp_path, base, [content])
            result = (f"{SITE}/refined", path.read_bytes(), json.loads(merged.recipe.to_json()))
            opened = announce_result(member, key, *result).json()
            send_parts(member, opened, result[1])
        where = f"/api/v1/rounds/{key}/result/uploads/{opened['upload_id']}/complete"
        thread = threading.Thread(target=post_until_killed, args=(url, token, where))
        thread.start()
        digest = sha256(result[1])
        patterns = {"assembled": "uploads/*/assembled", "published": f"blobs/*/{digest}"}
        wait_for_file(data / "storage", patterns[moment])
        server.send_signal(signal.SIGKILL)
        server.wait()
        thread.join()
    with pool_process(data) as (_, url, _none), open_client(url, token) as member:
        found = show(member, key)
        listed = member.get("/api/v1/models", params={"name": "refined"}).json()["items"]
        if found["state"] == "open":
            assert (listed, found["result"], found["successor"]) == ([], None, None)
        done = bring_result(member, key, *result)
        assert done.status_code in {200, 201}, done.text
        ended = show(member, key)
        assert (ended["state"], ended["result_digest"]) == ("finished", digest)
        following = show(member, ended["successor"])
        assert (following["number"], following["state"]) == (2, "open")
        assert len(member.get("/api/v1/rounds").json()["items"]) == 2


def post_until_killed(url: str, token: str, path: str) -> None:
    with open_client(url, token) as client:
        try:
            client.post(path)
        except httpx.HTTPError:
            return
