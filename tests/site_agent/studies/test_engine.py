"""The engine of studies: a protocol of some lines is held, goes on, and is refused where wrong."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from site_agent.errors import InvalidInputError
from site_agent.settings import with_values
from site_agent.studies.engine import Conduct, StudyResults, hold_study
from site_agent.studies.protocol_file import StepJob, read_protocol
from site_agent.work import Progress

LENSES = '''\
title = "Lenses"

[settings]
lenses = ["wide", "long"]
repeats = 3
blur = { value = 1.0, ge = 0, text = "Of all pictures." }

[[steps]]
name = "pictures"
do = "tests.site_agent.studies.test_engine:take"
factors = { lens = "lenses", repeat = "repeats" }
measures = ["sharpness"]

[[tables]]
name = "sharpness"
sql = """
SELECT lens, mean(sharpness) AS sharpness, half(sharpness) AS half FROM pictures GROUP BY lens"""
formats = { ".1f" = "*" }

[[verdicts]]
sql = "SELECT * FROM sharpness ORDER BY lens"
bound = "sharpness >= 2"
outcomes = ["is sharp", "is not sharp"]
text = "{lens} {verdict} ({sharpness:.1f})"

[[figures]]
name = "sharpness"
panels = [{ kind = "bars", sql = "SELECT lens AS x, sharpness AS y FROM sharpness" }]
'''
COMMAND = """
[[steps]]
name = "drawn"
command = "poolctl dataset draw faces {folder}/{style} --set images=1 --set style={style}"
factors = { style = ["infant-lab"] }
"""
CHAIN = """\
title = "Chain"

[settings]
numbers = [1, 2]

[[steps]]
name = "first"
do = "tests.site_agent.studies.test_engine:take"
factors = { lens = ["wide", "none"], repeat = "numbers" }
measures = ["sharpness"]

[[steps]]
name = "second"
do = "tests.site_agent.studies.test_engine:add_up"
factors = { lens = ["wide", "none"] }
needs = ["first"]
measures = ["total"]

[[tables]]
name = "totals"
sql = "SELECT lens, total FROM second"
"""


def take(job: StepJob, _progress: Progress) -> dict[str, float]:
    """Take a picture."""
    if job.factors.lens == "none":
        raise InvalidInputError("no such lens")
    (job.folder / job.step.key).mkdir()
    (job.folder / job.step.key / "lens.txt").write_text(job.factors.lens)
    blur = getattr(job.settings, "blur", 0.0)
    return {"sharpness": {"wide": 3.0, "long": 1.5}[job.factors.lens] - blur / 2}


def add_up(job: StepJob, _progress: Progress) -> dict[str, float]:
    """Add up the results of the runs before."""
    return {"total": sum(result["sharpness"] for result in job.inputs.values())}


def hold(
    folder: Path, text: str, changes: dict[str, Any] | None = None, *, redo: bool = False
) -> StudyResults:
    file = folder / "lenses.toml"
    file.write_text(text)
    protocol = read_protocol(str(file))
    settings = with_values(protocol.settings, changes or {})
    conduct = Conduct(workers="1", redo=redo, repeat=["poolctl", "study"])
    return hold_study(protocol, folder / "study", None, settings, conduct)


def test_a_protocol_of_a_user_gives_table_verdict_and_figure(tmp_path: Path) -> None:
    outcome = hold(tmp_path, LENSES + COMMAND)
    assert outcome.failed == {}
    assert outcome.findings == ("long is not sharp (1.0)", "wide is sharp (2.5)")
    assert {path.name for path in outcome.files} == {"table.md", "sharpness.csv", "sharpness.png"}
    assert (tmp_path / "study" / "sharpness.csv").read_text() == (
        "lens,sharpness,half\nlong,1.0,\nwide,2.5,\n"
    )
    assert (tmp_path / "study" / "files" / "infant-lab" / "faces.xml").is_file()
    assert outcome.results["drawn_infant-lab"]["images"] == 1


def test_a_run_is_repeated_where_its_inputs_changed_and_nowhere_else(tmp_path: Path) -> None:
    assert hold(tmp_path, LENSES).kept == 0
    # More values of a factor change nothing of the runs that are done.
    assert hold(tmp_path, LENSES, {"repeats": 4}).kept == 6
    other = hold(tmp_path, LENSES, {"repeats": 2, "blur": 2.0})
    assert other.kept == 0
    assert other.findings[1] == "wide is sharp (2.0)"
    shutil.rmtree(tmp_path / "study" / "files" / "pictures_wide_repeat0")
    assert hold(tmp_path, LENSES, {"repeats": 2, "blur": 2.0}).kept == 3
    assert hold(tmp_path, LENSES, {"repeats": 2, "blur": 2.0}, redo=True).failed == {}


def test_a_run_that_fails_stops_only_those_that_need_it(tmp_path: Path) -> None:
    outcome = hold(tmp_path, CHAIN)
    assert outcome.results["second_wide"] == {"total": 6.0}
    assert "no such lens" in outcome.failed["first_none_repeat1"]
    assert "needs the result of" in outcome.failed["second_none"]
    assert (tmp_path / "study" / "totals.csv").read_text() == "lens,total\nwide,6.0\n"


def test_a_folder_keeps_its_study(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text('{"schema": "poolctl-gaze-study/1"}')
    with pytest.raises(InvalidInputError, match="holds another study"):
        hold(tmp_path, CHAIN)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('title = "Chain"', "", "title: Field required"),
        ("numbers = [1, 2]", "numbers = { value = 1, most = 2 }", "numbers: unknown most"),
        ('repeat = "numbers"', 'repeat = "number"', "factor 'number': no setting"),
        ('needs = ["first"]', 'needs = ["third"]', "needs 'third', which is no step"),
        ("FROM second", "FROM third", "no such table: third"),
        ("[[tables]]", "[[table]]", "table: Extra inputs are not permitted"),
        ("title =", "title", "no protocol"),
        ("title =", 'data = "no.module"\ntitle =', "no.module: no such module"),
        ("title =", 'check = "json:check"\ntitle =', "json:check: no such function"),
        (":add_up", ":add_down", "add_down: no such function"),
    ],
)
def test_invalid_protocols_are_refused(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        hold(tmp_path, CHAIN.replace(old, new))
    if "function" in complaint:
        assert not (tmp_path / "study" / "study.json").exists()


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"no such study; expected .*split, .*or a file"):
        read_protocol("lenses")
