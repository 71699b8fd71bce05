"""Every route, and who may: deny by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import update

from aggregators.formats import encode_model
from pool_server.app import create_app
from pool_server.database import Database
from pool_server.records import TokenRecord, now_utc
from pool_server.wire.sites import SCOPES
from tests.aggregators.small_models import make_predictor
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, upload
from tests.pool_server.transfers.test_recipes import recipe_for

SITE, FOREIGN = "permissions", "permissions-foreign"

# How a row of MATRIX reads. Its twelve entries are what these get, in this order:
#
#   nobody       no token at all
#   unknown      a token that the pool never gave
#   expired      a token whose time is over
#   revoked      a token that was revoked
#   suspended    a contributor of a site that is suspended
#   narrowed     an admin of the pool, by a token with all scopes but the one that the route needs
#   viewer       a viewer of the site that the path is about
#   foreign      a contributor of another site
#   own          a contributor of the site that the path is about
#   curator      a curator of that site
#   site-admin   an admin of that site
#   admin        an admin of the whole pool
#
# The first six are mostly REFUSED; a row is then (*REFUSED, viewer, foreign, own, curator,
# site-admin, admin). What the path needs beside PATH_VALUES goes there, a body into BODIES.
CALLERS = (
    "nobody", "unknown", "expired", "revoked", "suspended", "narrowed",
    "viewer", "foreign", "own", "curator", "site-admin", "admin",
)  # fmt: skip
REFUSED = (401, 401, 401, 401, 403, 403)
EVERYBODY = (200,) * 12
ANY_TOKEN = (401, 401, 401, 401, 403, 200, 200, 200, 200, 200, 200, 200)

CONTENT = network_bytes(seed=42)
# One that no other test has a recipe name: the pool is everybody's.
UNKNOWN_DIGEST = sha256(b"of the permission matrix")

MATRIX: dict[tuple[str, str], tuple[int, ...]] = {
    ("GET", "/healthz"): EVERYBODY,
    ("GET", "/readyz"): EVERYBODY,
    ("GET", "/metrics"): (*REFUSED, 403, 403, 403, 403, 403, 200),
    ("GET", "/"): EVERYBODY,
    ("GET", "/docs"): EVERYBODY,
    ("GET", "/api/v1/whoami"): ANY_TOKEN,
    ("GET", "/api/v1/sites"): ANY_TOKEN,
    ("POST", "/api/v1/sites"): (*REFUSED, 403, 403, 403, 403, 403, 409),
    ("PATCH", "/api/v1/sites/{site}"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/usage"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/users"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("PATCH", "/api/v1/users/{site}/{user}"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/invitations"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("POST", "/api/v1/invitations"): (*REFUSED, 403, 403, 403, 403, 201, 201),
    # Its secret says who may: an unknown one nobody.
    ("POST", "/api/v1/invitations/accept"): (403,) * 12,
    ("DELETE", "/api/v1/invitations/{invitation_id}"): (
        *REFUSED, 403, 403, 403, 403, 404, 404,
    ),
    ("GET", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("POST", "/api/v1/tokens"): (*REFUSED, 403, 403, 403, 403, 409, 409),
    ("DELETE", "/api/v1/tokens/{token_id}"): (*REFUSED, 403, 403, 403, 403, 404, 404),
    ("GET", "/api/v1/models"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/facets"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("HEAD", "/api/v1/models/{site}/{name}/versions/{reference}/content"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/lineage"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/lineage/{digest}"): (*REFUSED, 404, 404, 404, 404, 404, 404),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/withdrawal-preview"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/withdraw"): (
        *REFUSED, 403, 403, 422, 422, 422, 422,
    ),
    # What the body names is of another kind.
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/successors"): (
        *REFUSED, 403, 403, 422, 422, 422, 422,
    ),
    ("GET", "/api/v1/withdrawals"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/withdrawals/check"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/events"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/webhooks"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("POST", "/api/v1/webhooks"): (*REFUSED, 403, 403, 403, 403, 422, 422),
    ("DELETE", "/api/v1/webhooks/{webhook_id}"): (*REFUSED, 403, 403, 403, 403, 404, 404),
    ("POST", "/api/v1/webhooks/{webhook_id}/test"): (*REFUSED, 403, 403, 403, 403, 404, 404),
    ("GET", "/api/v1/audit"): (*REFUSED, 403, 403, 403, 403, 200, 200),
    ("GET", "/api/v1/sites/{site}/keys"): ANY_TOKEN,
    ("POST", "/api/v1/sites/{site}/keys/challenge"): (*REFUSED, 403, 403, 200, 200, 200, 200),
    # No proof comes with it.
    ("POST", "/api/v1/sites/{site}/keys"): (*REFUSED, 403, 403, 422, 422, 422, 422),
    ("POST", "/api/v1/sites/{site}/keys/{key_id}/revoke"): (
        *REFUSED, 403, 403, 404, 404, 404, 404,
    ),
    # What the path names is not signed.
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): (
        *REFUSED, 404, 404, 404, 404, 404, 404,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): (
        *REFUSED, 403, 403, 422, 422, 422, 422,
    ),
    # Its site may hand it on, and whoever looks after the whole pool.
    ("POST", "/api/v1/exports"): (*REFUSED, 200, 403, 200, 200, 200, 200),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/record"): (
        *REFUSED, 200, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/sharing"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/sharing"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/vocabulary"): ANY_TOKEN,
    ("GET", "/api/v1/queue"): (*REFUSED, 403, 403, 403, 200, 200, 200),
    # What the path names is published, and something was made from it.
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/publish"): (
        *REFUSED, 403, 403, 409, 409, 409, 409,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/quarantine"): (
        *REFUSED, 403, 403, 403, 422, 422, 422,
    ),
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/release"): (
        *REFUSED, 403, 403, 403, 409, 409, 409,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}/versions/{reference}"): (
        *REFUSED, 403, 403, 409, 409, 409, 409,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}"): (*REFUSED, 403, 403, 409, 409, 409, 409),
    ("PUT", "/api/v1/models/{site}/{name}/aliases/{alias}"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("DELETE", "/api/v1/models/{site}/{name}/aliases/{alias}"): (
        *REFUSED, 403, 403, 204, 204, 204, 204,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/card"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/card"): (
        *REFUSED, 403, 403, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/models/{site}/{name}/versions/{reference}/evaluations"): (
        *REFUSED, 200, 200, 200, 200, 200, 200,
    ),
    ("GET", "/api/v1/evaluations"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/evaluations"): (*REFUSED, 403, 201, 201, 201, 201, 201),
    ("POST", "/api/v1/uploads"): (*REFUSED, 403, 403, 200, 200, 200, 200),
    ("GET", "/api/v1/uploads"): (*REFUSED, 403, 200, 200, 200, 200, 200),
    ("GET", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/uploads/{upload_id}/parts"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("PUT", "/api/v1/uploads/{upload_id}/parts/{number}"): (*REFUSED, 403, 404, 204, 204, 204, 204),
    ("POST", "/api/v1/uploads/{upload_id}/complete"): (*REFUSED, 403, 404, 409, 409, 409, 409),
    ("DELETE", "/api/v1/uploads/{upload_id}"): (*REFUSED, 403, 404, 204, 204, 204, 204),
    ("GET", "/api/v1/merges"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    # The recipe of the body cannot be read.
    ("POST", "/api/v1/merges"): (*REFUSED, 403, 403, 422, 422, 422, 422),
    ("GET", "/api/v1/merges/{merge_id}"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/merges/{merge_id}/cancel"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("GET", "/api/v1/rounds"): (*REFUSED, 200, 200, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds"): (*REFUSED, 403, 403, 201, 201, 201, 201),
    ("GET", "/api/v1/rounds/{round_id}"): (*REFUSED, 200, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/close"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/cancel"): (*REFUSED, 403, 404, 200, 200, 200, 200),
    ("POST", "/api/v1/rounds/{round_id}/contributions"): (*REFUSED, 403, 404, 201, 201, 201, 201),
    ("POST", "/api/v1/rounds/{round_id}/contributions/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 404, 404, 404, 404,
    ),
    ("GET", "/api/v1/rounds/{round_id}/contributions/{site}/content"): (
        *REFUSED, 403, 404, 404, 404, 404, 404,
    ),
    ("POST", "/api/v1/rounds/{round_id}/result"): (*REFUSED, 403, 403, 409, 409, 409, 409),
    ("POST", "/api/v1/rounds/{round_id}/result/uploads/{upload_id}/complete"): (
        *REFUSED, 403, 404, 404, 404, 404, 404,
    ),
    ("POST", "/api/v1/rounds/{round_id}/finish"): (*REFUSED, 403, 403, 409, 409, 409, 409),
}  # fmt: skip

PATH_VALUES: dict[str, Any] = {
    "site": SITE,
    "name": "face",
    "reference": "1",
    "number": 1,
    "token_id": "0" * 16,
    "invitation_id": "0" * 16,
    "user": "ada",
    "alias": "best",
    "digest": UNKNOWN_DIGEST,
    "webhook_id": "0" * 16,
    "key_id": UNKNOWN_DIGEST,
}

ROUND = {
    "base": f"{SITE}/forest@1",
    "sites": [SITE],
    "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
}
FILE = {"site": SITE, "size_bytes": 9, "digest": UNKNOWN_DIGEST, "file_name": "a.bin"}
OPEN_FILE = {
    "site": SITE,
    "name": "open",
    "size_bytes": len(CONTENT),
    "digest": sha256(CONTENT),
    "file_name": "a.bin",
}
SCORES = {
    "model": f"{SITE}/face@1",
    "dataset": "ward",
    "dataset_digest": UNKNOWN_DIGEST,
    "scores": {"recall": {"value": 0.5}},
}
KEY = {"public_key": f"{'A' * 43}="}
ENVELOPE = {"payloadType": "text/plain", "payload": "", "signatures": [{"sig": ""}]}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/v1/sites/{site}/keys/challenge"): {"json": KEY},
    ("POST", "/api/v1/sites/{site}/keys"): {
        "json": KEY | {"name": "desk", "challenge": "", "signature": ""}
    },
    ("POST", "/api/v1/sites/{site}/keys/{key_id}/revoke"): {"json": {"reason": "superseded"}},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/statement"): {
        "json": {"envelope": ENVELOPE}
    },
    ("POST", "/api/v1/exports"): {"json": {"addresses": [f"{SITE}/face@1"]}},
    ("POST", "/api/v1/sites"): {"json": {"name": SITE}},
    ("PATCH", "/api/v1/sites/{site}"): {"json": {"contact": "room 3"}},
    ("PATCH", "/api/v1/users/{site}/{user}"): {"json": {"display_name": "Ada"}},
    ("POST", "/api/v1/invitations"): {"json": {"site": SITE}},
    ("POST", "/api/v1/invitations/accept"): {"json": {"secret": "invite_x", "name": "eve"}},
    ("POST", "/api/v1/tokens"): {
        "json": {"site": SITE, "name": "test-viewer", "role": "viewer"}
    },
    ("PUT", "/api/v1/models/{site}/{name}/sharing"): {"json": {"visibility": "consortium"}},
    # An effect that the reason does not allow, so that the version stays for the others.
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/withdraw"): {
        "json": {"reason": "licence", "effect": "warn"}
    },
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/successors"): {
        "json": {"successor": f"{SITE}/forest@1"}
    },
    ("POST", "/api/v1/withdrawals/check"): {"json": {"digests": [UNKNOWN_DIGEST]}},
    # Not encrypted, which no pool calls unless it is told to.
    ("POST", "/api/v1/webhooks"): {"json": {"url": "http://lab.example/events"}},
    ("POST", "/api/v1/models/{site}/{name}/versions/{reference}/quarantine"): {"json": {}},
    ("PUT", "/api/v1/models/{site}/{name}/aliases/{alias}"): {"json": {"version": "1"}},
    ("PUT", "/api/v1/models/{site}/{name}/versions/{reference}/card"): {"json": {"text": ""}},
    ("GET", "/api/v1/evaluations"): {"params": {"score": "recall"}},
    ("POST", "/api/v1/evaluations"): {"json": SCORES},
    ("POST", "/api/v1/uploads"): {"json": OPEN_FILE},
    ("POST", "/api/v1/uploads/{upload_id}/parts"): {
        "json": {"parts": [{"number": 1, "checksum": sha256(CONTENT)}]}
    },
    ("PUT", "/api/v1/uploads/{upload_id}/parts/{number}"): {"content": CONTENT},
    ("POST", "/api/v1/merges"): {"json": {"site": SITE, "name": "merged", "recipe": {}}},
    ("POST", "/api/v1/rounds"): {"json": ROUND},
    ("POST", "/api/v1/rounds/{round_id}/contributions"): {"json": FILE},
    ("POST", "/api/v1/rounds/{round_id}/result"): {
        "json": {**FILE, "name": "refined", "recipe": {}}
    },
    ("POST", "/api/v1/rounds/{round_id}/finish"): {"json": {"site": SITE, "name": "refined"}},
}  # fmt: skip


def change(pool: PoolDriver, statement: Any) -> None:
    """Bring about what no route does at once, such as the end of a token's time."""
    database = Database.open(pool.settings)
    with database.write() as session:
        session.execute(statement)
    database.close()


@pytest.fixture(scope="module")
def secrets(pool: PoolDriver) -> dict[str, str | None]:
    expired, revoked = (
        pool.admin.post("/api/v1/tokens", json={"site": SITE, "name": name}).json()
        for name in ("expired", "revoked")
        if pool.secret(SITE, "viewer")
    )
    assert pool.admin.delete(f"/api/v1/tokens/{revoked['token_id']}").status_code == 204
    change(
        pool,
        update(TokenRecord)
        .where(TokenRecord.id == expired["token_id"])
        .values(expires_at=now_utc() - timedelta(seconds=1)),
    )
    suspended = pool.secret("permissions-suspended", "contributor")
    answer = pool.admin.patch("/api/v1/sites/permissions-suspended", json={"suspended": True})
    assert answer.status_code == 200
    return {
        "nobody": None,
        "unknown": "pool_" + "A" * 43,
        "expired": expired["secret"],
        "revoked": revoked["secret"],
        "suspended": suspended,
        "viewer": pool.secret(SITE, "viewer"),
        "foreign": pool.secret(FOREIGN, "contributor"),
        "own": pool.secret(SITE, "contributor"),
        "curator": pool.secret(SITE, "curator"),
        "site-admin": pool.secret(SITE, "admin"),
        "admin": pool.admin_secret,
    }


Narrow = Callable[[tuple[str, ...]], str]


@pytest.fixture(scope="module")
def narrow(pool: PoolDriver) -> Narrow:
    """Return tokens of an admin of the pool with all scopes but some."""
    made: dict[tuple[str, ...], str] = {}

    def make(without: tuple[str, ...]) -> str:
        if without not in made:
            request = {
                "site": "admin",
                "name": f"narrow-{len(made)}",
                "role": "admin",
                "pool_wide": True,
                "scopes": [scope for scope in SCOPES if scope not in without],
            }
            made[without] = pool.admin.post("/api/v1/tokens", json=request).json()["secret"]
        return made[without]

    return make


@pytest.fixture(scope="module", autouse=True)
def _models(pool: PoolDriver) -> None:
    """Publish what the rows are about."""
    client = pool.member(SITE)
    face, heir = upload(client, f"{SITE}/face"), network_bytes()
    upload(client, f"{SITE}/heir", heir, recipe=recipe_for(heir, face["digest"]))
    forest = upload(client, f"{SITE}/forest", bytes(encode_model(make_predictor(5))))
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "wba-cascade", "version": 1},
        "inputs": [{"digest": forest["digest"]}],
    }
    asked = client.post("/api/v1/merges", json={"site": SITE, "name": "merged", "recipe": recipe})
    PATH_VALUES["merge_id"] = asked.json()["merge_id"]
    invited = pool.admin.post("/api/v1/invitations", json={"site": SITE}).json()["secret"]
    answer = pool.client(None).post(
        "/api/v1/invitations/accept", json={"secret": invited, "name": "ada"}
    )
    assert answer.status_code == 201, answer.text


def test_every_route_has_a_row(pool: PoolDriver) -> None:
    schema = pool.client(None).get("/openapi.json").json()
    documented = {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }
    pages = {("GET", "/"), ("GET", "/docs")}
    assert sorted((documented | pages) - set(MATRIX)) == []
    assert sorted(set(MATRIX) - documented - pages) == []
    app = create_app(pool.settings)
    app.state.parts.database.close()
    routes = list(routes_of(app.routes))
    assert len(routes) >= len(MATRIX) - 1, "one of them answers GET and HEAD"
    undocumented = {
        (method, route.path)
        for route in routes
        if not route.include_in_schema
        for method in route.methods
    }
    assert undocumented == pages
    assert {route: len(row) for route, row in MATRIX.items() if len(row) != len(CALLERS)} == {}


def routes_of(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """Yield all routes, also of routers that an application includes as they are."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)


@pytest.mark.parametrize(("method", "path"), MATRIX)
def test_each_caller_gets_what_the_table_says(
    pool: PoolDriver, secrets: dict[str, str | None], narrow: Narrow, method: str, path: str
) -> None:
    found = {}
    for caller in CALLERS:
        if caller == "narrowed":
            secret = narrow(needed_scopes(pool, narrow, method, path))
        else:
            secret = secrets[caller]
        found[caller] = ask(pool, secret, method, path).status_code
    row = MATRIX[method, path]
    if pool.settings.storage == "s3" and path.endswith("/parts/{number}"):
        # Who may send parts is told that they go straight to the storage.
        row = tuple(409 if status == 204 else status for status in row)
    assert found == dict(zip(CALLERS, row, strict=True))


def needed_scopes(pool: PoolDriver, narrow: Narrow, method: str, path: str) -> tuple[str, ...]:
    """Return what a token without any scope is told to lack; every scope where it lacks none."""
    everything = tuple(SCOPES)
    refused = ask(pool, narrow(everything), "GET" if method == "HEAD" else method, path)
    if refused.status_code != 403:
        return everything
    missing = tuple(refused.json()["error"]["details"].get("scopes", everything))
    assert set(missing) <= set(SCOPES), f"{method} {path} declares no scope"
    return missing


def ask(pool: PoolDriver, secret: str | None, method: str, path: str) -> Any:
    """Call a route as somebody, with an upload and a round made for this call where it is one."""
    client = pool.member(SITE)
    values = dict(PATH_VALUES)
    opened = None
    if "{upload_id}" in path or path == "/api/v1/uploads":
        # A fresh upload for each: some acts end it.
        opened = announce(client, f"{SITE}/open", CONTENT).json()
        values["upload_id"] = opened["upload_id"]
    if "{alias}" in path:
        client.put(f"/api/v1/models/{SITE}/face/aliases/best", json={"version": "1"})
    if "{round_id}" in path:
        values["round_id"] = client.post("/api/v1/rounds", json=ROUND).json()["round_id"]
    answer = pool.client(secret).request(
        method, path.format(**values), **BODIES.get((method, path), {})
    )
    if opened is not None:
        client.delete(f"/api/v1/uploads/{opened['upload_id']}")
    return answer


ABOUT_A_MODEL = [row for row in MATRIX if row[1].startswith("/api/v1/models/{site}/{name}")]


@pytest.mark.parametrize(("method", "path"), ABOUT_A_MODEL)
@pytest.mark.parametrize("role", ["contributor", "curator", "admin"])
def test_a_private_model_is_not_there_for_a_foreign_site(
    pool: PoolDriver, hidden: httpx.Response, method: str, path: str, role: str
) -> None:
    """Whatever is asked of it is answered as if there had never been such a model."""
    stranger = pool.member(FOREIGN, role)
    body = BODIES.get((method, path), {})
    if path.endswith("/quarantine"):
        body = {"json": {"reason": "doubt"}}
    # Where contributors may nothing even at home, they are told so whatever the name.
    at_home = dict(zip(CALLERS, MATRIX[method, path], strict=True))["own"]
    expected = 403 if role == "contributor" and at_home == 403 else 404
    of_hidden, of_none = (
        stranger.request(method, path.format(**(PATH_VALUES | {"name": name})), **body)
        for name in ("hidden", "never-was")
    )
    assert (of_hidden.status_code, of_none.status_code) == (expected, expected)
    if method != "HEAD":
        told, wanted = (each.json()["error"] | {"request_id": ""} for each in (of_hidden, of_none))
        assert str(told) == str(wanted).replace("never-was", "hidden")
    assert pool.member(SITE).get(f"/api/v1/models/{SITE}/hidden").json() == hidden.json()


@pytest.fixture(scope="module")
def hidden(pool: PoolDriver) -> httpx.Response:
    """Publish a private model, and return what its own site is told of it."""
    upload(pool.member(SITE), f"{SITE}/hidden", visibility="private")
    return pool.member(SITE).get(f"/api/v1/models/{SITE}/hidden")


def test_a_refusal_says_how_to_authenticate(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/api/v1/whoami")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    basic = pool.client(None).get("/api/v1/whoami", headers={"Authorization": "Basic YTpi"})
    assert basic.status_code == 401


def test_an_admin_uploads_anywhere(pool: PoolDriver) -> None:
    assert upload(pool.admin, f"{SITE}/by-admin")["created_by"] == "admin/first-admin"
