"""``poolctl merges``: the pool merges, the site watches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregators.formats import encode_model
from tests.aggregators.small_models import make_predictor
from tests.cli.conftest import Run
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread, upload


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as driver:
        for site, seed in (("site-a", 1), ("site-b", 4)):
            content = bytes(encode_model(make_predictor(seed)))
            upload(driver.member(site), f"{site}/face", content, file_name="face.dat")
        yield driver


@pytest.fixture
def site_a(pool: PoolDriver, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.secret("site-a", "contributor"))
    return poolctl


WORDS = ("merge", "wba-cascade", "site-a/face", "site-b/face@1", "--option", "step=1.1")


def test_the_pool_merges_and_the_site_merges_the_same(site_a: Run, tmp_path: Path) -> None:
    asked = site_a(*WORDS, "--name", "merged", "--weight", "2,1", "--wait", "--json").data
    assert (asked["state"], asked["version"]) == ("finished", "pool://site-a/merged@1")
    at_home = site_a(
        "merge", "wba-cascade", "site-a/face", "site-b/face@1", "--weight", "2,1",
        "--option", "step=1.1", "-o", tmp_path / "home.dat", "--json",
    )  # fmt: skip
    assert at_home.data["digest"] == asked["digest"]
    shown = site_a("merges", asked["merge_id"][:9])
    assert "wba-cascade" in shown.out
    assert asked["digest"] in shown.out
    listed = site_a("merges", "ls", "--json").data["items"]
    assert asked["merge_id"] in [merge["merge_id"] for merge in listed]
    over = site_a("merges", asked["merge_id"], "--cancel", "--json").data
    assert over["state"] == "finished", "what is over stays as it is"


def test_what_is_said_of_the_result_is_said_as_of_an_upload(site_a: Run) -> None:
    made = site_a(
        *WORDS, "--name", "said", "--label", "population=infant",
        "--description", "Of two", "--term", "DUO:0000042", "--draft",
        "--visibility", "private", "--wait", "--json",
    ).data  # fmt: skip
    version = site_a("models", "info", made["version"], "--json").data
    assert version["file_name"] == "said.dat"
    assert (version["labels"], version["description"]) == ({"population": "infant"}, "Of two")
    assert [term["code"] for term in version["terms"]] == ["DUO:0000042"]
    assert (version["state"], version["visibility"]) == ("draft", "private")


def test_mistakes_are_told_before_anything_is_asked(site_a: Run, tmp_path: Path) -> None:
    file = tmp_path / "face.dat"
    file.write_bytes(b"")
    for arguments, said in (
        (("merge", "--name", "m"), "expected METHOD ADDRESS"),
        (("merge", "mwma", file, "--name", "m"), "files are merged at home"),
        ((*WORDS, "--name", "m", "--weight", "1"), "1 numbers for 2 models"),
        (("merge", "--name", "m", "--replay", "site-a/m"), "--replay merges at home"),
    ):
        told = site_a(*arguments, "--json")
        assert (told.code, said in told.error["message"]) == (2, True), told.error
    assert site_a("merges", "0" * 16, "--json").code == 4


def test_models_that_do_not_fit_are_refused_at_once(site_a: Run, pool: PoolDriver) -> None:
    content = bytes(encode_model(make_predictor(9, parts=7)))
    upload(pool.member("site-a"), "site-a/seven", content)
    failed = site_a(
        "merge", "wba-cascade", "site-a/face", "site-a/seven", "--name", "m", "--wait",
        "--json",
    )  # fmt: skip
    assert (failed.code, failed.error["code"]) == (2, "request_refused")
    assert "parts 5 and 7" in failed.error["message"]
