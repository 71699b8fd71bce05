"""Nobody gets a contribution out of the pool, by any route."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.pool_server.merges.merge_driver import OVER, ask, recipe_of, wait_for
from tests.pool_server.model_files import sha256
from tests.pool_server.people.sites.permission_matrix import MATRIX
from tests.pool_server.pool_driver import PoolDriver, announce
from tests.pool_server.rounds.round_driver import (
    SITES,
    announce_contribution,
    contribute_all,
    show,
    start_round,
    upload_base,
)

VICTIM, ATTACKER = SITES[1], SITES[0]
NAME = "base-of-victims"


@pytest.fixture(scope="module")
def secret(pool: PoolDriver) -> tuple[str, bytes]:
    """Return a round started by the attacker, and its victim's contribution."""
    base, address = upload_base(pool, NAME, 5)
    key = start_round(pool, address, SITES)["round_id"]
    return key, contribute_all(pool, key, base, seed=90)[SITES.index(VICTIM)]


def attackers(pool: PoolDriver) -> list[httpx.Client]:
    """Return clients of a participant, of a stranger, and of the pool's admin."""
    return [pool.member(ATTACKER, "admin"), pool.member("stranger"), pool.admin]


def all_values(key: str, site: str, digest: str, upload_id: str) -> Iterator[dict[str, Any]]:
    """Yield path values that name the contribution."""
    common = {"round_id": key, "site": site, "digest": digest, "upload_id": upload_id}
    for name in (NAME, digest, f"{site}.contribution"):
        for reference in ("1", f"sha256:{digest}"):
            yield common | {"name": name, "reference": reference}


def fill(path: str, values: dict[str, Any]) -> str:
    return re.sub(r"{(\w+)}", lambda match: str(values.get(match[1], "1")), path)


def test_no_route_returns_a_contribution(pool: PoolDriver, secret: tuple[str, bytes]) -> None:
    key, content = secret
    digest = sha256(content)
    own_upload = announce_contribution(pool.member(VICTIM), key, VICTIM, content).json()
    assert own_upload["state"] == "complete"
    round_ = show(pool.member(ATTACKER), key)
    assert digest in str(round_), "participants see the digest, and only that"
    paths = [path for method, path in MATRIX if method == "GET"]
    # And one that a pool may have had.
    paths += ["/api/v1/rounds/{round_id}/contributions/{site}/content"]
    # The end of the file holds numbers of it, and no words that every file has.
    mark, asked = content[-64:], set()
    for values in all_values(key, VICTIM, digest, own_upload["upload_id"]):
        for path in {fill(template, values) for template in paths} - asked:
            asked.add(path)
            for client in attackers(pool):
                assert mark not in client.get(path).content, path
    assert len(asked) > len(paths)


def test_knowing_its_digest_is_not_enough(pool: PoolDriver, secret: tuple[str, bytes]) -> None:
    _, content = secret
    digest = sha256(content)
    models = pool.admin.get("/api/v1/models", params={"limit": 200}).json()["items"]
    assert digest not in {model["digest"] for model in models}
    for client, site in ((pool.member(ATTACKER), ATTACKER), (pool.member("stranger"), "stranger")):
        opened = announce(client, f"{site}/copied", content)
        assert opened.json()["state"] == "receiving", "whoever names it must send it"
        path = f"/api/v1/models/{VICTIM}/{NAME}/versions/sha256:{digest}/export"
        assert not client.post(path).is_success
    # Nor does it pass for another site's contribution, which the result would then show.
    other = start_round(pool, f"pool://{ATTACKER}/{NAME}@1", SITES[:2])["round_id"]
    again = announce_contribution(pool.member(ATTACKER), other, ATTACKER, content)
    assert again.json()["state"] == "receiving"


def test_the_pool_merges_no_single_contribution(
    pool: PoolDriver, secret: tuple[str, bytes]
) -> None:
    key, content = secret
    client = pool.member(ATTACKER)
    base = show(client, key)["base_digest"]
    inputs = {"inputs": [{"digest": base}, {"digest": sha256(content)}]}
    recipe = recipe_of([], method={"name": "leaf-refit", "version": 1}, options={}) | inputs
    asked = ask(client, recipe, site=ATTACKER)
    if asked.is_success:
        asked = wait_for(client, asked.json()["merge_id"], OVER)
        assert asked["state"] == "failed"
    else:
        assert asked.json()["error"]["code"] == "merge_refused"
