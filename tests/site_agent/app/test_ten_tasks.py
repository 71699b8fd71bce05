"""The ten tasks of a new user, in a browser, with their clicks; the table is printed."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from aggregators.formats import write_model
from site_agent import own_folders
from site_agent.jobs.runner import IDLE_VARIABLE
from site_agent.pool import trust
from site_agent.pool.profiles import host_of
from site_agent.training.ert import kept_starter
from tests.aggregators.small_models import make_predictor
from tests.site_agent.app.conftest import begin_round, runners
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.app.test_app_in_chromium import CHROMIUM, chromium, let_in
from tests.site_agent.face_data import draw_faces
from tests.site_agent.live_pool import LivePool
from tests.waiting import wait_until

__all__ = ["chromium"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
PATIENCE_MS = 300_000.0


class Person:
    """Somebody without a terminal: clicks on words, and counts the clicks."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def click(self, role: str, name: str, *, within: str = "body", exact: bool = True) -> None:
        control = self.page.locator(within).get_by_role(role, name=name, exact=exact)
        control.first.click(timeout=PATIENCE_MS)
        self.clicks += 1
        self.look()

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for(timeout=PATIENCE_MS)

    def look(self) -> None:
        for violation in Axe().run(self.page).response["violations"]:
            places = [(node["html"], node["failureSummary"]) for node in violation["nodes"]]
            assert violation["impact"] not in {"serious", "critical"}, (violation["id"], places)


@pytest.fixture
def home(tmp_path: Path, landmark_file: Path, recording: Path) -> Path:
    """The home of a person: a folder of recordings, faces, three models, and a trained starter."""
    videos = tmp_path / "person" / "Videos" / "Air-puff study"
    videos.mkdir(parents=True)
    for name in ("P03_s1.mp4", "P03_s2.mp4"):
        shutil.copy(recording, videos / name)
    (videos / "P04_s1.mp4").write_bytes(b"no video")
    models = tmp_path / "r" / "models"
    models.mkdir(parents=True)
    for number in (1, 2, 3):
        write_model(make_predictor(number), models / f"mine{number}.dat")
    return tmp_path


@pytest.fixture
def app(home: Path, landmark_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApp]:
    monkeypatch.setenv("POOL_HOME", str(home / "h"))
    monkeypatch.setenv("HOME", str(home / "person"))
    monkeypatch.setattr("site_agent.app.places._HOMES", ())
    monkeypatch.setenv(IDLE_VARIABLE, "1")
    starter = kept_starter(own_folders.cache_folder())
    starter.parent.mkdir(parents=True)
    shutil.copy(landmark_file, starter)
    with running_app(home / "h", home / "r") as app_:
        yield app_
        for runner in runners():
            runner.kill()
            runner.wait()


@pytest.mark.timeout(900)
def test_ten_tasks_take_as_few_clicks_as_designed(
    app: RunningApp, pool: LivePool, chromium: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems: list[str] = []
    person = Person(let_in(chromium, app, problems, viewport={"width": 1280, "height": 900}))
    page, rows = person.page, []

    def task(name: str, most: int, do: Callable[[], None]) -> None:
        person.clicks = 0
        do()
        person.look()
        rows.append((name, person.clicks, most))
        assert problems == [], name

    def try_it() -> None:
        person.clicks = 1  # the icon
        person.click("button", "Try it")
        person.sees("It is analysed")
        assert " blinks" in page.inner_text("#last-part")

    def join() -> None:
        page.goto(f"{app.address}/settings")
        page.get_by_label("What you were sent").fill(f"{pool.url} {pool.tokens['site-a']}")
        person.click("button", "Join")
        person.sees("site-a")

    def add_and_analyse() -> None:
        page.goto(f"{app.address}/")
        person.click("link", "Add videos")
        person.click("link", "Air-puff study")
        person.click("button", "Add the chosen videos")
        person.click("link", "Analyse 3 new")
        person.click("button", "Analyse")
        page.goto(f"{app.address}/")
        person.sees("Analysed: 2 of 3 recordings, 1 failed")

    def try_again() -> None:
        person.click("link", "Show them")
        person.sees("cannot be opened as a video")
        person.click("button", "Try again", exact=False)

    def blink_under_the_cursor() -> None:
        page.goto(f"{app.address}/videos")
        person.click("link", "P03_s1.mp4")
        page.wait_for_selector("#scope[data-frame]")
        frame = page.inner_text("#at-frame")
        box = page.locator("#trace").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 40)
        wait_until(lambda: page.inner_text("#at-frame") != frame)

    def review() -> None:
        page.goto(f"{app.address}/videos")
        person.click("link", "Review P03_s1.mp4")
        page.wait_for_selector("body[data-ready=true]")
        page.keyboard.press("a")
        page.wait_for_selector("#status:has-text('accepted')")

    def table() -> None:
        page.goto(f"{app.address}/")
        person.click("link", "Results", within="nav")
        with page.expect_download() as saved:
            person.click("link", "sessions.csv")
        assert b"P03" in saved.value.path().read_bytes()

    def merge() -> None:
        page.goto(f"{app.address}/models")
        for number in (1, 2, 3):
            page.get_by_label(f"Choose mine{number}.dat").check()
            person.clicks += 1
        person.click("button", "Merge")
        person.click("button", "Merge on this machine")
        person.sees("merged here")

    def share() -> None:
        page.goto(f"{app.address}/models")
        person.click("link", "Share it", exact=False)
        person.sees("Nothing has been sent yet")
        person.click("button", "Send", exact=False)
        person.sees("Model site-a/merged")

    def contribute() -> None:
        faces = draw_faces(home / "faces", 24, 12, 1)
        begin_round(pool, faces, home)
        trust.set_trusted_sites(host_of(pool.url), {"site-b"})
        app.lab.keep_faces(str(faces))
        page.goto(f"{app.address}/")
        person.click("link", "Rounds", within="nav")
        person.click("button", "Contribute", exact=False)
        person.sees("Nothing has been sent yet")
        person.click("button", "Send", exact=False)
        person.sees("Your lab has contributed")

    task("first start: see a result", 2, try_it)
    task("join a pool", 1, join)
    task("add a folder and analyse all of it", 5, add_and_analyse)
    task("why did it fail, try again", 2, try_again)
    task("blink under the cursor", 1, blink_under_the_cursor)
    task("review the doubtful ones", 1, review)
    task("table for R", 2, table)
    task("merge three", 5, merge)
    task("share a model", 2, share)
    task("contribute to a round", 3, contribute)
    with capsys.disabled():
        print("\n| task | clicks | as designed |\n|---|---|---|")
        for name, clicks, most in rows:
            print(f"| {name} | {clicks} | {most} |")
    assert all(clicks <= most for _, clicks, most in rows)
