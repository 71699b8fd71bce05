"""Terms, cards, drafts, evaluations, receipts and the log, by command."""

import json
from pathlib import Path

import pytest

from aggregators.formats import write_model
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.pool_server.people.sites.permission_matrix import RECEIPT
from tests.site_agent.live_pool import LivePool


def make(name: str, seed: int) -> str:
    write_model(make_detector(seed), Path(name))
    return name


def test_labels_are_judged_before_anything_is_sent(member: Run) -> None:
    make("a.svm", 100)
    member("upload", "a.svm", "-n", "words", "-l", "population=babies", "--json").fails(
        2, "invalid_input", "one of infant, child"
    )
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
    member("upload", "b.svm", "-n", "terms-2", "--json").fails(2, "terms_file", "line 2")


def test_terms_are_held_against_a_merge_and_inherited(member: Run) -> None:
    for number, term in ((1, "DS=ataxia"), (2, "DS=autism"), (3, "NCU")):
        make(f"{number}.svm", 110 + number)
        assert member("upload", f"{number}.svm", "-n", f"held-{number}", "--term", term).code == 0
    member("download", "site-a/held-1", "-o", "got.svm")
    command = ("merge", "mwma", "got.svm", "site-a/held-2", "-o", "m.svm")
    member(*command, "--json").fails(3, "terms_forbid", "no diseases in common")
    assert not Path("m.svm").exists()
    merged = member("merge", "mwma", "got.svm", "site-a/held-3", "-o", "n.svm")
    assert "non-commercial use only" in merged.err


def test_a_draft_published_quarantined_and_removed(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a.svm", 130)
    drafted = member("upload", "a.svm", "-n", "staged", "--draft", "--json").data["version"]
    assert drafted["state"] == "draft"
    assert member("models", "ls", "--state", "draft", "-q").out == "pool://site-a/staged@1\n"
    told = member("upload", "a.svm", "-n", "staged-too", "--draft").out
    assert "where the pool is curated a curator of the pool, publish it" in told
    assert member("models", "publish", "site-a/staged@1", "--json").data["state"] == "available"
    assert member("download", "site-a/staged@best", "-q").code == 2
    contributor = pool.tokens["site-a"]
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    hidden = member("models", "quarantine", "site-a/staged@1", "--reason", "eyes swapped")
    assert "quarantined: eyes swapped" in hidden.out
    assert (
        "pool://site-a/staged@1" in member("models", "ls", "--state", "waiting", "-q").out.split()
    )
    assert member("models", "publish", "site-a/staged@1").code == 0
    monkeypatch.setenv("POOL_TOKEN", contributor)
    assert member("models", "rm", "site-a/staged@1").code == 2, "nobody can be asked here"
    assert member("models", "rm", "site-a/staged").code == 2, "which version?"
    assert member("models", "rm", "site-a/staged@1", "-y", "-q").out == "pool://site-a/staged@1\n"


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
    member("models", "edit", "site-a/corrected", "--label", "camera=", "--json").fails(
        2, "it has images, population"
    )
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


def test_cards(member: Run) -> None:
    make("a.svm", 140)
    Path("card.md").write_text("---\nlicense: cc-by-4.0\n---\n\n# Hose in view\n")
    assert member("upload", "a.svm", "-n", "told", "--card", "card.md").code == 0
    assert member("models", "info", "site-a/told", "--card").out == Path("card.md").read_text()
    Path("bad.md").write_text("---\na: &x 1\n---\n")
    for command in (
        ("models", "edit", "site-a/told", "--card", "bad.md"),
        ("upload", "a.svm", "-n", "told", "--card", "bad.md"),
    ):
        member(*command, "--json").fails(2, "invalid_input")


def test_posting_scores_and_seeing_the_matrix(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dlib")
    settings = ("--set=images=6", "--set=size=160x160")
    assert member("dataset", "draw", "faces", "secret-faces", *settings).code == 0
    faces = next(Path("secret-faces").glob("*.xml"))
    for name in ("one", "two"):
        make(f"{name}.svm", 150 + len(name) + ord(name[0]))
        assert member("upload", f"{name}.svm", "-n", f"scored-{name}").code == 0
    models = ("one.svm", "site-a/scored-two", faces, "--set=resamples=20")
    evaluated = member("evaluate", *models, "--post", "--split", "test", "--json")
    assert len(evaluated.data["posted"]) == 2
    sent = json.dumps(evaluated.data["posted"])
    assert "secret" not in sent
    assert ".png" not in sent
    assert (
        evaluated.data["posted"][0]["dataset"] == f"dataset-{evaluated.data['dataset_digest'][:12]}"
    )
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-b"])
    named = ("evaluate", "site-a/scored-one", faces, "--set=resamples=0", "--post")
    assert member(*named, "--dataset-name", "ward").code == 0
    matrix = member("models", "evaluations", "--kind", "hog-svm", "--json").data
    assert matrix["sites"] == ["site-a", "site-b"]
    table = member("models", "evaluations", "--kind", "hog-svm", "--metric", "recall").out
    assert "site-b ward" in table
    shown = member("models", "evaluations", "site-a/scored-one").out
    assert "overlap 0.5, threshold 0, upsampling 0" in shown, "a pipe gets whole cells"
    assert member("evaluate", "one.svm", faces, "--dataset-name", "x").code == 2


def upload(member: Run, name: str, seed: int) -> str:
    write_model(make_detector(seed), Path("logged.svm"))
    return str(member("upload", "logged.svm", "-n", name, "--json").data["version"]["address"])


def withdraw(member: Run, address: str) -> None:
    arguments = ("models", "withdraw", address, "--reason", "quality", "--explanation", "blurred")
    assert member(*arguments, "-y").code == 0


def test_events_are_listed_and_filtered(member: Run) -> None:
    first, _ = upload(member, "log-1", 501), upload(member, "log-2", 502)
    withdraw(member, first)
    listed = member("log", "--json").data
    kinds = [(event["kind"], event["subject"]) for event in listed["items"]]
    assert ("version.withdrawn", first) in kinds
    only = member("log", "--kind", "version.withdrawn", "site-a/log-1", "--json").data["items"]
    assert [event["subject"] for event in only] == [first]
    assert "blurred" in member("log", "--kind", "version.withdrawn").out
    assert member("log", "--since", "2999-01-01").out.strip() == "no events"


def test_the_audit_says_who_did_what(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = upload(member, "log-3", 503)
    withdraw(member, address)
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    entries = member("log", "--audit", "--kind", "version.withdraw", "--json").data["items"]
    assert [entry["subject"] for entry in entries][:1] == [address.removeprefix("pool://")]
    assert entries[0]["actor"].startswith("site-a")
    assert "version.withdraw" in member("log", address, "--audit").out


def test_a_receipt_is_uploaded_with_a_model_and_shown(member: Run) -> None:
    digest = write_model(make_detector(200), Path("a.svm"))
    receipt = RECEIPT | {"mode": "sub-model", "artifact_digest": digest}
    Path("receipt.json").write_text(json.dumps(receipt))
    arguments = ("upload", "a.svm", "-n", "probed", "--receipt", "receipt.json")
    uploaded = member(*arguments)
    assert uploaded.code == 0
    assert "Leak: high. " in uploaded.out
    shown = member("models", "info", "site-a/probed")
    assert "Measured by the site itself: sub-model" in shown.out
    assert member("models", "info", "site-a/probed", "--json").data["receipts"][0]["persons"] == 2
    assert "## Privacy receipt" in member("models", "info", "site-a/probed", "--card").out
    Path("receipt.json").write_text(json.dumps(receipt | {"signal": "green"}))
    member(*arguments, "--json").fails(2, "signal: Extra inputs are not permitted")


def test_the_receipt_of_another_file_is_refused(member: Run) -> None:
    write_model(make_detector(200), Path("a.svm"))
    for mode in ("sub-model", "update"):
        receipt = RECEIPT | {"mode": mode, "artifact_digest": "ab" * 32}
        Path("receipt.json").write_text(json.dumps(receipt))
        member("upload", "a.svm", "-n", "other", "--receipt", "receipt.json", "--json").fails(
            2, "is the receipt of a file with sha256 abababababab"
        )
    assert member("models", "info", "site-a/other").code == 4
