"""Commands that talk to a pool, against a real server."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregators.formats import FORMATS, file_digest, write_model
from site_agent.tasks.model_files import SUFFIX_OF_FORMAT
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
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["reader"])
    assert poolctl("auth", "login", pool.url, "--profile", "reader", "-q").out == "reader\n"
    monkeypatch.delenv("POOL_TOKEN")
    assert poolctl("auth", "whoami", "--json").data["role"] == "viewer"
    assert poolctl("auth", "switch", host).code == 0
    assert poolctl("auth", "switch", "-q").out.split() == sorted([host, "reader"])
    assert poolctl("auth", "logout").code == 0
    assert poolctl("auth", "whoami").code == 3


def test_a_wrong_token_is_not_kept(
    pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TOKEN", "pool_wrong")
    shown = poolctl("auth", "login", pool.url, "--json")
    monkeypatch.delenv("POOL_TOKEN")
    assert shown.code == 3
    assert shown.error["code"] == "not_logged_in"
    assert poolctl("auth", "switch", "--json").data["profiles"] == []
    assert "does not accept this token" in shown.error["message"]
    assert "auth login" not in shown.error["message"] + shown.error["hint"]
    assert poolctl("auth", "login", pool.url).code == 2, "nobody can be asked here"


def test_uploading_listing_and_downloading(
    member: Run, here: Path, at_80_columns: Callable[..., list[str]]
) -> None:
    model = here / "mine.dat"
    digest = write_model(make_predictor(1), model)
    arguments = ("upload", model, "-n", "journey", "-l", "population=infant", "-m", "error=0.07")
    tried = member(*arguments, "--dry-run", "--json").data
    assert (tried["uploaded"], tried["address"]) == (False, "pool://site-a/journey")
    assert (tried["digest"], tried["metrics"]) == (digest, {"error": 0.07})
    data = member(*arguments, "--json").data
    assert data["version"]["digest"] == digest
    assert member(*arguments, "-q").out == "pool://site-a/journey@1\n", "the same version again"
    matches = member("models", "ls", "--label", "population=infant", "--metric", "error<0.1", "-q")
    assert "pool://site-a/journey@1" in matches.out.split()
    assert member("models", "ls", "--name", "journey", "--mergeable-with", model, "-q").out
    other = here / "other.svm"
    write_model(make_detector(1), other)
    assert member("models", "ls", "--name", "journey", "--mergeable-with", other, "-q").out == ""
    assert digest in member("models", "info", "journey@1").out, "a bare name is of one's own site"
    assert member("inspect", "journey", "--json").data["digest"] == digest
    assert "no such model of your own site" in member("inspect", "journei").err
    listed = at_80_columns("models", "ls")
    assert re.match(r"(The first )?\d+ models? of \d+ sites?: \d+ \w+", listed[0])
    for number in range(8):
        arguments = (*arguments, "-l", f"camera_{number}=infra-red")
    write_model(make_predictor(2), model)
    assert member(*arguments).code == 0
    assert "camera_7=infra-red" in member("models", "ls", "infant", "journey").out
    assert member("models", "ls", "grown-ups").out == "no models found\n"
    none = member("models", "ls", "--label", "population=babies")
    assert "label population='babies'; expected" in none.err
    got = member("download", "site-a/journey@1", "-q").out.strip()
    assert got == "site-a--journey--v1.dat"
    assert file_digest(here / got) == digest


def test_a_download_overwrites_nothing_else(member: Run, here: Path) -> None:
    model = here / "mine.svm"
    digest = write_model(make_detector(2), model)
    assert member("upload", model, "--name", "careful").code == 0
    target = here / "precious.svm"
    target.write_text("years of work")
    member("download", "site-a/careful", "-o", target, "--json").fails(7, "precious.svm")
    assert target.read_text() == "years of work"
    assert member("download", "site-a/careful", "-o", target, "--force").code == 0
    assert file_digest(target) == digest
    assert member("download", "site-a/careful", "-o", target).code == 0, "the same file is fine"
    into = member("download", "site-a/careful", "site-a/careful@1", "-o", "models/", "-q")
    assert into.out.split() == ["models/site-a--careful--v1.svm"] * 2, "one file, two names"
    wrong = member("download", "site-a/careful", "site-a/nothing", "-o", "half/")
    assert (wrong.code, Path("half").exists()) == (4, False), "nothing half-way"
    assert sorted(path.name for path in here.iterdir()) == ["mine.svm", "models", "precious.svm"]


def test_a_stranger_file_is_refused_before_anything_is_sent(member: Run, here: Path) -> None:
    stranger = here / "letter.dat"
    stranger.write_text("Dear colleague" * 50)
    assert member("upload", stranger, "--name", "letter", "--json").code == 5
    model = here / "mine.svm"
    write_model(make_detector(4), model)
    assert member("upload", model, "--name", "Bad Name", "--json").code == 2
    assert member("upload", model, "--name", "x", "-m", "a=lot", "--json").code == 2


def test_what_lies_beside_a_model_is_taken_along(member: Run, here: Path) -> None:
    model = here / "trained.svm"
    digest = write_model(make_detector(5), model)
    training = {"model_digest": digest, "suggested_labels": {"images": "12", "boxes": "15"}}
    (here / "trained.svm.training.json").write_text(json.dumps(training))
    evaluation = {"model_digest": digest, "metrics": {"recall": 0.5}, "training_images": 3}
    (here / "trained.svm.evaluation.json").write_text(json.dumps(evaluation))
    arguments = ("upload", model, "--name", "trained", "-l", "images=11", "--dry-run", "--json")
    data = member(*arguments).data
    assert data["labels"] == {"images": "11", "boxes": "15"}, "the command line goes first"
    assert data["metrics"] == {}, "they flatter"
    assert "the model was trained on 3 of its images" in member(*arguments).err
    beside = here / "trained.svm.evaluation.json"
    beside.write_text(json.dumps(evaluation | {"training_images": 0}))
    assert member(*arguments).data["metrics"] == {"recall": 0.5}
    write_model(make_detector(6), model)
    data = member(*arguments).data
    assert data["labels"] == {"images": "11"}, "it was about another file"
    assert data["metrics"] == {}


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

    weighed = member("merge", "mwma", *inputs[1:], "--weight", "images", "-o", "w.svm", "--json")
    assert [entry["weight"] for entry in weighed.data["recipe"]["inputs"]] == [300.0, 100.0]
    member("merge", "mwma", *inputs, "--weight", "images", "-o", "x.svm", "--json").fails(
        2, "first.svm has no such label"
    )

    wrong = member("merge", "--replay", "m.svm", "--json").error
    assert wrong["message"].endswith("its recipe is m.svm.recipe.json")
    replayed = ("merge", "--replay", "m.svm.recipe.json")
    again = member(*replayed, "-o", "again.svm", "--json").data  # first.svm is next to the recipe
    assert again["digest"] == data["digest"]
    (here / "first.svm").rename(here / "renamed.svm")
    member(*replayed, "-o", "lost.svm", "--json").fails(4, "first.svm")
    assert not (here / "lost.svm").exists()
    named = member(*replayed, "renamed.svm", "-o", "named.svm", "--json").data
    assert named["recipe"] == data["recipe"]


def test_any_site_that_may_read_the_inputs_makes_the_same_bytes(
    member: Run, here: Path, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate("xyz"):
        write_model(make_detector(30 + number), here / f"{name}.svm")
    merged = member("merge", "mwma", "x.svm", "y.svm", "z.svm", "-o", "m.svm", "--json").data
    assert [entry["address"] for entry in merged["recipe"]["inputs"]] == [None] * 3
    for name in "xym":
        assert member("upload", f"{name}.svm", "--name", f"again-{name}").code == 0
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("POOL_HOME", str(elsewhere / "home"))
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    replay = ("merge", "--replay", "site-a/again-m", "-o", "again.svm", "--json")
    lost = member(*replay)
    assert lost.code == 4
    assert "input 3 of 3" in lost.error["message"]
    assert "input 1 of 3" not in lost.error["message"], "found in the pool by its digest"
    assert "ask site-a, which published pool://site-a/again-m@1" in lost.error["message"]
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    member("upload", "../z.svm", "--name", "again-z")
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    assert member(*replay).data["digest"] == merged["digest"]


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
    member("merge", "mwma", "mine.svm", "pool://site-a/only-read", "--json").fails(
        3, "has not granted the right 'merge'"
    )
    assert not (here / "merged.svm").exists()


def test_models_that_do_not_fit_are_code_6(member: Run, here: Path) -> None:
    write_model(make_detector(20), here / "a.svm")
    write_model(make_detector(21, window_px=96), here / "b.svm")
    member("upload", "b.svm", "--name", "site-a/wide")
    refused = member("merge", "mwma", "a.svm", "site-a/wide", "-o", "m.svm", "--json")
    assert refused.code == 6
    message = "window 80x80 against 96x96 (a.svm against pool://site-a/wide@1)"
    assert refused.error["message"] == message
    assert not (here / "m.svm").exists()


def test_merge_options_and_names(member: Run, here: Path) -> None:
    for seed in (1, 2):
        write_model(make_predictor(seed), here / f"{seed}.dat")
    data = member("merge", "wba-cascade", "1.dat", "2.dat", "--option", "step=1.1", "--json").data
    assert data["output"] == "merged.dat"
    assert data["recipe"]["options"]["step"] == 1.1
    assert member("merge", "wba-cascade", "1.dat", "2.dat").code == 7
    arguments = ("merge", "wba-cascade", "1.dat", "2.dat", "-o", "o.dat")
    assert member(*arguments, "--option", "step=1.1", "-q").out == "o.dat\n"
    assert (here / "o.dat").read_bytes() == (here / "merged.dat").read_bytes()
    assert member(*arguments[:-1], "p.dat", "--option", "speed=3", "--json").code == 2
    assert member("merge", "wba-final", "1.dat", "2.dat", "-o", "f.forest").code == 0


def test_a_merge_replaces_a_file_only_when_asked_to(member: Run, here: Path) -> None:
    for seed in (1, 2):
        write_model(make_predictor(seed), here / f"{seed}.dat")
    arguments = ("merge", "wba-cascade", "1.dat", "2.dat", "-o", "m.dat", "--json")
    first = member(*arguments, "--weight", "2,1").data
    kept = {path: path.read_bytes() for path in here.iterdir() if path.is_file()}
    refused = member(*arguments)
    assert (refused.code, refused.error["code"]) == (7, "file_exists")
    assert refused.error["message"] == "m.dat: already exists"
    assert "--force" in refused.error["hint"]
    replay = ("merge", "--replay", "m.dat.recipe.json", "--json", "-o", "m.dat")
    assert member(*replay).code == 7
    assert member(*replay, "--without", first["recipe"]["inputs"][0]["digest"]).code == 7
    assert {path: path.read_bytes() for path in here.iterdir() if path.is_file()} == kept
    assert member(*replay, "--force").data["digest"] == first["digest"]
    assert member(*arguments, "--force").data["digest"] != first["digest"]


def test_the_cache_commands(member: Run, here: Path) -> None:
    for number in (1, 2):
        write_model(make_detector(40 + number), here / f"{number}.svm")
        member("upload", f"{number}.svm", "--name", f"cached-{number}")
        member("download", f"site-a/cached-{number}", "-o", f"copy-{number}.svm")
    assert member("cache", "rm", "site-a/cached-1").code == 2, "nobody can be asked here"
    assert member("cache", "rm", "cached-1", "-y").code == 0
    [left] = member("cache", "ls", "-q").out.split()
    blob = Path(member("cache", "ls", "--json").data["folder"]) / "blobs" / left
    blob.chmod(0o644)
    blob.write_bytes(b"damaged")
    assert member("download", "site-a/cached-2").code == 0, "fetched again"


def test_endings_of_downloads_are_those_of_the_formats() -> None:
    assert set(SUFFIX_OF_FORMAT) == set(FORMATS)
    for name, model_format in FORMATS.items():
        if model_format.suffixes:
            assert SUFFIX_OF_FORMAT[name] in model_format.suffixes
