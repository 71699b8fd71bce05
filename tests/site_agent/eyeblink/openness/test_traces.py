"""Files of eye aspect ratios and of closures, ours and those of other programs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import InvalidInputError, TableFileError
from site_agent.eyeblink.blinks.finding import judge_blinks, quality_warnings
from site_agent.eyeblink.openness.traces import looks_like_trace, read_trace, value_remarks
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.records import Gap
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.text_tables import Decimal, read_table
from tests.benchmarks.blinks_on_traces import Counts, found_events, load_annotated_traces


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


def test_frames_are_numbered_and_judged_under_other_names_or_refused(tmp_path: Path) -> None:
    lost = read_trace(write(tmp_path, "Frame Number,ear\n0,0.3\n5,0.3\n"), frame_rate_hz=10.0)
    assert lost.timestamps_s == pytest.approx([0.0, 0.5])
    with pytest.raises(TableFileError, match="'is_valid' is not known; did you mean valid"):
        read_trace(write(tmp_path, "time_s,ear,is_valid\n0,0.3,false\n"))


def test_a_blank_line_of_plain_values_is_a_frame_without_a_value(tmp_path: Path) -> None:
    plain = read_trace(write(tmp_path, "0.3\n\nx\n0.1\n0.2\n\n"), frame_rate_hz=10.0)
    assert plain.ear == pytest.approx([0.3, np.nan, np.nan, 0.1, 0.2], nan_ok=True)


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("timestamp_s;ear\n0,0;0,3\n0,05;\n0,2;0,1\n", "auto"),
        ("sep=;\ntimestamp_s;ear\n0,0;0,3\n0,05;\n0,2;0,1\n", "auto"),
        ('"timestamp_s","ear"\n0.0,0.3\n0.05,NA\n0.2,0.1\n', "."),
        ("Time ms,EAR\r\n0,0.3\r\n50,\r\n200,0.1\r\n", "."),
        ("time_s\tear\n0.0\t0.3\n0.05\t\n0.2\t0.1\n", "auto"),
        ("\ufefftimestamp_s;ear\n0,0;0,3\n0,05;x\n0,2;0,1\n", ","),
    ],
)
def test_tables_as_other_programs_write_them(tmp_path: Path, text: str, decimal: Decimal) -> None:
    path = write(tmp_path, text)
    assert looks_like_trace(path)
    trace = read_trace(path, decimal=decimal)
    assert trace.timestamps_s == pytest.approx([0.0, 0.05, 0.2])
    assert trace.ear == pytest.approx([0.3, np.nan, 0.1], nan_ok=True)


@pytest.mark.parametrize("first", ["nan", "x", "n/a", "", "3.0e-01", "* 0.3"])
def test_a_trace_without_a_header_may_begin_with_any_value(tmp_path: Path, first: str) -> None:
    path = write(tmp_path, f"{first}\n0.25\n")
    assert looks_like_trace(path) == bool(first)
    trace = read_trace(path, frame_rate_hz=30.0)
    assert trace.ear == pytest.approx([0.3 if "3" in first else np.nan, 0.25], nan_ok=True)


def test_what_looks_like_a_trace(tmp_path: Path) -> None:
    assert looks_like_trace(write(tmp_path, "x\n" + "0.3\n" * 50_000))
    assert not looks_like_trace(write(tmp_path, "trial,cs_onset_s\n1,3.0\n"))
    assert not looks_like_trace(write(tmp_path, "2026 log of the rig\n"))
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
        ("0.3\nhello\n", "line 2: ear is 'hello', expected a number"),
        ("0,3\n0.3\n", "line 1: ear is '0,3', expected a number (other numbers of the table"),
        ("0.3\n27\n", "line 2: found 27, expected a ratio of 0 to 10"),
        ("frame,pupil\n0,0.3\n", "expected ear, or ear_left and ear_right"),
        ("timestamp_s,ear\n0,0.3\n0,0.3\n", "line 3: time 0 s does not come after 0 s"),
        ("timestamp_s,ear\n,0.3\n", "line 2: has no time"),
        ("frame,ear,valid\n0,0.3,maybe\n", "line 2: valid is 'maybe', expected true or false"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TableFileError) as error:
        read_trace(path, frame_rate_hz=30.0)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_trace_that_is_no_text_is_refused(tmp_path: Path) -> None:
    for content in (b"0.3\n0.\xf3\n" + b"0.2\n" * 9000, b"0.2\n" * 9000 + b"\xf3"):
        (tmp_path / "trace.txt").write_bytes(content)
        with pytest.raises(TableFileError, match=r"line \d+: ear is '\S*\xf3', expected a number"):
            read_trace(tmp_path / "trace.txt", frame_rate_hz=30.0)


def test_a_frame_rate_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TableFileError, match="--frame-rate-hz"):
        read_trace(write(tmp_path, "0.3\n0.3\n"))
    with pytest.raises(TableFileError, match="more than 0"):
        read_trace(write(tmp_path, "0.3\n0.3\n"), frame_rate_hz=0.0)


def test_real_traces(shared_data: Path) -> None:
    folder = shared_data / "ear_traces"
    plain = read_trace(folder / "laiyt" / "both_9m.txt", frame_rate_hz=30.0)
    assert len(plain.ear) == 5469
    assert int(np.isnan(plain.ear).sum()) == 664
    table = read_trace(folder / "jefapato" / "test_1min.csv", frame_rate_hz=30.0)
    assert table.valid.all()


def test_annotated_blinks_are_found_in_real_traces(shared_data: Path) -> None:
    recordings = load_annotated_traces(shared_data / "ear_traces")
    assert len(recordings) == 8
    for data_set, least in {"eyeblink8": 0.97, "laiyt": 0.8}.items():
        matches = [
            recording.match(found_events(recording.trace))
            for recording in recordings
            if recording.data_set == data_set
        ]
        assert Counts.of(matches).f1 > least


@pytest.mark.parametrize(("too_fast", "fewest", "most"), [(1, 0, 0), (4, 5, 8)])
def test_real_traces_at_a_rate_far_too_high_are_doubted(
    shared_data: Path, too_fast: int, fewest: int, most: int
) -> None:
    named = 0
    for recording in load_annotated_traces(shared_data / "ear_traces"):
        trace = replace(recording.trace, timestamps_s=recording.trace.timestamps_s / too_fast)
        doubts = quality_warnings(trace, True, judge_blinks(trace))
        named += any("the frame rate is too high" in doubt for doubt in doubts)
    assert fewest <= named <= most


@pytest.mark.parametrize("number", ["0", "-1", "999", "0.0000"])
def test_runs_of_a_number_in_place_of_a_value_are_no_closure(tmp_path: Path, number: str) -> None:
    rng = np.random.default_rng(0)
    ears = [f"{ear:.4f}" for ear in rng.normal(0.3, 0.005, 300)]
    ears[100:145] = [number] * 45
    for text in ("\n".join(ears), "ear\n" + "\n".join(ears)):
        trace = read_trace(write(tmp_path, text + "\n"), frame_rate_hz=28.0)
        assert np.flatnonzero(np.isnan(trace.ear)).tolist() == list(range(100, 145))
        assert trace.placeholders == 45
    eyes = "".join(f"{ear},0.3\n" for ear in ears)
    trace = read_trace(write(tmp_path, "ear_left,ear_right\n" + eyes), frame_rate_hz=28.0)
    assert trace.ear[120] == 0.3
    assert trace.placeholders == 45


def test_one_value_of_zero_stays(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "0.3\n0.1\n0\n0.1\n0.3\n"), frame_rate_hz=30.0)
    assert trace.ear.tolist() == [0.3, 0.1, 0.0, 0.1, 0.3]
    assert trace.placeholders == 0


def test_values_beyond_aspect_ratios_are_remarked_on(tmp_path: Path) -> None:
    opening = read_trace(
        write(tmp_path, "left_ear,right_ear\n" + "4.1,4.3\n" * 60), frame_rate_hz=30
    )
    (remark,) = value_remarks(opening)
    assert "rest at 4.2" in remark
    usual = read_trace(write(tmp_path, "ear\n" + "0.31\n0.32\n" * 30), frame_rate_hz=30)
    assert list(value_remarks(usual)) == []


def test_times_without_a_unit_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TableFileError, match="timestamp_s or time_s or timestamp_ms or time_ms"):
        read_trace(write(tmp_path, "time,ear\n0,0.3\n33,0.3\n"))


RATE_HZ = 50


def closures() -> np.ndarray:
    """Return the closure of an eye with five blinks in 40 s; the third closes to 0.8."""
    times_s = np.arange(40 * RATE_HZ) / RATE_HZ
    lids = np.zeros(len(times_s))
    for number, at_s in enumerate((4, 11, 18, 25, 32)):
        lids += (0.8 if number == 2 else 1.0) * np.exp(-(((times_s - at_s) / 0.07) ** 2))
    return np.clip(lids + np.random.default_rng(0).normal(0, 0.01, len(lids)), 0, 1)


def written(folder: Path, column: str, values: np.ndarray) -> Path:
    path = folder / "trace.csv"
    lines = [f"{number / RATE_HZ:.4f},{value:.5f}" for number, value in enumerate(values)]
    path.write_text("\n".join([f"time_s,{column}", *lines]) + "\n")
    return path


@pytest.mark.parametrize(("column", "shut"), [("fec", 1), ("FEC pct", 100), ("closure", 100)])
def test_closures_are_read_in_any_scale(tmp_path: Path, column: str, shut: int) -> None:
    path = written(tmp_path, column, shut * closures())
    assert looks_like_trace(path)
    trace = read_trace(path)
    assert trace.of_closure
    assert trace.placeholders == 0, "clipped closures are values"
    assert np.abs(1 - trace.ear / 0.3 - closures()).max() < 1e-4


def test_blinks_of_closures_are_found_and_their_scale_can_stay(tmp_path: Path) -> None:
    path = written(tmp_path, "fec", 0.7 * closures())
    peaks = {}
    for chosen in ("percentile", "as-given"):
        plain = BlinkAnalysisSettings()
        calibration = replace(plain.blinks.calibration, closed_from=chosen)
        settings = replace(plain, blinks=replace(plain.blinks, calibration=calibration))
        out = tmp_path / chosen
        session = run_blink_analysis(TraceFile(path), out_dir=out, settings=settings)
        assert session.blinks == 5
        peaks[chosen] = np.nanpercentile(read_table(out / "frames.csv").numbers("fec"), 99.8)
    assert peaks["percentile"] == pytest.approx(1.0, abs=0.05)
    assert peaks["as-given"] == pytest.approx(0.66, abs=0.04)


def test_lids_held_shut_at_a_closure_of_exactly_1_are_a_closure(tmp_path: Path) -> None:
    times_s = np.arange(40 * RATE_HZ) / RATE_HZ
    held = np.clip(np.minimum((times_s - 20) / 0.15, (24 - times_s) / 0.25), 0, 1)
    out = tmp_path / "out"
    path = written(tmp_path, "fec", np.maximum(closures(), held))
    session = run_blink_analysis(TraceFile(path), out_dir=out)
    assert (session.blinks, session.closures, session.valid_pct) == (5, 1, 100.0)
    assert session.perclos_pct == pytest.approx(100 * 4.0 / 40, abs=2)
    assert not session.warnings


@pytest.mark.parametrize("scale", [1.0, 0.5, 10.0])
def test_closures_under_the_name_of_ratios_are_refused(tmp_path: Path, scale: float) -> None:
    path = written(tmp_path, "ear", scale * closures())
    with pytest.raises(TableFileError, match=r"rest at \S+ and rise to .* name the column fec"):
        read_trace(path)


def test_openness_under_the_name_of_closures_is_doubted(tmp_path: Path) -> None:
    (remark,) = value_remarks(read_trace(written(tmp_path, "fec", 1 - closures())))
    assert "column one of openness" in remark
    assert remark.endswith("write 1 - openness under the name fec")
    assert list(value_remarks(read_trace(written(tmp_path, "fec", closures())))) == []


@pytest.mark.parametrize("decimals", [3, 4, 5])
@pytest.mark.parametrize("end", [0.3, 0.24])
def test_values_that_were_repeated_or_interpolated_are_named(
    tmp_path: Path, end: float, decimals: int
) -> None:
    ear = 0.3 - 0.25 * closures() + np.random.default_rng(1).normal(0, 0.008, 40 * RATE_HZ)
    plain = read_trace(written(tmp_path, "ear", ear.round(decimals)))
    assert list(value_remarks(plain)) == []
    ear[500:600] = np.linspace(0.3, end, 100)
    (remark,) = value_remarks(read_trace(written(tmp_path, "ear", ear.round(decimals))))
    assert remark.startswith("1 time the value")
    assert "along a line, for 2.0 to 2.0 s" in remark
    coarse = read_trace(written(tmp_path, "ear", ear.round(2)))
    assert list(value_remarks(coarse)) == [], "equal by chance"


def test_the_mean_of_two_coarse_columns_is_coarse(tmp_path: Path) -> None:
    # At rest the values are equal by chance; in blinks, sums of both eyes have rounding errors.
    noise = np.random.default_rng(1).normal(0, 0.0035, (2, 40 * RATE_HZ)) * (1 + 5 * closures())
    left, right = (0.3 - 0.25 * closures() + noise).round(2)
    rows = (f"{n / RATE_HZ},{a},{b}\n" for n, (a, b) in enumerate(zip(left, right, strict=True)))
    path = write(tmp_path, "time_s,ear_left,ear_right\n" + "".join(rows))
    assert list(value_remarks(read_trace(path))) == []


@pytest.mark.parametrize(
    ("seen", "not_seen"), [("1", "0"), ("1.0", "0.0"), ("yes", "no"), ("True", "False")]
)
def test_marks_of_other_programs_are_read(tmp_path: Path, seen: str, not_seen: str) -> None:
    text = f"time_s,detected,success,ear\n0,2,{seen},0.3\n0.03,0,{not_seen},0.1\n"
    assert list(read_trace(write(tmp_path, text)).gaps) == [Gap.NONE, Gap.MARKED_INVALID]


@pytest.mark.parametrize("score", ["2", "0.98", ""])
def test_scores_named_like_marks_are_passed_over_with_a_remark(tmp_path: Path, score: str) -> None:
    trace = read_trace(write(tmp_path, f"time_s,detected,ear\n0,{score},0.3\n0.03,0,0.1\n"))
    assert list(trace.gaps) == [Gap.NONE, Gap.NONE]
    (remark,) = value_remarks(trace)
    assert remark.startswith("the column detected holds other values than true and false")


def test_a_rate_that_contradicts_the_times_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "ear", 0.3 - 0.25 * closures())
    assert read_trace(path, frame_rate_hz=RATE_HZ).frame_rate_hz == pytest.approx(RATE_HZ)
    with pytest.raises(TableFileError, match="times of 50 frames/s, while 60 were given"):
        read_trace(path, frame_rate_hz=60)


@pytest.mark.parametrize("rate_hz", [24, 29.97, 30, 60])
def test_times_to_a_hundredth_of_a_second_fit_their_rate(tmp_path: Path, rate_hz: float) -> None:
    rows = "".join(f"{n / rate_hz:.2f},0.3\n" for n in range(300))
    trace = read_trace(write(tmp_path, "time_s,ear\n" + rows), frame_rate_hz=rate_hz)
    assert trace.frame_rate_hz == pytest.approx(rate_hz, rel=0.01)


def test_all_files_state_one_rate_of_times_to_a_millisecond(tmp_path: Path) -> None:
    times_s = (np.arange(4800) / 120).round(3)
    ear = 0.3 - 0.25 * np.interp(times_s, np.arange(40 * RATE_HZ) / RATE_HZ, closures())
    rows = "".join(f"{time},{value:.5f}\n" for time, value in zip(times_s, ear, strict=True))
    path, out = write(tmp_path, "time_s,ear\n" + rows), tmp_path / "out"
    run_blink_analysis(TraceFile(path), out_dir=out)
    session = json.loads((out / "session.json").read_text())["recording"]
    provenance = json.loads((out / "provenance.json").read_text())["recording"]
    assert session["frame_rate_hz"] == pytest.approx(120, rel=1e-4)
    assert provenance["frame_rate_hz"] == session["frame_rate_hz"]


def test_ratios_of_eyes_that_are_mostly_shut_are_ratios(tmp_path: Path) -> None:
    ear = 0.07 + 0.24 * closures()
    assert read_trace(written(tmp_path, "ear", ear)).ear.max() == pytest.approx(0.31, abs=0.01)


def test_the_scale_of_ratios_is_never_given(tmp_path: Path) -> None:
    plain = BlinkAnalysisSettings()
    calibration = replace(plain.blinks.calibration, closed_from="as-given")
    settings = replace(plain, blinks=replace(plain.blinks, calibration=calibration))
    path = written(tmp_path, "ear", 0.3 - 0.25 * closures())
    with pytest.raises(InvalidInputError, match="for traces of closures"):
        run_blink_analysis(TraceFile(path), out_dir=tmp_path / "out", settings=settings)
