"""Every route, and who may: deny by default."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import update

from aggregators.formats import encode_model
from pool_server.app import create_app
from pool_server.database import Database
from pool_server.records import TokenRecord, now_utc
from tests.aggregators.small_models import make_predictor
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, upload

CALLERS = ("nobody", "unknown", "expired", "revoked", "viewer", "foreign", "own", "admin")
REFUSED = (401, 401, 401, 401)

CONTENT = network_bytes(seed=42)

# What each caller of CALLERS gets. "foreign" and "own" are contributors of another site and of
# the site that the path is about.
MATRIX: dict[tuple[str, str], tuple[int, ...]] = {
    ("GET", "/healthz"): (200,) * 8,
    ("GET", "/readyz"): (200,) * 8,
    ("GET", "/"): (200,) * 8,
    ("GET", "/docs"): (200,) * 8,
    ("GET", "/api/v1/whoami"): (*REFUSED, 200, 200, 200, 200),
    ("GET", "/api/v1/sites"): (*REFUSED, 200, 200, 200, 200),
    ("POST", "/api/v1/sites"): (*REFUSED, 403, 403, 403, 409),
    ("GET", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 200),
    ("POST", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 409),
    ("DELETE", "/api/v1/tokens/{token_id}"): (*REFUSED, 403, 403, 403, 404),
    ("GET", "/api/v1/models"): (*REFUSED, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}"): (*REFUSED, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}"): (*REFUSED, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200,
    ),
    ("HEAD", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/lineage"): (
        *REFUSED, 200, 200, 200, 200,
    ),
    ("POST", "/api/v1/uploads"): (*REFUSED, 403, 403, 200, 200),
    ("GET", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 200, 200),
    ("PUT", "/api/v1/uploads/{upload_id}/parts/{number}"): (*REFUSED, 403, 404, 204, 204),
    ("POST", "/api/v1/uploads/{upload_id}/complete"): (*REFUSED, 403, 404, 409, 409),
    ("DELETE", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 204, 204),
    ("GET", "/api/v1/rounds"): (*REFUSED, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds"): (*REFUSED, 403, 403, 201, 201),
    ("GET", "/api/v1/rounds/{round_id}"): (*REFUSED, 200, 404, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/close"): (*REFUSED, 403, 404, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/cancel"): (*REFUSED, 403, 404, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/contributions"): (*REFUSED, 403, 404, 201, 201),
    ("POST", "/api/v1/rounds/{round_id}/contributions/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 404, 404,
    ),
    ("GET", "/api/v1/rounds/{round_id}/contributions/{site}/content"): (
        *REFUSED, 403, 404, 404, 404,
    ),
    ("POST", "/api/v1/rounds/{round_id}/result"): (*REFUSED, 403, 403, 409, 409),
    ("POST", "/api/v1/rounds/{round_id}/result/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 404, 404,
    ),
    ("POST", "/api/v1/rounds/{round_id}/finish"): (*REFUSED, 403, 403, 409, 409),
}  # fmt: skip


@pytest.fixture(scope="module")
def secrets(pool: PoolDriver) -> dict[str, str | None]:
    expired = pool.secret("permissions-expired", "contributor")
    revoked = pool.secret("permissions-revoked", "contributor")
    for token in pool.admin.get("/api/v1/tokens").json()["items"]:
        if token["site"] == "permissions-revoked":
            assert pool.admin.delete(f"/api/v1/tokens/{token['token_id']}").status_code == 204
        if token["site"] == "permissions-expired":
            database = Database.open(pool.settings)
            with database.write() as session:
                session.execute(
                    update(TokenRecord)
                    .where(TokenRecord.id == token["token_id"])
                    .values(expires_at=now_utc() - timedelta(seconds=1))
                )
            database.close()
    return {
        "nobody": None,
        "unknown": "pool_" + "A" * 43,
        "expired": expired,
        "revoked": revoked,
        "viewer": pool.secret("permissions", "viewer"),
        "foreign": pool.secret("permissions-foreign", "contributor"),
        "own": pool.secret("permissions", "contributor"),
        "admin": pool.admin_secret,
    }


@pytest.fixture(scope="module")
def face_model(pool: PoolDriver) -> dict[str, Any]:
    return upload(pool.member("permissions"), "permissions/face")


@pytest.fixture(scope="module")
def base_model(pool: PoolDriver) -> dict[str, Any]:
    content = bytes(encode_model(make_predictor(5)))
    return upload(pool.member("permissions"), "permissions/forest", content)


ROUND = {
    "base": "permissions/forest@1",
    "sites": ["permissions"],
    "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
}
FILE = {"site": "permissions", "size_bytes": 9, "digest": "0" * 64, "file_name": "a.bin"}


def test_every_route_has_a_row(pool: PoolDriver, tmp_path_factory: pytest.TempPathFactory) -> None:
    schema = pool.client(None).get("/openapi.json").json()
    documented = {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }
    hidden = {("GET", "/"), ("GET", "/docs")}
    assert set(MATRIX) == documented | hidden
    app = create_app(pool.settings)
    undocumented = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute) and not route.include_in_schema
        for method in route.methods
    }
    app.state.parts.database.close()
    assert undocumented <= hidden


@pytest.mark.usefixtures("face_model", "base_model")
@pytest.mark.parametrize(("method", "path"), MATRIX)
def test_each_caller_gets_what_the_table_says(
    pool: PoolDriver,
    secrets: dict[str, str | None],
    method: str,
    path: str,
) -> None:
    found = []
    for caller in CALLERS:
        # A fresh upload for each: some acts end it.
        client = pool.member("permissions")
        opened = announce(client, "permissions/open", CONTENT).json()
        a_round = client.post("/api/v1/rounds", json=ROUND).json()
        address = path.format(
            round_id=a_round["round_id"],
            site="permissions",
            name="face",
            reference="1",
            number=1,
            upload_id=opened["upload_id"],
            token_id="0" * 16,
        )
        body = {
            ("POST", "/api/v1/sites"): {"json": {"name": "permissions"}},
            ("POST", "/api/v1/tokens"): {
                "json": {"site": "permissions", "name": "test-viewer", "role": "viewer"}
            },
            ("POST", "/api/v1/uploads"): {
                "json": {
                    "site": "permissions",
                    "name": "open",
                    "size_bytes": len(CONTENT),
                    "digest": sha256(CONTENT),
                    "file_name": "a.bin",
                }
            },
            ("PUT", "/api/v1/uploads/{upload_id}/parts/{number}"): {"content": CONTENT},
            ("POST", "/api/v1/rounds"): {"json": ROUND},
            ("POST", "/api/v1/rounds/{round_id}/contributions"): {"json": FILE},
            ("POST", "/api/v1/rounds/{round_id}/result"): {
                "json": {**FILE, "name": "refined", "recipe": {}}
            },
            ("POST", "/api/v1/rounds/{round_id}/finish"): {
                "json": {"site": "permissions", "name": "refined"}
            },
        }.get((method, path), {})
        found.append(pool.client(secrets[caller]).request(method, address, **body).status_code)
        client.delete(f"/api/v1/uploads/{opened['upload_id']}")
    assert dict(zip(CALLERS, found, strict=True)) == dict(
        zip(CALLERS, MATRIX[method, path], strict=True)
    )


def test_a_refusal_says_how_to_authenticate(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/api/v1/whoami")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    basic = pool.client(None).get("/api/v1/whoami", headers={"Authorization": "Basic YTpi"})
    assert basic.status_code == 401


def test_an_admin_uploads_anywhere(pool: PoolDriver, face_model: dict[str, Any]) -> None:
    assert upload(pool.admin, "permissions/by-admin")["created_by"] == "admin/first-admin"
