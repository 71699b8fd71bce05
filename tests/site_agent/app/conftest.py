"""A folder of recordings, good and broken, analysed through the app once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from site_agent.jobs.runner import IDLE_VARIABLE
from site_agent.work import processes
from tests.children import is_running
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.eyeblink.conftest import drawn_faces, landmark_file, recording
from tests.site_agent.eyeblink.drawn_videos import write_video
from tests.waiting import wait_until

__all__ = ["drawn_faces", "landmark_file", "recording"]


def runners() -> list[psutil.Process]:
    """The runners that this process has started."""
    return [
        child
        for child in psutil.Process().children()
        if is_running(child) and "site_agent.jobs.runner" in child.cmdline()
    ]


@pytest.fixture(scope="package", autouse=True)
def _runners_end() -> Iterator[None]:
    """End the runners, which outlast an app, and wait for them as their parent."""
    yield
    for runner in processes._LASTING:
        runner.kill()
        runner.wait()


@pytest.fixture(scope="package")
def videos(landmark_file: Path, recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four recordings: a good one, one cut in the middle, one of another kind, a dark one."""
    folder = tmp_path_factory.mktemp("videos")
    shutil.copy(recording, folder / "P03_s1 <b>.mp4")
    content = recording.read_bytes()
    (folder / "P04_s2_grün.mp4").write_bytes(content[: len(content) // 2])
    (folder / "P05_s1.mp4").write_text("no video")
    write_video(folder / "P06_s1.mp4", [number / 30 for number in range(40)])
    shutil.copy(landmark_file, folder / "eyes.dat")
    return folder


@pytest.fixture(scope="package")
def app(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """The app with the recordings analysed; every test leaves them so."""
    place = tmp_path_factory.mktemp("app")
    with pytest.MonkeyPatch.context() as patch, running_app(place / "h", place / "r") as app_:
        patch.setenv("POOL_HOME", str(place / "h"))
        patch.setenv(IDLE_VARIABLE, "1")
        chosen = app_.post("/videos/add/folder", folder=f'"{videos}"')
        assert chosen.status_code == 303
        number = chosen.headers["location"].partition("place=")[2]
        names = [path.name for path in videos.glob("*.mp4")]
        assert app_.post("/videos/add/videos", place=number, video=names).status_code == 303
        study = app_.lab.studies.current()
        form = app_.get("/videos/analyse").text
        model = form.partition('name="model" value="')[2].partition('"')[0]
        rows = [row.recording for row in study.recordings()]
        answer = app_.post("/videos/analyse/start", recording=rows, model=model)
        assert answer.status_code == 303, answer.text
        wait_until(lambda: all(view.ended for view in app_.lab.jobs.views()))
        yield app_
