"""Results of the pool that it may not publish: unsigned, or of a member shut out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.formats import encode_model
from pool_server.merges import running
from pool_server.storage import LocalStorage
from pool_server.wire.merges import recipe_digest
from pool_server.wire.signatures.keys import PrivateKey
from tests.pool_server.conftest import OpenPool
from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.people.test_people import join
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process, upload
from tests.pool_server.rounds.round_driver import (
    SITES,
    ask_to_finish,
    base_model,
    contribute_all,
    finish,
    show,
    start_round,
    upload_base,
)
from tests.pool_server.signatures.signers import register, signed, statement_of, upload_signed

KEY = PrivateKey.from_seed(b"m" * 32)
MERGED = "/api/v1/models/strict/merged/versions/1"


def merge_signed(member: httpx.Client) -> dict[str, Any]:
    """Have the pool merge two signed models of a site; gives the job when it is over."""
    register(member, "strict", KEY)
    inputs = [
        upload_signed(member, f"strict/face-{seed}", KEY, landmark_bytes(seed)) for seed in (1, 4)
    ]
    asked = ask(member, recipe_of(inputs), site="strict", file_name="merged.bin")
    return wait_for(member, asked.json()["merge_id"], OVER)


def test_a_merge_is_a_draft_until_its_site_has_signed_it(
    open_pool: OpenPool, tmp_path: Path
) -> None:
    with open_pool(tmp_path, require_signatures=True) as pool:
        member, other = pool.member("strict"), pool.member("other")
        job = merge_signed(member)
        assert (job["state"], job["refusal"]) == ("finished", None)
        version = member.get(MERGED).json()
        assert (version["state"], version["signed_by"]) == ("draft", None)
        assert other.get(MERGED).status_code == 404
        assert other.get(f"{MERGED}/content").status_code == 404
        # Nor does another site's merge of it tell that it is there.
        answer = ask(other, recipe_of([version]), site="other")
        assert "is not in the pool" in answer.json()["error"]["message"]

        refused = member.post(f"{MERGED}/publish")
        assert error_of(refused) == (422, "signature_required")
        assert "poolctl models sign strict/merged@1" in refused.json()["error"]["hint"]

        recipe = member.get(f"{MERGED}/lineage").json()["recipe"]
        content = member.get(f"{MERGED}/content").content
        statement = statement_of(
            "strict/merged",
            content,
            recipe_digest=recipe_digest(recipe),
            parents=version["parent_digests"],
        )
        answer = member.put(f"{MERGED}/statement", json=signed(statement, KEY))
        assert answer.status_code == 200, answer.text
        assert member.post(f"{MERGED}/publish").json()["state"] == "available"
        assert other.get(MERGED).json()["signed_by"]["key_id"] == KEY.public.key_id


def test_a_site_merges_its_own_drafts_on(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path) as pool:
        member = pool.member("drafts")
        inputs = [
            upload(member, f"drafts/face-{seed}", landmark_bytes(seed), draft=draft)
            for seed, draft in ((1, True), (4, False))
        ]
        asked = ask(member, recipe_of(inputs), site="drafts")
        assert wait_for(member, asked.json()["merge_id"], OVER)["state"] == "finished"
        answer = ask(pool.member("other"), recipe_of(inputs), site="other")
        assert error_of(answer) == (422, "merge_refused")
        assert "is not in the pool" in answer.json()["error"]["message"], "nor that it is there"


def test_the_result_of_a_round_is_signed_by_its_site_afterwards(
    open_pool: OpenPool, tmp_path: Path
) -> None:
    with open_pool(tmp_path / "pool", require_signatures=True) as pool:
        base, (first, second) = base_model(3), SITES[:2]
        member = pool.member(first)
        register(member, first, KEY)
        upload_signed(member, f"{first}/refined", KEY, bytes(encode_model(base)))
        key = start_round(pool, f"{first}/refined@1", (first, second))["round_id"]
        contribute_all(pool, key, base, (first, second))
        assert finish(member, key, f"{first}/refined").status_code == 200
        address = f"/api/v1/models/{first}/refined/versions/2"
        version = pool.member(second).get(address).json()
        assert (version["state"], version["signed_by"]) == ("available", None)
        lineage = member.get(f"{address}/lineage").json()
        statement = statement_of(
            f"{first}/refined",
            member.get(f"{address}/content").content,
            description=version["description"],
            recipe_digest=recipe_digest(lineage["recipe"]),
            parents=version["parent_digests"],
        )
        answer = member.put(f"{address}/statement", json=signed(statement, KEY))
        assert answer.status_code == 200, answer.text
        signed_by = pool.member(second).get(address).json()["signed_by"]
        assert signed_by["key_id"] == KEY.public.key_id


HOLDERS = {"merge_by_recipe": running, "store": LocalStorage}
"""The module or class that has each step of the pool's work."""


def token_of(pool: PoolDriver, name: str) -> str:
    tokens = pool.admin.get("/api/v1/tokens").json()["items"]
    return str(next(token["token_id"] for token in tokens if token["name"] == name))


def revoke(pool: PoolDriver) -> None:
    assert pool.admin.delete(f"/api/v1/tokens/{token_of(pool, 'ada')}").status_code == 204


def suspend(pool: PoolDriver) -> None:
    changed = pool.admin.patch("/api/v1/sites/merges", json={"suspended": True})
    assert changed.status_code == 200


def after(monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, act: Callable[[], None]) -> None:
    """Run `act` after each call of a step of the pool's work."""
    step = getattr(holder, name)

    def changed(*arguments: Any, **keywords: Any) -> Any:
        result = step(*arguments, **keywords)
        act()
        return result

    monkeypatch.setattr(holder, name, changed)


def merge_of(client: httpx.Client) -> dict[str, Any]:
    inputs = [upload(client, f"merges/face-{seed}", landmark_bytes(seed)) for seed in (1, 4)]
    return ask(client, recipe_of(inputs)).json()


@pytest.mark.parametrize(
    ("step", "shut_out", "reason"),
    [
        ("merge_by_recipe", revoke, "this token was revoked"),
        ("merge_by_recipe", suspend, "site 'merges' is suspended"),
        ("store", revoke, "this token was revoked"),
    ],
)
def test_a_merge_is_not_published(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    shut_out: Callable[[PoolDriver], None],
    reason: str,
) -> None:
    with pool_in_process(tmp_path) as pool:
        after(monkeypatch, HOLDERS[step], step, lambda: shut_out(pool))
        asked = merge_of(join(pool, "merges", "ada"))
        job = wait_for(pool.admin, asked["merge_id"], OVER)
        assert (job["state"], job["refusal"]["code"]) == ("failed", "merge_refused")
        assert (
            f"token merges/ada, which may not publish its result now: {reason}"
            in (job["refusal"]["message"])
        )
        assert pool.admin.get("/api/v1/models/merges/merged").status_code == 404


@pytest.mark.parametrize("step", ["merge_by_recipe", "store"])
def test_a_round_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    with pool_in_process(tmp_path) as pool:
        base, address = upload_base(pool, "base")
        key = start_round(pool, address, SITES[:2])["round_id"]
        contribute_all(pool, key, base, SITES[:2])
        ada = join(pool, SITES[0], "ada")
        after(monkeypatch, HOLDERS[step], step, lambda: revoke(pool))
        asked = ask_to_finish(ada, key, f"{SITES[0]}/refined").json()
        job = wait_for(pool.admin, asked["merge_id"], OVER)
        assert (job["state"], job["refusal"]["code"]) == ("failed", "merge_refused")
        assert "this token was revoked" in job["refusal"]["message"]
        assert show(pool.admin, key)["ready"], "the round goes on"
