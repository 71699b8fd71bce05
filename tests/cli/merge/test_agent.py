"""``poolctl agent`` as processes: killed at every step, stopped, and its exit codes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import file_digest
from site_agent.agent.workspace import SENTENCES
from site_agent.pool.profiles import host_of
from site_agent.pool.trust import set_trusted_sites
from tests.cli.conftest import Run, run_process, start_process
from tests.site_agent.agent.lab import Lab, Materials, events, make_materials
from tests.site_agent.live_pool import LivePool, live_pool

STEPS = (
    "model_fetched", "evaluated", "merged", "uploading", "uploaded", "contributing", "contributed",
)  # fmt: skip
"""Events after which something has just been, or is just being done."""


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return make_materials(tmp_path_factory.mktemp("materials"))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    with live_pool(tmp_path_factory.mktemp("pool"), part_bytes=1 << 16) as running:
        yield running


@pytest.fixture
def lab(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    pool: LivePool,
    materials: Materials,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40]
    made = Lab(tmp_path / "lab", pool, materials, name)
    yield made
    made.cancel_rounds()


def lines_of(text: str) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in text.splitlines()]
    assert all(line["event"] in SENTENCES for line in said)
    return said


def killed_at(process: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """Read an agent's events, kill it at `event`, and return them."""
    assert process.stdout is not None
    said = []
    for text in process.stdout:
        said.append(json.loads(text))
        if said[-1]["event"] == event:
            process.kill()
            break
    process.communicate()
    return said


@pytest.mark.parametrize(
    "steps",
    [("uploading", "contributing", "contributed"), pytest.param(STEPS, marks=pytest.mark.slow)],
    ids=["main", "all"],
)
def test_an_agent_that_is_killed_at_every_step_does_each_of_them_once(
    lab: Lab, materials: Materials, steps: tuple[str, ...]
) -> None:
    lab.share(materials.others[0], "face")
    lab.rounds = {"data": [str(materials.faces)]}
    lab.rules = {"least_others": 1, "min_faces": 1, "faces_per_leaf": 0.0}
    set_trusted_sites(host_of(lab.pool.url), ["site-b"])
    base = f"site-b/{lab.name}-base"
    with lab.client("site-b") as client:
        client.upload(materials.others[1], base)
        until = datetime.now(UTC) + timedelta(hours=1)
        key = client.rounds.start(
            base, ["site-a", "site-b"], until, options={"starts": 5, "min_faces": 1}
        ).round_id
    arguments = ("agent", "run", "--config", lab.write_config(), "--once")
    seen: list[str] = []
    for step in steps:
        process = start_process(*arguments)
        said = killed_at(process, step)
        seen += [line["event"] for line in said]
        assert not [line for line in said if line["event"] == "failed"]
        if step not in seen:
            # It was done and noted before an earlier kill: then it is not done again.
            assert process.returncode == 0
    last = run_process(*arguments)
    assert last.code == 0, last.err
    assert events(lines_of(last.out), "merged", "uploading", "contributing") == []
    assert set(steps) <= set(seen)

    assert lab.published() == [f"pool://site-a/{lab.name}@1"]
    with lab.client("site-a") as client:
        version = client.version(f"site-a/{lab.name}")
        round_ = client.rounds.get(key)
    assert file_digest(lab.workspace / "best" / f"{lab.name}.dat") == version.digest
    assert list(round_.contributions()) == ["site-a"]
    assert list((lab.workspace / "work").iterdir()) == []


def test_a_running_agent_is_stopped_in_peace_and_alone_in_its_workspace(lab: Lab) -> None:
    config = lab.write_config()
    process = start_process("agent", "run", "--config", config)
    assert process.stdout is not None
    try:
        for text in process.stdout:
            if json.loads(text)["event"] == "waiting":
                break
        second = run_process("agent", "run", "--config", config, "--once")
        assert second.code == 7
        assert "another agent is at work" in second.err
        assert second.out == ""
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=540)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    last = lines_of(out)[-1]
    assert (last["event"], last["reason"]) == ("agent_stopped", "interrupted")
    assert err == ""


def test_the_exit_code_of_one_cycle_says_what_happened(
    lab: Lab, materials: Materials, poolctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = ("agent", "run", "--once", "--config")
    outcome = poolctl(*run, lab.write_config())
    assert outcome.code == 0
    assert [line["event"] for line in lines_of(outcome.out)][-2:] == [
        "cycle_finished", "agent_stopped",
    ]  # fmt: skip
    assert poolctl(*run, lab.config_file, "-q").out == ""

    own_model = tmp_path / "own.dat"
    own_model.write_bytes(materials.mine.read_bytes()[:3000])
    lab.merge = {"own_models": [str(own_model)]}
    failed = poolctl(*run, lab.write_config())
    assert failed.code == 5
    assert "own.dat" in failed.err
    assert events(lines_of(failed.out), "failed")[0]["subject"] == lab.name

    lab.merge = {"margin_pct": "much"}
    wrong = poolctl(*run, lab.write_config())
    assert wrong.code == 2
    assert f"{lab.config_file}: merge.{lab.name}: margin_pct is 'much', expected" in wrong.err
    assert wrong.out == ""
    assert poolctl(*run, tmp_path / "none.toml").code == 4

    lab.merge = {}
    lab.write_config()
    monkeypatch.setenv("POOL_TOKEN", "pool_of_nobody")
    assert poolctl(*run, lab.config_file).code == 3
    monkeypatch.setenv("POOL_ENDPOINT", "http://127.0.0.1:9")
    away = poolctl(*run, lab.config_file)
    assert away.code == 8
    said = lines_of(away.out)
    assert [line["event"] for line in said] == [
        "agent_started", "pool_unreachable", "agent_stopped",
    ]  # fmt: skip

    def interrupted(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.merge.agent.run_agent", interrupted)
    assert poolctl(*run, lab.config_file).code == 130


def test_a_configuration_is_made_and_checked(
    poolctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    example = poolctl("settings", "agent", "run").out
    assert "[merge.eyes-merged]" in example
    Path("agent.toml").write_text(example)
    poolctl("agent", "run").fails(2, "rounds.data is 'drawn/faces-train.xml', expected a file")
