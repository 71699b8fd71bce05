"""Cards: written by people, or made of what the pool knows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.pool_server.model_files import detector_bytes, network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload
from tests.pool_server.transfers.test_recipes import recipe_for

WRITTEN = "---\nlicense: cc-by-4.0\ntags: [faces]\n---\n\n# Infants, hose in view\n"


def card_of(pool: PoolDriver, name: str, site: str = "cards") -> dict[str, Any]:
    answer = pool.member("cards-reader", "viewer").get(
        f"/api/v1/models/{site}/{name}/versions/latest/card"
    )
    assert answer.status_code == 200, answer.text
    card: dict[str, Any] = answer.json()
    return card


def test_a_written_card_comes_back_as_it_was(pool: PoolDriver) -> None:
    version = upload(pool.member("cards"), "cards/written", card=WRITTEN)
    assert version["has_card"]
    card = card_of(pool, "written")
    assert (card["written"], card["text"]) == (True, WRITTEN)
    assert card["front_matter"] == {"license": "cc-by-4.0", "tags": ["faces"]}


def test_a_card_of_the_record(pool: PoolDriver) -> None:
    home = pool.member("cards")
    parent = upload(home, "cards/parent", terms=[{"code": "DUO:0000046"}])
    content = network_bytes()
    upload(
        home, "cards/made", content, recipe=recipe_for(content, parent["digest"], "0" * 64),
        labels={"population": "infant"}, metrics={"recall": 0.9}, description="A *good* one | two",
        terms=[{"code": "DUO:0000024", "detail": "2099-01-31"}],
    )  # fmt: skip
    pool.member("cards-other").post(
        "/api/v1/evaluations",
        json={
            "model": "cards/made", "dataset": "ward", "dataset_digest": "ab" * 32,
            "split": "test", "images": 12, "scores": {"recall": {"value": 0.8}},
        },
    )  # fmt: skip
    card = card_of(pool, "made")
    assert not card["written"]
    front = card["front_matter"]
    assert front["license"] == "other"
    assert front["base_model"] == ["pool://cards/parent@1", f"sha256:{'0' * 64}"]
    assert front["base_model_relation"] == "merge"
    assert "population:infant" in front["tags"]
    assert front["metrics"] == ["recall"]
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"] == {
        "type": f"private-{'ab' * 6}", "name": "ward (cards-other)", "split": "test",
    }  # fmt: skip
    assert result["metrics"] == [{"type": "recall", "value": 0.8, "name": "recall"}]
    own = front["poolctl"]
    assert own["labels"] == {"population": "infant"}
    assert [each["code"] for each in own["terms"]] == ["DUO:0000024", "DUO:0000046"]
    assert own["terms"][1]["inherited"]
    assert r"A \*good\* one \| two" in card["text"]
    # What any other tool reads is what the pool says that it is.
    assert yaml.safe_load(card["text"].split("---\n")[1]) == front


def test_kinds_are_named_as_the_hub_names_them(pool: PoolDriver) -> None:
    upload(pool.member("cards"), "cards/detector", detector_bytes())
    front = card_of(pool, "detector")["front_matter"]
    assert (front["library_name"], front["pipeline_tag"]) == ("dlib", "object-detection")
    assert front["license"] == "unknown"


def test_a_card_is_written_and_taken_back(pool: PoolDriver) -> None:
    home = pool.member("cards")
    upload(home, "cards/edited")
    address = "/api/v1/models/cards/edited/versions/1/card"
    plain = home.put(address, json={"text": "# Only words\n"}).json()
    assert plain["written"]
    assert plain["source"] == "# Only words\n"
    assert plain["text"].endswith("---\n\n# Only words\n")
    assert plain["front_matter"]["poolctl"]["address"] == "pool://cards/edited@1"
    assert home.put(address, json={"text": WRITTEN}).json()["text"] == WRITTEN
    assert card_of(pool, "edited")["text"] == WRITTEN
    emptied = home.put(address, json={"text": ""}).json()
    assert not emptied["written"]
    for client in (pool.member("cards-other"), pool.member("cards", "viewer")):
        assert error_of(client.put(address, json={"text": "x"})) == (403, "not_allowed")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("---\na: &x [1]\nb: *x\n---\n", (422, "card_refused")),
        ("x" * 200_001, (422, "invalid_request")),
    ],
    ids=["anchor", "long"],
)
def test_cards_that_are_refused(pool: PoolDriver, text: str, refusal: tuple[int, str]) -> None:
    home = pool.member("cards")
    upload(home, "cards/refused")
    address = "/api/v1/models/cards/refused/versions/latest/card"
    assert error_of(home.put(address, json={"text": text})) == refusal
    assert error_of(announce(home, "cards/new", network_bytes(), card=text)) == refusal
