"""Sessions to review: one of a drawn trace, one of a drawn video."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.review.endpoints import review_application
from site_agent.eyeblink.review.review_session import ReviewSession
from site_agent.eyeblink.review.server import Guard, new_token
from tests.made_once import made_once
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace, write_trace


def write_drawn_trace(path: Path, seed: int, seconds: float) -> Path:
    trace, _ = draw_trace(seed, Drawing(seconds=seconds, gaps=2))
    return write_trace(path, trace.timestamps_s, trace.ear)


@pytest.fixture(scope="session")
def analysed_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    trace = write_drawn_trace(folder / "ear.csv", seed=4, seconds=60.0)
    run_blink_analysis(TraceFile(trace), out_dir=folder / "out")
    return folder / "out"


@pytest.fixture
def trace_session(analysed_trace: Path, tmp_path: Path) -> Path:
    """Results of a trace, for one test to change."""
    return shutil.copytree(analysed_trace, tmp_path / "out")


@pytest.fixture(scope="session")
def analysed_video(
    recording: Path, landmark_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = made_once(
        tmp_path_factory,
        "blink-session",
        lambda folder: run_blink_analysis(
            recording, landmarks=landmark_file, out_dir=folder / "out"
        ),
    )
    return folder / "out"


@pytest.fixture
def video_session(analysed_video: Path, tmp_path: Path) -> Path:
    """Results of a video, for one test to change."""
    return shutil.copytree(analysed_video, tmp_path / "out")


@contextmanager
def running_review(review: ReviewSession) -> Iterator[str]:
    """Serve the page from a thread while the block runs; yield its address."""
    token = new_token()
    app = Guard(review_application(review), token)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="review server", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/{token}/"
        finally:
            server.should_exit = True
            thread.join()
