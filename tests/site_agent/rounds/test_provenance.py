"""Merges are accounted for by recipes of trusted sites."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import merge, read_model, write_model
from aggregators.methods.refitting import forest_digest, thin_base
from aggregators.methods.refitting.contribution_file import RefitSettings
from aggregators.methods.registry import METHODS, list_round_methods
from aggregators.models import LeafContribution, ShapePredictor, StateDict
from pool_server.rounds.methods import find_round_method
from site_agent import ModelCache, PoolClient
from site_agent.errors import InvalidInputError, PoolAnswerError
from site_agent.networks.modules import new_network
from site_agent.rounds.kinds import LeafRefitPart, NetworkPart, find_site_part
from site_agent.rounds.provenance import Provenance
from tests.aggregators.small_models import make_predictor
from tests.site_agent.live_pool import LivePool, live_pool
from tests.site_agent.pool.test_answers import LyingPool


@pytest.mark.parametrize("name", list_round_methods())
def test_pool_and_sites_know_every_method_of_rounds(name: str) -> None:
    assert find_round_method(name).aggregation is METHODS[name]
    kind = METHODS[name].kind
    assert find_site_part(name) is {"ert": LeafRefitPart, "network": NetworkPart}[kind]


def test_a_method_that_only_merges_holds_no_rounds() -> None:
    with pytest.raises(InvalidInputError, match="this program knows leaf-refit, fedavg"):
        find_site_part("wba-cascade")


class Sites:
    """Three sites of one pool; site-a is the one that has to account for bases."""

    def __init__(self, pool: LivePool, folder: Path) -> None:
        self.folder, self.pool = folder, pool
        self.clients = {}
        with PoolClient(pool.url, pool.admin_token, cache=ModelCache(folder / "admin")) as admin:
            admin.sites.create("site-x")
            tokens = {**pool.tokens, "site-x": admin.tokens.create("site-x", "laptop").secret}
        for site in ("site-a", "site-b", "site-x"):
            cache = ModelCache(folder / f"cache-{site}")
            self.clients[site] = PoolClient(pool.url, tokens[site], cache=cache)

    def train(self, address: str, seed: int) -> Path:
        """Publish a model without recipe."""
        path = self.folder / f"{address.replace('/', '-')}.dat"
        write_model(make_predictor(seed), path)
        self.clients[address.split("/", maxsplit=1)[0]].upload(path, address)
        return path

    def merge(self, address: str, *inputs: Path) -> Path:
        """Publish a merge with its recipe."""
        path = self.folder / f"{address.replace('/', '-')}.dat"
        merged = merge("wba-cascade", [*inputs], output=path)
        self.publish(address, path, json.loads(merged.recipe.to_json()))
        return path

    def publish(self, address: str, path: Path, recipe: dict[str, object]) -> None:
        self.clients[address.split("/", maxsplit=1)[0]].upload(path, address, recipe=recipe)

    def problems(self, address: str, *trusted: str) -> tuple[str, list[str]]:
        """Return site-a's objections to a base, and the sites that it would have to trust."""
        client = self.clients["site-a"]
        provenance = Provenance(client, {"site-a", *trusted})
        return "\n".join(provenance.problems_of(client.version(address))), provenance.distrusted


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("provenance")
    with live_pool(folder / "pool") as pool:
        made = Sites(pool, folder)
        yield made
        for client in made.clients.values():
            client.close()


def test_a_new_network_is_accounted_for_by_its_seed(sites: Sites) -> None:
    new = new_network("gaze-lenet", 4)
    altered = {**new.tensors, "fc2.bias": new.tensors["fc2.bias"] + np.float32(1)}
    for name, tensors in {"seeded": new.tensors, "altered": altered}.items():
        path = sites.folder / f"{name}.safetensors"
        network = StateDict(tensors, new.infos, new.metadata)
        write_model(network, path, format_name="safetensors")
        sites.clients["site-x"].upload(path, f"site-x/{name}")
    assert sites.problems("site-x/seeded") == ("", [])
    text, distrusted = sites.problems("site-x/altered")
    assert "site-x is not one that you trust" in text
    assert "seed 4 of gaze-lenet gives another network here" in text
    assert distrusted == ["site-x"]


def test_trained_models_are_accounted_for_by_their_site(sites: Sites) -> None:
    sites.train("site-a/own", 1)
    sites.train("site-b/theirs", 2)
    assert sites.problems("site-a/own") == ("", [])
    text, distrusted = sites.problems("site-b/theirs@1")
    assert text == ("site-b/theirs@1 has no recipe, and its site site-b is not one that you trust")
    assert distrusted == ["site-b"]
    assert sites.problems("site-b/theirs", "site-b") == ("", [])


def test_a_merge_is_made_again_from_models_that_are_accounted_for(sites: Sites) -> None:
    a, b, x = (sites.train(f"site-{s}/part", n) for n, s in enumerate("abx", start=3))
    inner = sites.merge("site-x/inner", a, b)
    sites.merge("site-x/outer", inner, a)
    assert sites.problems("site-x/outer", "site-b") == ("", [])
    text, distrusted = sites.problems("site-x/outer")
    assert "site-b/part@1 has no recipe" in text
    assert distrusted == ["site-b"]

    # A site that is trusted may have merged what it should not have.
    sites.merge("site-b/careless", b, x)
    text, distrusted = sites.problems("site-b/careless", "site-b")
    assert "site-x/part@1 has no recipe" in text
    assert distrusted == ["site-x"]


def test_a_recipe_that_makes_something_else_counts_for_nothing(sites: Sites) -> None:
    a, b = sites.train("site-a/honest", 6), sites.train("site-b/honest", 7)
    merged = merge("wba-cascade", [a, b], output=sites.folder / "merged.dat")
    forged = sites.folder / "forged.dat"
    digest = write_model(make_predictor(8), forged)
    recipe = json.loads(merged.recipe.to_json())
    recipe["output"]["digest"] = digest
    sites.publish("site-x/forged", forged, recipe)
    text, _ = sites.problems("site-x/forged", "site-b")
    assert "site-x/forged@1 cannot be made again from its recipe" in text
    assert "the recipe was changed" in text


def test_what_a_trusted_site_keeps_at_home_is_its_own(sites: Sites) -> None:
    a = sites.train("site-a/public", 9)
    private = sites.folder / "private.dat"
    write_model(make_predictor(10), private)
    sites.merge("site-b/with-private", a, private)
    sites.merge("site-x/with-private", a, a, private)
    assert sites.problems("site-b/with-private", "site-b") == ("", [])
    text, _ = sites.problems("site-x/with-private", "site-b")
    assert "merged from models that the pool does not have or does not show" in text


def test_a_pool_that_invents_an_origin_is_found_out(sites: Sites) -> None:
    x = sites.train("site-x/camera", 20)
    b = sites.train("site-b/good", 21)
    sites.merge("site-b/holds-it", b, x)

    def change(address: str, **fields: object) -> None:
        def changed(_path: str, body: bytes) -> tuple[dict[str, str], bytes]:
            answer = json.loads(body)
            for node in answer.get("nodes", []):
                if address in node["addresses"]:
                    node.update(fields)
            return {}, json.dumps(answer).encode()

        liar.changed = changed

    with LyingPool(sites.pool.url) as liar:
        cache = ModelCache(sites.folder / "cache-of-the-deceived")
        with PoolClient(liar.url, sites.pool.tokens["site-a"], cache=cache) as client:
            provenance = Provenance(client, {"site-a", "site-b"})
            assert provenance.problems_of(client.version("site-b/good")) == []
            for name, fields in (
                ("site-x/camera", {"addresses": ["pool://site-b/good@1"]}),
                ("site-b/holds-it", {"recipe": None}),
            ):
                change(f"pool://{name}@1", **fields)
                with pytest.raises(PoolAnswerError, match="was asked for"):
                    Provenance(client, {"site-b"}).problems_of(client.version(name))


@pytest.mark.parametrize("thin", [None, 1])
def test_the_result_of_a_round_has_the_trees_of_its_base(sites: Sites, thin: int | None) -> None:
    name = f"round-{thin or 'whole'}"
    base_file = sites.train(f"site-b/{name}", 11 + (thin or 0))
    base = read_model(base_file)
    assert isinstance(base, ShapePredictor)
    forest = thin_base(base, thin)
    counts = np.ones(len(forest.leaves), dtype=np.uint32)
    settings = RefitSettings(thin=thin, nu=0.1).shared()
    sent = LeafContribution(forest.leaves * 0 + 1, counts, forest_digest(base), settings)
    result = merge("leaf-refit", [base_file, sent], output=sites.folder / "result.dat")
    recipe = json.loads(result.recipe.to_json())
    sites.publish(f"site-x/{name}", sites.folder / "result.dat", recipe)
    assert sites.problems(f"site-x/{name}", "site-b") == ("", [])
    assert sites.problems(f"site-x/{name}")[1] == ["site-b"]

    refined = result.model
    assert isinstance(refined, ShapePredictor)
    turned = replace(refined, split_thresholds=-refined.split_thresholds)
    recipe["output"]["digest"] = write_model(turned, sites.folder / "turned.dat")
    sites.publish(f"site-x/turned-{name}", sites.folder / "turned.dat", recipe)
    text, _ = sites.problems(f"site-x/turned-{name}", "site-b")
    assert text == (
        f"site-x/turned-{name}@1 has other trees than site-b/{name}@1, the base of its round"
    )
