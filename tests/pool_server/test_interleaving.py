"""What two processes of a pool do at once ends as if one had done it after the other."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pool_server.curation import service as curation
from pool_server.records import ModelVersionRecord
from pool_server.registry.service import resolve_version
from tests.pool_server.interleaving import ADMIN, overtaken
from tests.pool_server.pool_driver import PoolDriver, error_of, upload

SITE = "meet-a"
MODELS = f"/api/v1/models/{SITE}"


def find(session: Session, name: str, number: int = 1) -> ModelVersionRecord:
    return resolve_version(session, ADMIN, SITE, name, str(number))


def test_a_release_and_a_quarantine_by_the_pool(pool: PoolDriver) -> None:
    upload(pool.member(SITE), f"{SITE}/doubted")
    curator, at = pool.member(SITE, "curator"), f"{MODELS}/doubted/versions/1"

    def quarantine(session: Session) -> None:
        curation.quarantine(session, ADMIN, find(session, "doubted"), "doubtful")

    [released] = overtaken(pool, quarantine, lambda: curator.post(f"{at}/release"))
    assert error_of(released) == (403, "not_allowed")
    assert pool.admin.get(at).json()["state"] == "quarantined"


def test_a_withdrawal_and_a_deletion(pool: PoolDriver) -> None:
    home = pool.member(SITE)
    upload(home, f"{SITE}/deleted")
    at = f"{MODELS}/deleted/versions/1"

    def delete(session: Session) -> None:
        curation.delete_version(session, ADMIN, find(session, "deleted"), force=False)

    [withdrawn] = overtaken(
        pool, delete, lambda: home.post(f"{at}/withdraw", json={"reason": "quality"})
    )
    assert withdrawn.status_code in {404, 409}
    assert error_of(home.get(at)) == (404, "version_not_found"), "what is deleted stays so"
    listed = home.get("/api/v1/models", params={"name": "deleted", "state": "any"})
    assert listed.json()["items"] == []
