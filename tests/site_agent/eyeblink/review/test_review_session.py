"""A review without its page: changes are kept, and results with reviewed blinks."""

import json
import math
import shutil
from pathlib import Path

import pytest

from site_agent.errors import (
    ReviewActionError,
    ReviewFolderError,
    ReviewOutdatedError,
    StudyFolderError,
    VideoFileError,
)
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.review.actions import Accept, Add, Correct, Delete, Undo, UseFrame
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.review.reviewed_session import (
    doubt_of,
    read_automatic_result,
    report_session,
    suggest_blink,
)
from site_agent.eyeblink.session_reading import read_session
from tests.site_agent.eyeblink.drawn_traces import rows_of
from tests.site_agent.eyeblink.review.conftest import write_drawn_trace


def test_the_automatic_result_stays_as_it_is(trace_session: Path) -> None:
    before = {path.name: path.read_bytes() for path in trace_session.iterdir()}
    with open_review(trace_session, reviewer="Ada") as review:
        review.act(Delete(blink_id=1))
        review.act(Correct(blink_id=2, kind="closure"))
    for name, data in before.items():
        assert (trace_session / name).read_bytes() == data
    assert sorted(p.name for p in (trace_session / "review").glob("[!.]*")) == [
        "blinks_reviewed.csv",
        "corrections.jsonl",
    ]


def test_the_reviewed_blinks_have_the_columns_of_the_automatic_ones(trace_session: Path) -> None:
    automatic = rows_of(trace_session / "blinks.csv")
    reviewed_file = trace_session / "review" / "blinks_reviewed.csv"
    with open_review(trace_session, reviewer="Ada") as review:
        assert not reviewed_file.exists(), "looking leaves no files"
        review.act(Accept(blink_id=1))
        review.act(Undo())
        rows = rows_of(reviewed_file)
        assert [row.pop("review_status") for row in rows] == ["unreviewed"] * len(automatic)
        assert rows == automatic
        review.act(Accept(blink_id=1))
        review.act(Delete(blink_id=2))
        onset_s = float(automatic[2]["onset_s"])
        review.act(Correct(blink_id=3, onset_s=onset_s - 0.1, completeness="partial"))
        end_s = float(automatic[3]["onset_s"]) - 0.2
        review.act(Add(onset_s=end_s - 0.3, peak_s=end_s - 0.2, offset_s=end_s))
    rows = rows_of(reviewed_file)
    assert list(rows[0]) == [*automatic[0], "review_status"]
    by_id = {row["blink_id"]: row for row in rows}
    assert "2" not in by_id
    accepted = dict(by_id["1"])
    assert accepted.pop("review_status") == "accepted"
    assert accepted == automatic[0]
    corrected = by_id["3"]
    assert (corrected["review_status"], corrected["completeness"]) == ("corrected", "partial")
    assert float(corrected["onset_s"]) == pytest.approx(onset_s - 0.1, abs=1 / 60 + 1e-6)
    length_ms = (float(corrected["offset_s"]) - float(corrected["onset_s"])) * 1000
    assert float(corrected["duration_ms"]) == pytest.approx(length_ms, abs=0.1)
    assert int(corrected["onset_frame"]) < int(automatic[2]["onset_frame"])
    added = by_id[str(len(automatic) + 1)]
    assert (added["review_status"], added["confidence"]) == ("added", "")
    assert added["peak_fec"] != ""
    onsets = [float(row["onset_s"]) for row in rows]
    assert onsets == sorted(onsets)


def test_what_was_left_out_is_a_blink_only_once_the_reviewer_says_so(trace_session: Path) -> None:
    path = trace_session / "session.json"
    content = json.loads(path.read_text())
    last = rows_of(trace_session / "blinks.csv")[-1]
    number, onset_s = int(last["blink_id"]), float(last["onset_s"])
    content["left_out"] = [
        {"kind": "blink", "onset_s": onset_s - at, "offset_s": onset_s - at + 0.2, "confidence": p}
        for at, p in ((0.5, 0.35), (0.3, 0.15))
    ]
    path.write_text(json.dumps(content))
    reviewed_file = trace_session / "review" / "blinks_reviewed.csv"
    with open_review(trace_session) as review:
        by_doubt = sorted(
            review.state.events, key=lambda event: -doubt_of(event, review.result).score
        )
        confidences = [review.result.confidences[event.blink_id] for event in by_doubt]
        likely = by_doubt.index(review.result.events[-2])
        assert all(1.0 - value <= 0.66 for value in confidences[likely + 1 :] if value > 0.4)
        review.act(Accept(blink_id=number))
        ids = [int(row["blink_id"]) for row in rows_of(reviewed_file)]
        assert max(ids) == number, "candidates are no blinks"
        review.act(Accept(blink_id=number + 1))
        review.act(Delete(blink_id=number + 2))
        added = Add(onset_s=onset_s - 1.0, peak_s=onset_s - 0.9, offset_s=onset_s - 0.8)
        review.act(added)
    statuses = {int(row["blink_id"]): row["review_status"] for row in rows_of(reviewed_file)}
    assert statuses[number + 1] == "accepted"
    assert number + 2 not in statuses
    assert statuses[number + 3] == "added"
    report_session(trace_session, reviewed=True)
    written = json.loads((trace_session / "reviewed" / "session.json").read_text())
    assert written["left_out"] == []
    content["left_out"].pop(0)
    path.write_text(json.dumps(content))
    with pytest.raises(ReviewOutdatedError, match="another result"):
        open_review(trace_session)


def test_a_review_goes_on_where_it_was(trace_session: Path) -> None:
    with open_review(trace_session, reviewer="Ada") as review:
        review.act(Delete(blink_id=1))
        state = review.act(Accept(blink_id=2))
    # As if the process had been killed between the log and the table.
    table = trace_session / "review" / "blinks_reviewed.csv"
    whole = table.read_bytes()
    table.unlink()
    with open_review(trace_session, reviewer="Ben") as review:
        assert review.state == state
        assert table.read_bytes() == whole
        review.act(Undo())
        assert {event.status for event in review.state.events} == {"unreviewed", "deleted"}


def test_what_is_refused_leaves_no_trace(trace_session: Path) -> None:
    with open_review(trace_session) as review:
        for action in (Accept(blink_id=999), UseFrame(frame=1), Undo()):
            with pytest.raises(ReviewActionError):
                review.act(action)
        assert not review.log.path.exists()


def test_a_suggested_blink_lies_where_the_trace_shows_one(trace_session: Path) -> None:
    result = read_automatic_result(trace_session)
    for event in result.events:
        suggested = suggest_blink(result, result.frames.nearest(event.peak_s) + 2)
        assert suggested.peak_s == pytest.approx(event.peak_s, abs=0.1)
        assert suggested.onset_s < suggested.peak_s < suggested.offset_s
        shared = min(suggested.offset_s, event.offset_s) - max(suggested.onset_s, event.onset_s)
        whole = max(suggested.offset_s, event.offset_s) - min(suggested.onset_s, event.onset_s)
        assert shared / whole > 0.3


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("blinks.csv", None, "has no blinks.csv"),
        ("frames.csv", "timestamp_s,ear\n0,0.3\n0,0.3\n", "does not increase"),
        ("blinks.csv", "blink_id,kind\n1,blink\n", "onset_s"),
    ],
)
def test_damaged_results_are_refused(
    trace_session: Path, name: str, content: str | None, what: str
) -> None:
    if content is None:
        (trace_session / name).unlink()
    else:
        (trace_session / name).write_text(content)
    with pytest.raises(ReviewFolderError, match=what):
        open_review(trace_session)


@pytest.mark.slow
def test_the_video_is_found_checked_or_asked_for(
    video_session: Path, recording: Path, tmp_path: Path
) -> None:
    with pytest.raises(VideoFileError, match="--video FILE"):
        open_review(video_session)
    other = tmp_path / "other.mp4"
    other.write_bytes(recording.read_bytes()[:-1])
    with pytest.raises(ReviewOutdatedError, match="not the recording"):
        open_review(video_session, video=other)
    with open_review(video_session, trace_only=True) as review:
        assert review.video is None
    shutil.copy(recording, video_session.parent / recording.name)
    with open_review(video_session) as review:
        assert review.video is not None
        assert review.video.path == video_session.parent / recording.name


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


def test_closure_is_read_back_as_it_was_measured(trace_session: Path) -> None:
    session = read_session(trace_session)
    written = [row["fec"] for row in rows_of(trace_session / "frames.csv")]
    cells = ["" if math.isnan(value) else f"{value:.5f}" for value in session.fec()]
    assert cells == written
    path = trace_session / "provenance.json"
    facts = json.loads(path.read_text())
    facts["settings"]["filter"] = {"filter": "savgol"}
    path.write_text(json.dumps(facts))
    with pytest.raises(StudyFolderError, match="smoothed by a filter of earlier versions"):
        read_session(trace_session)


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
    rows = rows_of(reviewed / "blinks.csv")
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
