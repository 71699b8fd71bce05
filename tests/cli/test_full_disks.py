"""A full disk: every command names the file that was asked for, and leaves nothing behind."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import write_model
from tests.aggregators.small_models import make_predictor
from tests.cli.conftest import run_here
from tests.site_agent.face_data import draw_faces


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_inputs() -> None:
    for number, name in enumerate(("a.dat", "b.dat")):
        write_model(make_predictor(number), Path(name))
    draw_faces(Path("faces"), 6)
    lines = ["ear", *(f"{value:.3f}" for value in np.full(300, 0.3))]
    Path("ear.csv").write_text("\n".join(lines))


ERT = ("--set=cascade_depth=1", "--set=num_trees_per_cascade_level=2")
COMMANDS = {
    "new.dat": ("merge", "wba-cascade", "a.dat", "b.dat", "-o", "new.dat"),
    "mine.dat": ("train", "ert", "faces/faces.xml", "-o", "mine.dat", *ERT),
    "out": ("blink", "ear.csv", "--frame-rate-hz", 30, "-o", "out"),
    "drawn.mp4": ("dataset", "draw", "video", "drawn.mp4", "--set=seconds=1"),
    "eyes": ("dataset", "draw", "eyes", "eyes", "--set=persons=1"),
    "cut/": ("dataset", "split", "faces/faces.xml", "-o", "cut", "--test-share", 0.3),
}


LEAST_ROOM = {"mine.dat": 20_000}
"""Room for files of the work itself."""


@pytest.mark.parametrize("target", COMMANDS)
def test_a_full_disk_names_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    # Python's compiled modules are no files of the command.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("room", "full"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write_inputs()
        with full_disk(100_000_000 if name == "room" else LEAST_ROOM.get(target, 1_000)):
            outcome = run_here(*COMMANDS[target], "--no-progress")
    assert outcome.code in {1, 2, 5}
    message = outcome.err.partition("Error:")[2].strip()
    assert message.startswith(target), outcome.err
    assert "too large" in message or "No space left" in message
    assert ".partial" not in message
    assert [path for path in Path().iterdir() if path.name[0] == "."] == []
