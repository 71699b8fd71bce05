"""The app as a program of its own: killed, at a first start, and in the shape of Windows."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from site_agent.app.entry import AppFolder
from site_agent.app.models import Models
from site_agent.app.pages import Lab
from site_agent.app.recordings import Studies
from site_agent.datasets.synthetic.settings import VideoDrawing
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.eyeblink.batch import run_batch
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.eyeblink.study import write_study
from site_agent.jobs.folder import JobFolder
from site_agent.jobs.runner import IDLE_VARIABLE
from site_agent.work.files import portable_name
from tests.architecture.test_portability import ABSENT
from tests.children import is_running
from tests.cli.conftest import first_answer, start_process
from tests.conftest import PROJECT_ROOT
from tests.site_agent.app.running_app import RunningApp
from tests.waiting import wait_until

COUNT, BROKEN, TIMEOUT_S = 60, 4, 1500


def write_recordings(folder: Path, model: Path) -> None:
    """Write 56 good recordings, and four broken ones: cut, empty, no video, a folder's rights."""
    write_blink_video(folder / "first.mp4", VideoDrawing(seconds=1.5, size=(320, 240), seed=3))
    content = (folder / "first.mp4").read_bytes()
    (folder / "first.mp4").unlink()
    for path in folder.glob("first_truth.*"):
        path.unlink()
    for number in range(COUNT - BROKEN):
        (folder / f"P{number // 8 + 1:02d}_s{number % 8 + 1}.mp4").write_bytes(content)
    (folder / "P90_s1.mp4").write_bytes(content[: len(content) // 3])
    (folder / "P91_s1.mp4").write_bytes(b"")
    (folder / "P92_s1.mp4").write_text("no video")
    (folder / "P93_s1.mp4").write_bytes(content[:64] + bytes(len(content) - 64))
    shutil.copy(model, folder / "eyes.dat")


def start_app(home: Path, results: Path) -> tuple[RunningApp, subprocess.Popen[str]]:
    """Start the program as a process of its own, with a browser that was let in."""
    process = start_process(
        "app", "--no-browser", "--json", "--port", 0, "-o", results,
        POOL_HOME=str(home), HOME=str(results.parent),
    )  # fmt: skip
    address, _, ticket = first_answer(process)["url"].partition("/enter#")
    folder = AppFolder(home / "app")
    lab = Lab(Studies(folder.place, results), JobFolder(home / "jobs"))
    browser = httpx.Client(trust_env=False, timeout=540)
    app = RunningApp(folder, lab, address.rpartition("/")[0], address, browser)
    assert app.enter(browser, ticket).status_code == 204
    return app, process


def kill(app: RunningApp, process: subprocess.Popen[str]) -> None:
    app.client.close()
    process.kill()
    process.wait()


def runner_of(jobs: JobFolder) -> psutil.Process | None:
    for view in jobs.views():
        if view.state.state == "running" and view.state.process:
            return psutil.Process(view.state.process[0])
    return None


def ended(jobs: JobFolder) -> int:
    return sum(view.ended for view in jobs.views() if view.job.kind == "analyse")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sixty_recordings_outlive_kills_of_app_and_runner(
    landmark_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(IDLE_VARIABLE, "2")
    videos, home, results = tmp_path / "videos", tmp_path / "home", tmp_path / "results"
    videos.mkdir()
    write_recordings(videos, landmark_file)
    app, process = start_app(home, results)
    jobs = app.lab.jobs
    rows = app.add_videos(str(videos), [path.name for path in videos.iterdir()])
    assert len(rows) == COUNT
    study = app.lab.studies.current()
    app.analyse(rows.values())
    # Closed browser: nobody looks from here on. Kills: the app, then the runner, each twice.
    killed: list[set[str]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    for share in (0.1, 0.3, 0.5, 0.7):
        while ended(jobs) < share * COUNT:
            jobs.start_runner()
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        if share in (0.1, 0.5):
            kill(app, process)
            app, process = start_app(home, results)
            continue
        runner = runner_of(jobs)
        if runner is not None:
            workers = runner.children(recursive=True)
            os.kill(runner.pid, signal.SIGKILL)
            running = [v.job.id for v in jobs.views() if (jobs.path(v.job.id) / "claimed").exists()]
            killed.append(set(running))
            while any(map(is_running, workers)):
                time.sleep(0.05)
    while any(not view.ended for view in jobs.views()):
        jobs.start_runner()
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    kill(app, process)
    states = Counter(v.state.state for v in jobs.views() if v.job.kind == "analyse")
    reasons = [v.state.reason for v in jobs.views() if v.state.state == "failed"]
    assert states["done"] >= COUNT - BROKEN, reasons
    assert states["failed"] >= BROKEN - 1, "the beginning of a cut one can be read"
    assert all(reasons)
    for view in jobs.views():
        ends = [event for event in jobs.events(view.job.id) if event["what"] == "done"]
        begins = [event for event in jobs.events(view.job.id) if "begins" in event["what"]]
        assert len(ends) <= 1, "nothing twice"
        assert len(begins) <= 1 + sum(view.job.id in some for some in killed)
    assert not list((study.place / ".batch" / "jobs").iterdir()), "nothing half"
    while jobs.has_runner():
        time.sleep(0.2)
    sessions = read_session_table(study.table).sessions
    result = run_batch(sessions, tmp_path / "expected", workers="2")
    write_study(tmp_path / "expected", result.records)
    for path in (tmp_path / "expected").rglob("*.csv"):
        name = path.relative_to(tmp_path / "expected")
        made = (study.place / name).read_text()
        assert made == path.read_text(), name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_first_start_leads_to_reviewed_blinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is there: no model, no pool, no video. The time is printed."""
    monkeypatch.setenv(IDLE_VARIABLE, "2")
    home, results = tmp_path / "home", tmp_path / "results"
    began_s = time.monotonic()
    app, process = start_app(home, results)
    jobs = app.lab.jobs
    assert "Try it" in app.get("/").text
    app.post("/try")
    wait_until(lambda: jobs.views() and all(view.ended for view in jobs.views()))
    seen_s = time.monotonic() - began_s
    assert ">20 s" in app.get("/videos").text, "the drawn video was looked at"
    assert "It is analysed" in app.get("/").text, [view.state.reason for view in jobs.views()]
    (number,) = re.findall(r"/results/(\w+)/review/", app.get("/videos").text)
    review = f"/results/{number}/review/api"
    state = app.get(f"{review}/state").json()
    events = state["events"]
    # As the script of the review does.
    headers = {"x-csrf-token": app.csrf(), "x-review-token": app.folder.prefix()}
    action = {"action": "accept", "blink_id": events[0]["id"]}
    answer = app.client.post(
        f"{app.address}{review}/actions", headers=headers | {"origin": app.origin},
        json={"revision": state["revision"], "action": action},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    took_s = time.monotonic() - began_s
    [truth] = (results / "drawn-video").glob("*_truth.json")
    drawn = json.loads(truth.read_text())["blinks"]
    hits = [
        any(
            event["onset_s"] < blink["offset_s"] and blink["onset_s"] < event["offset_s"]
            for event in events
        )
        for blink in drawn
    ]
    kill(app, process)
    with capsys.disabled():
        print(f"\nfirst blinks {seen_s:.0f} s, first reviewed one {took_s:.0f} s", end="; ")
        print(f"{sum(hits)} of {len(drawn)} drawn blinks found, {len(events)} shown")
    assert sum(hits) >= 0.8 * len(drawn)
    assert len(events) <= 1.2 * len(drawn)


SHAPE = f"""
import builtins, os, signal, sys, types

absent = {ABSENT!r}
ours = ("cli", "site_agent", "aggregators", "pool_server")
find = builtins.__import__

def without(module):
    names = set(vars(module)) - set(absent[module.__name__])
    shaped = types.ModuleType(module.__name__)
    vars(shaped).update({{name: vars(module)[name] for name in names}})
    return shaped

shaped = {{module.__name__: without(module) for module in (os, signal)}}

def find_as_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    # What libraries use of this system is their own matter.
    importer = (globals or {{}}).get("__package__") or ""
    if level == 0 and importer.partition(".")[0] in ours:
        if name in absent["modules"]:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        if name in shaped:
            return shaped[name]
    return find(name, globals, locals, fromlist, level)

builtins.__import__ = find_as_on_windows
del os.fork, os.forkpty  # for libraries, too: processes are started from nothing
sys.stdout = sys.stderr = None
with open(os.environ["SHAPED"], "a") as file:
    file.write(" ".join(sys.orig_argv) + "\\n")
"""

NAMES = ("con.mp4", "a:b.mp4", "P1_s1 .mp4", "aux. ..mp4", "CON_.mp4")


@pytest.mark.slow
def test_a_recording_is_analysed_in_the_shape_of_windows(
    landmark_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos, home, shape = (tmp_path / name for name in ("videos", "h", "shape"))
    videos.mkdir()
    shape.mkdir()
    (shape / "sitecustomize.py").write_text(SHAPE)
    write_blink_video(videos / "con.mp4", VideoDrawing(seconds=1.5, size=(320, 240), seed=3))
    for name in NAMES[1:]:
        (videos / name).write_bytes(b"no video")
    shutil.copy(landmark_file, videos / "eyes.dat")
    # As the icon on the desktop does it.
    program = "import cli.app, sys; sys.exit(cli.app.open_from_icon())"
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(shape), str(PROJECT_ROOT)]),
        "POOL_HOME": str(home), "HOME": str(tmp_path), "BROWSER": "true",
        "SHAPED": str(tmp_path / "shaped"), "POOLCTL_RUNNER_IDLE_S": "1",
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        entrance = home / "app" / "open.html"
        wait_until(lambda: entrance.is_file() or process.poll() is not None)
        log = (home / "app" / "log.txt").read_text
        assert process.poll() is None, log()
        monkeypatch.setenv("POOL_HOME", str(home))
        folder = AppFolder()
        address = folder.running()
        ticket = entrance.read_text().partition("enter#")[2].partition('"')[0]
        lab = Lab(Studies(folder.place, tmp_path / "poolctl-results"), JobFolder())
        with httpx.Client(trust_env=False, timeout=540) as browser:
            app = RunningApp(folder, lab, address.rpartition("/")[0], address, browser)
            assert app.enter(browser, ticket).status_code == 204
            numbers = app.add_videos(str(videos), NAMES)
            rows = {row.file_name: row for row in lab.studies.current().recordings()}
            sessions = {row.session.casefold() for row in rows.values()}
            assert len(sessions) == len(rows) == len(NAMES)
            assert all(portable_name(name) == name for name in sessions)
            assert Models(lab).new_file("con", ".dat").name == "con_.dat"
            number = numbers["con.mp4"]
            app.analyse([number])
            wait_until(lambda: all(view.ended for view in lab.jobs.views()))
            reasons = [(view.job.kind, view.state.reason) for view in lab.jobs.views()]
            assert [reason for _, reason in reasons if reason] == [], reasons
            page = app.get(f"/results/{number}").text
            assert "How often the person blinked is not known" in page, "nobody blinks in 1.5 s"
            assert app.get(f"/results/{number}/files/frames.csv").text.count("\n") > 40
            assert app.post("/quit").status_code == 200
        assert process.wait(60) == 0, log()
        wait_until(lambda: not lab.jobs.has_runner())
    finally:
        process.kill()
        process.wait()
    shaped = (tmp_path / "shaped").read_text()
    for module in ("cli.app", "site_agent.jobs.runner", "site_agent.work.worker"):
        assert module in shaped, "had another shape"
