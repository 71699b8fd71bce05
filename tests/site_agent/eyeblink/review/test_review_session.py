"""A review without its page: what is kept, and that the automatic result is never touched."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from site_agent.eyeblink.review.actions import Accept, Add, Correct, Delete, Undo
from site_agent.eyeblink.review.review_session import open_review


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_automatic_result_stays_as_it_is(trace_session: Path) -> None:
    before = {path.name: path.read_bytes() for path in trace_session.iterdir()}
    with open_review(trace_session, reviewer="Ada") as review:
        review.act(Delete(blink_id=1))
        review.act(Correct(blink_id=2, kind="closure"))
    for name, data in before.items():
        assert (trace_session / name).read_bytes() == data
    assert sorted(p.name for p in (trace_session / "review").iterdir()) == [
        "blinks_reviewed.csv",
        "corrections.jsonl",
    ]


def test_the_reviewed_blinks_have_the_columns_of_the_automatic_ones(trace_session: Path) -> None:
    automatic = rows_of(trace_session / "blinks.csv")
    reviewed_file = trace_session / "review" / "blinks_reviewed.csv"
    with open_review(trace_session, reviewer="Ada") as review:
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
