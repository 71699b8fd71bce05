"""The pages in a real browser: whole journeys, the keyboard, script and policy, and axe."""

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from pool_server.database.records import BrowserSessionRecord, now_utc
from pool_server.merges import repository
from pool_server.operations.maintenance import login_link
from tests.pool_server.merges.merge_driver import ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.model_files import detector_bytes, network_bytes
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.rounds.round_driver import contribute_all, start_round, upload_base
from tests.waiting import wait_until

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
PLACES = ("/", "/models", "/models/web-a/eyes@1", "/compare?model=web-a/eyes&model=web-b/eyes",
          "/merges", "/rounds", "/upload", "/admin", "/admin/tokens", "/admin/people",
          "/admin/sites", "/admin/audit", "/account", "/models/web-a/eyes@1/withdraw",
          "/models/web-a/eyes@1/manage", "/evaluations")  # fmt: skip
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def filled(served_pool: PoolDriver) -> PoolDriver:
    """Publish models of two sites, of every kind, with scores."""
    one, two = served_pool.member("web-a"), served_pool.member("web-b")
    labels = {"population": "infant", "dataset_type": "laboratory"}
    for client, site, seed in ((one, "web-a", 7301), (two, "web-b", 7302)):
        version = upload(client, f"{site}/eyes", landmark_bytes(seed), labels=labels, card="# Eyes")
        scores = {"mean_error": {"value": seed / 1e5, "low": 0.05, "high": 0.09}}
        posted = client.post(
            "/api/v1/evaluations",
            json={
                "model": version["address"],
                "dataset": "ward",
                "dataset_digest": "5" * 64,
                "scores": scores,
            },
        )
        assert posted.status_code == 201
    upload(one, "web-a/face", detector_bytes())
    upload(two, "web-b/gaze", network_bytes())
    return served_pool


@pytest.fixture
def open_page(chromium: Any, filled: PoolDriver) -> Iterator[Open]:
    """Open a page as somebody; at the end nothing may have been reported on the console."""
    contexts: list[Any] = []
    said: list[str] = []

    def open_it(secret: str | None, **options: Any) -> Any:
        context = chromium.new_context(base_url=filled.url, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda message: message.type in {"error", "warning"} and said.append(message.text),
        )
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        if secret is not None:
            page.goto("/login")
            page.fill("#token", secret)
            page.click("main button")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert [line for line in said if line.startswith(("error", "warning"))] == []


def test_from_search_to_a_merged_model(filled: PoolDriver, open_page: Open) -> None:
    page = open_page(filled.secret("web-a", "contributor"))
    page.click("nav >> text=Models")
    page.fill("#text", "eyes")
    page.keyboard.press("Enter")
    for site in ("web-a", "web-b"):
        page.check(f"input[value='{site}/eyes@1']")
    page.wait_for_selector(".tray >> text=2 chosen: they fit together (wba-cascade")
    page.click(".tray button")
    assert "They fit together: wba-cascade" in page.inner_text("main")
    page.fill("#name", "Not A Name")
    page.click("text=Merge on the pool")
    page.wait_for_selector("[role=alert]:focus")
    assert page.input_value("#name") == "Not A Name"
    page.fill("#name", "in-browser")
    page.click("text=Merge on the pool")
    page.wait_for_selector("text=Merged.")
    page.click("#job a")
    assert page.url.endswith("/models/web-a/in-browser@1")
    page.go_back()
    page.go_back()


def test_a_page_follows_its_merge_although_the_pool_was_silent_and_the_focus_there(
    filled: PoolDriver, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "has_waiting", lambda *_, **__: False)
    client = filled.member("web-a")
    versions = [upload(client, f"web-a/slow-{n}", landmark_bytes(7330 + n)) for n in range(2)]
    asked = ask(client, recipe_of(versions), site="web-a", name="slow").json()
    page = open_page(filled.secret("web-a", "contributor"))
    polled: list[Any] = []

    def answer_some(route: Any) -> None:
        polled.append(route)
        if len(polled) == 1:
            route.abort()
        else:
            route.continue_()

    page.goto(f"/merges/{asked['merge_id']}")
    page.route("**/merges/*", answer_some)
    page.focus("#job button")
    wait_until(lambda: page.evaluate("true") and polled)
    monkeypatch.undo()
    wait_for(client, asked["merge_id"], {"finished"})
    wait_until(lambda: page.inner_text("#said") == "The merge is finished")
    page.focus("main a")
    page.wait_for_selector("text=Merged.")


@pytest.mark.slow
def test_the_same_without_script(filled: PoolDriver, open_page: Open) -> None:
    page = open_page(filled.secret("web-b", "contributor"), java_script_enabled=False)
    page.goto("/models?label=population%3Dinfant&kind=ert")
    page.check("input[value='web-a/eyes@1']")
    page.check("input[value='web-b/eyes@1']")
    page.click(".tray button")
    page.fill("#name", "without-script")
    page.click("text=Merge on the pool")
    assert "/merges/" in page.url
    page.goto("/upload")
    assert "Uploads by browser need script" in page.inner_text("main")
    page.goto("/models/web-b/gaze/withdraw")
    page.select_option("#reason", "other")
    page.fill("#confirm", "web-b/gaze@1")
    page.click("text=for good")
    assert "This version was withdrawn: other." in page.inner_text("main")
    admin = open_page(filled.secret("web-b", "admin"), java_script_enabled=False)
    admin.goto("/admin/tokens")
    admin.fill("#name", "scriptless")
    admin.click("text=Create the token")
    assert admin.inner_text("#secret").startswith("pool_")


@pytest.mark.slow
def test_back_keeps_the_filters(filled: PoolDriver, open_page: Open) -> None:
    page = open_page(filled.secret("web-a", "viewer"))
    page.goto("/models")
    page.click(".facets >> text=Detector")
    page.click("h2 >> text=web-a/face")
    page.go_back()
    assert "kind=hog-svm" in page.url
    assert page.inner_text(".chips").count("Kind: Detector") == 1
    page.click("text=This page as JSON")
    assert "pool://web-a/face@1" in page.inner_text("body")


def test_an_upload_by_drop_goes_on_where_it_was_broken_off(
    filled: PoolDriver, open_page: Open, tmp_path: Path
) -> None:
    path = tmp_path / "dropped.safetensors"
    path.write_bytes(network_bytes(80_000))
    page = open_page(filled.secret("web-a", "contributor"))
    sent: list[str] = []

    def break_off(route: Any) -> None:
        sent.append(route.request.url.rpartition("/")[2])
        if sent[-1] == "3":
            # Not an abort: that would be an error on the console.
            route.fulfill(status=503, content_type="application/json",
                          body='{"error": {"message": "broken off", "hint": ""}}')  # fmt: skip
        else:
            route.continue_()

    page.goto("/upload")
    page.route("**/parts/*", break_off)
    page.set_input_files("#file", path)
    page.click("button >> text=Publish")
    page.wait_for_selector("#problem:not([hidden])")
    page.unroute("**/parts/*")
    page.on(
        "request",
        lambda request: "/parts/" in request.url and sent.append("again " + request.url[-1]),
    )
    page.click("button >> text=Publish")
    page.wait_for_url("**/models/web-a/dropped@1")
    again = [line for line in sent if line.startswith("again")]
    assert again[0] == "again 3"
    assert len(again) == len({*sent}) - 3


@pytest.mark.slow
def test_an_upload_says_next_to_the_field_what_is_wrong_with_it(
    filled: PoolDriver, open_page: Open, tmp_path: Path
) -> None:
    """The proposed name follows the file, and known bytes are named in place of a second upload."""
    (tmp_path / "Strange.dat").write_bytes(b"nothing")
    (tmp_path / "eyes.dat").write_bytes(landmark_bytes(7301))
    page = open_page(filled.secret("web-a", "contributor"))
    page.goto("/upload")
    for name, proposed in (("Strange.dat", "strange"), ("eyes.dat", "eyes")):
        page.set_input_files("#file", tmp_path / name)
        assert page.input_value("#name") == proposed
    page.click("button >> text=Publish")
    page.wait_for_selector("#problem:not([hidden])")
    assert "it is version 1 of web-a/eyes, from web-a/test-contributor" in page.inner_text(
        "#problem"
    )
    page.fill("#name", "Kept Name")
    page.set_input_files("#file", tmp_path / "Strange.dat")
    assert page.input_value("#name") == "Kept Name"
    page.fill("#labels", "Population=infant")
    page.check("[value='DUO:0000024']")
    page.click("button >> text=Publish")
    page.wait_for_selector(".field.wrong #name")
    problems = page.inner_text("#problem")
    assert "3 fields cannot be taken as typed" in problems
    assert "body." not in problems
    assert page.inner_text(".field.wrong:has(#labels) .error").startswith(
        "Population: expected small"
    )
    assert page.inner_text("[name='detail-DUO:0000024'] + .error").startswith("needs a date")
    page.fill("#name", "strange")
    page.fill("#labels", "")
    page.uncheck("[value='DUO:0000024']")
    page.click("button >> text=Publish")
    page.wait_for_selector("#file + .error")
    assert "expected a model file" in page.inner_text("#file + .error")


def test_a_withdrawal_shows_first_whom_it_concerns(filled: PoolDriver, open_page: Open) -> None:
    client = filled.member("web-a")
    old = upload(client, "web-a/old", landmark_bytes(7310))
    other = upload(client, "web-a/other", landmark_bytes(7311))
    recipe = recipe_of([old, other])
    asked = ask(client, recipe, site="web-a", name="heir").json()
    wait_for(client, asked["merge_id"], {"finished"})
    page = open_page(filled.secret("web-a", "contributor"))
    page.goto("/models/web-a/old")
    page.click("text=Withdraw …")
    assert "1 version holds it" in page.inner_text("main")
    assert page.input_value("#reason") == ""
    page.fill("#explanation", "One family has withdrawn its consent.")
    page.fill("#confirm", "web-a/other@1")
    page.click("text=for good")
    problems = page.inner_text("[role=alert]")
    assert "reason: choose one" in problems
    assert "expected web-a/old@1, found web-a/other@1" in problems
    page.select_option("#reason", "consent-withdrawn")
    page.fill("#confirm", "web-a/old@1")
    filled.change(update(BrowserSessionRecord).values(proved_at=now_utc() - timedelta(hours=1)))
    page.click("text=for good")
    # The log-in is too old: the token is asked for once more, and nothing typed is lost.
    page.fill("#proof", "pool_" + "x" * 43)
    page.click("text=Go on")
    page.fill("#proof", filled.secret("web-a", "contributor"))
    page.click("text=Go on")
    shown = page.inner_text("main")
    assert "This version was withdrawn: consent-withdrawn." in shown
    assert "One family has withdrawn its consent." in shown
    page.goto("/models/web-a/heir")
    assert "holds web-a/old@1, which was withdrawn" in page.inner_text("main")


def test_a_fresh_pool_from_its_link_to_a_member_with_a_token(
    filled: PoolDriver, open_page: Open
) -> None:
    page = open_page(None)
    page.goto(login_link(filled.settings, filled.url, filled.admin_secret))
    page.click("text=Log in with this link")
    page.click("nav >> text=Admin")
    page.click("nav >> text=Sites")
    page.fill("#name", "web-new")
    page.click("text=Create the site")
    page.click("text=Invite somebody")
    page.select_option("#site", "web-new")
    page.click("text=Create the invitation")
    link = page.inner_text("#secret")
    person = open_page(None)
    person.goto(link)
    person.fill("#name", "ada")
    person.click("button >> text=Accept")
    assert re.fullmatch(r"pool_[\w-]{43}", person.inner_text("#secret"))
    person.click("text=Go on")
    assert "waits for web-new" in person.inner_text("h1")
    page.goto("/admin/tokens")
    page.fill("#name", "laptop")
    page.click("text=Create the token")
    assert page.inner_text("#secret").startswith("pool_")


@pytest.mark.slow
def test_a_round_is_seen_through(filled: PoolDriver, open_page: Open) -> None:
    base, address = upload_base(filled, "web-round", 7320)
    started = start_round(filled, address, ("web-b", "web-e", "web-f"))
    page = open_page(filled.secret("web-b", "contributor"))
    page.goto(f"/rounds/{started['round_id']}")
    assert "poolctl rounds contribute" in page.inner_text("main")
    contribute_all(filled, started["round_id"], base, ("web-b", "web-e", "web-f"))
    page.reload()
    assert "The round can be finished" in page.inner_text("main")
    page.fill("#site", "web-b")
    page.fill("#name", "refined")
    page.click("text=Finish the round")
    for _ in range(200):
        if "The round is finished." in page.inner_text("main"):
            break
        page.wait_for_timeout(100)
        page.goto(f"/rounds/{started['round_id']}")
    page.click("text=web-b/refined@1")
    assert page.inner_text("h1").startswith("web-b/refined")


def tab_to(page: Any, selector: str, most: int = 90) -> None:
    """Press Tab until the focused element matches a selector, and check that it shows the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            focused = "getComputedStyle(document.activeElement)"
            assert page.evaluate(f"{focused}.outlineStyle") != "none", selector
            return
    pytest.fail(f"Tab does not reach {selector}")


def test_the_journey_by_keyboard_alone(filled: PoolDriver, open_page: Open) -> None:
    page = open_page(None)
    page.goto("/login")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    tab_to(page, "#token")
    page.keyboard.type(filled.secret("web-a", "contributor"))
    page.keyboard.press("Enter")
    page.wait_for_selector(".me summary")
    tab_to(page, "nav a[href='/models']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models")
    tab_to(page, "#text")
    page.keyboard.type("eyes")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models?text=eyes*")
    for site in ("web-b", "web-a"):
        tab_to(page, f"input[value='{site}/eyes@1']")
        page.keyboard.press("Space")
    assert page.inner_text(".tray span").startswith("2 chosen")
    tab_to(page, ".tray button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?model=*")
    tab_to(page, "#name")
    page.keyboard.press("Control+A")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Merged.")
    tab_to(page, "#job a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/web-a/by-keyboard@1")
    tab_to(page, "a[href$='/withdraw']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/withdraw")
    tab_to(page, "#reason")
    page.keyboard.type("It is worse")
    tab_to(page, "#explanation")
    page.keyboard.type("Only a test.")
    tab_to(page, "#confirm")
    page.keyboard.type(page.inner_text("label[for=confirm]").split()[1])
    tab_to(page, "main button.danger")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This version was withdrawn: quality.")


def test_the_longest_names_widen_no_page(filled: PoolDriver, open_page: Open) -> None:
    site, name = "s" * 64, "n" * 64
    described = {"description": f"{'x' * 300}", "labels": {"camera": "C" * 200}}
    upload(filled.member(site, "admin"), f"{site}/{name}", landmark_bytes(7390), **described)
    page = open_page(filled.secret(site, "admin"), viewport={"width": 320, "height": 900})
    for place in ("/", "/models", f"/models/{site}/{name}", "/upload", "/account"):
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth") == 320, place


WIDTHS = (320, 390, 1440)
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}}


@pytest.mark.parametrize(
    ("theme", "width", "places"),
    [
        # Every page once; what themes and widths add is the sheet's, which is the same for all.
        ("light", 1440, PLACES[::2]),
        ("dark", 320, PLACES[1::2]),
        *(
            pytest.param(theme, width, PLACES, marks=pytest.mark.slow)
            for theme in ("light", "dark")
            for width in WIDTHS
        ),
    ],
)
def test_axe_finds_nothing_serious_and_no_page_is_wider_than_the_screen(
    filled: PoolDriver, open_page: Open, theme: str, width: int, places: tuple[str, ...]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    viewport = {"width": width, "height": 900}
    page = open_page(filled.secret("web-a", "admin"), color_scheme=theme, viewport=viewport)
    problems = []
    for place in places:
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place
        problems += [
            (place, violation["id"], [node["html"][:120] for node in violation["nodes"][:3]])
            for violation in Axe().run(page, options=RULES).response["violations"]
            if violation["impact"] in {"serious", "critical"}
        ]
    assert problems == []
