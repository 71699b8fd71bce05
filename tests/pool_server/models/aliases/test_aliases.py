"""Aliases: names of versions that their site may move."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pool_server.pool_driver import PoolDriver, error_of, upload

MODEL = "/api/v1/models/alias-a"


@pytest.mark.both_databases
def test_an_alias_names_a_version_until_it_is_moved(pool: PoolDriver) -> None:
    home, foreign = pool.member("alias-a"), pool.member("alias-b")
    upload(home, "alias-a/face")
    upload(home, "alias-a/face")
    answer = home.put(f"{MODEL}/face/aliases/best", json={"version": "1"})
    assert (answer.status_code, answer.json()["aliases"]) == (200, ["best"])
    assert foreign.get(f"{MODEL}/face/versions/best").json()["version"] == 1
    assert foreign.get(f"{MODEL}/face/versions/best/content").status_code == 200
    moved = home.put(f"{MODEL}/face/aliases/best", json={}).json()
    assert (moved["version"], moved["aliases"]) == (2, ["best"])
    items = foreign.get(f"{MODEL}/face").json()["items"]
    assert [item["aliases"] for item in items] == [["best"], []]
    home.put(f"{MODEL}/face/aliases/first", json={"version": "1"})
    assert home.put(f"{MODEL}/face/aliases/best", json={"version": "first"}).json()["aliases"] == [
        "best", "first",
    ]  # fmt: skip
    assert home.delete(f"{MODEL}/face/aliases/best").status_code == 204
    assert error_of(home.delete(f"{MODEL}/face/aliases/best")) == (404, "alias_not_found")
    assert error_of(foreign.get(f"{MODEL}/face/versions/best")) == (404, "version_not_found")


@pytest.mark.parametrize("alias", ["latest", "1", "Best"])
def test_invalid_aliases_are_refused(pool: PoolDriver, alias: str) -> None:
    upload(pool.member("alias-a"), "alias-a/named")
    refused = pool.member("alias-a").put(f"{MODEL}/named/aliases/{alias}", json={})
    assert error_of(refused) == (422, "alias_refused")


def test_a_draft_has_no_alias(pool: PoolDriver) -> None:
    home = pool.member("alias-a")
    upload(home, "alias-a/draft", draft=True)
    assert error_of(home.put(f"{MODEL}/draft/aliases/x", json={})) == (409, "wrong_state")
    unknown = home.put(f"{MODEL}/draft/aliases/x", json={"version": "7"})
    assert error_of(unknown) == (404, "version_not_found")


def test_of_many_at_once_one_wins_and_none_fails(pool: PoolDriver) -> None:
    home = pool.member("alias-a")
    for _ in range(4):
        upload(home, "alias-a/race")

    def set_it(number: int) -> int:
        return home.put(f"{MODEL}/race/aliases/best", json={"version": str(number)}).status_code

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(set_it, [1, 2, 3, 4])) == {200}
    items = home.get(f"{MODEL}/race").json()["items"]
    assert sum(item["aliases"] == ["best"] for item in items) == 1
