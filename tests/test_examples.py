"""The examples in docstrings run, in a folder with small models of two sites."""

import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import write_model
from tests.aggregators.small_models import make_detector, make_predictor
from tests.pool_server.pool_driver import pool_in_thread
from tests.site_agent.federated.small_sites import small_sites

MODULES = (
    "aggregators",
    "aggregators.formats.registry",
    "aggregators.methods.merging",
    "aggregators.predictors",
    "site_agent.eyeblink.conditioning.analysis",
    "site_agent.eyeblink.pipeline",
    "site_agent.federated.in_process",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the files of the examples in a folder, and go there."""
    monkeypatch.chdir(tmp_path)
    shape = make_predictor(0, parts=68).initial_shape
    for number, site in enumerate("ab"):
        write_model(make_detector(number), tmp_path / f"{site}.svm")
        landmarks = make_predictor(number, parts=68, initial_shape=shape, pool_sizes=(6, 6))
        write_model(landmarks, tmp_path / f"site-{site}.dat")
    times_s = np.arange(0, 20, 0.01)
    lids = sum(np.exp(-(((times_s - at) / 0.06) ** 2)) for at in (7.0, 12.0))
    rows = np.column_stack((times_s, 0.3 - 0.2 * lids))
    np.savetxt(
        tmp_path / "ear.csv", rows, "%.6f", delimiter=",", header="timestamp_s,ear", comments=""
    )
    return tmp_path


@pytest.fixture
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as pool:
        yield {"url": pool.url, "token": pool.secret("site-a", "contributor")}


def run_examples(module_name: str, names: dict[str, Any]) -> None:
    module = import_module(module_name)
    results = doctest.testmod(
        module, extraglobs=names, optionflags=doctest.ELLIPSIS, raise_on_error=False
    )
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.usefixtures("folder", "small_lenet")
@pytest.mark.parametrize("module_name", MODULES)
def test_examples_run(module_name: str) -> None:
    run_examples(module_name, {"sites": dict(list(small_sites().items())[:2])})


@pytest.mark.usefixtures("folder")
def test_examples_of_the_client_run(pool: dict[str, str]) -> None:
    run_examples("site_agent.pool.client", pool)
