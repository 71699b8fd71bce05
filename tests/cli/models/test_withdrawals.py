"""A sub-model is withdrawn: by command, from the withdrawal to the successors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import file_digest, write_model
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Outcome, Run
from tests.site_agent.live_pool import LivePool, live_pool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[LivePool]:
    with live_pool(tmp_path / "pool") as running:
        yield running


class Lab:
    """Runs commands as a site, in a folder of its own and with a cache of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], run: Run, patch: Any) -> None:
        self.folder = folder
        self._environment = {**environment, "POOL_HOME": str(folder / "home")}
        self._run, self._patch = run, patch
        folder.mkdir()

    def __call__(self, *arguments: object) -> Outcome:
        for name, text in self._environment.items():
            self._patch.setenv(name, text)
        self._patch.chdir(self.folder)
        return self._run(*arguments)

    def data(self, *arguments: object) -> Any:
        return self(*arguments, "--json").data


@pytest.fixture
def labs(
    pool: LivePool, poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lab, Lab]:
    a, b = (
        Lab(
            tmp_path / site,
            {"POOL_ENDPOINT": pool.url, "POOL_TOKEN": pool.tokens[site]},
            poolctl,
            monkeypatch,
        )
        for site in ("site-a", "site-b")
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
    for lab, name, arguments in merges:
        lab.data("merge", "mwma", *arguments, "-o", f"{name}.svm")
        lab.data("upload", f"{name}.svm", "--name", name)


def test_from_the_withdrawal_to_the_successors(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)

    arguments = ("models", "withdraw", "site-a/bad@1", "--reason", "consent-withdrawn")
    assert a.data(*arguments, "--dry-run")["versions_total"] == 4
    assert a(*arguments).code == 2, "there is no terminal to ask"
    shown = a(*arguments, "--explanation", "One family.", "--yes")
    assert shown.code == 0, shown.err
    assert "pool://site-b/again@1" in shown.out

    b("download", "site-a/bad@1", "-o", "bad.svm", "--json").fails(3, "withdrawn", "One family.")
    assert not (b.folder / "bad.svm").exists(), "although it is in the cache"
    b("upload", a.folder / "bad.svm", "--name", "other", "--json").fails(3, "withdrawn")

    # Here: in a folder without any of the files, from what the pool has.
    without = ("--without", "site-a/bad@1")
    replay = ("--replay", "pool://site-b/again", *without)
    (b.folder / "elsewhere").mkdir()
    output = ("-o", "elsewhere/again-2.svm")
    made = b.data("merge", *replay, *output)
    (b.folder / output[1]).unlink()
    again = b.data("merge", *replay, *output, "--force")
    assert again["digest"] == made["digest"]
    rebuilt, last = made["made"]
    assert rebuilt["replaces"] == file_digest(b.folder / "third.svm")
    assert last["replaces"] == file_digest(b.folder / "again.svm")
    by_hand = b.data("merge", "mwma", "good.svm", "fine.svm", "-o", "by-hand.svm")
    assert rebuilt["digest"] == by_hand["digest"], "weights 1 and 1 remain"
    b.data("upload", rebuilt["path"], "--name", "third")

    b.data("upload", last["path"], "--name", "again")
    warned = b("download", "site-b/again@1", "-o", "y.svm")
    assert "replaced by pool://site-b/again@2" in warned.err


@pytest.mark.slow
def test_copies_on_this_machine_are_found(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    # A merge that the pool has never seen: only the recipe next to it tells.
    b.data("merge", "mwma", "third.svm", "fine.svm", "-o", "private.svm")
    files = sorted(b.folder.glob("*.svm"))
    told = b.data("models", "check", *files)
    assert (told["checked"], told["items"]) == (len(files), [])

    a.data("models", "withdraw", "site-a/bad", "--reason", "quality", "-y")
    b("models", "check", *files, "--report", "found.json", "--json").fails(3, "withdrawn")
    copies = json.loads((b.folder / "found.json").read_text())["items"]
    assert {Path(copy["path"]).name for copy in copies} == {
        "second.svm", "third.svm", "again.svm", "private.svm",
    }  # fmt: skip
    assert all(copy["holds"] == ["pool://site-a/bad@1"] for copy in copies)
    b("models", "check", "--json").fails(3, file_digest(a.folder / "bad.svm"))


def test_no_local_merge_uses_a_withdrawn_copy_unasked(labs: tuple[Lab, Lab]) -> None:
    a, b = labs
    publish_family(a, b)
    b.data("download", "site-a/bad", "-o", "bad.svm")
    b.data("merge", "mwma", "bad.svm", "fine.svm", "-o", "mine.svm")
    a.data("models", "withdraw", "site-a/bad", "--reason", "consent-withdrawn", "-y")
    merge = ("merge", "mwma", "bad.svm", "fine.svm", "-o", "new.svm")
    replay = ("merge", "--replay", "mine.svm.recipe.json", "-o", "new.svm")
    for arguments in (merge, replay):
        b(*arguments, "--json").fails(3, "withdrawn", "pool://site-a/bad@1 was withdrawn")
        assert not (b.folder / "new.svm").exists()
    b("refine", "bad.svm", "--base", "bad.svm", "-o", "new.dat", "--json").fails(3, "withdrawn")
    nevertheless = b(*replay, "--despite-withdrawal")
    assert nevertheless.code == 0
    assert "pool://site-a/bad@1 was withdrawn" in nevertheless.err
