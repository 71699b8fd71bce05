"""Sessions with labels are derivatives of the BIDS standard."""

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.outputs.registry import OUTPUTS, write_outputs
from site_agent.eyeblink.review.actions import Delete
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.session_folder import SessionLabels

ESSENTIAL = [output for output in OUTPUTS if output.essential]
"""Pictures take most of the time, and nothing here is about them."""


def test_labels() -> None:
    names = SessionLabels("sub-01", "ses-2", "task-rest").names(has_trials=True)
    assert names.entities == "sub-01_ses-2_task-rest"
    assert str(names.path("report.html")) == (
        "sub-01/ses-2/beh/sub-01_ses-2_task-rest_desc-blink_report.html"
    )
    assert SessionLabels("01").names(has_trials=False).entities == "sub-01_task-blink"
    plain = SessionLabels().names(has_trials=True)
    assert str(plain.path("report.html")) == "report.html"
    assert not plain.is_bids


@pytest.mark.parametrize(
    ("labels", "problem"),
    [({"subject": "a_b"}, "letters and digits"), ({"subject": "1", "age": "21"}, "P21Y")],
)
def test_invalid_labels_are_refused(labels: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        SessionLabels(**labels)


def test_events(labelled: AnalysedSession, tmp_path: Path) -> None:
    write_outputs(labelled, tmp_path, outputs=ESSENTIAL)
    folder = tmp_path / "sub-01" / "ses-02" / "beh"
    with (folder / "sub-01_ses-02_task-ebc_events.tsv").open(encoding="utf-8") as file:
        events = list(csv.DictReader(file, delimiter="\t"))
    sidecar = json.loads((folder / "sub-01_ses-02_task-ebc_events.json").read_text("utf-8"))
    assert labelled.conditioning is not None
    assert len(events) == len(labelled.blinks) + len(labelled.conditioning.trials)
    assert set(sidecar) == set(events[0])
    assert list(events[0])[:3] == ["onset", "duration", "trial_type"]
    assert {event["trial_type"] for event in events} <= set(sidecar["trial_type"]["Levels"])
    onsets = [float(event["onset"]) for event in events]
    assert onsets == sorted(onsets)
    assert all(cell for event in events for cell in event.values())
    blinks = [event for event in events if event["blink_id"] != "n/a"]
    assert [float(event["duration"]) * 1000 for event in blinks] == pytest.approx(
        [blink.duration_ms for blink in labelled.blinks], abs=0.01
    )


def test_a_dataset_keeps_what_it_has(labelled: AnalysedSession, tmp_path: Path) -> None:
    (tmp_path / "dataset_description.json").write_text('{"Name": "mine"}')
    (tmp_path / ".bidsignore").write_text("notes/\n")
    (tmp_path / "README").write_text("mine")
    write_outputs(labelled, tmp_path, outputs=ESSENTIAL)
    other = replace(labelled, settings=replace(labelled.settings, labels=SessionLabels("02")))
    write_outputs(other, tmp_path, outputs=ESSENTIAL)
    write_outputs(labelled, tmp_path, outputs=ESSENTIAL)
    assert json.loads((tmp_path / "dataset_description.json").read_text()) == {"Name": "mine"}
    assert (tmp_path / ".bidsignore").read_text() == "notes/\n*_desc-blink_*\n"
    assert not (tmp_path / "README.md").exists()
    assert sorted(path.name for path in tmp_path.glob("sub-*")) == ["sub-01", "sub-02"]


def test_the_bids_validator_accepts_the_folder(labelled: AnalysedSession, tmp_path: Path) -> None:
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    validator = shutil.which("bids-validator-deno", path=places)
    if validator is None:
        pytest.skip("bids-validator-deno is not installed")
    for number in range(2):
        labels = SessionLabels(f"{number + 1:02d}", "02")
        settings = replace(labelled.settings, labels=labels)
        write_outputs(replace(labelled, settings=settings), tmp_path / "out", outputs=ESSENTIAL)
        with open_review(tmp_path / "out" / f"sub-{labels.subject}", reviewer="Ada") as review:
            review.act(Delete(blink_id=1))
    reviews = list((tmp_path / "out").rglob("blinks_reviewed.csv"))
    assert len(reviews) == 2
    process = subprocess.run(
        [validator, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    assert "[ERR]" not in process.stdout
    assert "[ERROR]" not in process.stdout
