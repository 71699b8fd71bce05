"""The process that forks for each file: it comes back, it serves many, it ends with the server."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pool_server.errors import FormatRefusedError
from pool_server.jobs.limited import (
    HELPER,
    OUT_OF_MEMORY,
    Limits,
    StoppedError,
    _describe_end,
    _wait,
    run_limited,
)
from tests.conftest import PROJECT_ROOT
from tests.pool_server.http.test_connections import descriptor_limit
from tests.pool_server.merges.merge_driver import landmark_bytes
from tests.pool_server.model_files import detector_bytes
from tests.waiting import wait_until

CHECK = "pool_server.transfers.checking"
LIMITS = Limits(4 * 1024**3, 60)
SECRETS = ("POOL_SERVER_DATABASE_URL", "POOL_TOKEN", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("helper") / "model.svm"
    path.write_bytes(detector_bytes())
    return path


def check(path: Path, limits: Limits = LIMITS, module: str = CHECK) -> dict[str, Any]:
    plan = {"path": str(path), "name": "it"}
    return run_limited(module, plan, limits, activity="reading it")


def plan_of_merge(method: str, inputs: list[Path], result: Path) -> dict[str, Any]:
    sources = [
        {"path": str(path), "file_name": path.name, "address": None, "weight": 1.0}
        for path in inputs
    ]
    return {
        "method": method, "options": {}, "format": None, "result": str(result), "inputs": sources,
        "promised_digest": None, "successor_of": None,
    }  # fmt: skip


def helper_of(model_file: Path) -> int:
    assert check(model_file)["accepted"]
    assert HELPER._process is not None
    return HELPER._process.pid


def test_many_threads_at_once_each_get_their_own_answer(tmp_path: Path, model_file: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no model")

    def look(number: int) -> bool:
        return bool(check(model_file if number % 2 else other)["accepted"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(look, range(16))) == [False, True] * 8


@pytest.mark.slow
def test_a_server_with_many_files_open_checks_as_well(model_file: Path) -> None:
    HELPER.close()
    with descriptor_limit(2000), ExitStack() as stack:
        stack.callback(HELPER.close)
        for _ in range(1100):
            stack.enter_context(Path(os.devnull).open("rb"))
        assert check(model_file)["accepted"]


def test_a_program_that_is_not_on_the_list_is_not_run(model_file: Path) -> None:
    with pytest.raises(FormatRefusedError, match="reading it failed"):
        check(model_file, module="antigravity")


def test_a_failure_ends_the_child_alone(model_file: Path, tmp_path: Path) -> None:
    before = helper_of(model_file)
    with pytest.raises(FormatRefusedError, match="failed"):
        check(tmp_path / "missing")
    assert helper_of(model_file) == before


def test_a_killed_helper_is_started_again(model_file: Path) -> None:
    before = helper_of(model_file)
    os.kill(before, signal.SIGKILL)
    assert helper_of(model_file) != before


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(4 * 1024**3, 0.2), "took longer than the 0.2 s"),
        (Limits(1024**2, 60), "needs more memory than the 1,048,576 bytes"),
    ],
)
def test_a_program_that_exceeds_its_limits_is_ended(
    tmp_path: Path, limits: Limits, message: str
) -> None:
    large = tmp_path / "model"
    if limits.time_s < 1:
        os.mkfifo(large)
    else:
        large.write_bytes(bytes(64 * 1024**2))
    plan = plan_of_merge("mwma", [large, large], tmp_path / "result")
    with pytest.raises(FormatRefusedError, match=message):
        run_limited("pool_server.jobs.merging", plan, limits, activity="the merge")


def test_progress_is_told_while_a_program_runs(tmp_path: Path) -> None:
    paths = [tmp_path / "first.dat", tmp_path / "second.dat"]
    paths[0].write_bytes(landmark_bytes(1))
    # Opening a pipe without a writer waits: the merge stops at its second input.
    os.mkfifo(paths[1])
    told: list[tuple[float, str]] = []

    def listen(progress: float, activity: str) -> bool:
        told.append((progress, activity))
        return progress == 0

    plan = plan_of_merge("wba-cascade", paths, tmp_path / "result")
    with pytest.raises(StoppedError):
        run_limited("pool_server.jobs.merging", plan, LIMITS, activity="the merge", listen=listen)
    progress, activity = told[-1]
    assert 0 < progress < 1
    assert activity == "reading second.dat"


def test_the_time_of_a_program_begins_when_the_helper_has_loaded() -> None:
    reading, writing = os.pipe()

    def begin_and_end() -> bool:
        os.write(writing, b"99999999\n0\n")
        return True

    with os.fdopen(reading, "rb", buffering=0) as answers:
        assert _wait(answers, 0.0, begin_and_end) == 0
    os.close(writing)


@pytest.mark.parametrize(
    ("code", "report"),
    [
        (OUT_OF_MEMORY, ""),
        (-signal.SIGKILL, ""),
        (1, "RuntimeError: can't start new thread"),
        (1, "ImportError: libgomp.so: cannot allocate memory in static TLS block"),
        (1, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8. GiB"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'"),
        (-signal.SIGSEGV, "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2"),
    ],
)
def test_every_guise_of_memory_running_out_is_recognised(code: int, report: str) -> None:
    limits = Limits(1 << 20, 1.0)
    assert "needs more memory than the 1,048,576 bytes" in _describe_end(code, limits, report)
    assert "crashed (SIGSEGV)" in _describe_end(-signal.SIGSEGV, limits, "")
    assert "took longer" in _describe_end(-signal.SIGALRM, limits, report)


def test_the_helper_has_no_secrets_and_ends_with_the_server() -> None:
    program = """
import tempfile, time
from pool_server.jobs.limited import HELPER
with tempfile.TemporaryFile() as file:
    HELPER.run((file, file, file), timeout_s=60)
print(HELPER._process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT_ROOT,
        env={**os.environ, **dict.fromkeys(SECRETS, "hidden-word")},
    ) as server:
        assert server.stdout is not None
        helper = int(server.stdout.readline())
        assert b"hidden-word" not in Path(f"/proc/{helper}/environ").read_bytes()
        server.kill()
    wait_until(lambda: not Path(f"/proc/{helper}").exists())
