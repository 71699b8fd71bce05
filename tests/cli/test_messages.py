"""Mistakes of newcomers, and the messages before anything is sent."""

from pathlib import Path

import pytest

from aggregators import METHODS
from aggregators.formats import write_model
from site_agent.datasets.conversion import read_faces
from site_agent.jobs.folder import JobFolder
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.site_agent.face_data import draw_faces


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("rounds ls newest", "expected hexadecimal digits"),
        ("rounds contribute latest --data f.xml", "'latest' is not a round"),
        ("upload m.svm --name face --term research", "`poolctl models vocabulary terms`"),
        ("rounds start --base a/b --sites a,b --deadline 7d --secure t.csv", "is not a charter"),
        ("inspect nowhere.dat", "paths count from the folder of this terminal"),
        ("dataset check t.json", "t.json, line 1: expected the JSON of COCO"),
        ("dataset check t.xml", "begins with <annotation>, expected <dataset>"),
        ("blink t.csv -o out --frame-rate-hz 30 --trials t.csv", "expected cs_onset_s"),
        ("merge --replay m.svm -o n.svm", "m.svm"),
    ],
)
def test_the_error_names_what_was_found_and_what_to_do(
    arguments: str, said: str, tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("session,trace\n")
    Path("t.json").write_text("{")
    Path("t.xml").write_text("<annotation/>")
    write_model(make_detector(1), Path("m.svm"))
    shown = poolctl(*arguments.split())
    assert shown.code != 0
    assert said in " ".join(shown.err.split())
    assert "Traceback" not in shown.err


def test_a_notebook_shows_a_data_set_without_its_faces(tmp_path: Path) -> None:
    assert len(repr(read_faces(draw_faces(tmp_path, 2, size=(96, 96))))) < 400


def test_methods_are_listed_with_what_they_merge_and_their_options(poolctl: Run) -> None:
    listed = {item["name"]: item for item in poolctl("methods", "--json").data["items"]}
    assert list(listed) == list(METHODS)
    assert (listed["mwma"]["merges"], listed["mwma"]["rounds"]) == ("face detectors", False)
    assert listed["fedadam"]["rounds"] is True
    assert all(option["meaning"] for item in listed.values() for option in item["options"].values())
    assert "eta" in poolctl("methods", "fedadam").out
    poolctl("methods", "fedadm", "--json").fails(2, "did you mean fedadam?")


def test_the_queue_is_listed_done_repeated_and_forgotten(poolctl: Run) -> None:
    assert "no jobs" in poolctl("jobs", "ls").out
    queue = JobFolder()
    first, second = (
        queue.add("study", name, {"study": "/nowhere"}, group="both") for name in ("one", "two")
    )
    assert "2 waiting" in poolctl("jobs", "ls").out
    poolctl("jobs", "cancel", second.id)
    assert poolctl("jobs", "run").code == 0
    listed = poolctl("jobs", "ls", "both", "--json").data["items"]
    assert [item["state"]["state"] for item in listed] == ["failed", "cancelled"]
    assert "asked for by command line" in poolctl("jobs", "ls", first.id[:6]).out
    assert poolctl("jobs", "rm", second.id, "--json").data["jobs"] == [second.id]
    assert poolctl("jobs", "ls", second.id).code == 4
