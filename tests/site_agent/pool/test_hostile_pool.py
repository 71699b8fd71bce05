"""A pool that shows something else than sites signed: every field is missed by name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import write_model
from aggregators.methods import merge
from pool_server.wire.data_use import Term
from site_agent import ModelCache, PoolClient
from site_agent.errors import SignatureError
from site_agent.pool import trust
from site_agent.pool.signing import create_key
from tests.aggregators.small_models import make_detector
from tests.site_agent.live_pool import LivePool, live_pool
from tests.site_agent.pool.test_answers import LyingPool, liar

__all__ = ["liar"]

CARD = "---\nlicense: cc-by-4.0\n---\n\n# Infants\n"
FORGED_CARD = "---\nlicense: mit\n---\n\n# Do what you like\n"
PLAIN, MERGED = "site-a/plain@1", "site-a/merged@1"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    """A pool with a plain model, and one with a card, terms and a recipe; both signed."""
    folder = tmp_path_factory.mktemp("pool")
    with live_pool(folder) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_HOME", str(folder / "home"))
        inputs = [folder / f"{number}.svm" for number in range(3)]
        for number, path in enumerate(inputs):
            write_model(make_detector(number + 80), path)
        merged = merge("mwma", inputs[:2], output=folder / "merged.svm")
        with PoolClient(pool.url, pool.tokens["site-a"]) as client:
            made = create_key(client.signatures.key_folder, "site-a")
            client.signatures.register_key(made.key, "site-a", "laptop")
            client.upload(inputs[2], "site-a/plain")
            client.upload(
                folder / "merged.svm",
                "site-a/merged",
                recipe=merged.recipe.model_dump(mode="json", by_alias=True),
                card=CARD,
                terms=[Term(code="DUO:0000046"), Term(code="DUO:0000042")],
            )
        yield pool


@pytest.fixture
def client(
    honest: LivePool, liar: LyingPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PoolClient]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    cache = ModelCache(tmp_path / "cache")
    with PoolClient(liar.url, honest.tokens["site-b"], cache=cache, attempts=1) as opened:
        yield opened


def forge(liar: LyingPool, ending: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Let the pool change each answer to a path with this ending."""

    def changed(path: str, body: bytes) -> tuple[dict[str, str], bytes]:
        if not path.endswith(ending):
            return {}, body
        answer = json.loads(body)
        change(answer)
        return {}, json.dumps(answer).encode()

    liar.changed = changed


def with_terms(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Any], object]:
    return lambda version: change(version["terms"])


def another_weight(answer: dict[str, Any]) -> None:
    answer["recipe"]["inputs"][0]["weight"] = 5.0


def another_method(answer: dict[str, Any]) -> None:
    answer["recipe"]["method"]["name"] = "wba-final"


CLINICAL = {"code": "DUO:0000043", "label": "clinical care use", "detail": "", "inherited": True}
COMMERCE = {"code": "DUO:0000018", "label": "", "detail": "", "inherited": False}

ATTACKS: dict[str, tuple[str, str, Callable[[Any], object], str]] = {
    "card swapped": (MERGED, "/card", lambda card: card.update(source=FORGED_CARD), "card: signed"),
    "card hidden": (
        MERGED, "/1", lambda version: version.update(has_card=False), "card: signed .*, found None"
    ),
    "card added": (
        PLAIN, "/card", lambda card: card.update(source=FORGED_CARD, written=True),
        "card: signed None, found",
    ),
    "weight of the recipe": (MERGED, "/lineage", another_weight, "recipe: signed"),
    "method of the recipe": (MERGED, "/lineage", another_method, "recipe: signed"),
    "recipe lost": (
        MERGED, "/lineage", lambda family: family.update(recipe=None), "recipe: .*found None"
    ),
    "recipe hidden": (
        MERGED, "/1", lambda version: version.update(has_recipe=False), "recipe: .*found None"
    ),
    "term removed": (
        MERGED, "/1", with_terms(lambda terms: terms.pop()), "terms: signed and missing"
    ),
    "term with another meaning": (
        MERGED, "/1", with_terms(lambda terms: terms[0].update(code="DUO:0000006")), "terms: signed"
    ),
    "term that a site did not sign": (
        MERGED, "/1", with_terms(lambda terms: terms.append(COMMERCE)), "terms: not signed"
    ),
    "permission without inputs": (
        PLAIN, "/1", with_terms(lambda terms: terms.append(CLINICAL)), "terms: not signed"
    ),
}  # fmt: skip


def test_an_honest_pool_is_believed(client: PoolClient) -> None:
    for address in (PLAIN, MERGED):
        assert client.download(address).signature.status == "verified"
    assert client.card(MERGED).source == CARD
    recipe = client.recipe(MERGED)
    assert recipe is not None
    assert [entry["weight"] for entry in recipe["inputs"]] == [1.0, 1.0]
    assert client.card(PLAIN).source == ""


@pytest.mark.parametrize("name", ATTACKS)
def test_what_was_signed_cannot_be_swapped(client: PoolClient, liar: LyingPool, name: str) -> None:
    address, ending, change, missed = ATTACKS[name]
    digest = client.version(address).digest
    if name == "card added":
        # The record of the version says if there is a card.
        forge_both(liar, ending, change)
    else:
        forge(liar, ending, change)
    with pytest.raises(SignatureError, match=missed) as refused:
        client.download(address)
    assert f"pool://{address}" in str(refused.value)
    assert client.cache.find(digest) is None, "nothing was fetched"
    assert list(trust.all_trusted_keys()) == [], "and nobody trusted"


def forge_both(liar: LyingPool, ending: str, change: Callable[[dict[str, Any]], object]) -> None:
    forge(liar, ending, change)
    of_card = liar.changed

    def changed(path: str, body: bytes) -> tuple[dict[str, str], bytes]:
        if path.endswith("/1"):
            body = json.dumps(json.loads(body) | {"has_card": True}).encode()
        return of_card(path, body)

    liar.changed = changed


def test_the_statement_of_another_version_is_not_believed(
    client: PoolClient, liar: LyingPool
) -> None:
    """Answers name their subject, so the pool must replay it under the right address."""
    other = client.signatures.statement(client.version(MERGED)).envelope.model_dump(mode="json")
    forge(liar, "/statement", lambda answer: answer.update(envelope=other))
    with pytest.raises(SignatureError, match=r"digest: signed .*name: signed 'merged'") as refused:
        client.download(PLAIN)
    assert "file name: signed 'merged.svm', found '2.svm'" in str(refused.value)


def test_a_pool_cannot_wait_until_a_version_was_verified(
    client: PoolClient, liar: LyingPool
) -> None:
    """The statement is kept, and a card or recipe is compared whenever it is read."""
    client.download(MERGED)
    forge(liar, "/card", lambda card: card.update(source=FORGED_CARD))
    with pytest.raises(SignatureError, match="card: signed"):
        client.card(MERGED)
    forge(liar, "/card", lambda card: card.update(text=FORGED_CARD))
    with pytest.raises(SignatureError, match="another card"):
        client.card(MERGED)
    forge(liar, "/lineage", another_weight)
    with pytest.raises(SignatureError, match="recipe: signed"):
        client.recipe(MERGED)
    forge(liar, "/1", with_terms(lambda terms: terms.pop()))
    with pytest.raises(SignatureError, match="terms: signed and missing"):
        client.download(MERGED)
