"""What two processes of a pool do at once ends as if one had done it after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from aggregators.formats import encode_model
from pool_server.database.engine import Database
from pool_server.models import curation
from pool_server.operations.maintenance import collect_garbage, open_pool_offline
from pool_server.registry.repository import lock_model
from pool_server.registry.service import get_model, version_to_change
from pool_server.wire.models import QuarantineRequest
from tests.aggregators.small_models import make_predictor
from tests.pool_server.conftest import OpenPool
from tests.pool_server.interleaving import ADMIN, overtaken, wait_for_locks
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_thread, upload
from tests.pool_server.postgres_server import PostgresServer

# Where the database matters.
pytestmark = pytest.mark.both_databases

SITE = "meet-a"
MODELS = f"/api/v1/models/{SITE}"


def merge_of(*digests: str) -> dict[str, Any]:
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "wba-cascade", "version": 1},
        "options": {"step": 1.1},
        "inputs": [{"digest": each} for each in digests],
    }
    return {"site": SITE, "name": "merged", "recipe": recipe}


def test_a_release_and_a_quarantine_by_the_pool(pool: PoolDriver) -> None:
    upload(pool.member(SITE), f"{SITE}/met-doubted")
    curator, at = pool.member(SITE, "curator"), f"{MODELS}/met-doubted/versions/1"

    def quarantine(session: Session) -> None:
        version = version_to_change(ADMIN, session, SITE, "met-doubted", "1")
        curation.quarantine(ADMIN, session, version, QuarantineRequest(reason="doubtful"))

    [released] = overtaken(pool, quarantine, lambda: curator.post(f"{at}/release"))
    assert error_of(released) == (403, "not_allowed")
    assert pool.admin.get(at).json()["state"] == "quarantined"


def test_a_withdrawal_and_a_deletion(pool: PoolDriver) -> None:
    home = pool.member(SITE)
    upload(home, f"{SITE}/met-deleted")
    at = f"{MODELS}/met-deleted/versions/1"

    def delete(session: Session) -> None:
        version = version_to_change(ADMIN, session, SITE, "met-deleted", "1")
        curation.delete_version(ADMIN, session, version)

    [withdrawn] = overtaken(
        pool, delete, lambda: home.post(f"{at}/withdraw", json={"reason": "quality"})
    )
    assert withdrawn.status_code in {404, 409}
    assert error_of(home.get(at)) == (404, "version_not_found"), "what is deleted stays so"
    listed = home.get("/api/v1/models", params={"name": "met-deleted", "state": "any"})
    assert listed.json()["items"] == []


def test_a_round_and_the_deletion_of_its_base(pool: PoolDriver) -> None:
    home, _ = pool.member(SITE), pool.member("met-partner")
    upload(home, f"{SITE}/met-base", bytes(encode_model(make_predictor(61))))
    request = {
        "base": f"pool://{SITE}/met-base@1",
        "sites": [SITE, "met-partner"],
        "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
    }

    def delete(session: Session) -> None:
        version = version_to_change(ADMIN, session, SITE, "met-base", "1")
        curation.delete_version(ADMIN, session, version)

    [started] = overtaken(pool, delete, lambda: home.post("/api/v1/rounds", json=request))
    assert started.status_code in {404, 422}, started.text
    assert home.get("/api/v1/rounds").json()["items"] == []


@pytest.mark.postgres
def test_a_copy_and_the_clearing_up_of_what_it_copies(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with pool_in_thread(tmp_path, database_url=postgres.make_pool_database()) as pool:
        content = network_bytes()
        upload(pool.admin, "admin/original", content)
        upload(pool.admin, "admin/copy")

        def hold(session: Session) -> None:
            lock_model(session, get_model(session, ADMIN, "admin", "copy"))

        with ThreadPoolExecutor(1) as threads, open_pool_offline(pool.settings) as opened:

            def clear_up(database: Database) -> None:
                doomed = "/api/v1/models/admin/original/versions/1"
                deletion = threads.submit(pool.admin.delete, doomed)
                # It is done, or waits beside the copy.
                wait_for_locks(database, [deletion, deletion])
                collect_garbage(opened, remove=True)

            overtaken(
                pool, hold, lambda: upload(pool.admin, "admin/copy", content), meanwhile=clear_up
            )
        got = pool.admin.get("/api/v1/models/admin/copy/versions/2/content")
        assert got.content == content


def test_of_what_a_site_may_have_so_many(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, poll_interval_s=1000.0, max_open_merges_per_site=1) as pool:
        member = pool.member(SITE)
        version = upload(member, f"{SITE}/met-face", bytes(encode_model(make_predictor(62))))
        ask = partial(member.post, "/api/v1/merges", json=merge_of(version["digest"]))
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(ask) for _ in range(4)]
        assert sorted(each.result().is_success for each in asked) == [False, False, False, True]
