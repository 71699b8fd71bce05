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


def test_mistakes_are_told_before_anything_is_asked(site_a: Run, tmp_path: Path) -> None:
    file = tmp_path / "face.dat"
    file.write_bytes(b"")
    for arguments, said in (
        (("merge", "--name", "m"), "expected METHOD ADDRESS"),
        (("merge", "mwma", file, "--name", "m"), "files are merged at home"),
        ((*WORDS, "--name", "m", "--weight", "1"), "1 numbers for 2 models"),
        (("merge", "--name", "m", "--replay", "site-a/m"), "--replay merges at home"),
    ):
        site_a(*arguments, "--json").fails(2, said)
    assert site_a("merges", "0" * 16, "--json").code == 4
