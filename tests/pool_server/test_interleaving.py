"""Requests to two processes of a pool at once end as if one had come after the other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from aggregators.formats import encode_model
from pool_server.app import open_parts
from pool_server.database.engine import Database
from pool_server.database.records import ModelVersionRecord, SiteRecord, TokenRecord, now_utc
from pool_server.http.session import ServerParts
from pool_server.lineage import withdrawals
from pool_server.merges import repository as merges
from pool_server.models import curation
from pool_server.operations.maintenance import collect_garbage, open_pool_offline
from pool_server.registry.repository import lock_families, lock_model
from pool_server.registry.service import get_model, resolve_version, version_to_change
from pool_server.signatures.keys import revoke_key
from pool_server.wire.models import QuarantineRequest
from pool_server.wire.signatures import KeyRevocationRequest
from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.withdrawals import WithdrawalRequest
from tests.aggregators.small_models import make_predictor
from tests.pool_server.conftest import OpenPool
from tests.pool_server.interleaving import ADMIN, overtaken, wait_for_locks
from tests.pool_server.merges.merge_driver import recipe_of
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    pool_in_process,
    send_parts,
    upload,
)
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.signatures.signers import register, signed, statement_of
from tests.pool_server.transfers.test_recipes import recipe_for

# Where the database matters.
pytestmark = pytest.mark.both_databases

SITE = "meet-a"
MODELS = f"/api/v1/models/{SITE}"


@contextmanager
def closing_parts(pool: PoolDriver) -> Iterator[ServerParts]:
    """Open a pool's database and storage as one more of its server processes does."""
    parts = open_parts(pool.settings)
    yield parts
    parts.database.close()


def find(session: Session, name: str, number: int = 1) -> ModelVersionRecord:
    return resolve_version(session, ADMIN, SITE, name, str(number))


def merge_of(*digests: str) -> dict[str, Any]:
    recipe = recipe_of([]) | {"inputs": [{"digest": digest} for digest in digests]}
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


def test_a_merge_and_the_input_that_comes_with_it(pool: PoolDriver) -> None:
    home, content, later = pool.member(SITE), network_bytes(), network_bytes()
    recipe, terms = recipe_for(content, sha256(later)), [{"code": "DUO:0000046"}]

    def hold(session: Session) -> None:
        session.execute(select(SiteRecord.id))
        lock_families(session)

    overtaken(
        pool,
        hold,
        lambda: upload(home, f"{SITE}/met-merge", content, recipe=recipe),
        lambda: upload(home, f"{SITE}/met-input", later, terms=terms),
    )
    merged = home.get(f"{MODELS}/met-merge/versions/1").json()
    assert [term["code"] for term in merged["terms"]] == ["DUO:0000046"]


@pytest.mark.postgres
def test_a_copy_and_the_clearing_up_of_what_it_copies(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with pool_in_process(tmp_path, database_url=postgres.make_pool_database()) as pool:
        content = network_bytes()
        upload(pool.admin, "admin/original", content)
        upload(pool.admin, "admin/copy")

        def hold(session: Session) -> None:
            lock_model(session, get_model(session, ADMIN, "admin", "copy"))

        with ThreadPoolExecutor(1) as threads, open_pool_offline(pool.settings) as opened:

            def clear_up(database: Database) -> None:
                doomed = "/api/v1/models/admin/original/versions/1"
                deletion = threads.submit(pool.admin.delete, doomed)
                # It is done, or waits next to the copy.
                wait_for_locks(database, [deletion, deletion])
                collect_garbage(opened, remove=True)

            overtaken(
                pool, hold, lambda: upload(pool.admin, "admin/copy", content), meanwhile=clear_up
            )
        got = pool.admin.get("/api/v1/models/admin/copy/versions/2/content")
        assert got.content == content


@pytest.mark.usefixtures("no_merge_begins")
def test_of_what_a_site_may_have_so_many(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, max_open_merges_per_site=1) as pool:
        member = pool.member(SITE)
        version = upload(member, f"{SITE}/met-face", bytes(encode_model(make_predictor(62))))
        ask = partial(member.post, "/api/v1/merges", json=merge_of(version["digest"]))
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(ask) for _ in range(4)]
        assert sorted(future.result().is_success for future in asked) == [False, False, False, True]


@pytest.mark.slow
@pytest.mark.usefixtures("no_merge_begins")
def test_a_merge_is_cancelled_while_its_process_gives_it_back(
    open_pool: OpenPool, tmp_path: Path
) -> None:
    with open_pool(tmp_path) as pool:
        member = pool.member(SITE)
        version = upload(member, f"{SITE}/met-face", bytes(encode_model(make_predictor(63))))
        job = member.post("/api/v1/merges", json=merge_of(version["digest"])).json()
        with closing_parts(pool) as parts, parts.database.write() as session:
            claimed = merges.claim_next(session, "worker", now_utc() + timedelta(hours=1), 3)
        assert claimed is not None
        cancel = f"/api/v1/merges/{job['merge_id']}/cancel"
        [cancelled] = overtaken(
            pool,
            lambda session: merges.give_back(session, claimed.id, "worker"),
            lambda: member.post(cancel),
        )
        assert cancelled.json()["state"] == "cancelled"
        assert member.post(cancel).json()["ended_at"] == cancelled.json()["ended_at"]


@pytest.mark.slow
def test_a_signature_and_the_revocation_of_its_key(pool: PoolDriver) -> None:
    home, content = pool.member(SITE), network_bytes()
    key = PrivateKey.from_seed(b"m" * 32)
    assert register(home, SITE, key).status_code == 201
    upload(home, f"{SITE}/met-signed")
    statement = signed(statement_of(f"{SITE}/met-signed", content), key)
    opened = announce(home, f"{SITE}/met-signed", content, statement=statement).json()
    send_parts(home, opened, content)

    def revoke(session: Session) -> None:
        request = KeyRevocationRequest(reason="superseded")
        revoke_key(ADMIN, session, SITE, key.public.key_id, request)

    [completed] = overtaken(pool, revoke, lambda: complete(home, opened))
    assert error_of(completed) == (422, "statement_refused")


@pytest.mark.slow
def test_a_download_and_the_withdrawal_of_what_is_fetched(pool: PoolDriver) -> None:
    upload(pool.member(SITE), f"{SITE}/met-fetched")
    foreign, path = pool.member("meet-b"), f"{MODELS}/met-fetched/versions/1/content"
    refused = WithdrawalRequest(reason="consent-withdrawn")

    def withdraw(session: Session) -> None:
        token_id = session.scalars(select(TokenRecord.id)).first()
        caller = replace(ADMIN, token_id=str(token_id))
        version = version_to_change(caller, session, SITE, "met-fetched", "1")
        withdrawals.withdraw(caller, session, version, refused)

    [fetched] = overtaken(pool, withdraw, lambda: foreign.get(path))
    assert error_of(fetched) == (410, "version_withdrawn"), "its site does not hear of it"


@pytest.mark.slow
def test_a_private_model_that_somebody_else_makes_for_all(pool: PoolDriver) -> None:
    home, content = pool.member(SITE), network_bytes()
    opened = announce(home, f"{SITE}/met-hidden", content, visibility="private").json()
    send_parts(home, opened, content)
    upload(home, f"{SITE}/met-hidden", visibility="consortium")
    assert error_of(complete(home, opened)) == (422, "sharing_refused")
    listed = pool.member("meet-b").get("/api/v1/models", params={"name": "met-hidden"})
    assert [version["version"] for version in listed.json()["items"]] == [1]
