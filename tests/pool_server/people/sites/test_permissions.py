"""Every route, and its permitted callers: deny by default."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import update

from aggregators.formats import encode_model
from pool_server.app import create_app
from pool_server.database.records import TokenRecord, now_utc
from pool_server.wire.people import SCOPES
from tests.pool_server.merges.merge_driver import ask as ask_for_merge
from tests.pool_server.merges.merge_driver import recipe_of
from tests.pool_server.model_files import network_bytes
from tests.pool_server.people.sites.permission_matrix import (
    BODIES,
    CALLERS,
    FOREIGN,
    MATRIX,
    PARTNER,
    PATH_VALUES,
    SITE,
)
from tests.pool_server.people.sites.permission_subjects import FOREST_SEED, Subject, Subjects
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.rounds.round_driver import base_model
from tests.pool_server.transfers.test_recipes import recipe_for


@pytest.fixture(scope="module")
def secrets(pool: PoolDriver) -> dict[str, str | None]:
    expired, revoked = (
        pool.admin.post("/api/v1/tokens", json={"site": SITE, "name": name}).json()
        for name in ("expired", "revoked")
        if pool.secret(SITE, "viewer")
    )
    assert pool.admin.delete(f"/api/v1/tokens/{revoked['token_id']}").status_code == 204
    pool.change(
        update(TokenRecord)
        .where(TokenRecord.id == expired["token_id"])
        .values(expires_at=now_utc() - timedelta(seconds=1))
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
    """Publish the subjects of the rows."""
    client, _ = pool.member(SITE), pool.member(PARTNER)
    face, heir = upload(client, f"{SITE}/face"), network_bytes()
    upload(client, f"{SITE}/heir", heir, recipe=recipe_for(heir, face["digest"]))
    forest = upload(client, f"{SITE}/forest", bytes(encode_model(base_model(FOREST_SEED))))
    asked = ask_for_merge(client, recipe_of([forest]), site=SITE)
    PATH_VALUES["merge_id"] = asked.json()["merge_id"]
    invited = pool.admin.post("/api/v1/invitations", json={"site": SITE}).json()["secret"]
    answer = pool.client(None).post(
        "/api/v1/invitations/accept", json={"secret": invited, "name": "ada"}
    )
    assert answer.status_code == 201, answer.text


@pytest.fixture(scope="module")
def subjects(pool: PoolDriver, _models: None, tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    return Subjects(pool, tmp_path_factory.mktemp("subjects"))


def test_every_route_has_a_row(pool: PoolDriver) -> None:
    schema = pool.client(None).get("/openapi.json").json()
    documented = {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }
    # Pages have tests of their own: they ask these routes.
    every = set(routes_of(app_of(pool).routes))
    routes = {route for route in every if route in documented or route[1].startswith("/api/")}
    # These need a pool with log-in by institutes: the tests of that ask them, without a token.
    of_sign_on = {("POST", f"/api/v1/devices{path}") for path in ("", "/token")}
    assert sorted(routes - set(MATRIX)) == sorted(of_sign_on)
    assert sorted(set(MATRIX) - every) == []
    assert sorted(routes - documented) == []
    assert documented <= routes
    assert {route: len(row) for route, row in MATRIX.items() if len(row) != len(CALLERS)} == {}
    assert [route for route, row in MATRIX.items() if not any(map(is_success, row))] == []


def is_success(status: int) -> bool:
    return 200 <= status < 300


def app_of(pool: PoolDriver) -> FastAPI:
    app = create_app(pool.settings)
    app.state.parts.database.close()
    return app


def routes_of(routes: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield method and path of all routes, including those of nested routers.

    Mounts without a method (a folder of files, a socket) have the method ANY.
    """
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(
                route.original_router.routes, prefix + route.include_context.prefix
            )
        else:
            for method in getattr(route, "methods", None) or ("ANY",):
                yield method, prefix + route.path


@pytest.mark.parametrize(("method", "path"), MATRIX)
def test_each_caller_gets_the_answer_of_the_table(
    pool: PoolDriver,
    secrets: dict[str, str | None],
    *,
    narrow: Narrow,
    subjects: Subjects,
    method: str,
    path: str,
) -> None:
    first = subjects.make(method, path)
    missing = needed_scopes(pool, narrow, first, method, path)
    everybody = {**secrets, "narrowed": narrow(missing)}
    subject = None if missing == ALL_SCOPES else first
    results = {}
    for caller in CALLERS:
        # The next caller succeeds with the same object that the others were refused.
        subject = subject or subjects.make(method, path)
        results[caller] = ask(pool, everybody[caller], subject, method, path).status_code
        if is_success(results[caller]) and method not in {"GET", "HEAD"}:
            subject = None
    assert results == dict(zip(CALLERS, MATRIX[method, path], strict=True))


ALL_SCOPES = tuple(SCOPES)


def needed_scopes(
    pool: PoolDriver, narrow: Narrow, subject: Subject, method: str, path: str
) -> tuple[str, ...]:
    """Return the scopes that the refusal of a token without scopes names, else all."""
    method = "GET" if method == "HEAD" else method
    refused = ask(pool, narrow(ALL_SCOPES), subject, method, path)
    if refused.status_code != 403:
        return ALL_SCOPES
    _, _, named = refused.json()["error"]["message"].partition("this needs the scope ")
    missing = tuple(named.split(" and ")) if named else ALL_SCOPES
    assert set(missing) <= set(SCOPES), f"{method} {path} declares no scope"
    return missing


def ask(pool: PoolDriver, secret: str | None, subject: Subject, method: str, path: str) -> Any:
    """Call a route as somebody."""
    client = pool.client(secret)
    body = subject.body(client) if callable(subject.body) else subject.body
    if body is None:
        body = BODIES.get((method, path), {})
    return client.request(method, path.format(**{**PATH_VALUES, **subject.values}), **body)


def test_a_refusal_says_how_to_authenticate(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/api/v1/whoami")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    basic = pool.client(None).get("/api/v1/whoami", headers={"Authorization": "Basic YTpi"})
    assert basic.status_code == 401
