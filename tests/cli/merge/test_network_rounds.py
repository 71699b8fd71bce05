"""``poolctl rounds`` with networks: three sites train one on their gaze data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import file_digest, read_model, write_model
from aggregators.methods import merge, read_recipe, recipe_path
from aggregators.methods.networks import state_path
from aggregators.methods.round_options import OPEN_SENTENCE
from aggregators.models import StateDict
from pool_server.merges import running
from site_agent import PoolClient
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from tests.cli.conftest import Run
from tests.cli.merge.test_rounds import Site
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.live_pool import LivePool, live_pool

pytestmark = pytest.mark.usefixtures("small_lenet")

SITES = ("site-a", "site-b", "site-c")
CONTRIBUTE = ("rounds", "contribute", "--least-others", "1")
OPTIONS = {"eta": 0.001, "epochs": 2, "batch_size": 8}


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


@pytest.mark.slow
def test_three_rounds_of_fedadam_equal_merge_by_hand(
    site: Site, gaze: dict[str, Path], tmp_path: Path
) -> None:
    poolctl, base = site.be("site-a"), tmp_path / "base.safetensors"
    assert poolctl("federated", "init", "-o", base).code == 0
    assert poolctl("upload", base, "--name", "gaze").code == 0
    arguments = [
        word for item in OPTIONS.items() for word in ("--option", "=".join(map(str, item)))
    ]
    key = start(poolctl, "site-a/gaze", "--method", "fedadam", "--rounds", 3, *arguments)
    samples = {name: open_gaze(path).read() for name, path in gaze.items()}
    samples["site-a"] = open_gaze(gaze["site-a"]).read(["p00"])
    network = read_model(base)
    assert isinstance(network, StateDict)
    plan = make_plan("fedadam", OPTIONS, rounds=3)
    inputs = [base]
    ledger = ContributionLedger(tmp_path / "home" / "rounds")

    def order(name: str, digest: str) -> int:
        return ledger.order_seed(name, key, digest)

    for held in run_rounds(network, samples, plan, order=order):
        for name in SITES:
            chosen = ("--persons", "p00") if name == "site-a" else ()
            contributing = (*CONTRIBUTE, key, "--data", gaze[name], *chosen)
            if name == "site-c":
                tried = site.be(name)(*contributing, "--dry-run").out
                assert "differences of the network after training on 20 samples" in tried
            contribution = site.be(name)(*contributing, "--json").data
            assert contribution["samples"] == len(samples[name])
            assert contribution["digest"] == held.update_digests[name], "as in one process"
        weights = poolctl("rounds", "ls", key).out
        assert all(f" {share}% " in weights for share in (30, 33, 37)), "before it is finished"
        # The site that publishes a result has not to be trusted by those that go on with it.
        ended = poolctl("rounds", "finish", key, "--name", "site-c/stepped", "--json").data["round"]
        files = sorted((tmp_path / "home" / "cache" / "rounds").rglob(f"{key}/*.contribution"))
        output = tmp_path / f"round-{held.number}.safetensors"
        made = merge("fedadam", [*inputs, *files], options={"eta": 0.001}, output=output)
        assert ended["result_digest"] == made.digest == held.model.digest
        recipe = read_recipe(recipe_path(output)).output
        assert recipe is not None
        assert ended["state_digest"] == recipe.state == file_digest(state_path(output))
        assert f"sha256 {ended['state_digest']}" in poolctl("rounds", "ls", key).out
        inputs, key = [output, state_path(output)], ended["successor"]
    lineage = poolctl("models", "lineage", "site-c/stepped").out
    assert "the optimiser's state after a round, which the pool keeps" in lineage
    lost = poolctl("merge", "--replay", "site-c/stepped", "-o", tmp_path / "again.safetensors")
    assert "only the pool could combine it" in lost.err

    scored = site.be("site-b")("evaluate", "site-c/stepped", gaze["site-b"], "--set", "resamples=0")
    assert "your contribution to round" in scored.err, "it has learned these eyes"
    others = poolctl("evaluate", "site-a/gaze", gaze["site-b"], "--set", "resamples=0")
    assert (others.code, others.err.count("was trained on")) == (0, 0)

    # In a new series it is a merge of the site that has published it.
    key = start(poolctl, "site-c/stepped", "--method", "fedavg")
    arguments = (*CONTRIBUTE, key, "--data", gaze["site-b"], "--dry-run", "--json")
    withheld = site.be("site-b")(*arguments)
    assert (withheld.code, withheld.error["code"]) == (2, "base_not_accepted")
    assert "was merged from models that the pool does not have" in withheld.error["message"]
    assert OPEN_SENTENCE in withheld.error["message"]
    assert poolctl("rounds", "trust", "site-c").code == 0
    assert poolctl(*arguments).data["samples"] == len(samples["site-b"])


def test_data_and_options_of_other_methods_are_refused(
    site: Site, gaze: dict[str, Path], tmp_path: Path
) -> None:
    poolctl, base = site.be("site-a"), tmp_path / "base.safetensors"
    assert poolctl("federated", "init", "--seed", 1, "-o", base).code == 0
    assert poolctl("upload", base, "--name", "other").code == 0
    asked = ("rounds", "start", "--base", "site-a/other", "--sites", "site-a,site-b")
    refused = poolctl(
        *asked, "--deadline", "1h", "--method", "median", "--option", "starts=5", "--json"
    )
    assert refused.code == 2
    assert "no option 'starts'" in refused.error["message"]
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
        refused = site.be(name)(*CONTRIBUTE, *arguments)
        assert refused.code == 3
        assert "it is not their result" in refused.error["message"]

    # The same base, without site-c: the results would differ by its update.
    fewer = ("rounds", "start", "--base", "site-a/swapped", "--sites", "site-a,site-b")
    fewer += ("--deadline", "1h", "--method", "fedavg")
    poolctl = site.be("site-a")
    key = poolctl(*fewer, "--protection", "open", "-q").out.strip()
    refused = poolctl(*CONTRIBUTE, key, "--data", gaze["site-a"], "--json")
    assert refused.code == 3
    assert "with other sites (site-a, site-b, site-c)" in refused.error["message"]

    # A round whose starter chooses nothing is private, and its noise lets it.
    started = poolctl(*fewer, "--json").data
    assert started["options"]["dp_epsilon"] == 8
    private = poolctl(*CONTRIBUTE, started["round_id"], "--data", gaze["site-a"], "--dry-run")
    assert "Protection: private: Whatever the others do" in private.out


def swapping(merge_honestly: Callable[..., Any]) -> Callable[..., Any]:
    """Return the pool's part of a merge, with a network of its own in place of the result."""

    def swap(run: Any, recipe: Any, paths: Any, output: Path, output_format: str) -> Any:
        made = merge_honestly(run, recipe, paths, output, output_format)
        digest = write_model(new_network("gaze-lenet", 6), output, format_name="safetensors")
        recipe_output = made["recipe"]["output"] | {"digest": digest}
        return made | {"digest": digest, "recipe": made["recipe"] | {"output": recipe_output}}

    return swap


def test_what_holds_a_withdrawn_model_is_made_again_without_its_round(
    site: Site, gaze: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    poolctl = site.be("site-a")
    for seed, name in ((2, "good"), (3, "bad")):
        path = Path(f"{name}.safetensors")
        assert poolctl("federated", "init", "--seed", seed, "-o", path).code == 0
        assert poolctl("upload", path, "--name", name).code == 0
    merging = ("merge", "fedavg", "good.safetensors", "bad.safetensors", "-o", "both.safetensors")
    assert poolctl(*merging).code == 0
    assert poolctl("upload", "both.safetensors", "--name", "both").code == 0
    key = start(poolctl, "site-a/both", "--method", "fedavg")
    for name in SITES[:2]:
        trusting = site.be(name)("rounds", "trust", "site-a")
        assert trusting.code == 0
        outcome = poolctl(*CONTRIBUTE, key, "--data", gaze[name])
        assert outcome.code == 0, outcome.err
    poolctl = site.be("site-a")
    assert poolctl("rounds", "finish", key, "--early", "--name", "site-a/trained").code == 0
    again = ("merge", "--replay", "site-a/trained", "--without", "site-a/bad@1")
    outcome = poolctl(*again, "-o", "successor.safetensors")
    assert outcome.code == 0, outcome.err
    assert "it is not refined" in outcome.out
    assert file_digest(Path("successor.safetensors")) == file_digest(Path("good.safetensors"))
