"""A member shut out while the pool works for them publishes nothing by that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.merges import running
from pool_server.storage import LocalStorage
from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.people.users.test_users import join
from tests.pool_server.pool_driver import PoolDriver, pool_in_process, upload
from tests.pool_server.rounds.round_driver import (
    SITES,
    ask_to_finish,
    contribute,
    contribution_bytes,
    show,
    start_round,
    upload_base,
)

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
        for seed, site in enumerate(SITES[:2], start=20):
            content = contribution_bytes(base, seed)
            assert contribute(pool.member(site), key, site, content).status_code == 201
        ada = join(pool, SITES[0], "ada")
        after(monkeypatch, HOLDERS[step], step, lambda: revoke(pool))
        asked = ask_to_finish(ada, key, f"{SITES[0]}/refined").json()
        job = wait_for(pool.admin, asked["merge_id"], OVER)
        assert (job["state"], job["refusal"]["code"]) == ("failed", "merge_refused")
        assert "this token was revoked" in job["refusal"]["message"]
        assert show(pool.admin, key)["ready"], "the round goes on"
