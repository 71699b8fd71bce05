"""The agent's configuration: its keys, and the messages for mistakes."""

import re
import tomllib
from pathlib import Path

import pytest

from site_agent.agent.config import (
    EXAMPLE_CONFIG,
    AgentConfig,
    MergeGoal,
    RoundsConfig,
    margin_of,
    read_config,
    span_s,
)
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
    assert config.merge[0].own_models == [tmp_path / "mine.dat"]
    head, rest = EXAMPLE_CONFIG.split("[[merge]]")
    merge, rounds = rest.split("[rounds]")
    for text, table in ((head, AgentConfig), (merge, MergeGoal), (rounds, RoundsConfig)):
        named = set(re.findall(r"^(?:# )?([a-z_]+) = ", text, flags=re.M))
        assert named == keys_of(table) - {"merge", "rounds"}


def test_what_the_example_says_of_defaults_is_true(tmp_path: Path) -> None:
    plain = re.sub(r"^# ([a-z_]+ = )", r"\1", EXAMPLE_CONFIG, flags=re.M)
    shown = tomllib.loads(plain)
    config = read_config(
        write(tmp_path, SMALL + '[rounds]\ndata = "training.xml"\nstarted_by = ["site-c"]\n')
    )
    for key in ("profile", "interval", "retry_after", "threads"):
        assert getattr(config, key) == shown[key], key
    goal, table = config.merge[0], shown["merge"][0]
    for key in ("metrics", "sites", "text", "most", "merged_too", "weight_by", "weights"):
        assert getattr(goal, key) == table[key], key
    for key in (
        "purposes",
        "diseases",
        "margin",
        "against",
        "parts",
        "pts_origin",
        "box_margin",
        "upload",
        "upload_labels",
        "description",
    ):
        assert getattr(goal, key) == table[key], key
    assert goal.method_name == table["method"]
    assert goal.method_options == table["options"]
    assert goal.metric_name == table["metric"]
    assert config.rounds is not None
    for key in (
        "min_starts",
        "min_faces",
        "faces_per_leaf",
        "secure_only",
        "parts",
        "seed",
        "finish",
        "pts_origin",
        "box_margin",
    ):
        assert getattr(config.rounds, key) == shown["rounds"][key], key


def test_what_is_usual_depends_on_the_kind(tmp_path: Path) -> None:
    goal = read_config(write(tmp_path, SMALL)).merge[0]
    assert (goal.method_name, goal.metric_name, goal.lower_is_better) == (
        "wba-cascade", "mean_error", True,
    )  # fmt: skip
    text = SMALL.replace('"ert"', '"hog-svm"')
    goal = read_config(write(tmp_path, text)).merge[0]
    assert (goal.method_name, goal.metric_name, goal.lower_is_better) == ("mwma", "f1", False)


@pytest.mark.parametrize(
    ("change", "key", "value", "expected"),
    [
        (("workspace =", "workplace ="), "workspace", "nothing", "it has to be given"),
        (('"agent"', "7"), "workspace", "7", "path"),
        (("[[merge]]", "pace = 3\n[[merge]]"), "pace", "an unknown key", "interval"),
        (('"ert"', '"network"'), "merge[0].kind", "'network'", "'ert' or 'hog-svm'"),
        (('"validation.xml"', '"none.xml"'), "merge[0].validation", "none.xml", "a file"),
        (('"ert"', '"ert"\nown_models = ["no.dat"]'), "merge[0].own_models[0]", "no.dat", "a file"),
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
    change: tuple[str, str], key: str, value: str, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path, SMALL.replace(*change))
    with pytest.raises(AgentConfigError) as caught:
        read_config(path)
    told = str(caught.value)
    assert caught.value.key == key
    assert told.startswith(f"{path}: {key}: found ")
    told_found, told_expected = told.split(": found ", 1)[1].split(", expected ", 1)
    assert value in told_found
    assert expected in told_expected


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    for text, expected in (
        ("[[merge", "a file in the TOML format"),
        ('workspace = "agent"\n', r"\[\[merge\]\] or \[rounds\]"),
        (SMALL + SMALL.split("\n", 2)[2], "another name"),
    ):
        with pytest.raises(AgentConfigError, match=expected):
            read_config(write(tmp_path, text))
    with pytest.raises(AgentConfigError, match="poolctl agent init"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "agent").write_text("")
    with pytest.raises(AgentConfigError, match="workspace: found the file"):
        read_config(write(tmp_path, SMALL))


def test_spans_and_margins() -> None:
    assert [span_s(word) for word in ("30s", "15m", "2h", "1d", "1.5 h", 7)] == [
        30, 900, 7200, 86400, 5400, 7,
    ]  # fmt: skip
    for wrong in ("", "5", "m", "-3s", 0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="expected seconds"):
            span_s(wrong)
    assert margin_of("2.5%") == (0.025, True)
    assert margin_of(0.01) == (0.01, False)


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
