"""Files of eye aspect ratios, ours and those of other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import TraceFileError
from site_agent.eyeblink.blinks.finding import BlinkSettings
from site_agent.eyeblink.openness.traces import looks_like_trace, read_trace
from site_agent.eyeblink.records import Gap
from tests.benchmarks.blinks_on_traces import (
    F1_TO_BEAT,
    AnnotatedTrace,
    Counts,
    leave_one_out,
    load_annotated_traces,
    match_recording,
    reasons_for_misses,
)
from tests.site_agent.eyeblink.drawn_traces import trace_of


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_one_value_a_line(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "0.247\n* 0.209\nx\n* x\n0.3\n"), frame_rate_hz=25.0)
    assert trace.ear == pytest.approx([0.247, 0.209, np.nan, np.nan, 0.3], nan_ok=True)
    assert trace.timestamps_s == pytest.approx([0, 0.04, 0.08, 0.12, 0.16])
    assert list(trace.gaps) == [Gap.NONE, Gap.NONE, Gap.NO_FACE, Gap.NO_FACE, Gap.NONE]


def test_table_of_the_other_tool(tmp_path: Path) -> None:
    text = "frame,EAR2D6_l,EAR2D6_r,EAR2D6_valid,BS_Valid\n0, 0.3, 0.32,True,True\n"
    text += "1, 0.3, 0.3,False,True\n"
    trace = read_trace(write(tmp_path, text), frame_rate_hz=240.0)
    assert trace.ear == pytest.approx([0.31, np.nan], nan_ok=True)
    assert trace.ear_left[0] == pytest.approx(0.3)
    assert list(trace.gaps) == [Gap.NONE, Gap.MARKED_INVALID]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_table_with_times(tmp_path: Path, delimiter: str) -> None:
    rows = [("time_s", "ear"), ("0.0", "0.3"), ("0.05", ""), ("0.2", "0.1")]
    trace = read_trace(write(tmp_path, "\n".join(delimiter.join(row) for row in rows)))
    assert trace.timestamps_s == pytest.approx([0.0, 0.05, 0.2])
    assert trace.ear == pytest.approx([0.3, np.nan, 0.1], nan_ok=True)


def test_a_blank_line_is_a_frame_without_a_value(tmp_path: Path) -> None:
    plain = read_trace(write(tmp_path, "\n0.3\n\n\n0.1\n# noted\n0.2\n\n"), frame_rate_hz=10.0)
    assert plain.ear == pytest.approx([0.3, np.nan, np.nan, 0.1, 0.2], nan_ok=True)
    assert plain.timestamps_s == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    headed = read_trace(write(tmp_path, "ear\n0.3\n\n0,1\n\n"), frame_rate_hz=10.0)
    assert headed.ear == pytest.approx([0.3, np.nan, 0.1], nan_ok=True)
    path = tmp_path / "trace.txt"
    path.write_bytes(b"0.3\r\r\n0.2\r\r\n0.1\r\r\n")
    assert read_trace(path, frame_rate_hz=10.0).ear == pytest.approx([0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ('"","timestamp_s","ear"\n"1",0.0,0.3\n"2",0.05,NA\n"3",0.2,0.1\n', "utf-8"),
        ("timestamp_s;ear\n0,0;0,3\n0,05;\n0,2;0,1\n", "utf-8"),
        ("timestamp_s\tear\n0.0\t0.3\n0.05\tx\n0.2\t0.1\n", "utf-16"),
        ("# gemessen am 3. März\n\ntime_s,ear\n0,0.3\n# lost\n0.05,\n0.2,0.1\n", "latin-1"),
        ("Time ms,EAR\n0,0.3\n50,-\n200,0.1\n", "utf-8"),
        ("timestamp_ms,ear\n0,0.3\n50,n/a\n200,0.1\n", "utf-8"),
        ("timestamp,ear\n0,0.3\n0.05,inf\n0.2,0.1\n", "utf-8"),
        ("time,ear\n0,0.3\n0.05,nan\n0.2,0.1\n", "utf-8-sig"),
    ],
)
def test_tables_as_other_programs_write_them(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode(encoding))
    assert looks_like_trace(path)
    trace = read_trace(path)
    assert trace.timestamps_s == pytest.approx([0.0, 0.05, 0.2])
    assert trace.ear == pytest.approx([0.3, np.nan, 0.1], nan_ok=True)


@pytest.mark.parametrize("comments", ["", "# rig 2, time: noon, ear: both\n#\n"])
def test_the_header_that_numpy_writes_is_no_comment(tmp_path: Path, comments: str) -> None:
    path = tmp_path / "trace.csv"
    values = np.array([[0.0, 0.3], [0.05, np.nan], [0.2, 0.1]])
    header = f"{comments.replace('# ', '').replace('#', '')}timestamp_s,ear"
    np.savetxt(path, values, delimiter=",", header=header, fmt="%.3f")
    assert looks_like_trace(path)
    trace = read_trace(path)
    assert trace.timestamps_s == pytest.approx([0.0, 0.05, 0.2])
    assert trace.ear == pytest.approx([0.3, np.nan, 0.1], nan_ok=True)
    path.write_text(path.read_text() + "0.3,one\n")
    line = 5 + comments.count("\n")
    with pytest.raises(TraceFileError, match=f"line {line}: found 'one'"):
        read_trace(path)


def test_a_comment_that_speaks_of_columns_is_no_header(tmp_path: Path) -> None:
    named = read_trace(write(tmp_path, "# time,ear\ntimestamp_s,ear\n0.0,0.3\n0.5,0.2\n"))
    assert named.timestamps_s == pytest.approx([0.0, 0.5])
    plain = read_trace(write(tmp_path, "# time,ear left,ear right\n0.3\n0.2\n"), frame_rate_hz=2.0)
    assert plain.ear == pytest.approx([0.3, 0.2])


@pytest.mark.parametrize("name", ["timestamp", "time"])
def test_times_that_can_be_no_seconds_are_asked_about(tmp_path: Path, name: str) -> None:
    rows = "".join(f"{33.3 * number:.1f},0.3\n" for number in range(20))
    with pytest.raises(TraceFileError, match=f"milliseconds.* call it {name}_ms"):
        read_trace(write(tmp_path, f"{name},ear\n{rows}"))
    renamed = read_trace(write(tmp_path, f"{name}_ms,ear\n{rows}"))
    assert renamed.timestamps_s[-1] == pytest.approx(0.6327)
    slow = read_trace(write(tmp_path, f"{name}_s,ear\n{rows}"))
    assert slow.timestamps_s[-1] == pytest.approx(632.7)


@pytest.mark.parametrize(
    ("name", "cells", "message"),
    [
        ("time", ("00:00:00.000", "00:00:00.033", "00:00:00.067"), "found '00:00:00.000'"),
        ("time", ("0", "33.3", "66.7"), "milliseconds"),
        ("timestamp", ("0", "33.3", "66.7"), "milliseconds"),
        ("time_ms", ("0", "", "66.7"), "line 3: found '', expected a time"),
        ("timestamp_ms", ("0", "33", "33"), "does not come after"),
    ],
)
def test_times_of_no_use_give_way_to_a_frame_rate(
    tmp_path: Path, name: str, cells: tuple[str, ...], message: str
) -> None:
    rows = "".join(f"{frame},{cell},0.3\n" for frame, cell in zip((4, 5, 7), cells, strict=True))
    path = write(tmp_path, f"frame,{name},ear\n{rows}")
    assert read_trace(path, frame_rate_hz=10.0).timestamps_s == pytest.approx([0.0, 0.1, 0.3])
    with pytest.raises(TraceFileError, match=f"{message}.*--frame-rate-hz.*the column {name}"):
        read_trace(path)
    used = read_trace(write(tmp_path, f"{name},ear\n0,0.3\n0.5,0.2\n"), frame_rate_hz=10.0)
    assert used.timestamps_s[1] == (0.0005 if name.endswith("_ms") else 0.5), "they can be used"


def test_what_looks_like_a_trace(tmp_path: Path) -> None:
    assert looks_like_trace(write(tmp_path, "# my tool\n0,31\n\nx\n" + "0,3\n" * 50_000))
    assert not looks_like_trace(write(tmp_path, "trial,cs_onset_s\n1,3.0\n"))
    assert not looks_like_trace(write(tmp_path, "# only\n# comments\n"))
    assert not looks_like_trace(write(tmp_path, "\0\1"))
    assert not looks_like_trace(tmp_path / "none.csv")


def test_missing_frames_keep_their_time(tmp_path: Path) -> None:
    text = "frame,ear\n10,0.3\n11,0.3\n20,0.2\n"
    trace = read_trace(write(tmp_path, text), frame_rate_hz=10.0)
    assert trace.timestamps_s == pytest.approx([0.0, 0.1, 1.0])
    assert list(trace.frames) == [10, 11, 20]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("0.3\nhello\n", "line 2: found 'hello'"),
        ("0.3\n27\n", "line 2: found 27, expected an eye aspect ratio from 0 to 10"),
        ("frame,ear\n0,0.3\n1\n", "line 3: found 1 cells, expected 2"),
        ("frame,pupil\n0,0.3\n", "expected ear, or ear_left and ear_right"),
        ("timestamp_s,ear\n0,0.3\n0,0.3\n", "line 3: time 0 s does not come after 0 s"),
        ("timestamp_s,ear\nx,0.3\n", "line 2: found 'x', expected a time"),
        ("frame,ear\n", "no values"),
        ("frame,ear,valid\n0,0.3,maybe\n", "line 2: found 'maybe', expected true or false"),
        ("0.3\0\n", "zero bytes"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TraceFileError) as error:
        read_trace(path, frame_rate_hz=30.0)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_frame_rate_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="--frame-rate-hz"):
        read_trace(write(tmp_path, "0.3\n0.3\n"))
    with pytest.raises(TraceFileError, match="more than 0"):
        read_trace(write(tmp_path, "0.3\n0.3\n"), frame_rate_hz=0.0)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF")
    with pytest.raises(TraceFileError, match="expected a text file"):
        read_trace(path, frame_rate_hz=30.0)
    with pytest.raises(TraceFileError, match="No such file"):
        read_trace(tmp_path / "missing.txt", frame_rate_hz=30.0)


def test_real_traces(shared_data: Path) -> None:
    folder = shared_data / "ear_traces"
    plain = read_trace(folder / "laiyt" / "both_9m.txt", frame_rate_hz=30.0)
    assert len(plain.ear) == 5469
    assert int(np.isnan(plain.ear).sum()) == 664
    table = read_trace(folder / "jefapato" / "test_1min.csv", frame_rate_hz=30.0)
    assert table.valid.all()


def test_every_missed_blink_has_its_reason() -> None:
    ear = 0.3 + 0.004 * np.random.default_rng(1).standard_normal(1500)
    for frame in range(100, 1400, 150):
        ear[frame - 3 : frame + 4] -= [0.05, 0.14, 0.2, 0.22, 0.18, 0.12, 0.05]
    ear[690:711] = np.nan
    ear[472:479] -= [0.01, 0.02, 0.03, 0.035, 0.03, 0.02, 0.01]
    annotated = (100, 103, 475, 700, 920)
    recording = AnnotatedTrace("drawn", trace_of(np.arange(1500) / 30.0, ear), annotated)
    reasons = reasons_for_misses(recording, BlinkSettings())
    assert list(reasons) == [103, 475, 700, 920]
    assert reasons[103] == "merged with the blink annotated at 100"
    assert reasons[475].startswith("too shallow: evidence 0.")
    assert reasons[700] == "missing data: eyes not seen in 17 of 17 frames"
    assert not reasons[920].startswith(("merged", "missing"))


def test_annotated_blinks_are_found_in_real_traces(shared_data: Path) -> None:
    recordings = load_annotated_traces(shared_data / "ear_traces" / "laiyt")
    assert len(recordings) == 4
    settings = BlinkSettings()
    shipped = [match_recording(recording, settings) for recording in recordings]
    assert Counts.of(shipped).f1 > F1_TO_BEAT
    held_out = [match for _, match in leave_one_out(recordings, settings).values()]
    assert Counts.of(held_out).f1 > F1_TO_BEAT
    for recording, match in zip(recordings, shipped, strict=True):
        reasons = reasons_for_misses(recording, settings)
        assert list(reasons) == [recording.blink_frames[index] for index in match.missed]
