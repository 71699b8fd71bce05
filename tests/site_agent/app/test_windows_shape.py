"""The app where Python has the shape that it has on Windows, its runner and workers, too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from site_agent.app.entry import AppFolder
from site_agent.app.models import Models
from site_agent.app.pages import Lab
from site_agent.app.recordings import Studies
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.jobs.folder import JobFolder
from site_agent.work.names import portable_name
from tests.architecture.test_portability import ABSENT
from tests.conftest import PROJECT_ROOT
from tests.site_agent.app.running_app import RunningApp
from tests.waiting import wait_until

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
    write_blink_video(videos / "con.mp4", 1.5, seed=3, size=(320, 240))
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
            place = app.post("/videos/add/folder", folder=str(videos)).headers["location"]
            app.post("/videos/add/videos", place=place.partition("place=")[2], video=NAMES)
            rows = {row.file_name: row for row in lab.studies.current().recordings()}
            sessions = {row.session.casefold() for row in rows.values()}
            assert len(sessions) == len(rows) == len(NAMES)
            assert all(portable_name(name) == name for name in sessions)
            assert Models(lab).new_file("con", ".dat").name == "con_.dat"
            model = app.get("/videos/analyse").text.partition('name="model" value="')[2][:16]
            number = rows["con.mp4"].recording
            asked = app.post("/videos/analyse/start", recording=number, model=model)
            assert asked.status_code == 303, asked.text
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
