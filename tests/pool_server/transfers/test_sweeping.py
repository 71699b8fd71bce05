"""Stale uploads are cleared away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from pool_server.app import open_parts
from pool_server.database.records import UploadRecord, now_utc
from pool_server.errors import UploadBusyError
from pool_server.transfers.receiving import lease_upload, recover_uploads, sweep_uploads
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    pool_in_process,
    send_parts,
)
from tests.pool_server.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def swept_pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PoolDriver]:
    """A pool on a folder, and on either database."""
    fields = {}
    if request.param == "postgresql":
        fields["database_url"] = request.getfixturevalue("postgres").make_pool_database()
    with pool_in_process(tmp_path, **fields) as pool:
        yield pool


def test_abandoned_uploads_are_cleared_away(swept_pool: PoolDriver) -> None:
    with ThreadPoolExecutor(3) as processes:
        pool = swept_pool
        stale, fresh = network_bytes(), network_bytes()
        old = announce(pool.admin, "admin/old", stale).json()
        send_parts(pool.admin, old, stale)
        new = announce(pool.admin, "admin/new", fresh).json()
        send_parts(pool.admin, new, fresh)
        parts = open_parts(pool.settings)
        with parts.database.write() as session:
            session.execute(
                update(UploadRecord)
                .where(UploadRecord.id == old["upload_id"])
                .values(expires_at=now_utc() - timedelta(seconds=1))
            )
        # All of them at once: one does it.
        sweeps = [processes.submit(sweep_uploads, parts) for _ in range(3)]
        assert sum(sweep.result() for sweep in sweeps) == 1
        uploads = pool.settings.storage_folder / "uploads"
        assert [folder.name for folder in uploads.iterdir()] == [new["upload_id"]]
        assert error_of(complete(pool.admin, old)) == (409, "upload_closed")
        assert complete(pool.admin, new).status_code == 201
        with parts.database.write() as session:
            session.execute(update(UploadRecord).values(expires_at=now_utc() - timedelta(days=30)))
        sweep_uploads(parts)
        with parts.database.read() as session:
            assert session.scalar(select(func.count()).select_from(UploadRecord)) == 0
        parts.database.close()


def test_claims_of_a_dead_server_are_given_back(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        content = network_bytes()
        opened = announce(pool.admin, "admin/gaze", content).json()
        send_parts(pool.admin, opened, content)
        parts = open_parts(pool.settings)
        with parts.database.write() as session:
            session.execute(
                update(UploadRecord).values(
                    state="checking", claim_expires_at=now_utc() + timedelta(hours=1)
                )
            )
        busy = complete(pool.admin, opened)
        assert error_of(busy) == (409, "upload_busy")
        assert busy.headers["retry-after"] == "1"
        assert (
            error_of(
                pool.admin.put(f"/api/v1/uploads/{opened['upload_id']}/parts/1", content=content)
            )[0]
            == 409
        )
        recover_uploads(parts)
        assert complete(pool.admin, opened).status_code == 201
        parts.database.close()


@pytest.mark.postgres
def test_a_server_that_starts_leaves_the_claims_of_others_alone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with pool_in_process(tmp_path, database_url=postgres.make_pool_database()) as pool:
        content = network_bytes()
        opened = announce(pool.admin, "admin/gaze", content).json()
        send_parts(pool.admin, opened, content)
        parts = open_parts(pool.settings)
        for left_s, answer in ((30, (409, "upload_busy")), (-1, None)):
            end = now_utc() + timedelta(seconds=left_s)
            with parts.database.write() as session:
                session.execute(update(UploadRecord).values(state="checking", claim_expires_at=end))
            recover_uploads(parts)
            completed = complete(pool.admin, opened)
            assert (None if completed.is_success else error_of(completed)) == answer
        parts.database.close()


def test_one_process_at_a_time_checks_an_upload(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        opened = announce(pool.admin, "admin/gaze", network_bytes()).json()
        parts = open_parts(pool.settings)
        with suppress(RuntimeError), lease_upload(parts, opened["upload_id"]):
            with pytest.raises(UploadBusyError), lease_upload(parts, opened["upload_id"]):
                pytest.fail("two held it")
            raise RuntimeError
        with lease_upload(parts, opened["upload_id"]):
            pass  # it was released
        parts.database.close()
