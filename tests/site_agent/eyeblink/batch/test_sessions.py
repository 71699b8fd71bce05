"""What a folder or a table says of the sessions of a batch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from site_agent.errors import TableFileError
from site_agent.eyeblink.batch.sessions import read_session_table, with_overrides
from site_agent.eyeblink.session import BlinkAnalysisSettings


def table(folder: Path, text: str) -> Path:
    path = folder / "sessions.csv"
    path.write_text(text)
    return path


def test_a_table_describes_a_session(tmp_path: Path) -> None:
    (tmp_path / "own.dat").write_bytes(b"")
    listed = read_session_table(
        table(
            tmp_path,
            "Session;Video;Trace;Trials;Participant;Session number;Group;"
            "frame_rate_hz;Landmarks;latency_ms\n"
            "a;day1/a.mp4;;a.txt;p1;2;old;;own.dat;12,5\n"
            "b;;b.csv;;;;;60;site-a/face-68;\n",
        )
    )
    first, second = listed.sessions
    assert first.source == tmp_path / "day1/a.mp4"
    assert (first.is_video, first.participant, first.number, first.group) == (True, "p1", 2, "old")
    assert first.trials == tmp_path / "a.txt"
    assert first.landmarks == str(tmp_path / "own.dat")
    assert first.line == 2
    settings = with_overrides(BlinkAnalysisSettings(), first.overrides)
    assert settings.trial_timing.latency_ms == 12.5
    assert (second.is_video, second.frame_rate_hz, second.landmarks) == (
        False,
        60,
        "site-a/face-68",
    )
    assert math.isnan(second.number)
    assert second.overrides == {}
    assert listed.remarks == ()


def test_every_wrong_line_of_a_table_is_named(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "session,video,trace,frame_rate_hz,cr_rule,session_number\n"
        "a,a.mp4,,,,\n"
        "A,b.mp4,,,,\n"
        "c,c.mp4,c.csv,,,\n"
        "d,,,,,\n"
        "e,,e.csv,-3,,\n"
        "../f,,f.csv,,,\n"
        "g,,g.csv,,amplitude,\n"
        "h,,h.csv,,,second\n",
    )
    with pytest.raises(TableFileError) as raised:
        read_session_table(path)
    told = str(raised.value).splitlines()
    assert [line for line, _ in raised.value.problems] == [3, 4, 5, 6, 7, 8, 9]
    assert all(line.startswith(f"{path}, line ") for line in told)
    for number, words in enumerate(
        ("on line 2 too", "both given", "neither", "-3", "../f", "fec, ur-share", "second")
    ):
        assert words in told[number]
