"""Terms of use: declared, inherited through merges, and held against a merge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload
from tests.pool_server.transfers.test_recipes import recipe_for


def term(code: str, detail: str = "") -> dict[str, str]:
    return {"code": code if code == "text" else f"DUO:{code}", "detail": detail}


def terms_of(version: dict[str, Any]) -> dict[tuple[str, str], bool]:
    return {(each["code"], each["detail"]): each["inherited"] for each in version["terms"]}


def merge_of(
    pool: PoolDriver, site: str, name: str, *parents: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    content = network_bytes()
    recipe = recipe_for(content, *(each["digest"] for each in parents))
    return upload(pool.member(site), f"{site}/{name}", content, recipe=recipe, **fields)


@pytest.mark.both_databases
def test_a_merge_has_the_restrictions_of_all_its_inputs(pool: PoolDriver) -> None:
    lab, other = pool.member("terms-a"), pool.member("terms-b")
    first = upload(
        lab, "terms-a/one", terms=[term("0000042"), term("0000046"), term("text", "Cite us")]
    )
    assert first["terms"][0] == {
        "code": "DUO:0000042", "label": "general research use", "detail": "", "inherited": False,
    }  # fmt: skip
    second = upload(other, "terms-b/two", terms=[term("0000004")])
    merged = merge_of(pool, "terms-b", "merged", first, second, terms=[term("0000021")])
    expected = {
        ("DUO:0000021", ""): False,
        ("DUO:0000042", ""): True,
        ("DUO:0000046", ""): True,
        ("text", "Cite us"): True,
    }
    assert terms_of(merged) == expected
    again = merge_of(pool, "terms-a", "again", merged, second)
    assert terms_of(again) == dict.fromkeys(expected, True)
    listed = lab.get("/api/v1/models", params={"name": "again"}).json()["items"]
    assert listed[0]["terms"] == again["terms"]


@pytest.mark.parametrize(
    ("first", "second", "fields", "word"),
    [
        ([term("0000007", "ataxia")], [term("0000007", "autism")], {}, "diseases"),
        ([term("0000046")], [], {"intended_use": {"purposes": ["commercial"]}}, "commercial"),
        ([term("0000046")], [], {"terms": [term("0000004")]}, "no restriction"),
    ],
    ids=str,
)
def test_merges_that_terms_forbid(
    pool: PoolDriver, first: Any, second: Any, fields: dict[str, Any], word: str
) -> None:
    lab = pool.member("terms-a")
    parents = [
        upload(lab, f"terms-a/parent{number}", terms=terms)["digest"]
        for number, terms in enumerate((first, second))
    ]
    content = network_bytes()
    recipe = recipe_for(content, *parents)
    refused = announce(pool.member("terms-b"), "terms-b/refused", content, recipe=recipe, **fields)
    assert error_of(refused) == (409, "terms_forbid")
    assert word in refused.json()["error"]["message"]
    assert refused.json()["error"]["details"]["problems"]
    # Without a recipe it is nobody's merge.
    assert announce(pool.member("terms-b"), "terms-b/plain", content).status_code == 201


def test_terms_that_contradict_each_other(pool: PoolDriver) -> None:
    terms = [term("0000004"), term("0000046")]
    refused = announce(pool.member("terms-a"), "terms-a/x", network_bytes(), terms=terms)
    assert error_of(refused) == (422, "terms_refused")
