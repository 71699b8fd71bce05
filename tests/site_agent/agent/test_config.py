"""The agent's configuration: what it may say, and what is told of mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from site_agent.agent import EXAMPLE_CONFIG, AgentConfig, MergeGoal, RoundsConfig, read_config
from site_agent.errors import AgentConfigError

SMALL = """
workspace = "agent"
[[merge]]
name = "face"
kind = "ert"
validation = "validation.xml"
"""


def write(folder: Path, text: str) -> Path:
    for name in ("validation.xml", "mine.dat", "training.xml"):
        (folder / name).write_text("")
    path = folder / "agent.toml"
    path.write_text(text)
    return path


def keys_of(table: type[AgentConfig | MergeGoal | RoundsConfig]) -> set[str]:
    return set(table.model_fields) - {"path"}


def test_the_example_can_be_read_and_explains_every_key(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, EXAMPLE_CONFIG))
    assert config.workspace == tmp_path / "agent"
    assert config.merge[0].own == [tmp_path / "mine.dat"]
    head, rest = EXAMPLE_CONFIG.split("[[merge]]")
    merge, rounds = rest.split("[rounds]")
    for text, table in ((head, AgentConfig), (merge, MergeGoal), (rounds, RoundsConfig)):
        named = set(re.findall(r"^(?:# )?([a-z_]+) = ", text, flags=re.M))
        assert named == keys_of(table) - {"merge", "rounds"}


@pytest.mark.parametrize(
    ("change", "key", "found", "expected"),
    [
        (("workspace =", "workplace ="), "workspace", "nothing", "it has to be given"),
        (('"agent"', "7"), "workspace", "7", "path"),
        (("[[merge]]", "pace = 3\n[[merge]]"), "pace", "an unknown key", "interval"),
        (('"ert"', '"network"'), "merge[0].kind", "'network'", "'ert' or 'hog-svm'"),
        (('"validation.xml"', '"none.xml"'), "merge[0].validation", "none.xml", "a file"),
        (('"ert"', '"ert"\nown = ["no.dat"]'), "merge[0].own[0]", "no.dat", "a file"),
        (('"ert"', '"ert"\nmethod = "mwma"'), "merge[0].method", "'mwma'", "wba-final"),
        (('"ert"', '"ert"\noptions = { stop = 1 }'), "merge[0].options.stop", "1", "step, thin"),
        (('"ert"', '"ert"\nmetric = "f1"'), "merge[0].metric", "'f1'", "mean_error"),
        (('"ert"', '"ert"\nmargin = "much"'), "merge[0].margin", "'much'", '"1%"'),
        (('"ert"', '"ert"\npurposes = ["fun"]'), "merge[0].purposes[0]", "'fun'", "'research'"),
        (('"ert"', '"ert"\nweights = { own = 0.0 }'), "merge[0].weights", "own", "above 0"),
        (
            ("[[merge]]", '[rounds]\ndata = "a.xml"\n[[merge]]'),
            "rounds.started_by",
            "nothing",
            "given",
        ),
        (
            ("[[merge]]", '[rounds]\ndata = "a.xml"\nstarted_by = []\n[[merge]]'),
            "rounds.started_by",
            "[]",
            "1",
        ),
        (
            ("[[merge]]", '[rounds]\nstarted_by = ["b"]\n[[merge]]'),
            "rounds.data",
            "nothing",
            "gaze data in 'gaze'",
        ),
        (
            ("[[merge]]", '[rounds]\ngaze = "no"\nstarted_by = ["b"]\n[[merge]]'),
            "rounds.gaze",
            "no",
            "a file",
        ),
        (
            ("[[merge]]", '[rounds]\ndata = "no.xml"\nstarted_by = ["b"]\n[[merge]]'),
            "rounds.data",
            "no.xml",
            "a file",
        ),
    ],
)
def test_mistakes_name_file_key_found_and_expected(
    change: tuple[str, str], key: str, found: str, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path, SMALL.replace(*change))
    with pytest.raises(AgentConfigError) as caught:
        read_config(path)
    told = str(caught.value)
    assert caught.value.key == key
    assert told.startswith(f"{path}: {key}: found ")
    told_found, told_expected = told.split(": found ", 1)[1].split(", expected ", 1)
    assert found in told_found
    assert expected in told_expected


def test_better_by_the_margin(tmp_path: Path) -> None:
    goal = read_config(write(tmp_path, SMALL)).merge[0]
    assert goal.is_better(0.098, 0.1)
    assert not goal.is_better(0.0995, 0.1)
    assert not goal.is_better(0.102, 0.1)
    exact = goal.model_copy(update={"margin": 0.0})
    assert exact.is_better(0.0999, 0.1)
    assert not exact.is_better(0.1, 0.1)
    detectors = goal.model_copy(update={"kind": "hog-svm", "margin": 0.05})
    assert detectors.is_better(0.95, 0.9 - 1e-9)
    assert not detectors.is_better(0.94, 0.9)
