"""Scratch files and folders: gone with the block, or with the process that made them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pool_server.storage.scratch import ScratchFolder
from tests.conftest import PROJECT_ROOT

HOLDER = """
import sys
from pathlib import Path
from pool_server.storage.scratch import ScratchFolder
with ScratchFolder(Path(sys.argv[1])).room() as folder:
    (folder / "result").write_bytes(b"half of it")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(scratch: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a process that uses the folder; gives it and where it writes."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(scratch)],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_goes_with_the_block(tmp_path: Path) -> None:
    scratch = ScratchFolder(tmp_path / "scratch")
    with scratch.room() as folder:
        (folder / "result").write_bytes(b"x")
        assert folder.parent == tmp_path / "scratch"
    with pytest.raises(FileNotFoundError), scratch.room() as folder:
        (folder / "missing").read_bytes()
    assert not list((tmp_path / "scratch").iterdir())


def test_a_killed_process_leaves_its_folder_to_the_others(tmp_path: Path) -> None:
    scratch = ScratchFolder(tmp_path / "scratch")
    with another_process(tmp_path / "scratch") as (process, folder):
        scratch.clear()
        assert (folder / "result").read_bytes() == b"half of it", "it is at work"
        process.kill()
        process.wait()
        assert (folder / "result").exists()
        scratch.clear()
        assert not list((tmp_path / "scratch").iterdir())
