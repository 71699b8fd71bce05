"""Results with reviewed blinks, next to the automatic ones."""

import csv
import json
import math
from pathlib import Path

import pytest

from site_agent.errors import ReviewOutdatedError
from site_agent.eyeblink.openness.sampling import FilterSettings
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.review.actions import Accept, Add, Correct, Delete
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.review.reviewed_session import report_session
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_reading import read_session
from tests.site_agent.eyeblink.review.conftest import write_drawn_trace


@pytest.mark.parametrize("fixture", ["trace_session", "video_session"])
def test_a_session_that_is_read_back_is_written_the_same(
    fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(fixture)
    session, again = read_session(folder), tmp_path / "again"
    write_outputs(session, again)
    assert (again / "frames.csv").read_bytes() == (folder / "frames.csv").read_bytes()
    assert repr(read_session(again).blinks) == repr(session.blinks)  # some values are NaN
    assert len(session.blinks) == len((folder / "blinks.csv").read_text().splitlines()) - 1


def test_closure_is_read_back_as_it_was_filtered(tmp_path: Path) -> None:
    trace = write_drawn_trace(tmp_path / "ear.csv", seed=5, seconds=20.0)
    settings = BlinkAnalysisSettings(filter=FilterSettings("savgol"))
    run_blink_analysis(TraceFile(trace), out_dir=tmp_path / "out", settings=settings)
    session = read_session(tmp_path / "out")
    with (tmp_path / "out" / "frames.csv").open() as file:
        written = [row["fec"] for row in csv.DictReader(file)]
    cells = ["" if math.isnan(value) else f"{value:.5f}" for value in session.fec()]
    assert cells == written
    assert session.settings == settings


def test_reviewed_blinks_replace_automatic_ones_beside_them(trace_session: Path) -> None:
    automatic = {path: path.read_bytes() for path in trace_session.iterdir() if path.is_file()}
    before = report_session(trace_session, reviewed=True)
    assert before.review_words == "not reviewed"
    assert not (trace_session / "reviewed").exists()
    with open_review(trace_session) as review:
        first, second = review.state.events[:2]
        review.act(Delete(blink_id=first.blink_id))
        review.act(Accept(blink_id=second.blink_id))
        for start_s in (0.1, 0.5):
            added = Add(onset_s=start_s, peak_s=start_s + 0.1, offset_s=start_s + 0.2)
            review.act(added)
    report = report_session(trace_session, reviewed=True)
    assert report.summary.blinks == before.summary.blinks + 1
    assert "1 accepted, 2 added, 1 deleted" in report.review_words
    reviewed = trace_session / "reviewed"
    with (reviewed / "blinks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == report.summary.blinks + report.summary.closures
    assert str(first.blink_id) not in {row["blink_id"] for row in rows}
    content = json.loads((reviewed / "session.json").read_text())
    assert content["blinks"]["blinks"] == report.summary.blinks
    assert "these are the reviewed blinks" in (reviewed / "report.html").read_text()
    assert {path: path.read_bytes() for path in automatic} == automatic
    with (trace_session / "blinks.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(ReviewOutdatedError, match="repeated since"):
        report_session(trace_session, reviewed=True)


def test_blinks_with_corrected_ends_are_measured_as_the_others(tmp_path: Path) -> None:
    trace = write_drawn_trace(tmp_path / "ear.csv", seed=5, seconds=30.0)
    run_blink_analysis(TraceFile(trace), out_dir=tmp_path / "out")
    blinks = read_session(tmp_path / "out").blinks
    with open_review(tmp_path / "out") as review:
        for blink in blinks:
            review.act(Correct(blink_id=blink.number, offset_s=round(blink.offset_s + 0.01, 3)))
    report_session(tmp_path / "out", reviewed=True)
    reviewed = read_session(tmp_path / "out" / "reviewed").blinks
    assert len(reviewed) == len(blinks) >= 5
    for before, after in zip(blinks, reviewed, strict=True):
        assert after.offset_s > before.offset_s
        assert after.amplitude_fec == pytest.approx(before.amplitude_fec, rel=0.1)
        assert after.half_closed_ms == pytest.approx(before.half_closed_ms, rel=0.1)
