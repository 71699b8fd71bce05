"""The agent's settings, and the sentences of its journal."""

import io
import string
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from site_agent.agent.config import MergeSettings, example_toml, read_config
from site_agent.agent.workspace import SENTENCES, Journal
from site_agent.errors import SettingsError

SMALL = """
workspace = "agent"
[merge.face]
validation = "validation.xml"
"""


def write(folder: Path, text: str) -> Path:
    for name in ("validation.xml", "mine.dat", "training.xml"):
        (folder / name).write_text("")
    path = folder / "agent.toml"
    path.write_text(text)
    return path


def test_the_example_can_be_read_and_explains_every_setting(tmp_path: Path) -> None:
    (tmp_path / "drawn").mkdir()
    for name in ("faces-train.xml", "faces-test.xml"):
        (tmp_path / "drawn" / name).touch()
    config = read_config(write(tmp_path, example_toml()))
    assert config.workspace == tmp_path / "agent"
    [(name, goal)] = config.goals.items()
    assert (name, goal.own_models) == ("eyes-merged", (str(tmp_path / "mine.dat"),))
    assert config.settings.rounds.data == (str(tmp_path / "drawn" / "faces-train.xml"),)
    assert config.settings.rounds.rules.min_faces == 5


def test_usual_values_depend_on_the_method(tmp_path: Path) -> None:
    goal = read_config(write(tmp_path, SMALL)).goals["face"]
    assert (goal.kind, goal.metric_name, goal.lower_is_better) == ("ert", "mean_error", True)
    assert goal.method_options == {"step": 1.1}
    goal = read_config(write(tmp_path, SMALL + 'method = "mwma"')).goals["face"]
    assert (goal.kind, goal.metric_name, goal.lower_is_better) == ("hog-svm", "f1", False)
    goal = read_config(write(tmp_path, SMALL + 'options = ["step=1.3", "thin=8"]')).goals["face"]
    assert goal.method_options == {"step": 1.3, "thin": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pace = 3\n" + SMALL, "there is no setting 'pace'"),
        ("interval_minutes = 0\n" + SMALL, "interval_minutes is 0.0, expected a number above 0"),
        (SMALL + 'own_models = ["no.dat"]', "merge.face: own_models is 'no.dat', expected a file"),
        (SMALL.replace("validation.xml", "none.xml"), "merge.face: validation is 'none.xml'"),
        ("[merge.face]", "merge.face: validation is ''"),
        (SMALL + 'method = "fedavg"', "method is 'fedavg', expected one of mwma, wba-final"),
        (SMALL + 'options = ["stop=1"]', "options is 'stop=1', expected options of wba-cascade"),
        (SMALL + 'metric = "f1"', "metric is 'f1', expected one of mean_error"),
        (SMALL + 'margin_pct = "much"', "margin_pct is 'much', expected a number from -100 to"),
        (SMALL + "[rounds]\ndata = 'no.xml'", "rounds.data is 'no.xml', expected a file"),
        (SMALL + "[rounds.rules]\napproved = 'a/b@1'", "there is no setting 'rounds.rules.appr"),
        (SMALL.replace("face", "a.b"), r"there is no setting|merge.a: "),
        (SMALL.replace("face", '"Eyes 2"'), "merge.Eyes 2: expected a name"),
        ("merge = 3", "merge: expected a table"),
        ("[[merge", "not valid TOML"),
        ('workspace = "agent"', "nothing to do"),
        (SMALL.replace('"agent"', '"mine.dat"'), "workspace is the file"),
    ],
)
def test_mistakes_name_file_setting_value_and_expectation(
    text: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=message) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_better_by_the_margin() -> None:
    goal = MergeSettings()
    assert goal.is_better(0.098, 0.1)
    assert not goal.is_better(0.0995, 0.1)
    assert not goal.is_better(0.102, 0.1)
    exact = replace(goal, margin_pct=0.0)
    assert exact.is_better(0.0999, 0.1)
    assert not exact.is_better(0.1, 0.1)
    lenient = replace(goal, margin_pct=-50.0)
    assert lenient.is_better(0.14, 0.1)
    assert not lenient.is_better(0.16, 0.1)
    detectors = replace(goal, method="mwma", margin_pct=5.0)
    assert detectors.is_better(0.95, 0.9)
    assert not detectors.is_better(0.94, 0.9)


VALUES: dict[str, Any] = {
    "deadline": datetime(2026, 3, 8, 12, 0, tzinfo=UTC),
    "value": float("nan"),
    "best": 0.07,
    **dict.fromkeys(("took_s", "seconds", "size_bytes", "sent_bytes", "received_bytes"), 12_345),
}


@pytest.mark.parametrize("event", SENTENCES)
def test_every_event_is_a_line_for_people(event: str) -> None:
    said = io.StringIO()
    keys = {name for _, name, *_ in string.Formatter().parse(SENTENCES[event]) if name} - {"cycle"}
    values = {key: VALUES.get(key, f"some {key}\n\x1b[2J") for key in keys}
    Journal(said, for_people=True).write(event, **values)
    [line] = said.getvalue().splitlines()
    assert "{" not in line
    assert "\x1b" not in line
    assert ("Error: " in line) == (event == "failed")
    assert ("Warning: " in line) == (event.endswith("_refused") or event == "pool_unreachable")
