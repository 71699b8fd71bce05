"""Child processes, threads, locks and names."""

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from site_agent.errors import BusyError
from site_agent.pool.storage_connection import BlockThreads
from site_agent.work.files import portable_name, remove_file
from site_agent.work.locks import locked
from site_agent.work.processes import (
    available_memory_bytes,
    describe_end,
    peak_memory_bytes,
    was_killed,
)
from tests.children import wait_for_end

CHILD = """
import os, time
from site_agent.work.processes import end_with
end_with(os.getppid())
print(os.getpid(), flush=True)
time.sleep(60)
"""

PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}])
"""


def test_a_child_ends_soon_after_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent, parent.stdout as printed:
        child = psutil.Process(int(printed.readline()))
        parent.kill()
        parent.wait()
    wait_for_end([child])


def test_exit_codes_are_described() -> None:
    assert [describe_end(code) for code in (3, -9, -15)] == [
        "ended with code 3",
        "was ended by SIGKILL",
        "was ended by SIGTERM",
    ]
    assert [was_killed(code) for code in (0, 1, -9, -15)] == [False, False, True, False]


def test_a_lock_excludes_others_and_leaves_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), pytest.raises(BusyError), locked(path, busy=BusyError("in use")):
        pass
    with locked(path, busy=BusyError("in use")):
        assert path.stat().st_mode & 0o077 == 0


def test_memory_is_measured_in_bytes() -> None:
    rss_bytes = psutil.Process().memory_info().rss
    assert 0.5 * rss_bytes < peak_memory_bytes() < 100 * rss_bytes
    assert 1e6 < available_memory_bytes() < 1e14


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("site-a--eyes--v1.dat", "site-a--eyes--v1.dat"),
        ("a:b", "a-b"),
        ("con", "con_"),
        ("CON.dat", "CON_.dat"),
        ("console.dat", "console.dat"),
        ("lpt1.tar.gz", "lpt1_.tar.gz"),
        ("end. .", "end"),
        ("...", "_"),
        (".hidden", ".hidden"),
    ],
)
def test_names_that_windows_refuses_are_changed(name: str, portable: str) -> None:
    assert portable_name(name) == portable
    assert portable_name(portable) == portable


def test_read_only_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.touch()
    path.chmod(0o400)
    remove_file(path)
    remove_file(path)
    assert list(tmp_path.iterdir()) == []


def test_a_block_waits_for_its_threads_and_tells_them_to_stop() -> None:
    ended = []
    with BlockThreads("test") as threads:
        for number in range(3):

            def work(number: int = number) -> None:
                threads.stopped.wait(10)
                ended.append((number, threads.stopped.is_set()))

            threads.start(work)
    assert sorted(ended) == [(0, True), (1, True), (2, True)]


def test_an_interrupted_block_waits_for_nobody() -> None:
    silent = threading.Event()
    threads = BlockThreads("test")
    threads.start(lambda: assert_set(silent))
    try:
        with pytest.raises(KeyboardInterrupt), threads:
            raise KeyboardInterrupt
        assert threads.stopped.is_set()
        assert [thread for thread in threading.enumerate() if thread.name == "test-0"]
    finally:
        silent.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(540)


def test_results_come_in_the_order_of_the_items() -> None:
    second = threading.Event()
    told = []

    def work(item: int) -> int:
        if item == 2:
            second.set()
        elif item == 1:
            assert_set(second)
        return item * item

    with BlockThreads("test") as threads:
        assert threads.run(work, [1, 2, 3], 2, lambda: told.append(None)) == [1, 4, 9]
    assert len(told) >= 3


def test_the_first_error_stops_what_has_not_begun() -> None:
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("item 1")
        assert threads.stopped.wait(540)

    threads = BlockThreads("test")
    with pytest.raises(ValueError, match="item 1"), threads:
        threads.run(work, range(10), 2)
    assert set(begun) <= {0, 1}
