"""``poolctl rounds`` with networks: three sites train one on their gaze data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import write_model
from aggregators.methods.round_options import OPEN_SENTENCE
from pool_server.merges import running
from site_agent import PoolClient
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.networks.modules import new_network
from tests.cli.conftest import Run
from tests.cli.merge.test_rounds import Site
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.live_pool import LivePool, live_pool

pytestmark = pytest.mark.usefixtures("small_lenet")

SITES = ("site-a", "site-b", "site-c")
CONTRIBUTE = ("rounds", "contribute", "--least-others", "1")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    with live_pool(tmp_path_factory.mktemp("pool")) as running:
        with PoolClient(running.url, running.admin_token) as admin:
            admin.sites.create("site-c")
            running.tokens["site-c"] = admin.tokens.create("site-c", "laptop").secret
        yield running


@pytest.fixture(scope="module")
def gaze(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return gaze data of each site; site-a has two persons."""
    folder = tmp_path_factory.mktemp("gaze")
    for number, site in enumerate(SITES):
        samples = [samples_at(number, 16 + 2 * number)]
        samples += [samples_at(9)] if site == "site-a" else []
        write_samples(folder / site, samples)
    return {site: folder / site for site in SITES}


@pytest.fixture
def site(pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(pool, poolctl, monkeypatch)


def start(poolctl: Run, base: str, *arguments: object) -> str:
    asked = ("rounds", "start", "--base", base, "--sites", ",".join(SITES), "--deadline", "1h")
    return poolctl(*asked, "--protection", "open", *arguments, "-q").out.strip()


def test_data_and_options_of_other_methods_are_refused(
    site: Site, gaze: dict[str, Path], tmp_path: Path
) -> None:
    poolctl, base = site.be("site-a"), tmp_path / "base.safetensors"
    assert poolctl("federated", "init", "--seed", 1, "-o", base).code == 0
    assert poolctl("upload", base, "--name", "other").code == 0
    asked = ("rounds", "start", "--base", "site-a/other", "--sites", "site-a,site-b")
    poolctl(
        *asked, "--deadline", "1h", "--method", "median", "--option", "starts=5", "--json"
    ).fails(2, "no option 'starts'")
    key = start(poolctl, "site-a/other", "--method", "median")
    arguments = (*CONTRIBUTE, key, "--json", "--data")
    for options, message in [
        ((tmp_path / "none",), "no such folder; expected gaze data"),
        ((base,), "is not gaze data"),
        ((gaze["site-a"], "--data", gaze["site-b"]), "one folder with gaze data"),
        ((gaze["site-a"], "--parts", "eyes"), "--parts and --images are for faces"),
        ((gaze["site-a"], "--persons", "p00,p77"), "has no person p77"),
    ]:
        outcome = poolctl(*arguments, *options)
        assert outcome.code == 2 or "gaze data" in message, outcome.err
        assert message in outcome.error["message"]


def test_a_pool_that_swaps_a_result_and_a_round_without_one_lab_get_nothing(
    site: Site, gaze: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl, base = site.be("site-a"), tmp_path / "swapped.safetensors"
    assert poolctl("federated", "init", "--seed", 5, "-o", base).code == 0
    assert poolctl("upload", base, "--name", "swapped").code == 0
    key = start(poolctl, "site-a/swapped", "--method", "fedavg", "--rounds", 2)
    for name in SITES:
        sent = site.be(name)(*CONTRIBUTE, key, "--data", gaze[name])
        assert sent.code == 0, sent.err
        assert OPEN_SENTENCE in sent.out
    monkeypatch.setattr(running.MergeRun, "merge", swapping(running.MergeRun.merge))
    finishing = ("rounds", "finish", key, "--name", "site-c/result", "--json")
    ended = site.be("site-c")(*finishing).data["round"]
    for name in SITES:
        arguments = (ended["successor"], "--data", gaze[name], "--json")
        site.be(name)(*CONTRIBUTE, *arguments).fails(3, "it is not their result")

    # The same base, without site-c: the results would differ by its update.
    fewer = ("rounds", "start", "--base", "site-a/swapped", "--sites", "site-a,site-b")
    fewer += ("--deadline", "1h", "--method", "fedavg")
    poolctl = site.be("site-a")
    key = poolctl(*fewer, "--protection", "open", "-q").out.strip()
    poolctl(*CONTRIBUTE, key, "--data", gaze["site-a"], "--json").fails(
        3, "with other sites (site-a, site-b, site-c)"
    )

    # A round whose starter chooses nothing is private, and its noise lets it.
    started = poolctl(*fewer, "--json").data
    assert started["options"]["dp_epsilon"] == 8
    private = poolctl(
        *CONTRIBUTE, started["round_id"], "--data", gaze["site-a"], "--dry-run", "--accept",
        "site-a/swapped@1",
    )  # fmt: skip
    assert "Protection: private: Whatever the others do" in private.out
    assert "Warning: private: Whatever the others do" in private.err
    assert OPEN_SENTENCE not in private.err


def swapping(merge_honestly: Callable[..., Any]) -> Callable[..., Any]:
    """Return the pool's part of a merge, with a network of its own in place of the result."""

    def swap(run: Any, recipe: Any, paths: Any, output: Path, output_format: str) -> Any:
        made = merge_honestly(run, recipe, paths, output, output_format)
        digest = write_model(new_network("gaze-lenet", 6), output, format_name="safetensors")
        recipe_output = made["recipe"]["output"] | {"digest": digest}
        return made | {"digest": digest, "recipe": made["recipe"] | {"output": recipe_output}}

    return swap
