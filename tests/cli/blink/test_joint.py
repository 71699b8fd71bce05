"""``poolctl blink fit-together``: three labs and two servers, each a process, on a real pool."""

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from pool_server.wire.signatures.keys import PrivateKey
from site_agent.eyeblink.study.joint_model import JointDesign, LabTrials
from site_agent.eyeblink.study.mixed_models import LaplaceDeviance
from site_agent.eyeblink.study.study_trials import StudyTrials
from site_agent.joint_study import read_trials
from tests.cli.conftest import Run, start_process
from tests.cli.secure.parties import LABS, SERVERS, agree, serve
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.eyeblink.drawn_studies import (
    draw_study_trials,
    fit_pooled_logistic,
    pool_trials,
    write_study_files,
)
from tests.waiting import wait_until

STUDY = 'criterion = "as-listed"\nsessions = [1, 8]\ngroups = ["control", "lesion"]\n'
TRIALS = {lab: draw_study_trials(seed, 6, ("control", "lesion")) for seed, lab in enumerate(LABS)}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as running:
        yield running


@dataclass
class Study:
    """A study of three labs; every lab has accepted its charter, and has a table of trials."""

    pool: PoolDriver
    folder: Path
    charter: str
    commands: dict[str, Sequence[object]]
    """The command of each lab."""

    def start(self, name: str, *command: object) -> subprocess.Popen[str]:
        secret = self.pool.secret(name, "contributor")
        place = ("--site", name, "--folder", self.folder / name)
        return start_process(*command, *place, POOL_ENDPOINT=self.pool.url, POOL_TOKEN=secret)


def begin_study(pool: PoolDriver, folder: Path, poolctl: Run, fitted: Sequence[str]) -> Study:
    """Make the keys of all parties, and have each accept the charter of the study."""
    (folder / "study.toml").write_text(f"models = {list(fitted)}\n{STUDY}")
    options = ("--study", folder / "study.toml")
    file = folder / "charter.toml"
    digest = agree(pool, poolctl, file, folder.joinpath, *options)
    assert "study least_animals: 5" in poolctl("secure", "charter", "accept", file).out
    tables = {name: folder / name / "all_trials.csv" for name in LABS}
    for seed, table in enumerate(tables.values()):
        choices = (f"--set=seed={seed}", "--set=groups=control,lesion")
        drawn = poolctl("dataset", "draw", "trials", table, *choices)
        assert "6 animals, 576 trials" in drawn.out
    commands: dict[str, Sequence[object]] = {
        name: ("blink", "fit-together", table, "-o", folder / name / "together")
        for name, table in tables.items()
    }
    return Study(pool, folder, digest, commands)


def fit(study: Study, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Repeat the command of each lab until all have results."""
    results: dict[str, Any] = {}
    while len(results) < len(LABS):
        serve(study.pool, study.charter, study.folder.joinpath)
        for name in LABS:
            monkeypatch.setenv("POOL_TOKEN", study.pool.secret(name, "contributor"))
            command = (*study.commands[name], "--site", name, "--folder", study.folder / name)
            if (reply := poolctl(*command, "--json").data["results"]) is not None:
                results[name] = reply
    return results


def test_a_study_is_previewed_and_held_by_repeating_one_command(
    pool: PoolDriver, tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = begin_study(pool, tmp_path, poolctl, ("logistic",))
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.secret("lab-a", "contributor"))
    place = ("--folder", tmp_path / "lab-a")
    shown = poolctl(*study.commands["lab-a"], *place, "--dry-run").out
    assert "6 animals, 576 trials of sessions 1 to 8; the first sum, over at least 3 labs" in shown
    from_zero = pd.read_csv(tmp_path / "lab-a" / "all_trials.csv")
    from_zero["session_number"] -= 1
    from_zero.to_csv(tmp_path / "from_zero.csv", index=False)
    arguments = (tmp_path / "from_zero.csv", "-o", tmp_path / "together", *place, "--dry-run")
    other = poolctl("blink", "fit-together", *arguments)
    assert "504 trials of sessions 1 to 7" in other.out
    assert "72 trials of sessions before 1 or after 8 do not count" in other.err
    assert "nobody sees them but in the sum" in shown
    first = poolctl(*study.commands["lab-a"], *place).out
    assert "0 sums verified; the next is at keys and waits for sum-1, sum-2" in first
    results = fit(study, poolctl, monkeypatch)
    assert results["lab-a"] == results["lab-b"] == results["lab-c"]
    compare_with_the_pooled_fit(results["lab-a"]["estimates"], ("logistic",))
    report = (tmp_path / "lab-c" / "together" / "table.md").read_text()
    assert report.startswith("CRs become more frequent over sessions in control: log odds +0.")
    assert "(logistic; 3 labs, 18 animals, 1,728 trials)" in " ".join(report.split())
    assert "- group lesion: -0." in report
    assert "| alone | session | lab-c |" in report
    assert "| alone | session | lab-a |" not in report
    assert (tmp_path / "lab-c" / "together" / "forest.png").stat().st_size > 5000


@pytest.mark.slow  # seven processes
def test_a_study_of_processes_is_the_pooled_fit_although_one_lab_is_killed(
    pool: PoolDriver, tmp_path: Path, poolctl: Run
) -> None:
    study = begin_study(pool, tmp_path, poolctl, ("logistic", "mixed"))
    servers = [study.start(name, "secure", "serve") for name in SERVERS]
    labs = {name: study.start(name, *study.commands[name], "--wait", "--json") for name in LABS}
    wait_until((tmp_path / "lab-b" / "studies" / study.charter / "02-logistic.own.json").is_file)
    labs["lab-b"].send_signal(signal.SIGKILL)
    labs["lab-b"].wait()
    labs["lab-b"] = study.start("lab-b", *study.commands["lab-b"], "--wait", "--json")
    results: dict[str, Any] = {}
    for name, process in labs.items():
        out, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        results[name] = json.loads(out)["data"]["results"]
    for server in servers:
        server.terminate()
    assert results["lab-a"] == results["lab-b"] == results["lab-c"]
    compare_with_the_pooled_fit(results["lab-a"]["estimates"], ("logistic", "mixed"))


@pytest.mark.slow  # ten sessions
def test_studies_of_batches_are_judged_by_the_criterion_of_the_charter(
    tmp_path: Path, poolctl: Run
) -> None:
    design = JointDesign(models=("logistic",), criterion="fec:0.1", sessions=(1, 2))
    table, study = write_study_files(tmp_path / "recordings", participants=5), tmp_path / "study"
    assert poolctl("blink", "batch", table, "-o", study, "--set=cr_threshold=0.3").code == 0
    listed = StudyTrials.read(study / "all_trials.csv").cr.sum()
    # The sessions were judged by a higher threshold than the charter's.
    assert read_trials([study], design).hits.sum() > listed


def compare_with_the_pooled_fit(estimates: list[dict[str, Any]], fitted: Sequence[str]) -> None:
    """Compare with the models of all trials in one place, which no lab has."""
    design = JointDesign(sessions=(1, 8), groups=("control", "lesion"))
    labs = [LabTrials.count(TRIALS[lab], design) for lab in LABS]
    coefficients, logistic_errors = fit_pooled_logistic(labs)
    expected = {"logistic": (coefficients, logistic_errors)}
    if "mixed" in fitted:
        deviance = LaplaceDeviance(*pool_trials(labs))
        start_at = np.concatenate([coefficients, [0.5, 0.0, 0.5]])
        mixed = minimize(deviance, start_at, jac=deviance.slopes, method="BFGS").x
        errors = np.sqrt(np.diag(np.linalg.inv(deviance.bends(mixed) / 2.0)))
        expected["mixed"] = (mixed, errors)
    for model, pooled in expected.items():
        chosen = [item for item in estimates if item["model"] == model][:3]
        for name, values in zip(("estimate", "standard_error"), pooled, strict=True):
            joint = [item[name] for item in chosen] * np.array([7.0, 1.0, 7.0])
            assert joint == pytest.approx(values[:3], abs=1e-6)


def test_a_charter_without_a_study_is_named(tmp_path: Path, poolctl: Run) -> None:
    keys = {name: PrivateKey.generate().public.text for name in (*SERVERS, *LABS)}
    options = [word for name in SERVERS for word in ("--server", f"{name}={keys[name]}")]
    options += [word for name in LABS for word in ("--lab", f"{name}={keys[name]}")]
    (tmp_path / "study.toml").write_text("models = ['linear']\n")
    refused = poolctl(
        "secure", "charter", "create", "x", *options, "--study", tmp_path / "study.toml", "--json"
    )
    assert "study.toml: models.0" in refused.error["message"]
