"""A method in one file is held in memory, by worker processes, through a pool, and live."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from aggregators.methods.registry import METHODS
from pool_server.jobs import limited
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.engines.simulation_folder import divide, open_run
from site_agent.federated.engines.simulator import simulate, simulator_workers
from site_agent.federated.halves import HALVES
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import GazeTask
from site_agent.networks.modules import new_network
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.training_record import recall_learned
from tests.conftest import PROJECT_ROOT
from tests.site_agent.datasets.gaze.made import folder_of, samples_of
from tests.site_agent.federated import kept_biases
from tests.site_agent.federated.engines.test_equal_engines import SITES, through_pool
from tests.site_agent.federated.live.live_rounds import live_rounds
from tests.site_agent.live_pool import live_pool


@pytest.fixture
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the method here, and in every process that this one starts."""
    for table in (METHODS, HALVES):
        monkeypatch.setitem(table, kept_biases.KeptBiases.name, None)  # type: ignore[arg-type]
    kept_biases.register()
    start = tmp_path / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(
        "from tests.site_agent.federated import kept_biases\nkept_biases.register()\n"
    )
    paths = [str(start), str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    # The pool checks contributions in a process that gets no such variable from it.
    environment = {**limited.helper_environment(), "PYTHONPATH": os.environ["PYTHONPATH"]}
    monkeypatch.setattr(limited, "helper_environment", lambda: environment)
    # One of an earlier test has another environment.
    helper = limited.Helper()
    monkeypatch.setattr(limited, "HELPER", helper)
    yield
    helper.close()


@pytest.mark.usefixtures("_registered")
def test_a_method_in_one_file_goes_by_every_courier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    # Real sites draw the order of samples from a secret, simulated ones from the plan.
    monkeypatch.setattr(ContributionLedger, "order_seed", lambda *_: None)
    (tmp_path / "gaze").mkdir()
    gaze = folder_of(tmp_path / "gaze", *(samples_of(s, 16, n) for n, s in enumerate(SITES)))
    plan = make_plan(kept_biases.KeptBiases.name, {"batch_size": 8, "seed": 5}, rounds=2)
    base = new_network("gaze-lenet", 5)
    samples = {site: GazeTask().read(gaze, (site,)) for site in SITES}
    held = list(run_rounds(base, samples, plan))
    expected = [(round_.model.digest, dict(round_.update_digests)) for round_ in held]
    kept = held[-1].parts["site-a"].personal
    assert {name for name, mask in kept.items() if mask.any()} == {
        name for name in base.infos if name.endswith("bias")
    }

    data = divide(gaze, GazeTask(), holdout="none")
    with open_run(tmp_path / "run", data, base) as run, simulator_workers(2) as workers:
        rounds = simulate(plan, run, data, workers).rounds
        assert [(entry.result, dict(entry.updates)) for entry in rounds] == expected
        with live_pool(tmp_path / "pool") as pool, ExitStack() as stack:
            sites = {
                site: stack.enter_context(
                    PoolClient(pool.url, pool.tokens[site], cache=ModelCache(tmp_path / site))
                )
                for site in SITES
            }
            address = str(sites["site-a"].upload(run.base, "site-a/base").version.address)
            by_pool = through_pool(sites, address, plan, gaze)
    assert [(network, updates) for network, _, updates in by_pool] == expected

    shutil.rmtree(tmp_path / "home" / "learned")
    persons = {site: site for site in SITES}
    with live_rounds(tmp_path / "live", gaze, persons, base, plan) as live:
        reports = live.hold(plan, base)
    assert [(report.digest, report.updates) for report in reports] == expected
    assert all(recall_learned(digest) for _, updates in expected for digest in updates.values())
