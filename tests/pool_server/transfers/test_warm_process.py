"""The process that forks for each file: it comes back, it serves many, it leaves with us."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from pool_server.jobs.warm_process import WarmProcess
from pool_server.transfers.checking import check_environment
from tests.conftest import PROJECT_ROOT
from tests.pool_server.model_files import detector_bytes

CHECK = "pool_server.transfers.model_check"
LIMITS = [f"--memory-bytes={4 * 1024**3}", "--time-s=60"]


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmProcess]:
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("warm") / "model.svm"
    path.write_bytes(detector_bytes())
    return path


def run(
    warm: WarmProcess, arguments: list[str], module: str = CHECK, timeout_s: float = 60
) -> tuple[int, bytes, bytes]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = warm.run(
            module,
            arguments,
            output=output,
            errors=errors,
            timeout_s=timeout_s,
            environment=check_environment(),
        )
        output.seek(0)
        errors.seek(0)
        return code, output.read(), errors.read()


def helper_of(warm: WarmProcess, model_file: Path) -> int:
    assert run(warm, [str(model_file), *LIMITS])[0] == 0
    assert warm._process is not None
    return warm._process.pid


def test_many_threads_at_once_each_get_their_own_answer(
    warm: WarmProcess, tmp_path: Path, model_file: Path
) -> None:
    def look(number: int) -> tuple[int, bool]:
        path = model_file if number % 2 else tmp_path / "none"
        code, answer, _ = run(warm, [str(path), *LIMITS])
        return code, code == 0 and json.loads(answer)["accepted"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(look, range(16)))
    assert found == [(1, False), (0, True)] * 8


def test_a_server_with_many_files_open_checks_as_well(model_file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    busy = WarmProcess()
    try:
        with ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(Path(os.devnull).open("rb"))
            code, output, errors = run(busy, [str(model_file), *LIMITS])
        assert (code, json.loads(output)["accepted"]) == (0, True), errors
    finally:
        busy.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_that_is_not_on_the_list_is_not_run(warm: WarmProcess) -> None:
    code, answer, _ = run(warm, [], module="antigravity")
    assert (code, answer) == (1, b"")


def test_wrong_arguments_end_the_child_alone(warm: WarmProcess, model_file: Path) -> None:
    before = helper_of(warm, model_file)
    code, _, errors = run(warm, ["--nonsense"])
    assert code == 2
    assert b"--memory-bytes" in errors
    assert helper_of(warm, model_file) == before


def test_a_killed_helper_is_started_again(warm: WarmProcess, model_file: Path) -> None:
    before = helper_of(warm, model_file)
    os.kill(before, signal.SIGKILL)
    assert helper_of(warm, model_file) != before


def test_a_child_that_hangs_is_killed(warm: WarmProcess, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pipe.open("r+b", buffering=0):
        arguments = [str(tmp_path / "a"), f"--base={pipe}", f"--round={pipe}", *LIMITS]
        module = "pool_server.rounds.contribution_check"
        assert run(warm, arguments, module=module, timeout_s=1)[0] == -signal.SIGALRM


def test_the_helper_has_no_secrets_and_ends_with_the_server(tmp_path: Path) -> None:
    program = """
import tempfile, time
from pool_server.transfers.checking import check_environment
from pool_server.jobs.warm_process import WARM
with tempfile.TemporaryFile() as out:
    WARM.run("none", [], output=out, errors=out, timeout_s=60, environment=check_environment())
print(WARM._process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT_ROOT,
        env={**os.environ, "POOL_SERVER_DATABASE_URL": "sqlite://secret"},
    ) as server:
        assert server.stdout is not None
        helper = int(server.stdout.readline())
        assert b"sqlite://secret" not in Path(f"/proc/{helper}/environ").read_bytes()
        server.kill()
    end = time.monotonic() + 20
    while Path(f"/proc/{helper}").exists():
        assert time.monotonic() < end, "the helper outlives its server"
        time.sleep(0.05)
