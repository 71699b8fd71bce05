"""The app in a real browser: the way in, live parts, the trace, the keyboard, and axe."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.site_agent.app.running_app import RunningApp
from tests.waiting import wait_until

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def let_in(chromium: Any, app: RunningApp, problems: list[str], **options: Any) -> Any:
    """Open a window, and enter with a ticket; words of the console are problems."""
    page = chromium.new_context(**options).new_page()
    page.on("console", lambda message: problems.append(message.text) if message.type in {"error", "warning"} else None)  # noqa: E501 # fmt: skip
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith((app.origin, "blob:")) else None)  # noqa: E501 # fmt: skip
    page.goto(f"{app.address}/enter#{app.folder.new_ticket()}")
    page.wait_for_url(f"{app.address}/")
    return page


def first_row(app: RunningApp) -> str:
    return app.lab.studies.current().recordings()[0].recording


def test_the_trace_by_pointer_and_keyboard(app: RunningApp, chromium: Any) -> None:
    problems: list[str] = []
    page = let_in(chromium, app, problems)
    assert "#" not in page.url
    page.goto(f"{app.address}/results/{first_row(app)}?at=2.0")
    page.wait_for_selector("body[data-ready=true]")
    page.wait_for_selector("#scope[data-frame]")
    frame = int(page.inner_text("#at-frame"))
    page.focus("#trace")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"#scope[data-frame='{frame + 1}']")
    shown = app.get(f"/results/{first_row(app)}/review/api/frames/{frame + 1}").json()
    assert page.inner_text("#at-time") == f"{shown['time_s']:.3f} s"
    page.keyboard.press("Home")
    page.wait_for_selector("#scope[data-frame='0']")
    box = page.locator("#trace").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.wait_for_selector("#scope:not([data-frame='0'])")
    page.goto(f"{app.address}/results/{first_row(app)}/review/")
    page.wait_for_selector("body[data-ready=true]")
    page.keyboard.press("a")
    page.wait_for_selector("#status:has-text('accepted')")
    page.keyboard.press("u")
    page.wait_for_selector("#status:has-text('Taken back')")
    assert problems == []


def test_edited_cells_are_not_left_without_a_word(app: RunningApp, chromium: Any) -> None:
    problems: list[str] = []
    page = let_in(chromium, app, problems)
    page.goto(f"{app.address}/videos")
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    cell = page.locator(f"input[name=group-{first_row(app)}]")
    cell.click()
    page.keyboard.type("left")
    page.click("nav a:has-text('Models')", no_wait_after=True)
    wait_until(lambda: bool(page.title() and asked))
    assert asked == ["beforeunload"]
    page.evaluate("refresh()")
    assert cell.input_value() == "left"
    for text in ("left", ""):
        cell.fill(text)
        page.click("button:has-text('Save participants')")
        page.wait_for_url(f"{app.address}/videos")
    assert asked == ["beforeunload"], "saving asks nothing"
    assert problems == []


def test_live_parts_follow_jobs(app: RunningApp, chromium: Any) -> None:
    problems: list[str] = []
    page = let_in(chromium, app, problems)
    page.goto(f"{app.address}/jobs")
    with page.expect_request("**/events"):
        page.reload()
    job = app.lab.jobs.add("study", "Live one", {"study": "/nowhere"})
    page.wait_for_selector("text=Live one", timeout=30_000)
    page.wait_for_selector("article:has-text('Live one') >> text=failed", timeout=60_000)
    app.lab.jobs.remove(job.id)
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector("text=no further job begins")
    assert app.lab.jobs.is_paused
    held = [app.lab.jobs.add("study", title, {}) for title in ("First", "Second")]
    page.get_by_role("button", name="Next do Second").click()
    page.wait_for_selector("article:first-of-type:has-text('Second')")
    page.get_by_role("button", name="Cancel Second").click()
    page.wait_for_selector("article:has-text('Second') >> text=Try again")
    page.get_by_role("button", name="Go on").click()
    page.wait_for_selector("button:has-text('Pause')")
    wait_until(lambda: all(app.lab.jobs.view(job.id).ended for job in held))
    for job in held:
        app.lab.jobs.remove(job.id)
    assert problems == []


def test_a_job_added_before_the_stream_opens_is_shown(app: RunningApp, chromium: Any) -> None:
    problems: list[str] = []
    page = let_in(chromium, app, problems)
    early = []

    def add_first(route: Any) -> None:
        if not early:
            early.append(app.lab.jobs.add("study", "Early one", {"study": "/nowhere"}))
        route.continue_()

    page.route("**/events", add_first)
    app.lab.jobs.pause(paused=True)
    page.goto(f"{app.address}/jobs")
    page.wait_for_selector("text=Early one")
    app.lab.jobs.cancel(early[0].id)
    app.lab.jobs.remove(early[0].id)
    app.lab.jobs.pause(paused=False)
    assert problems == []


def test_a_page_that_hears_of_the_app_again_does_not_say_that_it_stopped(
    app: RunningApp, chromium: Any
) -> None:
    problems: list[str] = []
    page = let_in(chromium, app, problems)
    page.clock.install()
    asked: list[Any] = []

    def refuse_first(route: Any) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.fulfill(status=204)
        else:
            route.continue_()

    page.route("**/events", refuse_first)
    page.goto(f"{app.address}/jobs")
    wait_until(lambda: page.evaluate("stream.readyState === EventSource.CLOSED"))
    # As somebody who looks at another window, and again at this one.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    wait_until(lambda: page.evaluate("stream.readyState === EventSource.OPEN"))
    page.clock.fast_forward(6000)
    assert page.is_hidden("#stopped")
    assert (len(asked), problems) == (2, [])


def test_escape_leaves_a_dialog_and_the_focus_returns(app: RunningApp, chromium: Any) -> None:
    problems: list[str] = []
    # A window of 1280 x 800 at 200 %.
    zoomed = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}
    page = let_in(chromium, app, problems, **zoomed)
    page.goto(f"{app.address}/videos")
    page.get_by_role("link", name="Add videos").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Add videos')")
    page.keyboard.press("Escape")
    page.wait_for_url(f"{app.address}/videos")
    page.wait_for_function("document.activeElement.textContent === 'Add videos'")
    assert problems == []
