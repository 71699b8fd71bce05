"""The child process in which dlib trains: stopped, killed, orphaned."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from site_agent.datasets.records import FaceDataset
from site_agent.errors import TrainingFailedError
from site_agent.training.ert import ErtSettings, train_ert
from tests.children import children_of, wait_for_end

LONG = ErtSettings(num_trees_per_cascade_level=500, oversampling_amount=200)


WORKER = "site_agent.training.worker"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_a_killed_worker_is_explained(training_faces: FaceDataset, tmp_path: Path) -> None:
    def kill(_fraction: float | None, text: str) -> None:
        if text.startswith("tree"):
            for worker in children_of(os.getpid(), WORKER):
                worker.kill()

    with pytest.raises(TrainingFailedError, match=r"SIGKILL; most likely memory ran out.* GB"):
        train_ert(training_faces, tmp_path / "a.dat", LONG, kill)
    assert list(tmp_path.iterdir()) == []


def test_the_worker_dies_with_its_parent(training_faces: FaceDataset, tmp_path: Path) -> None:
    script = """
        import sys
        from site_agent.datasets.imglab_xml import read_imglab_xml
        from site_agent.training.ert import ErtSettings, train_ert
        settings = ErtSettings(num_trees_per_cascade_level=500, oversampling_amount=200)
        tell = lambda fraction, text: print(text, flush=True)
        train_ert(read_imglab_xml(sys.argv[1]), sys.argv[2], settings, tell)
    """
    root = Path(__file__).resolve().parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(training_faces.path), "a.dat"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    )
    assert parent.stdout is not None
    with parent, parent.stdout as printed:
        for line in printed:
            if line.startswith("tree"):
                break
        (worker,) = children_of(parent.pid, WORKER)
        parent.kill()
        parent.wait()
    wait_for_end([worker])
