"""A sub-model is withdrawn: by command, from the withdrawal to the successors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import file_digest, write_model
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import ModelQuery, PoolClient
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Outcome, Run
from tests.pool_server.activity.events.receiver import receiving
from tests.pool_server.postgres_server import PostgresServer
from tests.site_agent.live_pool import LivePool, live_consortium, live_pool

FLAGGED = ("site-a/first", "site-b/second", "site-b/third", "site-b/again")


EITHER_SHAPE = pytest.mark.parametrize(
    "pool",
    ["embedded", pytest.param("consortium", marks=[pytest.mark.postgres, pytest.mark.s3])],
    indirect=True,
)
"""For tests that are run on a pool of two processes, PostgreSQL and S3, too."""


@pytest.fixture
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LivePool]:
    if getattr(request, "param", "embedded") == "embedded":
        with live_pool(tmp_path / "pool") as running:
            yield running
        return
    (tmp_path / "pool").mkdir()
    postgres: PostgresServer = request.getfixturevalue("postgres")
    with live_consortium(tmp_path / "pool", postgres) as running:
        yield running


class Lab:
    """Runs commands as a site, in a folder of its own and with a cache of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], run: Run, patch: Any) -> None:
        self.folder = folder
        self._environment = {**environment, "POOL_HOME": str(folder / "home")}
        self._run, self._patch = run, patch
        folder.mkdir()

    def __call__(self, *words: object) -> Outcome:
        for name, text in self._environment.items():
            self._patch.setenv(name, text)
        self._patch.chdir(self.folder)
        return self._run(*words)

    def data(self, *words: object) -> Any:
        return self(*words, "--json").data


@pytest.fixture
def labs(
    pool: LivePool, poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lab, Lab]:
    a, b = (
        Lab(
            tmp_path / site,
            {"POOL_ENDPOINT": url or pool.url, "POOL_TOKEN": pool.tokens[site]},
            poolctl,
            monkeypatch,
        )
        for site, url in (("site-a", pool.url), ("site-b", pool.second_url))
    )
    return a, b


def publish_family(a: Lab, b: Lab) -> None:
    """A sub-model of site-a that is in three merged models, one of them merged again."""
    for lab, name, seed in ((a, "bad", 1), (b, "good", 2), (b, "fine", 3)):
        write_model(make_detector(seed), lab.folder / f"{name}.svm")
        lab.data("upload", f"{name}.svm", "--name", name)
    merges: list[tuple[Lab, str, tuple[object, ...]]] = [
        (a, "first", ("bad.svm", "site-b/good", "--weight", "3,1")),
        (b, "second", ("site-a/bad", "fine.svm")),
        (b, "third", ("good.svm", "site-a/bad", "fine.svm", "--weight", "1,2,1")),
        (b, "again", ("third.svm", "good.svm", "--weight", "4,1")),
        (b, "clean", ("good.svm", "fine.svm")),
    ]
    for lab, name, words in merges:
        lab.data("merge", "mwma", *words, "-o", f"{name}.svm")
        lab.data("upload", f"{name}.svm", "--name", name)


def everything(pool: LivePool, folder: Path) -> dict[str, dict[str, Any]]:
    """Return all that the pool says of every version, with its lineage and the bytes' digest."""
    found = {}
    with PoolClient(pool.url, pool.admin_token, cache=ModelCache(folder)) as client:
        for version in client.models.find(ModelQuery(state="any")):
            told = version.model_dump(mode="json")
            told["lineage"] = client.models.lineage(version.address).model_dump(mode="json")
            found[f"{version.site}/{version.name}@{version.version}"] = told
    return found


def without_marks(told: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a version but for what a withdrawal and its remedy add."""
    left = {key: value for key, value in told.items() if key not in {"flags", "successors"}}
    nodes = [
        {key: value for key, value in node.items() if key not in {"withdrawn", "flagged"}}
        for node in told["lineage"]["nodes"]
    ]
    return {**left, "lineage": {**told["lineage"], "nodes": nodes}}


@EITHER_SHAPE
def test_from_the_withdrawal_to_the_successors(
    pool: LivePool, labs: tuple[Lab, Lab], tmp_path: Path
) -> None:
    a, b = labs
    publish_family(a, b)
    before = everything(pool, tmp_path / "no-cache")

    foreseen = a.data("models", "withdraw", "site-a/bad@1", "--reason", "licence", "--dry-run")
    assert foreseen["versions_total"] == 4
    assert everything(pool, tmp_path / "no-cache") == before
    asked = a("models", "withdraw", "site-a/bad@1", "--reason", "licence")
    assert asked.code == 2, "nobody can be asked here"
    shown = a(
        "models", "withdraw", "site-a/bad@1", "--reason", "consent-withdrawn",
        "--explanation", "One family.", "--yes",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert "pool://site-b/again@1" in shown.out
    assert "2 sites hear of it" in shown.out

    after = everything(pool, tmp_path / "no-cache")
    assert set(after) == set(before)
    assert {name for name, told in after.items() if told["flags"]} == {
        f"{name}@1" for name in FLAGGED
    }
    for name, told in after.items():
        if name != "site-a/bad@1":
            assert without_marks(told) == without_marks(before[name]), name

    refused = b("download", "site-a/bad@1", "-o", "bad.svm", "--json")
    assert (refused.code, refused.error["code"]) == (3, "withdrawn")
    assert "One family." in refused.error["message"]
    assert not (b.folder / "bad.svm").exists(), "although it is in the cache"
    warned = b("download", "site-a/first", "-o", "x.svm")
    assert warned.code == 0
    assert "holds what was withdrawn: pool://site-a/bad@1" in warned.err
    assert "pool://site-a/bad@1" not in b("models", "ls", "-q").out.split()
    assert b("models", "ls", "--state", "withdrawn", "-q").out.split() == ["pool://site-a/bad@1"]
    assert "flagged (consent-withdrawn)" in b("models", "ls", "--name", "again").out
    assert "[withdrawn: consent-withdrawn]" in b("models", "lineage", "site-b/again").out
    refused = b("upload", a.folder / "bad.svm", "--name", "other", "--json")
    assert (refused.code, refused.error["code"]) == (3, "withdrawn")

    without = ("--without", "site-a/bad@1")
    made = a.data("merge", "--replay", "first.svm.recipe.json", *without, "-o", "first-2.svm")
    assert made["digest"] == file_digest(b.folder / "good.svm"), "what one model is left to be"
    made = b.data("merge", "--replay", "second.svm.recipe.json", *without, "-o", "second-2.svm")
    assert made["digest"] == file_digest(b.folder / "fine.svm")
    # In a folder in which nothing of it lies, from what the pool has.
    (b.folder / "elsewhere").mkdir()
    planned = b.data(
        "merge", "--replay", "pool://site-b/again", *without, "-o", "elsewhere/again-2.svm",
        "--dry-run",
    )  # fmt: skip
    made = b.data(
        "merge", "--replay", "pool://site-b/again", *without, "-o", "elsewhere/again-2.svm"
    )
    assert [step["path"] for step in planned["steps"]] == [each["path"] for each in made["made"]]
    rebuilt, last = made["made"]
    assert rebuilt["replaces"] == file_digest(b.folder / "third.svm")
    assert last["replaces"] == file_digest(b.folder / "again.svm")
    by_hand = b.data("merge", "mwma", "good.svm", "fine.svm", "-o", "by-hand.svm")
    assert rebuilt["digest"] == by_hand["digest"], "weights 1 and 1 remain"
    final = b.data("merge", "mwma", "by-hand.svm", "good.svm", "--weight", "4,1", "-o", "final.svm")
    assert made["digest"] == final["digest"]
    assert made["recipe"]["successor_of"] == {
        "digest": file_digest(b.folder / "again.svm"),
        "without": [
            {
                "digest": file_digest(a.folder / "bad.svm"),
                "address": "pool://site-a/bad@1",
                "file_name": "bad.svm",
            }
        ],
    }

    a.data("upload", "first-2.svm", "--name", "first")
    b.data("upload", "second-2.svm", "--name", "second")
    b.data("upload", rebuilt["path"], "--name", "third")
    b.data("upload", last["path"], "--name", "again")
    final_state = everything(pool, tmp_path / "no-cache")
    for name in FLAGGED:
        assert final_state[f"{name}@1"]["successors"] == [f"pool://{name}@2"]
        assert final_state[f"{name}@2"]["flags"] == []
        info = b("models", "info", f"{name}@1").out
        assert f"pool://{name}@2" in info.split("replaced by")[1]
    for name, told in before.items():
        if name != "site-a/bad@1":
            same = without_marks(final_state[name])
            # The tree has grown by the successors; nothing that was there is different.
            assert {**same, "lineage": None} == {**without_marks(told), "lineage": None}
    flagged_now = {name for name, told in final_state.items() if told["flags"]}
    assert flagged_now == {f"{name}@1" for name in FLAGGED}
    warned = b("download", "site-b/again@1", "-o", "y.svm")
    assert "replaced by pool://site-b/again@2" in warned.err


@EITHER_SHAPE
def test_the_pool_answers_a_withdrawal_itself(pool: LivePool, labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    a.data("models", "withdraw", "site-a/bad@1", "--reason", "consent-withdrawn", "--yes")
    words = ("merges", "start", "--replay", "pool://site-b/again@1", "--name", "again")
    without = ("--without", "site-a/bad@1")
    planned = b.data(*words, *without, "--dry-run")
    assert [step["name"] for step in planned["steps"]] == ["third", "again"]
    made = b.data(*words, *without, "--label", "population=infant", "--wait")
    assert [each["version"] for each in made["made"]] == [
        "pool://site-b/third@2", "pool://site-b/again@2",
    ]  # fmt: skip
    at_home = b.data("merge", "--replay", "pool://site-b/again@1", *without, "-o", "home.svm")
    assert [each["digest"] for each in made["made"]] == [each["digest"] for each in at_home["made"]]
    by_file = a.data(
        "merges", "start", "--replay", "first.svm.recipe.json", "--without",
        file_digest(a.folder / "bad.svm"), "--name", "first", "--wait",
    )  # fmt: skip
    assert by_file["digest"] == file_digest(b.folder / "good.svm")
    for name in ("site-b/third", "site-b/again", "site-a/first"):
        old, new = (b.data("models", "info", f"{name}@{number}") for number in (1, 2))
        assert old["successors"] == [f"pool://{name}@2"]
        assert [flag["address"] for flag in old["flags"]] == ["pool://site-a/bad@1"]
        assert (new["flags"], new["state"]) == ([], "available")
    assert b.data("models", "info", "site-b/again@2")["labels"] == {"population": "infant"}
    # What nobody replaced is as it was.
    assert b.data("models", "info", "site-b/second@1")["successors"] == []
    nothing = b(*words, *without, "--without", "site-b/good", "--without", "site-b/fine", "--json")
    assert (nothing.code, nothing.error["code"]) == (2, "invalid_input")
    trained = b("merges", "start", "--replay", "site-b/fine", "--name", "x", "--json")
    assert trained.code == 4


def test_copies_on_this_machine_are_found(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    # A merge that the pool has never seen: only the recipe beside it tells.
    b.data("merge", "mwma", "third.svm", "fine.svm", "-o", "private.svm")
    third = file_digest(b.folder / "third.svm")
    family = b.data("models", "lineage", f"sha256:{third}", "--recipes")
    recipes = {node["digest"]: node["recipe"] for node in family["nodes"] if node["recipe"]}
    assert set(recipes) == {third, file_digest(b.folder / "again.svm")}
    assert recipes[third] == json.loads((b.folder / "third.svm.recipe.json").read_text())
    assert b("models", "lineage", "sha256:12").code == 2
    assert b("models", "lineage", f"sha256:{'12' * 32}").code == 4
    files = sorted(b.folder.glob("*.svm"))
    told = b.data("models", "check", *files)
    assert (told["checked"], told["items"]) == (len(files), [])
    assert b("models", "check").code == 0

    a.data("models", "withdraw", "site-a/bad", "--reason", "quality", "-y")
    bad = b("models", "check", *files, "--report", "found.json", "--json")
    assert (bad.code, bad.error["code"]) == (3, "withdrawn")
    found = json.loads((b.folder / "found.json").read_text())["items"]
    assert {Path(each["path"]).name for each in found} == {
        "second.svm", "third.svm", "again.svm", "private.svm",
    }  # fmt: skip
    assert all(each["holds"] == ["pool://site-a/bad@1"] for each in found)
    cached = b("models", "check", "--json")
    assert cached.code == 3
    assert file_digest(a.folder / "bad.svm") in cached.error["message"]
    warned = b("upload", "private.svm", "--name", "private")
    assert warned.code == 0
    assert "pool://site-b/private@1 holds what was withdrawn" in warned.err
    warned = b("download", "site-a/bad", "-o", "bad.svm")
    assert warned.code == 0
    assert "was withdrawn (quality)" in warned.err


def test_a_copy_of_what_was_made_private_first_is_found(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    write_model(make_detector(1), a.folder / "bad.svm")
    a.data("upload", "bad.svm", "--name", "bad")
    b.data("download", "site-a/bad", "-o", "bad.svm")
    a.data("models", "share", "site-a/bad", "--visibility", "private")
    a.data("models", "withdraw", "site-a/bad@1", "--reason", "consent-withdrawn", "-y")
    found = b("models", "check", "bad.svm", "--json")
    assert (found.code, found.error["code"]) == (3, "withdrawn")
    nameless = f"sha256:{file_digest(b.folder / 'bad.svm')}"
    assert f"{nameless} was withdrawn (consent-withdrawn)" in found.error["message"]
    assert "site-a" not in found.error["message"]


def test_what_cannot_be_made_without(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    replay = ("merge", "--replay", "site-b/third", "-o", "x.svm", "--json")
    everything_else = ("--without", "site-b/good", "--without", "site-b/fine")
    nothing = b(*replay, "--without", "site-a/bad", *everything_else)
    assert (nothing.code, nothing.error["code"]) == (2, "invalid_input")
    assert not list(b.folder.glob("x*"))
    stranger = b(*replay, "--without", "site-b/clean")
    assert (stranger.code, stranger.error["code"]) == (2, "usage")
    trained = b("merge", "--replay", "site-b/good", "-o", "x.svm", "--json")
    assert trained.code == 4
    # Everything but the withdrawn one is gone from `third`: what is left of `again` is one model.
    only = b.data(
        "merge", "--replay", "site-b/again", "--without", "site-b/third", "-o", "only.svm"
    )
    assert only["digest"] == file_digest(b.folder / "good.svm")


def test_a_recipe_that_claims_to_replace_another_must_be_its(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    a.data("models", "withdraw", "site-a/bad", "--reason", "quality", "-y")
    b.data("merge", "--replay", "site-b/third", "--without", "site-a/bad", "-o", "third-2.svm")
    recipe_file = b.folder / "third-2.svm.recipe.json"
    recipe = json.loads(recipe_file.read_text())
    false = {**recipe, "inputs": [*recipe["inputs"], recipe["inputs"][0], recipe["inputs"][0]]}
    recipe_file.write_text(json.dumps(false))
    refused = b("upload", "third-2.svm", "--name", "third", "--json")
    assert (refused.code, refused.error["code"]) == (5, "file_refused")
    assert "more inputs" in refused.error["message"]
    recipe_file.write_text(json.dumps(recipe))
    assert b.data("upload", "third-2.svm", "--name", "third")["version"]["version"] == 2
    assert b.data("models", "info", "site-b/third@1")["successors"] == ["pool://site-b/third@2"]


def test_what_another_site_made_again_is_linked_by_the_owner(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    a.data("models", "withdraw", "site-a/bad", "--reason", "quality", "-y")
    a.data("merge", "--replay", "site-b/third", "--without", "site-a/bad", "-o", "again.svm")
    a.data("upload", "again.svm", "--name", "third-again")
    assert b.data("models", "info", "site-b/third@1")["successors"] == []
    [offer] = b.data("events", "--kind", "version.successor-offered")["items"]
    heir = offer["details"]["successor"]
    assert (offer["subject"], heir) == ("pool://site-b/third@1", "pool://site-a/third-again@1")
    replace = ("models", "replace", "site-b/third@1", "--by", heir)
    assert a(*replace, "--json").error["code"] == "forbidden"
    assert f"pool://site-b/third@1 is replaced by {heir}" in b(*replace).out
    assert b.data("models", "info", "site-b/third@1")["successors"] == [heir]


def test_events_and_the_audit_tell_the_story(
    pool: LivePool, labs: tuple[Lab, Lab], poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = labs
    publish_family(a, b)
    a.data("models", "withdraw", "site-a/bad", "--reason", "quality", "-y")
    [event] = b.data("events", "--kind", "version.flagged")["items"]
    assert len(event["details"]["versions"]) == 3
    assert "pool://site-b/again@1" in event["details"]["versions"]
    assert b("events", "--kind", "version.flagged", "-q").out.split() == [str(event["event_id"])]
    assert b.data("events", "--after", event["event_id"])["items"] == []
    assert b("audit", "--json").error["code"] == "forbidden"
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    told = poolctl("audit", "--subject", "pool://site-b/again@1", "--json").data["items"]
    assert [entry["action"] for entry in told] == ["version.flag", "version.publish"]
    assert told[0]["actor"] == "site-a/laptop"
    listed = poolctl("audit", "--action", "version.withdraw", "--since", "1h").out
    assert "site-a/bad@1" in listed
    assert poolctl("audit", "--since", "soon").code == 2


def test_webhooks_by_command(
    pool: LivePool, labs: tuple[Lab, Lab], poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    with receiving() as receiver:
        inside = poolctl("webhooks", "create", receiver.url, "--json")
    assert inside.code == 2
    assert inside.error["code"] == "request_refused"
    created = poolctl("webhooks", "create", "https://pool-events.invalid/x", "--json").data
    assert created["secret"].startswith("hook_")
    [listed] = poolctl("webhooks", "ls", "--json").data["items"]
    assert "secret" not in listed
    silent = poolctl("webhooks", "test", created["webhook_id"], "--json")
    assert (silent.code, silent.error["code"]) == (8, "webhook_silent")
    assert poolctl("webhooks", "rm", created["webhook_id"], "--dry-run").code == 0
    assert poolctl("webhooks", "rm", created["webhook_id"], "-y").code == 0
    assert poolctl("webhooks", "ls", "-q").out == ""
