"""Terms, cards, aliases, drafts and evaluations, by command against a real server."""

import json
from pathlib import Path

import pytest

from aggregators.formats import file_digest, write_model
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.site_agent.live_pool import LivePool


def make(name: str, seed: int) -> str:
    write_model(make_detector(seed), Path(name))
    return name


def test_labels_are_judged_before_anything_is_sent(member: Run) -> None:
    make("a.svm", 100)
    refused = member("upload", "a.svm", "-n", "words", "-l", "population=babies", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert "one of infant, child" in refused.error["message"]
    assert member("models", "ls", "--name", "words", "--state", "any", "-q").out == ""
    listed = member("models", "vocabulary", "--json").data
    assert {"population", "air_puff_hose"} <= {label["key"] for label in listed["labels"]}
    assert "DUO:0000024" in member("models", "vocabulary", "terms", "-q").out.split()


def test_terms_come_from_the_command_line_and_next_to_the_model(member: Run) -> None:
    make("a.svm", 101)
    terms = ("--term", "NCU", "--term", "GRU", "--term", "DUO:0000024=2099-01-31")
    command = ("upload", "a.svm", "-n", "terms-1", *terms)
    version = member(*command, "--json").data["version"]
    assert [(term["code"], term["detail"]) for term in version["terms"]] == [
        ("DUO:0000024", "2099-01-31"), ("DUO:0000042", ""), ("DUO:0000046", ""),
    ]  # fmt: skip
    shown = member("models", "info", "site-a/terms-1").out
    assert "publication moratorium (DUO:0000024): 2099-01-31" in shown
    make("b.svm", 102)
    Path("b.svm.terms").write_text("# ours\n\nIRB\n")
    listed = member("upload", "b.svm", "-n", "terms-2", "--dry-run", "--json").data["terms"]
    assert [term["code"] for term in listed] == ["DUO:0000021"]
    Path("b.svm.terms").write_text("GRU\nMOR=soon\nXYZ\n")
    refused = member("upload", "b.svm", "-n", "terms-2", "--json")
    assert (refused.code, refused.error["code"]) == (2, "terms_file")
    assert "line 2" in refused.error["message"]


def test_terms_are_held_against_a_merge_and_inherited(member: Run) -> None:
    for number, term in ((1, "DS=ataxia"), (2, "DS=autism"), (3, "NCU")):
        make(f"{number}.svm", 110 + number)
        assert member("upload", f"{number}.svm", "-n", f"held-{number}", "--term", term).code == 0
    member("download", "site-a/held-1", "-o", "got.svm")
    command = ("merge", "mwma", "got.svm", "site-a/held-2", "-o", "m.svm")
    refused = member(*command, "--json")
    assert (refused.code, refused.error["code"]) == (3, "terms_forbid")
    assert "no diseases in common" in refused.error["message"]
    assert not Path("m.svm").exists()
    assert "no diseases in common" in member(*command, "--despite-terms").err
    sent = member("upload", "m.svm", "-n", "held-m", "--json")
    assert (sent.code, sent.error["code"]) == (7, "conflict")
    merged = member("merge", "mwma", "got.svm", "site-a/held-3", "-o", "n.svm")
    assert "non-commercial use only" in merged.err
    uploaded = member("upload", "n.svm", "-n", "held-n")
    assert "inherited: non-commercial use only (DUO:0000046)" in uploaded.out


def test_a_draft_an_alias_and_away(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a.svm", 130)
    drafted = member("upload", "a.svm", "-n", "staged", "--draft", "--json").data["version"]
    assert drafted["state"] == "draft"
    assert member("models", "ls", "--state", "draft", "-q").out == "pool://site-a/staged@1\n"
    assert member("models", "publish", "site-a/staged@1", "--json").data["state"] == "available"
    assert member("models", "publish", "site-a/staged@1", "--json").code == 7
    named = member("models", "edit", "site-a/staged", "--alias", "best", "-q").out
    assert named == "pool://site-a/staged@1\n"
    assert "site-a/staged@best" in member("models", "info", "site-a/staged@best").out
    assert member("download", "site-a/staged@best", "-q").code == 0
    assert member("models", "ls", "--state", "waiting").code == 3
    assert member("models", "quarantine", "site-a/staged@1", "--reason", "x").code == 3
    contributor = pool.tokens["site-a"]
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    hidden = member("models", "quarantine", "site-a/staged@best", "--reason", "eyes swapped")
    assert "quarantined: eyes swapped" in hidden.out
    assert (
        "pool://site-a/staged@1" in member("models", "ls", "--state", "waiting", "-q").out.split()
    )
    assert member("models", "publish", "site-a/staged@1").code == 0
    monkeypatch.setenv("POOL_TOKEN", contributor)
    assert member("models", "edit", "site-a/staged", "--remove-alias", "best").code == 0
    assert member("models", "rm", "site-a/staged@1").code == 2, "nobody can be asked here"
    assert member("models", "rm", "site-a/staged").code == 2, "which version?"
    assert member("models", "rm", "site-a/staged@1", "--dry-run").code == 0
    assert member("models", "rm", "site-a/staged@1", "-y", "-q").out == "pool://site-a/staged@1\n"
    assert member("models", "info", "site-a/staged@1").code == 4


def test_labels_are_corrected(member: Run) -> None:
    make("a.svm", 130)
    command = ("upload", "a.svm", "-n", "corrected", "--description", "Adults")
    first = member(*command, "-l", "popluation=adult", "-l", "images=3")
    assert "did you mean population?" in first.err
    again = member(*command, "-l", "population=infant", "-l", "images=3")
    assert "keeps no population; to change that: poolctl models edit" in again.err
    assert "images" not in again.err
    change = again.err.split("to change that: poolctl ")[1].split()
    corrected = member(*change, "--label", "popluation=", "--description", "", "--json").data
    assert corrected["labels"] == {"population": "infant", "images": "3"}
    assert corrected["description"] == ""
    lacking = member("models", "edit", "site-a/corrected", "--label", "camera=", "--json")
    assert (lacking.code, "it has images, population" in lacking.error["message"]) == (2, True)
    assert member("models", "edit", "site-a/corrected").code == 2
    assert "keeps" not in member(*command[:4], "-l", "population=infant").err


def test_a_merged_model_has_the_labels_that_its_inputs_share(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("-l", "population=infant", "-l", "orientation=frontal")
    for number, name in enumerate(("one", "two")):
        make(f"{name}.svm", 170 + number)
        labels = ("-l", "images=7", "-l", f"camera=make-{name}")
        assert member("upload", f"{name}.svm", "-n", f"shared-{name}", *common, *labels).code == 0
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    command = ("merge", "mwma", "site-a/shared-one", "site-a/shared-two", "--weight", "3,1")
    assert member(*command, "-o", "merged.svm", "-q").code == 0
    uploaded = member("upload", "merged.svm", "-n", "shared", "-l", "orientation=mixed")
    assert "labels that all inputs share: population=infant" in uploaded.err
    version = member("models", "info", "shared", "--json").data
    assert version["labels"] == {"population": "infant", "orientation": "mixed"}
    card = member("models", "info", "shared", "--card", "--json").data
    assert card["front_matter"]["poolctl"]["merge"] == {
        "method": "mwma",
        "options": {},
        "inputs": [
            {"model": "pool://site-a/shared-one@1", "weight": 3.0},
            {"model": "pool://site-a/shared-two@1", "weight": 1.0},
        ],
    }
    assert "## Merged by mwma from" in card["text"]
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    used = member("models", "info", "shared-one", "--usage", "--json").data["items"]
    assert [(entry["use"], entry["by"], entry["result"]) for entry in used] == [
        ("merged", "site-b", "pool://site-b/shared@1"),
        ("downloaded", "site-b", ""),
    ]
    listed = member("models", "info", "shared-one@1", "--usage", "-q").out.split()
    assert listed == ["pool://site-a/shared-one@1"] * 2
    assert member("models", "info", "nothing", "--usage").code == 4
    foreign = member("models", "info", "site-b/shared", "--usage", "--json")
    assert (foreign.code, foreign.error["code"]) == (3, "forbidden")


def test_cards(member: Run) -> None:
    make("a.svm", 140)
    Path("card.md").write_text("---\nlicense: cc-by-4.0\n---\n\n# Hose in view\n")
    assert member("upload", "a.svm", "-n", "told", "--card", "card.md").code == 0
    assert member("models", "info", "site-a/told", "--card").out == Path("card.md").read_text()
    Path("other.md").write_text("# Only words\n")
    assert member("models", "edit", "site-a/told", "--card", "other.md").code == 0
    front = member("models", "info", "site-a/told", "--card", "--json").data["front_matter"]
    assert front["library_name"] == "dlib"
    assert member("models", "info", "site-a/told", "--card").out.endswith("# Only words\n")
    Path("bad.md").write_text("---\na: &x 1\n---\n")
    for command in (
        ("models", "edit", "site-a/told", "--card", "bad.md"),
        ("upload", "a.svm", "-n", "told", "--card", "bad.md"),
    ):
        refused = member(*command, "--json")
        assert (refused.code, refused.error["code"]) == (2, "invalid_input")


def test_posting_scores_and_seeing_the_matrix(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dlib")
    settings = ("--set", "images=6", "--set", "size=160x160")
    drawn = member("dataset", "draw", "faces", "secret-faces", *settings)
    assert drawn.code == 0
    faces = next(Path("secret-faces").glob("*.xml"))
    for name in ("one", "two"):
        make(f"{name}.svm", 150 + len(name) + ord(name[0]))
        assert member("upload", f"{name}.svm", "-n", f"scored-{name}").code == 0
    make("private.svm", 155)
    models = ("one.svm", "site-a/scored-two", "private.svm", faces, "--set", "resamples=20")
    evaluated = member("evaluate", *models, "--post", "--split", "test", "--json")
    assert len(evaluated.data["posted"]) == 2
    assert "private.svm: not posted" in evaluated.err
    sent = json.dumps(evaluated.data["posted"])
    assert "secret" not in sent
    assert ".png" not in sent
    assert (
        evaluated.data["posted"][0]["dataset"] == f"dataset-{evaluated.data['dataset_digest'][:12]}"
    )
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    named = member(
        "evaluate",
        "site-a/scored-one",
        faces,
        "--set",
        "resamples=0",
        "--post",
        "--dataset-name",
        "ward",
    )
    assert named.code == 0, named.err
    matrix = member("models", "evaluations", "--kind", "hog-svm", "--json").data
    assert (matrix["score"], matrix["sites"]) == ("average_precision", ["site-a", "site-b"])
    rows = {row["address"]: [cell["site"] for cell in row["cells"]] for row in matrix["rows"]}
    assert rows == {
        "pool://site-a/scored-two@1": ["site-a"],
        "pool://site-a/scored-one@1": ["site-a", "site-b"],
    }
    table = member("models", "evaluations", "--kind", "hog-svm", "--metric", "recall").out
    assert "site-b ward" in table
    one = member("models", "evaluations", "site-a/scored-one", "--json").data["items"]
    assert {score["site"] for score in one} == {"site-a", "site-b"}
    shown = member("models", "evaluations", "site-a/scored-one").out
    assert "overlap 0.5, threshold 0, upsampling 0" in shown, "a pipe gets whole cells"
    assert one[0]["digest"] == file_digest(Path("one.svm"))
    assert "site-b" in member("models", "info", "site-a/scored-one").out
    assert member("evaluate", "one.svm", faces, "--dataset-name", "x").code == 2
