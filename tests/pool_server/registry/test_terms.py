"""Terms of use: declared, inherited through merges, and held against a merge."""

from typing import Any

import pytest

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, let_hand_on, upload
from tests.pool_server.transfers.test_recipes import recipe_for


def term(code: str, detail: str = "") -> dict[str, str]:
    return {"code": code if code == "text" else f"DUO:{code}", "detail": detail}


def terms_of(version: dict[str, Any]) -> dict[tuple[str, str], bool]:
    return {(term["code"], term["detail"]): term["inherited"] for term in version["terms"]}


def merge_of(
    pool: PoolDriver, site: str, name: str, *parents: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    content = network_bytes()
    recipe = recipe_for(content, *(parent["digest"] for parent in parents))
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


def test_the_same_file_under_another_name_keeps_its_terms(pool: PoolDriver) -> None:
    content = network_bytes()
    upload(pool.member("terms-a"), "terms-a/mine", content, terms=[term("0000046")])
    let_hand_on(pool.member("terms-a"), "terms-a/mine")
    copy = upload(pool.member("terms-b"), "terms-b/yours", content)
    assert terms_of(copy) == {("DUO:0000046", ""): True}


def test_terms_of_a_copy_bind_only_its_own_site(pool: PoolDriver) -> None:
    """A site that may download a file may also copy it; its first publisher sets its terms."""
    content = network_bytes()
    original = upload(pool.member("terms-a"), "terms-a/open", content)
    let_hand_on(pool.member("terms-a"), "terms-a/open")
    laid = [term("0000028", "terms-m")]
    copy = upload(pool.member("terms-m"), "terms-m/open", content, terms=laid)
    assert terms_of(copy) == {("DUO:0000028", "terms-m"): False}
    assert terms_of(merge_of(pool, "terms-b", "of-open", original)) == {}
    assert terms_of(upload(pool.member("terms-b"), "terms-b/open", content)) == {}
    assert terms_of(upload(pool.member("terms-a"), "terms-a/again", content)) == {}
    merged = merge_of(pool, "terms-m", "of-open", copy)
    assert terms_of(merged) == {("DUO:0000028", "terms-m"): True}


def test_an_input_that_comes_after_its_merge(pool: PoolDriver) -> None:
    content = network_bytes()
    merged = merge_of(pool, "terms-b", "early", {"digest": sha256(content)})
    grandchild = merge_of(pool, "terms-b", "grandchild", merged)
    upload(pool.member("terms-a"), "terms-a/late", content, terms=[term("0000046")])
    for version in (merged, grandchild):
        address = f"/api/v1/models/terms-b/{version['name']}/versions/1"
        now = pool.member("terms-b").get(address).json()
        assert terms_of(now) == {("DUO:0000046", ""): True}


def test_a_digest_does_not_reveal_the_terms_of_hidden_versions(pool: PoolDriver) -> None:
    lab = pool.member("terms-a")
    hidden = upload(lab, "terms-a/hidden", terms=[term("0000046")], draft=True)
    assert terms_of(merge_of(pool, "terms-b", "of-hidden", hidden)) == {}
    assert terms_of(merge_of(pool, "terms-a", "of-hidden", hidden)) == {("DUO:0000046", ""): True}
    early = network_bytes()
    merged = merge_of(pool, "terms-b", "before", {"digest": sha256(early)})
    upload(lab, "terms-a/private", early, terms=[term("0000046")], visibility="private")
    shown = pool.member("terms-b").get("/api/v1/models/terms-b/before/versions/1").json()
    assert terms_of(shown) == terms_of(merged) == {}


def test_terms_of_a_model_no_longer_shared_bind_its_downloaders(pool: PoolDriver) -> None:
    lab, other = pool.member("terms-a"), pool.member("terms-b")
    version = upload(lab, "terms-a/fetched", terms=[term("0000046")])
    assert other.get("/api/v1/models/terms-a/fetched/versions/1/content").status_code == 200
    private = {"visibility": "private"}
    assert lab.put("/api/v1/models/terms-a/fetched/sharing", json=private).status_code == 200
    merged = merge_of(pool, "terms-b", "of-fetched", version)
    assert terms_of(merged) == {("DUO:0000046", ""): True}


@pytest.mark.parametrize(
    ("first", "second", "fields", "word"),
    [
        ([term("0000007", "ataxia")], [term("0000007", "autism")], {}, "diseases"),
        ([term("0000046")], [], {"terms": [term("0000004")]}, "no restriction"),
    ],
    ids=str,
)
def test_merges_forbidden_by_terms_are_refused(
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
    # Without a recipe it is nobody's merge.
    assert announce(pool.member("terms-b"), "terms-b/plain", content).status_code == 201


def test_contradictory_terms_are_refused(pool: PoolDriver) -> None:
    terms = [term("0000004"), term("0000046")]
    refused = announce(pool.member("terms-a"), "terms-a/x", network_bytes(), terms=terms)
    assert error_of(refused) == (422, "terms_refused")


def test_clinical_care_is_not_declared_for_a_merge_of_research_models(pool: PoolDriver) -> None:
    research = upload(pool.member("terms-a"), "terms-a/research", terms=[term("0000042")])
    content = network_bytes()
    refused = announce(
        pool.member("terms-a"), "terms-a/clinic", content, terms=[term("0000043")],
        recipe=recipe_for(content, research["digest"]),
    )  # fmt: skip
    assert error_of(refused) == (409, "terms_forbid")
    assert "DUO:0000043" in refused.text
