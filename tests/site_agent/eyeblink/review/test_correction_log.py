"""The log outlives anything that can happen to the process that writes it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.errors import BusyError, ReviewFolderError, ReviewOutdatedError
from site_agent.eyeblink.review.actions import Accept, CorrectionLog, Delete, Undo, read_log
from tests.conftest import PROJECT_ROOT

DIGEST = "a" * 64


@settings(max_examples=25)
@given(st.integers(0, 400), st.binary(max_size=12))
def test_a_torn_end_is_cut_off_and_the_rest_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, rubbish: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with CorrectionLog(folder, DIGEST) as log:
        for number in range(1, 4):
            log.append(Delete(blink_id=number), "Ada")
    data = log.path.read_bytes()
    kept = data[: min(cut, len(data))]
    whole_lines = kept.count(b"\n")
    log.path.write_bytes(kept + rubbish.replace(b"\n", b""))
    with CorrectionLog(folder, DIGEST) as again:
        assert len(again.entries) == max(0, whole_lines - 1)
        again.append(Accept(blink_id=9), "Ben")
    content = read_log(log.path)
    assert content.entries[-1].action == Accept(blink_id=9)
    assert content.whole_bytes == log.path.stat().st_size


def test_another_result_is_not_mixed_in(tmp_path: Path) -> None:
    folder = tmp_path / "review"
    with CorrectionLog(folder, DIGEST) as log:
        log.append(Accept(blink_id=1), "Ada")
    before = log.path.read_bytes()
    with pytest.raises(ReviewOutdatedError, match="1 corrections were made to another result"):
        CorrectionLog(folder, "b" * 64)
    assert log.path.read_bytes() == before
    folder.rename(tmp_path / "old")
    with CorrectionLog(folder, "b" * 64) as anew:
        assert anew.entries == ()


def test_only_one_process_writes(tmp_path: Path) -> None:
    folder = tmp_path / "review"
    with CorrectionLog(folder, DIGEST) as log, CorrectionLog(folder, DIGEST) as late:
        assert not folder.exists(), "looking leaves no files"
        log.append(Accept(blink_id=1), "Ada")
        with pytest.raises(BusyError, match="another process"):
            CorrectionLog(folder, DIGEST)
        with pytest.raises(BusyError, match="another process"):
            late.append(Undo(), "Ben")
        log.close()
        with pytest.raises(ReviewFolderError, match="was begun by another process meanwhile"):
            late.append(Accept(blink_id=2), "Ben")
    with CorrectionLog(folder, DIGEST) as again:
        assert len(again.entries) == 1


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    with CorrectionLog(tmp_path, DIGEST) as log:
        log.append(Undo(), "Ada")
    data = log.path.read_bytes() + b"no json\n"
    log.path.write_bytes(data)
    with pytest.raises(ReviewFolderError, match="line 3: is damaged"):
        CorrectionLog(tmp_path, DIGEST)
    assert log.path.read_bytes() == data


def test_a_killed_process_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from site_agent.eyeblink.review.actions import Accept\n"
        "from site_agent.eyeblink.review.actions import CorrectionLog\n"
        f"log = CorrectionLog(Path(sys.argv[1]), {DIGEST!r})\n"
        "for number in range(1, 100_000):\n"
        "    log.append(Accept(blink_id=number), 'Ada'); print(number, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(40):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    confirmed = 40 + len([line for line in process.stdout.read().splitlines() if line.isdigit()])
    process.stdout.close()
    process.wait()
    with CorrectionLog(tmp_path, DIGEST) as log:
        assert len(log.entries) >= confirmed
        assert [entry.number for entry in log.entries] == list(range(1, len(log.entries) + 1))
