"""The README walked by its three readers, each in an empty folder: every command and the snippet.

Replaced are addresses of the machine only, and sizes of data, which keep the training short.
"""

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent.own_folders import cache_folder
from site_agent.training.ert import kept_starter
from tests.cli.conftest import Outcome, first_answer, run_here, start_process
from tests.conftest import PROJECT_ROOT
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.faces.test_prediction import small_predictor

ADDRESS = "http://127.0.0.1:8710"
MOST_LINES = 160
QUICK = {
    ("dataset", "draw", "video"): ("--set=seconds=2",),
    ("dataset", "draw", "faces"): ("--set=images=20",),
    ("train", "ert"): (
        "--set=num_trees_per_cascade_level=8", "--set=cascade_depth=2",
        "--set=tree_depth=3", "--set=oversampling_amount=4", "--no-training-scores",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    for name in ("POOL_ENDPOINT", "POOL_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path / "served", default_rights="download,merge") as running:
        yield running


def readme() -> str:
    return (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")


def commands(heading: str) -> list[list[str]]:
    """Return the words of each command of a section, without the name of the program."""
    section = readme().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```", section, flags=re.M | re.S)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    assert all(line.startswith("poolctl ") for line in lines)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def run(command: list[str], **environment: str) -> Outcome:
    quick = [more for start, more in QUICK.items() if tuple(command[: len(start)]) == start]
    return run_here(*command, *(quick[0] if quick else ()), "-q", **environment)


def run_until_ready(command: list[str], tmp_path: Path) -> None:
    """Run a command that serves, until it has said where; then stop it by Ctrl-C."""
    absolute = [str(tmp_path / word) if word in {"out/", "pool"} else word for word in command]
    process = start_process(*absolute, "--json")
    scheme = "https" if "--self-signed" in command else "http"
    assert first_answer(process)["url"].startswith(f"{scheme}://")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=540)
    assert process.returncode == 0, errors


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(readme().splitlines()) <= MOST_LINES
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", readme()):
        assert (PROJECT_ROOT / target).exists(), target


def test_blinks_in_my_video(tmp_path: Path) -> None:
    kept_starter(cache_folder()).parent.mkdir(parents=True)
    write_model(small_predictor(68), kept_starter(cache_folder()))
    walked = commands("Blinks in my video")
    assert len(walked) == 4
    for command in walked:
        if command[1] == "review":
            run_until_ready([*command, "--no-browser"], tmp_path)
        else:
            outcome = run(command)
            assert outcome.code == 0, (command, outcome.err)
    assert Path("out/report.html").is_file()


def test_my_lab_joins_a_pool(
    tmp_path: Path, pool: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = pool.secret("site-a", "contributor")
    other = {"POOL_ENDPOINT": pool.url, "POOL_TOKEN": pool.secret("site-b", "contributor")}
    pool.secret("site-c", "contributor")
    round_id = ""
    for command in commands("My lab joins a pool"):
        arguments = [pool.url if word == ADDRESS else word for word in command]
        arguments = [round_id if word == "ROUND" else word for word in arguments]
        login = {"POOL_TOKEN": token} if command[:2] == ["auth", "login"] else {}
        outcome = run(arguments, **login)
        if command[:2] == ["rounds", "finish"]:
            assert "waits for" in outcome.err or outcome.code == 7, outcome.err
            continue
        assert outcome.code == 0, (command, outcome.err)
        if command[:2] == ["rounds", "start"]:
            round_id = outcome.out.strip()
        if command[:2] == ["train", "ert"]:
            # Another lab has trained on its own faces, too.
            theirs = [word.replace("mine.dat", "b.dat") for word in command]
            assert run([*theirs, "--set=seed=2"]).code == 0
            assert run(["upload", "b.dat", "--name", "eyes"], **other).code == 0
    [snippet] = re.findall(r"^```python\n(.*?)^```", readme(), flags=re.M | re.S)
    exec(compile(snippet, "README.md", "exec"), {})
    assert (tmp_path / "merged-2.dat").is_file()


def test_i_run_a_pool(tmp_path: Path, pool: PoolDriver) -> None:
    admin = {"POOL_ENDPOINT": pool.url, "POOL_TOKEN": pool.admin_secret}
    for command in commands("I run a pool"):
        if command[0] == "serve" and "--show-login" not in command:
            arguments = [word.replace("0.0.0.0", "127.0.0.1") for word in command]
            run_until_ready([*arguments, "--port", "0"], tmp_path)
            continue
        outcome = run([pool.url if word == "ADDRESS" else word for word in command], **admin)
        assert outcome.code == 0, (command, outcome.err)
