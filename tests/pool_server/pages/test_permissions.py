"""A page shows a visitor no more than the API does: each page, each role, and no log-in."""

from typing import Any

import pytest

from pool_server.app import create_app
from tests.pool_server.merges.merge_driver import landmark_bytes, recipe_of
from tests.pool_server.pages.browser import Browser, member_browser
from tests.pool_server.people.sites.test_permissions import routes_of
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.rounds.round_driver import start_round

SITE, OTHER = "pages-a", "pages-b"
ROLES = ("viewer", "contributor", "curator", "admin")
# The least role at its own site that a page is for, and the statuses of another site's
# contributor and of an admin of the pool.
PAGES: dict[str, tuple[str, int, int]] = {
    "/": ("viewer", 200, 200),
    "/account": ("viewer", 200, 200),
    "/models": ("viewer", 200, 200),
    "/models/pages-a/shared@1": ("viewer", 200, 200),
    "/models/pages-a/own": ("viewer", 404, 200),
    "/models/pages-a/own/card.md": ("viewer", 404, 200),
    "/models/pages-a/own/download": ("viewer", 404, 200),
    "/models/pages-a/own/withdraw": ("contributor", 404, 200),
    "/models/pages-a/own/manage": ("viewer", 404, 200),
    "/compare?model=pages-a/own&model=pages-a/shared": ("viewer", 404, 200),
    "/evaluations": ("viewer", 200, 200),
    "/json/models": ("viewer", 200, 200),
    "/json/models/pages-a/own/versions/1": ("viewer", 404, 200),
    "/json/tokens": ("admin", 403, 200),
    "/merges": ("viewer", 200, 200),
    "/merges/{merge}": ("viewer", 404, 200),
    "/rounds": ("viewer", 200, 200),
    "/rounds/{round}": ("viewer", 404, 200),
    "/upload": ("contributor", 200, 200),
    "/uploads/known?digest={digest}": ("viewer", 200, 200),
    "/pictures/{digest}/thumb": ("viewer", 404, 200),
    "/admin": ("curator", 403, 200),
    "/admin/queue": ("curator", 403, 200),
    "/admin/sites": ("admin", 403, 200),
    "/admin/sites/pages-a": ("admin", 403, 200),
    "/admin/people": ("admin", 403, 200),
    "/admin/tokens": ("admin", 403, 200),
    "/admin/audit": ("admin", 403, 200),
}
# Without a log-in: not behind a session, or a page of its own for strangers.
OPEN = {"/", "/login", "/static/{digest}/{name}"}
OPEN |= {"/login/with/{name}", "/login/back/{name}"}
# For people that an institute has logged in, and for no token: see the tests of that log-in.
OPEN |= {"/login/device"}


@pytest.fixture(scope="module")
def places(pool: PoolDriver) -> dict[str, str]:
    """Publish a model for all, one for its own site, a merge and a round."""
    for site in (SITE, OTHER):
        for role in ROLES:
            pool.secret(site, role)
    member = pool.member(SITE)
    shared = upload(member, f"{SITE}/shared", landmark_bytes(4101))
    kept = upload(member, f"{SITE}/own", landmark_bytes(4102), visibility="private")
    asked = member.post(
        "/api/v1/merges", json={"site": SITE, "name": "both", "recipe": recipe_of([shared, kept])}
    )
    started = start_round(pool, f"{SITE}/shared@1", (SITE, "pages-c", "pages-d"))
    return {
        "merge": asked.json()["merge_id"],
        "round": started["round_id"],
        "digest": kept["digest"],
    }


@pytest.fixture(scope="module")
def browsers(pool: PoolDriver, places: dict[str, str]) -> dict[str, Browser]:
    members = {role: member_browser(pool, SITE, role) for role in ROLES}
    return members | {
        "foreign": member_browser(pool, OTHER),
        "pool admin": Browser(pool).log_in(pool.admin_secret),
        "nobody": Browser(pool),
    }


def test_every_page_has_a_row(pool: PoolDriver) -> None:
    app = create_app(pool.settings)
    app.state.parts.database.close()
    pages = {
        path
        for method, path in routes_of(app.routes)
        if method == "GET" and not path.startswith(("/api/", "/healthz", "/readyz", "/metrics"))
    } - {"/openapi.json"}
    shapes = {_shape(path.partition("?")[0]) for path in PAGES}
    unseen = {page for page in pages - OPEN if not any(_fits(page, shape) for shape in shapes)}
    assert unseen == {"/models/{site}"}, "only leads elsewhere"


def _shape(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def _fits(page: str, path: tuple[str, ...]) -> bool:
    parts = page.split("/")
    return len(parts) == len(path) and all(
        one == two or one.startswith("{") for one, two in zip(parts, path, strict=True)
    )


@pytest.mark.parametrize("page", PAGES)
def test_each_visitor_sees_what_the_api_shows(
    browsers: dict[str, Browser], places: dict[str, str], page: str
) -> None:
    least, foreign, admin = PAGES[page]
    path = page.format(**places)
    expected: dict[str, Any] = {
        role: 200 if ROLES.index(role) >= ROLES.index(least) else 403 for role in ROLES
    }
    expected |= {"foreign": foreign, "pool admin": admin}
    assert {name: browsers[name].get(path).status_code for name in expected} == expected
    stranger = browsers["nobody"].get(path)
    if page != "/":
        assert stranger.status_code == 303
        assert stranger.headers["location"].startswith("/login")


def test_a_refusal_names_no_more_than_the_api_does(
    pool: PoolDriver, browsers: dict[str, Browser], places: dict[str, str]
) -> None:
    for path in (f"/models/{SITE}/own", f"/models/{SITE}/never"):
        page = browsers["foreign"].get(path)
        answer = pool.member(OTHER).get(f"/api/v1{path}/versions/latest")
        assert answer.json()["error"]["message"].replace("'", "&#39;") in page.text
        assert "pages-a/own@1" not in page.text


def test_every_refusal_is_a_page(browsers: dict[str, Browser]) -> None:
    viewer, shown = browsers["viewer"], {"accept": "text/html,*/*;q=0.8"}
    for path, status, reason in (
        ("/nothing/here", 404, "nothing at this address"),
        ("/rounds/xyz", 404, "no page at this address"),
        (f"/models/{SITE}/never", 404, "no model pages-a/never"),
        ("/login/invitation", 405, "GET is not possible here"),
        ("/admin/tokens", 403, "needs the role admin"),
    ):
        page = viewer.get(path, headers=shown)
        assert page.status_code == status, path
        assert reason in page.text
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-request-id"] in page.text
    # A script gets what it can read, and a program of the API never a page.
    assert "<h1>" in viewer.post("/uploads", {"name": "x"}, form_on="/account").text
    csrf = {"x-csrf": viewer.csrf("/account"), "accept": "application/json"}
    answer = viewer.client.post("/uploads", data={"name": "x"}, headers=csrf)
    assert answer.json()["error"]["code"] == "not_allowed"
    assert viewer.get("/api/v1/nothing", headers=shown).json()["error"]["code"] == "no_such_route"


def test_lists_leave_out_models_that_the_visitor_may_not_see(browsers: dict[str, Browser]) -> None:
    assert "pages-a/<" not in browsers["foreign"].get("/models?site=pages-a&name=own").text
    assert 'value="pages-a/own@1"' in browsers["viewer"].get("/models?name=own").text
    assert 'value="pages-a/own@1"' not in browsers["foreign"].get("/models?name=own").text


@pytest.mark.parametrize(
    "path",
    [
        "/models/pages-a/shared@1/withdraw",
        "/models/pages-a/shared@1/manage",
        "/models/pages-a/shared@1/delete",
        "/models/pages-a/shared@1/quarantine",
        "/admin/tokens",
        "/admin/sites",
        "/admin/people/invite",
        "/rounds/{round}/cancel",
        "/merges/{merge}/cancel",
    ],
)
def test_a_foreign_contributor_changes_nothing(
    browsers: dict[str, Browser], places: dict[str, str], path: str
) -> None:
    fields = {"reason": "quality", "site": SITE, "name": "stolen", "role": "admin"}
    answer = browsers["foreign"].post(path.format(**places), fields, form_on="/account")
    assert answer.status_code in {403, 404} or 'role="alert"' in answer.text
    assert browsers["viewer"].get("/models/pages-a/shared@1").status_code == 200


def test_only_admins_have_the_entry(browsers: dict[str, Browser]) -> None:
    assert 'href="/admin"' not in browsers["viewer"].get("/models").text
    assert 'href="/admin"' in browsers["curator"].get("/models").text


def test_a_token_with_scopes_opens_no_more_than_they_say(
    pool: PoolDriver, places: dict[str, str]
) -> None:
    made = pool.admin.post(
        "/api/v1/tokens",
        json={"site": SITE, "name": "narrow", "role": "admin", "scopes": ["models:read"]},
    ).json()
    browser = Browser(pool).log_in(made["secret"])
    assert browser.get("/models").status_code == 200
    assert browser.get("/").status_code == 200
    for path in ("/rounds", "/merges", "/admin/tokens", f"/models/{SITE}/own/withdraw"):
        assert browser.get(path).status_code == 403, path
