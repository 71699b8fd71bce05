"""The right to name a successor: never just the author of a fitting recipe."""

from typing import Any

import pytest

from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, let_hand_on, upload
from tests.pool_server.transfers.test_recipes import recipe_for


def successor_recipe(family: Family, name: str, content: bytes) -> dict[str, Any]:
    """Return the recipe of a merged model of `three_merges` without the bad one, as it must be."""
    old = family.recipes[name]
    bad = family.digest("a/bad")
    return {
        **recipe_for(content),
        "inputs": [source for source in old["inputs"] if source["digest"] != bad],
        "successor_of": {
            "digest": family.digest(name),
            "without": [{"digest": bad, "address": None, "file_name": None}],
        },
    }


def claim(family: Family, name: str, address: str, **fields: Any) -> dict[str, Any]:
    """Upload bytes that come out of no recipe, as the successor of a merged model."""
    content = network_bytes()
    site, _, model = address.partition("/")
    recipe = successor_recipe(family, name, content)
    return upload(
        family.member(site), f"{family.site(site)}/{model}", content, recipe=recipe, **fields
    )


def test_a_recipe_of_another_site_links_nothing(pool: PoolDriver) -> None:
    family = three_merges(pool, "forged")
    family.withdraw("a/bad", "consent-withdrawn")
    forged = claim(family, "c/third", "d/evil")
    assert forged["has_recipe"], "it is taken, as what its site says of its own file"
    assert family.version("c/third")["successors"] == []
    assert family.events("c", kind="version.replaced") == []
    for name in ("a/first", "b/second"):
        assert family.version(name)["successors"] == []


def test_a_site_links_its_own(pool: PoolDriver) -> None:
    family = three_merges(pool, "own-heir")
    family.withdraw("a/bad", "quality")
    claimed = claim(family, "c/third", "c/third")
    assert family.version("c/third")["successors"] == [claimed["address"]]
    again = claim(family, "c/third", "c/other")
    assert family.version("c/third")["successors"] == [again["address"], claimed["address"]]


def test_the_copy_of_another_site_is_for_that_site(pool: PoolDriver) -> None:
    family = three_merges(pool, "copied-heir")
    let_hand_on(family.member("c"), family.address("c/third"))
    copy = upload(family.member("d"), family.address("d/copy"), family.files["c/third"])
    family.files["d/copy"] = family.files["c/third"]
    family.withdraw("a/bad", "quality")
    claimed = claim(family, "c/third", "d/heir")
    assert family.version("d/copy")["successors"] == [claimed["address"]]
    assert family.version("c/third")["successors"] == []
    assert copy["digest"] == family.digest("c/third")


@pytest.mark.parametrize("unfit", ["c/third", "c/again", "a/bad", "b/second"])
def test_unfit_successors_are_refused(pool: PoolDriver, unfit: str) -> None:
    family = three_merges(pool, f"unfit-{unfit.replace('/', '-')}")
    family.withdraw("a/bad", "quality")
    successor = f"{family.address(unfit)}@1"
    answer = family.withdraw("c/third", "quality", successor=successor)
    assert error_of(answer) == (422, "withdrawal_refused")
    assert family.version("c/third")["state"] == "available"
    assert family.version("c/third")["successors"] == []


def test_downloaders_do_not_learn_the_name_of_a_private_successor(pool: PoolDriver) -> None:
    family = three_merges(pool, "private-heir")
    family.download("c/third", by="b")
    family.withdraw("a/bad", "quality")
    heir = claim(family, "c/third", "c/heir", visibility="private")
    [owner_event], [told] = (family.events(site, kind="version.replaced") for site in "cb")
    assert owner_event["details"]["successor"] == heir["address"]
    assert told["details"]["successor"] == f"sha256:{heir['digest']}"
