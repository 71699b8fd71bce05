"""Sessions of a batch, read from a folder or a table."""

import math
from pathlib import Path

import pytest

from site_agent.errors import TableFileError
from site_agent.eyeblink.batch.sessions import (
    find_sessions,
    name_problem,
    read_session_table,
    session_number,
    settings_from_plain,
    with_overrides,
)
from site_agent.eyeblink.conditioning import ConditioningSettings, CrRule, Rejection
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.plain_json import plain


def table(folder: Path, text: str) -> Path:
    path = folder / "sessions.csv"
    path.write_text(text)
    return path


def test_own_columns_are_labels_and_misspelled_settings_are_named(tmp_path: Path) -> None:
    columns = "session,video,phase,cr_treshold\n"
    listed = read_session_table(table(tmp_path, f"{columns}a,a.mp4,extinction,0.2\n"))
    assert listed.sessions[0].labels == {"phase": "extinction", "cr_treshold": "0.2"}
    (remark,) = listed.remarks
    assert "is 'cr_threshold' meant?" in remark


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


def test_a_recording_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    lines = "session,trace,at_usual_pose,trials\na,one.csv,,\nb,two.csv,,\nc,one.csv,,\n"
    lines += "d,one.csv,false,\ne,one.csv,,t.csv\n"
    [remark] = read_session_table(table(tmp_path, lines)).remarks
    assert "line 4: c has the same recording as a (one.csv)" in remark


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
    for number, message in enumerate(
        ("on line 2 too", "both given", "neither", "-3", "../f", "fec, ur-share", "second")
    ):
        assert message in told[number]


def test_a_folder_is_looked_through(tmp_path: Path) -> None:
    files = {
        "sub-01_ses-2_task-x.mp4": "",
        "sub-01_ses-2_task-x_trials.csv": "trial,cs_onset_s\n1,3\n",
        "sub-01_ses-2_task-x_truth.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/ear.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/notes.txt": "the baby slept\n",
        ".hidden/a.mp4": "",
        "study/old/frames.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/out/frames.csv": "timestamp_s,ear\n0,0.3\n",
        "deep/out/session.json": "{}",
        "deep/out/overlay.mp4": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    traces = find_sessions(tmp_path, videos=False, leave_out=tmp_path / "study")
    assert [item.name for item in traces.sessions] == ["ear"]
    assert any("notes.txt" in remark for remark in traces.remarks)
    left_out = "videos, left out as there are traces (--landmarks chooses videos): "
    assert f"{left_out}sub-01_ses-2_task-x.mp4" in traces.remarks
    listed = find_sessions(tmp_path, videos=True, leave_out=tmp_path / "study")
    assert listed.remarks == ("traces, left out as there are videos: ear.csv",)
    [video] = listed.sessions
    assert (video.name, video.participant, video.number) == ("sub-01_ses-2_task-x", "01", 2)
    assert video.trials == tmp_path / "sub-01_ses-2_task-x_trials.csv"


def test_folders_of_images_are_left_out_with_a_remark(tmp_path: Path) -> None:
    names = ["a.mp4", "figures/1.png", *(f"day 2/{number:04}.png" for number in range(10))]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    listed = find_sessions(tmp_path, videos=True)
    assert [item.name for item in listed.sessions] == ["a"]
    [remark] = listed.remarks
    assert remark.startswith("day 2/: a folder of images, left out; make a video")
    assert "ffmpeg" in remark


def test_names_of_folders_and_numbers_of_labels() -> None:
    assert name_problem("p1 day 2_ä") == ""
    for name in ("", ".x", "a/b", "a\\b", "a:b", "x" * 200, "ends."):
        assert name_problem(name)
    assert [session_number(text) for text in ("2", "ses-03", "day 4", "2.5")] == [2, 3, 4, 2.5]
    assert math.isnan(session_number("first"))


def test_settings_come_back_from_their_plain_form() -> None:
    conditioning = ConditioningSettings(
        baseline_ms=(-300.0, -10.0),
        reject_rules=(Rejection.MISSING_SAMPLES,),
        cr_rule=CrRule.UR_SHARE,
        cr_needs_onset=True,
    )
    assert settings_from_plain(ConditioningSettings(), plain(conditioning)) == conditioning
    cells = {"region": "1 2 30 40", "face_track": "yes", "us_latency_ms": "3", "starts": "5"}
    settings = with_overrides(BlinkAnalysisSettings(), cells)
    assert (settings.faces.region, settings.faces.face_track, settings.faces.starts) == (
        (1, 2, 30, 40),
        True,
        5,
    )
    assert settings.trial_timing.us_latency_ms == 3.0
    with pytest.raises(ValueError, match="starts is 'many', expected a whole number"):
        with_overrides(BlinkAnalysisSettings(), {"starts": "many"})
    with pytest.raises(ValueError, match="nwb is 'ja', expected true or false"):
        with_overrides(BlinkAnalysisSettings(), {"nwb": "ja"})


@pytest.mark.parametrize(
    "names",
    [
        ("2026-05-04T10:30:00.mp4", "-first %03d?#.MP4", "Jürgen.mov", "two\nlines.mp4", "con.avi"),
        ("pi.h264", "pi.265", "pi.hevc", "pi.mjpeg"),
        (f"{'ü' * 100}a.mp4", f"{'ü' * 100}b.mp4", "x" * 200 + ".mp4"),
    ],
)
def test_every_recording_of_a_folder_gets_a_name_that_is_accepted(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    sessions = find_sessions(tmp_path, videos=True).sessions
    assert {session.source.name for session in sessions} == set(names)
    assert len({session.name.casefold() for session in sessions}) == len(names)
    assert [name_problem(session.name) for session in sessions] == [""] * len(names)
