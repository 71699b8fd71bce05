"""Commands that talk to a pool, against a real server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from aggregators.formats import file_digest, write_model
from tests.aggregators.small_models import make_detector, make_predictor
from tests.cli.conftest import Run
from tests.site_agent.live_pool import LivePool


def test_logging_in_and_out(
    pool: LivePool, poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(pool.tokens["site-a"] + "\n"))
    host = pool.url.removeprefix("http://").replace(":", "-")
    data = poolctl("auth", "login", pool.url, "--token-stdin", "--json").data
    assert (data["site"], data["role"], data["profile"]) == ("site-a", "contributor", host)
    assert pool.tokens["site-a"] not in json.dumps(data)
    assert (tmp_path / "home" / "tokens.toml").stat().st_mode & 0o077 == 0
    login = ("auth", "login", pool.url, "--token", pool.tokens["reader"], "--profile", "reader")
    assert poolctl(*login, "-q").out == "reader\n"
    assert poolctl("auth", "whoami", "--json").data["role"] == "viewer"
    assert poolctl("auth", "whoami", "--profile", host, "--json").data["role"] == "contributor"
    assert poolctl("auth", "switch", host).code == 0
    assert poolctl("auth", "switch", "-q").out.split() == sorted([host, "reader"])
    assert poolctl("auth", "whoami", "-q").out == "site-a/laptop\n"
    assert poolctl("auth", "logout").code == 0
    assert poolctl("auth", "whoami").code == 3


def test_a_wrong_token_is_not_kept(pool: LivePool, poolctl: Run) -> None:
    shown = poolctl("auth", "login", pool.url, "--token", "pool_wrong", "--json")
    assert shown.code == 3
    assert shown.error["code"] == "not_logged_in"
    assert poolctl("auth", "switch", "--json").data["profiles"] == []
    assert "does not accept this token" in shown.error["message"]
    assert "auth login" not in shown.error["message"] + shown.error["hint"]
    assert poolctl("auth", "login", pool.url).code == 2, "nobody can be asked here"


def test_uploading_listing_and_downloading(member: Run, here: Path) -> None:
    model = here / "mine.dat"
    digest = write_model(make_predictor(1), model)
    words = ("upload", model, "--name", "journey", "-l", "population=infant", "-m", "error=0.07")
    tried = member(*words, "--dry-run", "--json").data
    assert (tried["uploaded"], tried["address"]) == (False, "pool://site-a/journey")
    assert member("models", "ls", "--name", "journey", "-q").out == ""
    data = member(*words, "--json").data
    assert data["version"]["digest"] == digest
    assert data["version"]["labels"] == {"population": "infant"}
    assert member(*words, "-q").out == "pool://site-a/journey@1\n", "the same version again"
    found = member("models", "ls", "--label", "population=infant", "--metric", "error<0.1", "-q")
    assert "pool://site-a/journey@1" in found.out.split()
    assert member("models", "ls", "--name", "journey", "--mergeable-with", model, "-q").out
    other = here / "other.svm"
    write_model(make_detector(1), other)
    assert member("models", "ls", "--name", "journey", "--mergeable-with", other, "-q").out == ""
    assert digest in member("models", "info", "site-a/journey").out
    assert digest in member("models", "info", "journey@1").out, "a bare name is of one's own site"
    assert member("inspect", "journey", "--json").data["digest"] == digest
    assert "no such model of your own site" in member("inspect", "journei").err
    assert "journey" in member("models", "ls").out
    for number in range(8):
        words = (*words, "-l", f"camera_{number}=infra-red")
    write_model(make_predictor(2), model)
    assert member(*words).code == 0
    short, long = (member("models", "ls", "infant", "journey", *more) for more in ((), ("--long",)))
    assert "0.07" not in short.out
    assert "error=0.07" in long.out
    assert "camera_7=infra-red" in long.out
    assert "camera_7=infra-red" in short.out
    assert member("models", "ls", "grown-ups").out == "no models found\n"
    none = member("models", "ls", "--label", "population=babies")
    assert "label population='babies'; expected" in none.err
    facets = member("models", "ls", "--name", "journey", "--facets", "--json").data
    assert facets["labels"]["population"] == [{"value": "infant", "count": facets["counted"]}]
    got = member("download", "site-a/journey@1", "-q").out.strip()
    assert got == "site-a--journey--v1.dat"
    assert file_digest(here / got) == digest
    assert (
        member("download", "site-a/journey@1", "-o", "x.dat", "--json").data["items"][0][
            "received_bytes"
        ]
        == 0
    )


def test_what_is_not_allowed_is_code_3(
    member: Run, here: Path, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = here / "mine.svm"
    write_model(make_detector(3), model)
    assert member("upload", model, "--name", "site-b/theirs", "--json").code == 3
    assert member("admin", "sites", "create", "another", "--json").error["code"] == "forbidden"
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["reader"])
    assert member("upload", model, "--name", "site-a/mine").code == 3


def test_merging_files_and_addresses_and_again(member: Run, here: Path) -> None:
    first, second, third = (here / f"{name}.svm" for name in ("first", "second", "third"))
    for seed, path in enumerate((first, second, third)):
        write_model(make_detector(10 + seed), path)
    member("upload", second, "--name", "second", "-l", "images=300")
    member("upload", third, "--name", "third", "-l", "images=100")
    inputs = ("first.svm", "site-a/second", "pool://site-a/third@1")
    data = member("merge", "mwma", *inputs, "--weight", "1.5,1,1", "-o", "m.svm", "--json").data
    recipe = data["recipe"]
    assert [entry["weight"] for entry in recipe["inputs"]] == [1.5, 1.0, 1.0]
    assert [entry["address"] for entry in recipe["inputs"]] == [
        None,
        "pool://site-a/second@1",
        "pool://site-a/third@1",
    ]
    assert file_digest(here / "m.svm") == data["digest"]

    weighed = member("merge", "mwma", *inputs[1:], "--weight-by", "images", "-o", "w.svm", "--json")
    assert [entry["weight"] for entry in weighed.data["recipe"]["inputs"]] == [300.0, 100.0]
    lacking = member("merge", "mwma", *inputs, "--weight-by", "images", "-o", "w.svm", "--json")
    assert lacking.code == 2
    assert "first.svm has no such label" in lacking.error["message"]

    uploaded = member("upload", "m.svm", "--name", "merged", "--json").data["version"]
    assert uploaded["has_recipe"]
    assert len(uploaded["parent_digests"]) == 3
    tree = member("models", "lineage", "site-a/merged").out
    assert "pool://site-a/second@1  (mwma, weight 1)" in tree
    assert "not in the pool" in tree
    assert "pool://site-a/merged@1" in member("models", "lineage", "site-a/second").out

    wrong = member("merge", "--replay", "m.svm", "--json").error
    assert wrong["message"].endswith("its recipe is m.svm.recipe.json")
    replayed = ("merge", "--replay", "m.svm.recipe.json")
    again = member(*replayed, "-o", "again.svm", "--json").data  # first.svm lies beside the recipe
    assert again["digest"] == data["digest"]
    (here / "first.svm").rename(here / "renamed.svm")
    lost = member(*replayed, "-o", "lost.svm", "--json")
    assert lost.code == 4
    assert "first.svm" in lost.error["message"]
    assert not (here / "lost.svm").exists()
    named = member(*replayed, "renamed.svm", "-o", "again.svm", "--json").data
    assert named["recipe"] == data["recipe"]
    fewer = member(
        *replayed, "renamed.svm", "--without", "site-a/third@1", "-o", "f.svm", "--json"
    ).data
    assert len(fewer["recipe"]["inputs"]) == 2


def test_a_model_is_not_merged_without_the_right_to_merge_it(
    pool: LivePool, member: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(make_detector(60), here / "mine.svm")
    write_model(make_detector(61), here / "theirs.svm")
    assert member("upload", "theirs.svm", "--name", "only-read").code == 0
    share = ("models", "share", "only-read", "--visibility", "consortium", "--rights", "download")
    assert member(*share).code == 0
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    assert member("download", "site-a/only-read").code == 0
    refused = member("merge", "mwma", "mine.svm", "pool://site-a/only-read", "--json")
    assert refused.code == 3
    assert "has not granted the right 'merge'" in refused.error["message"]
    assert not (here / "merged.svm").exists()


def test_the_cache_commands(member: Run, here: Path) -> None:
    for number in (1, 2):
        write_model(make_detector(40 + number), here / f"{number}.svm")
        member("upload", f"{number}.svm", "--name", f"cached-{number}")
        member("download", f"site-a/cached-{number}", "-o", f"copy-{number}.svm")
    items = member("cache", "ls", "--json").data["items"]
    assert {tuple(item["addresses"]) for item in items} == {
        ("pool://site-a/cached-1@1",),
        ("pool://site-a/cached-2@1",),
    }
    assert member("cache", "verify", "--json").data == {
        "verified": 2,
        "size_bytes": sum(item["size_bytes"] for item in items),
        "removed": [],
    }
    assert member("cache", "rm", "site-a/cached-1").code == 2, "nobody can be asked here"
    assert member("cache", "rm", "cached-1", "-y").code == 0
    [left] = member("cache", "ls", "-q").out.split()
    blob = Path(member("cache", "ls", "--json").data["folder"]) / "blobs" / left
    blob.chmod(0o644)
    blob.write_bytes(b"damaged")
    assert member("cache", "verify", "--json").code == 5
    assert member("cache", "verify", "--remove", "-q").out.split() == [left]
    assert member("cache", "ls", "-q").out == ""
    assert member("download", "site-a/cached-2").code == 0
