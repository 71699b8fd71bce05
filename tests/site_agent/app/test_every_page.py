"""Every page of the app in Chromium, full and empty: keyboard, axe in both themes, no script.

APP_PICTURES=FOLDER keeps a picture of every page, wide and light, narrow and dark.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Route

from aggregators.formats import write_model
from site_agent.app.pages import Lab
from site_agent.app.recordings import Studies
from site_agent.app.results import Results
from site_agent.app.server import app_application
from site_agent.datasets.synthetic.conditioning import ConditioningDesign
from site_agent.datasets.synthetic.settings import VideoDrawing
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.jobs import modelling
from site_agent.jobs.folder import JobFolder
from site_agent.jobs.runner import IDLE_VARIABLE
from site_agent.pool import trust
from site_agent.pool.profiles import host_of
from tests.aggregators.small_models import make_predictor
from tests.site_agent.app.conftest import TINY, begin_round, runners
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.app.test_app_in_chromium import CHROMIUM, chromium, let_in
from tests.site_agent.app.test_models import do, shown
from tests.site_agent.face_data import draw_faces
from tests.site_agent.live_pool import LivePool
from tests.waiting import wait_until

__all__ = ["chromium"]


def in_chromium(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test as a slow one of the browser."""
    no_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
    return pytest.mark.slow(pytest.mark.browser(no_chromium(test)))


PAGES: Mapping[str, Sequence[str]] = {
    "/": ("/",),
    "/videos": ("/videos", "/videos?state=failed", "/videos?text=nobody", "/videos?state=bin"),
    "/videos/add": ("/videos/add", "/videos/add?place={place}", "/videos/add?place=guessed"),
    "/videos/analyse": ("/videos/analyse", "/videos/analyse?recording={trials}"),
    "/results": ("/results", "/results?measure=amplitude_all"),
    "/results/{recording}": ("/results/{trials}", "/results/{dark}"),
    "/results/{recording}/review": ("/results/{trials}/review/",),
    "/models": ("/models", "/models?where=pool", "/models?text=nobody"),
    "/models/merge": ("/models/merge", "/models/merge?model={model}&model={model2}"),
    "/models/{model}": ("/models/{model}",),
    "/models/{model}/share": ("/models/{model}/share?name=eyes&description=of P03",),
    "/train": ("/train",),
    "/train/{job}": ("/train/{training}",),
    "/rounds": ("/rounds",),
    "/rounds/{round}": ("/rounds/{round}",),
    "/settings": ("/settings",),
    "/sent": ("/sent",),
    "/sent/withdraw": ("/sent/withdraw?model={model}",),
    "/jobs": ("/jobs",),
    "/jobs/{job}": ("/jobs/{failed}", "/jobs/{training}"),
}
"""The addresses at which each page of the table of routes is looked at."""
NO_PAGES = {
    "/pictures/{recording}.jpg",
    "/results/files/{name}",
    "/results/{recording}/files/{name}",
    "/events",
    "/enter",  # sends on at once
    "/alive",
    "/static/{digest}/{name}",
}
STEP = Path(__file__).with_name("keyboard_step.js").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Shown:
    """An app, and the values of the parts of its addresses."""

    app: RunningApp
    parts: Mapping[str, str]

    def addresses(self) -> list[str]:
        """Return the addresses of all pages that this lab has."""
        known = set(self.parts)
        return [
            address.format(**self.parts)
            for addresses in PAGES.values()
            for address in addresses
            if known.issuperset(re.findall(r"{(\w+)}", address))
        ]


def test_the_addresses_here_are_those_of_all_pages(tmp_path: Path) -> None:
    lab = Lab(Studies(tmp_path, tmp_path), JobFolder(tmp_path))
    application = app_application(lab, Results(lab))
    routes = {
        route.path for route in application.routes
        if isinstance(route, Mount) or (isinstance(route, Route) and "GET" in (route.methods or ()))
    }  # fmt: skip
    assert routes == set(PAGES) | NO_PAGES


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    """The home of a person on this machine."""
    home = tmp_path_factory.mktemp("person")
    (home / "Videos").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv(IDLE_VARIABLE, "1")
        patch.setattr("site_agent.app.places._HOMES", ())
        patch.setattr(modelling, "settings_for_blinks", lambda _: TINY)
        patch.setattr(modelling, "_SHARES", (0.5, 1.0))
        yield patch


@pytest.fixture(scope="module")
def full(
    person: pytest.MonkeyPatch,
    videos: Path,
    landmark_file: Path,
    pool: LivePool,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shown]:
    """A lab with sessions of conditioning, broken recordings, models, a pool, and a round."""
    place = tmp_path_factory.mktemp("full")
    folder = Path.home() / "Videos" / "Air-puff study"
    shutil.copytree(videos, folder)
    for number in range(2):
        design = ConditioningDesign(trial_interval_s=(2.0, 3.0))
        name = f"P20_s{number + 1}.mp4"
        settings = VideoDrawing(trials=6, size=(320, 240), seed=number)
        write_blink_video(folder / name, settings, subject=150, design=design)
    (place / "r" / "models").mkdir(parents=True)
    for number in (1, 2):
        write_model(make_predictor(number), place / "r" / "models" / f"mine{number}.dat")
    shutil.copy(landmark_file, place / "r" / "models" / "eyes.dat")
    person.setenv("POOL_HOME", str(place / "h"))
    with running_app(place / "h", place / "r") as app:
        rows = app.add_videos(str(folder), [path.name for path in folder.glob("*.mp4")])
        app.analyse(rows.values())
        wait_until(lambda: all(view.ended for view in app.lab.jobs.views()))
        wait_until(lambda: not runners())
        person.setattr(JobFolder, "start_runner", lambda _: None)
        app.post("/settings/join", endpoint=pool.url, secret=pool.tokens["site-a"])
        faces = draw_faces(place / "faces", 24, 12, 1)
        round_ = begin_round(pool, faces, place)
        trust.set_trusted_sites(host_of(pool.url), {"site-b"})
        app.post("/train/check", faces=str(faces))
        do(app, "check")
        app.post("/train/start", name="trained")
        do(app, "train")
        models = re.findall(r'/models/([0-9a-f]{16})">mine\d.dat<', app.get("/models").text)
        form, _ = shown(app, models[0], name="eyes-shared", description="Kinder, grüne Wand")
        app.post(f"/models/{models[0]}/send", **form)
        do(app, "upload")
        app.post(f"/rounds/{round_}/compute", faces=str(faces))
        do(app, "contribute")
        app.post("/videos/chosen", recording=rows["P06_s1.mp4"], do="forget")
        app.post("/videos/restore")
        app.lab.jobs.add("look", "Looking at 2 videos", {}, after=["x"])
        views = app.lab.jobs.views()
        yield Shown(
            app,
            {
                "trials": rows["P20_s1.mp4"],
                "dark": rows["P06_s1.mp4"],
                "place": app.lab.places.place(folder).id,
                "model": models[0],
                "model2": models[1],
                "round": round_,
                "training": next(view.job.id for view in views if view.job.kind == "train"),
                "failed": next(view.job.id for view in views if view.state.state == "failed"),
            },
        )


@pytest.fixture(scope="module")
def empty(person: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A lab at its first start."""
    place = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch, running_app(place / "h", place / "r") as app:
        patch.setenv("POOL_HOME", str(place / "h"))
        yield Shown(app, {})


@pytest.fixture(params=["full", "empty"])
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """A lab in the middle of its work, and one at its first start."""
    made: Shown = request.getfixturevalue(request.param)
    monkeypatch.setenv("POOL_HOME", str(made.app.folder.place.parent))
    return made


def open_page(page: Any, lab: Shown, address: str) -> None:
    page.goto(f"{lab.app.address}{address}")
    if address.startswith("/results/"):
        page.wait_for_selector("body[data-ready=true]")


@in_chromium
@pytest.mark.parametrize("width", [390, 1440])
def test_every_control_is_reached_by_the_keyboard(lab: Shown, chromium: Any, width: int) -> None:
    problems: list[str] = []
    page = let_in(chromium, lab.app, problems, viewport={"width": width, "height": 900})
    for address in lab.addresses():
        open_page(page, lab, address)
        page.keyboard.press("Tab")
        while not (step := page.evaluate(STEP))["ended"]:
            if step["folded"]:
                page.keyboard.press("Enter")
                assert page.evaluate("document.activeElement.parentElement.open"), address
            page.keyboard.press("Tab")
        assert step["count"] > 3, address
        problems += [f"{address}: {problem}" for problem in step["problems"]]
    assert problems == []


@in_chromium
@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(lab: Shown, chromium: Any, theme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    problems: list[Any] = []
    viewport = {"width": width, "height": 900}
    page = let_in(chromium, lab.app, problems, color_scheme=theme, viewport=viewport)
    folder = os.environ.get("APP_PICTURES")
    for number, address in enumerate(lab.addresses()):
        open_page(page, lab, address)
        if folder and (theme, width) in {("light", 1440), ("dark", 390)}:
            kind = "full" if lab.parts else "empty"
            slug = re.sub(r"\W+", "_", address.partition("?")[0])
            name = f"{kind}_{theme}_{number:02d}{slug}.png"
            page.screenshot(path=str(Path(folder) / name), full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth")
        problems += [f"{address}: scrolls to {wide}"] if wide > width else []
        problems += [
            (address, violation["id"], [node["html"][:120] for node in violation["nodes"][:3]])
            for violation in Axe().run(page).response["violations"]
            if violation["impact"] in {"serious", "critical"}
        ]
    assert problems == []


@in_chromium
def test_pages_work_without_script(lab: Shown, chromium: Any) -> None:
    context = chromium.new_context(java_script_enabled=False)
    cookie = {"name": lab.app.folder.prefix(), "value": lab.app.cookie, "url": lab.app.address}
    context.add_cookies([cookie])
    page = context.new_page()
    for address in lab.addresses():
        if address.endswith("/review/"):
            continue
        page.goto(f"{lab.app.address}{address}")
        assert page.locator("h1").count() == 1, address
        assert page.locator("main").inner_text().strip(), address
