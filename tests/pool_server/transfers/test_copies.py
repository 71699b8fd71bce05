"""The same file at several sites: its owner, its lineage, and the rights of a copier."""

import json
from pathlib import Path
from typing import Any

import pytest

from aggregators.methods import merge
from tests.pool_server.merges.merge_driver import OVER, ask, wait_for
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    send_parts,
    upload,
)
from tests.pool_server.transfers.test_recipes import recipe_for

LAB, MAKER, THIEF = "copies-lab", "copies-maker", "copies-thief"


class Merge:
    """Two files of `LAB` and their merge, which has the same bytes at any site."""

    def __init__(self, folder: Path) -> None:
        self.inputs = [network_bytes(), network_bytes()]
        paths = [folder / f"input-{number}.safetensors" for number in (1, 2)]
        for path, content in zip(paths, self.inputs, strict=True):
            path.write_bytes(content)
        made = merge("fedavg", paths, output=folder / "merged.safetensors")
        self.content = (folder / "merged.safetensors").read_bytes()
        self.recipe: dict[str, Any] = json.loads(made.recipe.to_json())
        self.parents = [sha256(model) for model in self.inputs]

    def publish_inputs(self, pool: PoolDriver, name: str, site: str = LAB) -> None:
        for number, content in enumerate(self.inputs):
            upload(pool.member(site), f"{site}/{name}-{number}", content)


@pytest.fixture
def made(tmp_path: Path) -> Merge:
    return Merge(tmp_path)


def withdraw(pool: PoolDriver, site: str, name: str, reason: str) -> Any:
    path = f"/api/v1/models/{site}/{name}/versions/1/withdraw"
    return pool.member(site).post(path, json={"reason": reason})


def show(pool: PoolDriver, site: str, name: str) -> dict[str, Any]:
    path = f"/api/v1/models/{site}/{name}/versions/1"
    return pool.member(site).get(path).json()


def test_a_private_copy_without_recipe_blocks_nothing(pool: PoolDriver, made: Merge) -> None:
    made.publish_inputs(pool, "squatted")
    upload(pool.member(THIEF), f"{THIEF}/first", made.content, visibility="private")
    merged = upload(pool.member(MAKER), f"{MAKER}/merged", made.content, recipe=made.recipe)
    assert merged["parent_digests"] == made.parents
    preview = pool.member(MAKER).get(f"/api/v1/models/{MAKER}/merged/versions/1/withdrawal-preview")
    assert preview.status_code == 200, "it is for the maker to withdraw"
    assert withdraw(pool, LAB, "squatted-0", "quality").status_code == 200
    for site, name in ((THIEF, "first"), (MAKER, "merged")):
        [flag] = show(pool, site, name)["flags"]
        assert flag["digest"] == made.parents[0], "withdrawals reach every copy"


def test_a_withdrawal_of_a_private_copy_takes_nothing_from_its_maker(
    pool: PoolDriver, made: Merge
) -> None:
    made.publish_inputs(pool, "taken")
    upload(pool.member(THIEF), f"{THIEF}/taken", made.content, visibility="private")
    assert withdraw(pool, THIEF, "taken", "security").status_code == 200
    assert announce(pool.member(MAKER), f"{MAKER}/taken", made.content).status_code == 409
    merged = upload(pool.member(MAKER), f"{MAKER}/taken", made.content, recipe=made.recipe)
    assert (merged["state"], merged["flags"]) == ("available", [])
    path = f"/api/v1/models/{MAKER}/taken/versions/1/content"
    assert pool.member(LAB).get(path).content == made.content
    checked = pool.member(LAB).post(
        "/api/v1/withdrawals/check", json={"digests": [merged["digest"]]}
    )
    assert checked.json()["items"] == []


@pytest.mark.parametrize("first", ["before", "after", "forged"])
def test_a_withdrawal_of_the_same_merge_takes_nothing_from_the_owner_of_its_inputs(
    pool: PoolDriver, made: Merge, first: str
) -> None:
    """Merges are deterministic: any site that may merge these models gets the same file."""
    made.publish_inputs(pool, first)
    thief, name, recipe = pool.member(THIEF), f"again-{first}", made.recipe
    if first == "forged":
        forged = network_bytes()
        upload(thief, f"{THIEF}/own", forged)
        recipe = recipe_for(made.content, sha256(forged))
    if first == "before":
        upload(pool.member(LAB), f"{LAB}/{name}", made.content, recipe=made.recipe)
        # So that its bytes are sent, not copied, and its owner is not known.
        sharing = f"/api/v1/models/{LAB}/{name}/sharing"
        pool.member(LAB).put(sharing, json={"visibility": "private"}).raise_for_status()
    upload(thief, f"{THIEF}/{name}", made.content, recipe=recipe, visibility="private")
    assert withdraw(pool, THIEF, name, "security").status_code == 200
    if first != "before":
        asked = ask(pool.member(LAB), made.recipe, site=LAB, name=name)
        job = wait_for(pool.member(LAB), asked.json()["merge_id"], OVER)
        assert job["state"] == "finished", job
    assert show(pool, LAB, name)["flags"] == []
    path = f"/api/v1/models/{LAB}/{name}/versions/1/content"
    assert pool.member(LAB).get(path).content == made.content
    # The owner of the data withdraws it from everybody.
    assert withdraw(pool, LAB, f"{first}-0", "quality").status_code == 200
    assert show(pool, THIEF, name)["flags"], "the copy holds what was withdrawn"


def test_the_owner_of_an_input_withdraws_the_merge_from_everybody(
    pool: PoolDriver, made: Merge
) -> None:
    made.publish_inputs(pool, "shared-by-lab")
    upload(pool.member(LAB), f"{LAB}/of-mine", made.content, recipe=made.recipe)
    upload(pool.member(MAKER), f"{MAKER}/of-theirs", made.content, recipe=made.recipe)
    assert withdraw(pool, LAB, "of-mine", "security").status_code == 200
    refused = pool.member(MAKER).get(f"/api/v1/models/{MAKER}/of-theirs/versions/1/content")
    assert error_of(refused) == (410, "version_withdrawn")
    upload_again = announce(pool.member(THIEF), f"{THIEF}/late", made.content)
    assert error_of(upload_again) == (409, "bytes_withdrawn")


def test_the_pool_makes_a_merge_of_which_somebody_has_a_copy(pool: PoolDriver, made: Merge) -> None:
    made.publish_inputs(pool, "central")
    upload(pool.member(THIEF), f"{THIEF}/central", made.content, visibility="private")
    asked = ask(pool.member(MAKER), made.recipe, site=MAKER, name="central")
    job = wait_for(pool.member(MAKER), asked.json()["merge_id"], OVER)
    assert (job["state"], job["digest"]) == ("finished", sha256(made.content))
    tree = pool.member(LAB).get(f"/api/v1/models/{MAKER}/central/versions/1/lineage").json()
    assert {edge["parent"] for edge in tree["edges"]} == set(made.parents)


def test_inputs_that_came_later_prove_nothing(pool: PoolDriver, made: Merge) -> None:
    """From a file, others can be computed that have it as their mean."""
    upload(pool.member(LAB), f"{LAB}/trained", made.content)
    made.publish_inputs(pool, "found", THIEF)
    opened = announce(pool.member(THIEF), f"{THIEF}/trained", made.content, recipe=made.recipe)
    assert opened.json()["state"] == "receiving"
    send_parts(pool.member(THIEF), opened.json(), made.content)
    assert error_of(complete(pool.member(THIEF), opened.json())) == (403, "right_missing")
    assert withdraw(pool, THIEF, "found-0", "quality").status_code == 200
    assert show(pool, LAB, "trained")["flags"] == []


def test_a_copy_is_handed_on_as_its_first_publisher_says(pool: PoolDriver) -> None:
    lab, content = pool.member(LAB), network_bytes()
    upload(lab, f"{LAB}/shared", content)
    sharing = f"/api/v1/models/{LAB}/shared/sharing"
    refused = announce(pool.member(MAKER), f"{MAKER}/copy", content)
    assert error_of(refused) == (403, "right_missing")
    assert "right 'redistribute'" in refused.json()["error"]["message"]
    rights = ["download", "merge", "redistribute"]
    lab.put(sharing, json={"visibility": "consortium", "rights": rights}).raise_for_status()
    upload(pool.member(MAKER), f"{MAKER}/copy", content)
    lab.put(sharing, json={"visibility": "consortium"}).raise_for_status()
    refused = announce(pool.member(THIEF), f"{THIEF}/of-the-copy", content)
    assert error_of(refused) == (403, "right_missing"), "a copy gives no more than its original"
    assert f"{LAB}/shared" in refused.json()["error"]["message"]
    lab.put(sharing, json={"visibility": "private"}).raise_for_status()
    again = announce(pool.member(MAKER), f"{MAKER}/again", content)
    assert error_of(again) == (403, "right_missing"), "the copy was taken from there"
    assert LAB not in again.text


def test_a_recipe_that_nobody_can_repeat_stays_without_effect(pool: PoolDriver) -> None:
    content, part = network_bytes(), network_bytes()
    upload(pool.member(LAB), f"{LAB}/kept", content, visibility="private")
    recipe = recipe_for(content, sha256(part))
    copy = upload(pool.member(THIEF), f"{THIEF}/kept", content, recipe=recipe)
    assert copy["parent_digests"] == [sha256(part)]
    upload(pool.member(THIEF), f"{THIEF}/part", part)
    assert withdraw(pool, THIEF, "part", "quality").status_code == 200
    assert show(pool, LAB, "kept")["flags"] == []
