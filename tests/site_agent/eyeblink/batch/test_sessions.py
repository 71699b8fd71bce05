"""What a folder or a table says of the sessions of a batch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from site_agent.errors import TableFileError
from site_agent.eyeblink.batch.session_table import read_session_table
from site_agent.eyeblink.batch.sessions import find_sessions, name_problem, session_number
from site_agent.eyeblink.batch.settings import (
    conditioning_from_plain,
    plain_settings,
    with_overrides,
)
from site_agent.eyeblink.conditioning.settings import ConditioningSettings, CrRule, Rejection
from site_agent.eyeblink.session import BlinkAnalysisSettings


def table(folder: Path, text: str) -> Path:
    path = folder / "sessions.csv"
    path.write_text(text)
    return path


def test_a_table_tells_all_of_a_session(tmp_path: Path) -> None:
    (tmp_path / "own.dat").write_bytes(b"")
    listed = read_session_table(
        table(
            tmp_path,
            "Session;Video;Trace;Trials;Subject;Session number;Group;fps;Landmarks;latency_ms\n"
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


def test_repeated_session_names_number_the_sessions_of_participants(tmp_path: Path) -> None:
    listed = read_session_table(
        table(tmp_path, "subject,session,trace\np1,1,a.csv\np1,2,b.csv\np2,1,c.csv\n")
    )
    assert [item.name for item in listed.sessions] == ["p1_1", "p1_2", "p2_1"]
    assert [item.number for item in listed.sessions] == [1, 2, 1]


def test_a_column_that_is_not_used_is_told(tmp_path: Path) -> None:
    listed = read_session_table(table(tmp_path, "trace,trails,age\na.csv,b.csv,31\n"))
    assert listed.sessions[0].name == "a"
    assert [remark for remark in listed.remarks if "trials meant" in remark]
    assert len(listed.remarks) == 2


def test_every_wrong_line_of_a_table_is_named(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "session,video,trace,fps,cr_rule,session_number\n"
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


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("subject,age\np1,3\n", "video or trace"), ("trace\n", "no session")],
)
def test_what_is_no_table_of_sessions(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TableFileError, match=words):
        read_session_table(table(tmp_path, text))
    with pytest.raises(TableFileError, match="No such file"):
        read_session_table(tmp_path / "missing.csv")


def test_a_folder_is_looked_through(tmp_path: Path) -> None:
    files = {
        "sub-01_ses-2_task-x.mp4": "",
        "sub-01_ses-2_task-x_trials.csv": "trial,cs_onset_s\n1,3\n",
        "sub-01_ses-2_task-x_truth.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/ear.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/plain.txt": "0.3\nx\n* 0.2\n",
        "deep/notes.txt": "the baby slept\n",
        "deep/other_trials.csv": "trial,cs_onset_s\n1,3\n",
        "images/timestamps.csv": "file,timestamp_s\n1.png,0\n",
        "images/1.png": "",
        ".hidden/a.mp4": "",
        "__MACOSX/b.mp4": "",
        "deep/._ear.csv": "timestamp_s,ear\n0,0.3\n",
        "study/old/frames.csv": "timestamp_s,ear\n0,0.3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    listed = find_sessions(tmp_path, leave_out=tmp_path / "study")
    found = {item.name: item for item in listed.sessions}
    assert set(found) == {"sub-01_ses-2_task-x", "ear", "plain", "images"}
    video = found["sub-01_ses-2_task-x"]
    assert (video.participant, video.number) == ("01", 2)
    assert video.trials == tmp_path / "sub-01_ses-2_task-x_trials.csv"
    assert found["images"].is_video
    assert not found["plain"].is_video
    assert any("notes.txt" in remark for remark in listed.remarks)
    assert any("other_trials.csv" in remark for remark in listed.remarks)


def test_equal_names_in_a_folder_are_told_apart(tmp_path: Path) -> None:
    for name in ("one/a.mp4", "two/a.mp4", "b.mp4", "b.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0.3\n0.2\n")
    listed = find_sessions(tmp_path)
    assert [item.name for item in listed.sessions] == ["b", "one_a", "two_a"]
    assert listed.sessions[0].source.suffix == ".mp4"
    assert "video is used" in listed.remarks[0]
    (other, *_) = find_sessions(tmp_path, prefer_videos=False).sessions
    assert other.source.suffix == ".csv"


def test_names_of_folders_and_numbers_of_labels() -> None:
    assert name_problem("p1 day 2_ä") == ""
    for name in ("", ".x", "a/b", "a\\b", "a:b", "x" * 200, "ends."):
        assert name_problem(name)
    assert [session_number(text) for text in ("2", "ses-03", "day 4", "2.5")] == [2, 3, 4, 2.5]
    assert math.isnan(session_number("first"))


def test_settings_come_back_from_their_plain_form() -> None:
    own = ConditioningSettings(
        baseline_ms=(-300.0, -10.0),
        reject_rules=(Rejection.MISSING_SAMPLES,),
        cr_rule=CrRule.UR_SHARE,
        closed_before_cs_above="zero",
        cr_needs_onset=True,
    )
    assert conditioning_from_plain(plain_settings(own)) == own
    assert conditioning_from_plain({"of a later version": 3}) == ConditioningSettings()
    words = {"region": "1 2 30 40", "face_track": "yes", "us_latency_ms": "3", "starts": "5"}
    found = with_overrides(BlinkAnalysisSettings(), words)
    assert (found.faces.region, found.faces.face_track, found.faces.starts) == (
        (1, 2, 30, 40),
        True,
        5,
    )
    assert found.trial_timing.us_latency_ms == 3.0
    with pytest.raises(ValueError, match="starts is 'many', expected a whole number"):
        with_overrides(BlinkAnalysisSettings(), {"starts": "many"})
