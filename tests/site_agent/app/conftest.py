"""A folder of recordings, good and broken, analysed through the app once."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from site_agent.datasets.conversion import read_faces
from site_agent.jobs.runner import IDLE_VARIABLE
from site_agent.pool.client import PoolClient
from site_agent.rounds.contract import keep_rules
from site_agent.rounds.terms import start_round
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.work import processes
from tests.children import children_of
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.eyeblink.conftest import drawn_faces, landmark_file, recording
from tests.site_agent.eyeblink.drawn_videos import write_video
from tests.site_agent.live_pool import LivePool, live_pool
from tests.waiting import wait_until

__all__ = ["drawn_faces", "landmark_file", "recording"]
TINY = ErtSettings(num_trees_per_cascade_level=12, cascade_depth=3, tree_depth=3)


def runners() -> list[psutil.Process]:
    """The runners that this process has started."""
    return children_of(os.getpid(), "site_agent.jobs.runner")


@pytest.fixture(scope="package", autouse=True)
def _runners_end() -> Iterator[None]:
    """End the runners, which outlast an app, and wait for them as their parent."""
    yield
    for runner in processes._LASTING:
        runner.kill()
        runner.wait()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    with live_pool(tmp_path_factory.mktemp("pool")) as pool_:
        yield pool_


def begin_round(pool: LivePool, faces: Path, folder: Path) -> str:
    """Start a round of site-b to which site-a is asked to contribute; return its id."""
    model = train_ert(read_faces(faces), folder / "base.dat", TINY, training_scores=False)
    with PoolClient(pool.url, pool.tokens["site-b"]) as client:
        client.upload(model.model_path, "site-b/eyes")
        begun = start_round(
            client, "site-b/eyes", ["site-a", "site-b"], datetime.now(UTC) + timedelta(days=1),
            options={"starts": 5, "min_faces": 5}, method="leaf-refit",
        )  # fmt: skip
    keep_rules(least_others="1")
    return begun.round_id


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
        rows = app_.add_videos(f'"{videos}"', [path.name for path in videos.glob("*.mp4")])
        app_.analyse(rows.values())
        wait_until(lambda: all(view.ended for view in app_.lab.jobs.views()))
        yield app_
