"""Trial lists, pulse logs and lights in the picture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.errors import ConditioningError, TrialFileError
from site_agent.eyeblink.conditioning.led_onsets import LedSettings, detect_led_onsets
from site_agent.eyeblink.conditioning.trial_clock import place_on_video_clock
from site_agent.eyeblink.conditioning.trials import (
    Trial,
    TrialType,
    correct_latency,
    read_trials_csv,
    session_cs_us_interval_ms,
    trials_from_onsets,
)
from site_agent.eyeblink.conditioning.ttl_log import TtlSettings, read_ttl_log

GOOD = """trial,trial_type,cs_onset_s,us_onset_s
1,paired,3.0,3.45
2,cs_only,12.5,
3,us_only,,20.25
"""


def written(folder: Path, text: str, name: str = "trials.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_a_list_of_trials_is_read(tmp_path: Path) -> None:
    found = read_trials_csv(written(tmp_path, GOOD))
    assert [trial.trial for trial in found.trials] == ["1", "2", "3"]
    assert [trial.trial_type for trial in found.trials] == ["paired", "cs_only", "us_only"]
    assert found.trials[0].us_onset_s == 3.45
    assert math.isnan(found.trials[1].us_onset_s)
    assert math.isnan(found.trials[2].cs_onset_s)
    assert found.trials[2].line == 4
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GOOD, "utf-8-sig"),
        (GOOD, "utf-16"),
        (GOOD.replace("\n", "\r\n"), "utf-8"),
        (GOOD.replace(",", "\t"), "utf-8"),
        (GOOD.replace(",", ";").replace(".", ","), "utf-8"),
        (GOOD.replace("12.5,", "12.5,n/a").replace("us_only,,", "us_only,NaN,"), "utf-8"),
        ("# rig 2\n\n" + GOOD + "\n,,,\n", "utf-8"),
        (GOOD.replace("trial_type", "Trial Type").replace("us_only", "US-only"), "utf-8"),
        (GOOD.replace("_onset_s", "_onset_ms").replace(".", "").replace("30,345", "3000,3450")
         .replace("125", "12500").replace("2025", "20250"), "utf-8"),
    ],
    ids=["bom", "utf-16", "crlf", "tabs", "semicolons", "n/a", "comments", "spelling", "ms"],
)  # fmt: skip
def test_lists_as_other_programs_write_them(tmp_path: Path, text: str, encoding: str) -> None:
    expected = read_trials_csv(written(tmp_path, GOOD, "expected.csv")).trials
    found = read_trials_csv(written(tmp_path, text, encoding=encoding)).trials
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.trial, ours.trial_type) == (theirs.trial, theirs.trial_type)
        np.testing.assert_allclose(
            [ours.cs_onset_s, ours.us_onset_s], [theirs.cs_onset_s, theirs.us_onset_s]
        )


def test_types_follow_from_the_onsets_and_trials_are_sorted(tmp_path: Path) -> None:
    found = read_trials_csv(written(tmp_path, "cs_onset_s,us_onset_s\n9,9.5\n3,\n,1\n"))
    assert [str(trial.trial_type) for trial in found.trials] == ["us_only", "cs_only", "paired"]
    assert [trial.trial for trial in found.trials] == ["3", "2", "1"]
    assert "trial_type" in found.remarks[0]
    assert "sorted" in found.remarks[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("4,paired,30,", "a paired trial without us_onset_s; give it, or call the trial cs_only"),
        ("4,cs_only,,31", "a cs_only trial without cs_onset_s"),
        ("4,us_only,,", "a us_only trial without us_onset_s"),
        ("4,us_only,30,31", "leave it empty, or call it paired"),
        ("4,paired,31,30", "us_onset_s 30 is not after cs_onset_s 31"),
        ("4,paired,half past,30", "cs_onset_s is 'half past', expected a number"),
        ("4,paired,inf,30", "cs_onset_s is 'inf'"),
        ("4,extinction,30,31", "expected cs_only, us_only or paired"),
        ("2,cs_only,30,", "trial '2' is on line 3 too"),
        ("4,cs_only,30,,7", "5 cells, expected 4"),
    ],
)
def test_errors_name_the_line_and_the_remedy(tmp_path: Path, line: str, expected: str) -> None:
    path = written(tmp_path, GOOD + line + "\n")
    with pytest.raises(TrialFileError, match="line 5") as caught:
        read_trials_csv(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"trial,trial_type,cs_onset_s,us_onset_s\n", "has a header but no trial"),
        (b"a,b\n1,2\n", "the columns are a, b; expected trial, trial_type"),
        (b"\0\1\2\3ftyp", "zero bytes"),
        (b"cs_onset_s,cs_onset_s\n1,2\n", "is there twice"),
    ],
)
def test_files_that_are_no_list(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "trials.csv"
    path.write_bytes(data)
    with pytest.raises(TrialFileError, match=expected):
        read_trials_csv(path)
    with pytest.raises(TrialFileError, match="No such file"):
        read_trials_csv(tmp_path / "absent.csv")


def test_a_comma_for_thousands_is_no_decimal_comma(tmp_path: Path) -> None:
    grouped = 'cs_onset_ms,us_onset_ms\n"5,000","5,450"\n'
    with pytest.raises(TrialFileError, match=r"line 2: cs_onset_ms is '5,000'.*without a comma"):
        read_trials_csv(written(tmp_path, grouped))
    with pytest.raises(TrialFileError, match="line 2: time_ms is '5,000'"):
        read_ttl_log(written(tmp_path, 'time_ms,event\n"5,000",CS\n'))
    for text in ('cs_onset_s,us_onset_s\n"5,0","5,45"\n', "cs_onset_s;us_onset_s\n5,000;5,450\n"):
        (trial,) = read_trials_csv(written(tmp_path, text)).trials
        assert (trial.cs_onset_s, trial.us_onset_s) == (5.0, 5.45)


def test_one_comma_that_is_decimal_tells_of_its_column(tmp_path: Path) -> None:
    rows = ['"5,123","5,573"', '"15,5","15,95"', '"-0,450",', '"25,250","25,700"']
    text = "\n".join(["cs_onset_s,us_onset_s", *rows]) + "\n"
    found = read_trials_csv(written(tmp_path, text)).trials
    assert [trial.cs_onset_s for trial in found] == [-0.45, 5.123, 15.5, 25.25]
    assert found[1].us_onset_s == 5.573
    for undecided in ('"15,500","15,95"', '15.5,"15,95"'):
        mixed = text.replace(rows[1], undecided).replace("-0,450", "1,450")
        with pytest.raises(TrialFileError, match="line 2: cs_onset_s is '5,123'"):
            read_trials_csv(written(tmp_path, mixed))


def test_a_us_long_after_its_cs_is_remarked_on(tmp_path: Path) -> None:
    found = read_trials_csv(written(tmp_path, "cs_onset_s,us_onset_s\n3000,3450\n"))
    assert "are the onsets in seconds?" in " ".join(found.remarks)


def test_the_interval_comes_from_the_paired_trials() -> None:
    trials = trials_from_onsets([1.0, 11.0, 21.0], [1.4, 11.4]).trials
    assert session_cs_us_interval_ms(trials, 450.0) == (pytest.approx(400.0), True)
    probes = [Trial("1", TrialType.CS_ONLY, 1.0, 1.3), Trial("2", TrialType.CS_ONLY, 9.0)]
    assert session_cs_us_interval_ms(probes, 450.0) == (pytest.approx(300.0), True)
    assert session_cs_us_interval_ms(probes[1:], 450.0) == (450.0, False)


def test_latency_moves_the_stimuli_apart() -> None:
    trial = Trial("1", TrialType.PAIRED, 10.0, 10.5)
    (moved,) = correct_latency([trial], latency_ms=20, us_latency_ms=35, clock_offset_s=100)
    assert moved.cs_onset_s == pytest.approx(110.020)
    assert moved.us_onset_s == pytest.approx(110.535)
    with pytest.raises(ConditioningError, match="finite"):
        correct_latency([trial], latency_ms=math.nan)


LOGS = {
    "changes": "time_s,channel,state\n1,CS,1\n1.45,us,1\n1.5,CS,0\n1.5,US,0\n5,CS,1\n5.5,CS,0\n"
    "9,US,1\n9.1,US,0\n2,camera,1\n",
    "words": "timestamp_ms\tline\tedge\n1000\tCS\trising\n1450\tUS\trising\n1500\tCS\tfalling\n"
    "1500\tUS\tfalling\n5000\tCS\trising\n5500\tCS\tfalling\n9000\tUS\trising\n",
    "events": "time_s,event\n1,CS_on\n1.45,US_on\n1.5,CS_off\n5,CS on\n9,US on\n9.1,US off\n",
    "names": "onset,event\n1,CS\n1.45,US\n5,CS\n9,US\n",
    "levels": "time_s;CS;US\n0;0,1;0,0\n1;4,9;0\n1,45;5;5\n1,5;0;5\n2;0;0\n5;5;0\n6;0;0\n9;0;5\n",
}


@pytest.mark.parametrize("kind", sorted(LOGS))
def test_pulses_become_trials(tmp_path: Path, kind: str) -> None:
    found = read_ttl_log(written(tmp_path, LOGS[kind], "ttl.csv"))
    assert [(str(t.trial_type), t.reference_s) for t in found.trials] == [
        ("paired", 1.0),
        ("cs_only", 5.0),
        ("us_only", 9.0),
    ]
    assert found.trials[0].us_onset_s == pytest.approx(1.45)


FIVE_PAIRED = [(onset_s, onset_s + 0.45) for onset_s in (1.0, 11.0, 21.0, 31.0, 41.0)]
ONSET_LOGS = {
    "rising edges": ("time_s,channel,edge", "{time},{channel},rising"),
    "state always 1": ("time_s,channel,state", "{time},{channel},1"),
    "markers": ("onset\tduration\ttrial_type\tvalue", "{time}\t0.4\t{channel}\t{code}"),
    "markers 0 and 1": ("onset\tduration\ttrial_type\tvalue", "{time}\t0\t{channel}\t{bit}"),
    "no markers": ("onset\tduration\ttrial_type\tvalue", "{time}\t0.4\t{channel}\tn/a"),
    "named markers": ("onset\ttrial_type\tvalue", "{time}\t{channel}\tS {code}"),
    "state not given": ("time_s,channel,state", "{time},{channel},"),
}


@pytest.mark.parametrize("kind", sorted(ONSET_LOGS))
def test_where_a_channel_is_never_low_every_row_is_an_onset(tmp_path: Path, kind: str) -> None:
    header, line = ONSET_LOGS[kind]
    lines = [header]
    for cs_s, us_s in FIVE_PAIRED:
        lines.append(line.format(time=cs_s, channel="CS", code=1, bit=0))
        lines.append(line.format(time=us_s, channel="US", code=2, bit=1))
    found = read_ttl_log(written(tmp_path, "\n".join(lines) + "\n"))
    assert [(t.cs_onset_s, t.us_onset_s) for t in found.trials] == FIVE_PAIRED


def test_a_column_value_of_both_levels_holds_states(tmp_path: Path) -> None:
    text = "time_s,channel,value\n1,CS,5.0\n1.5,CS,0.1\n5,CS,5.0\n5.4,CS,0.0\n5.2,US,5\n"
    found = read_ttl_log(written(tmp_path, text))
    assert [t.cs_onset_s for t in found.trials] == [1.0, 5.0]
    assert found.trials[1].us_onset_s == 5.2
    with pytest.raises(TrialFileError, match="line 7: value is 'S 1'"):
        read_ttl_log(written(tmp_path, text + "9,CS,S 1\n"))


def test_samples_of_a_session_without_stimuli_are_no_trials(tmp_path: Path) -> None:
    samples = [f"{n / 10},{name},0" for n in range(200) for name in ("CS", "US")]
    baseline = written(tmp_path, "\n".join(["time_s,channel,value", *samples]) + "\n")
    with pytest.raises(TrialFileError, match="no pulse on the channels 'CS'"):
        read_ttl_log(baseline)


def test_rises_without_falls_are_told(tmp_path: Path) -> None:
    rows = ["0,CS,0", *[f"{cs_s},CS,1" for cs_s, _ in FIVE_PAIRED]]
    found = read_ttl_log(written(tmp_path, "\n".join(["time_s,channel,state", *rows]) + "\n"))
    assert len(found.trials) == 1
    assert any("4 rows say that the channel 'CS' goes high" in each for each in found.remarks)
    # Samples repeat their levels: nothing to remark on.
    samples = [f"{n / 10},CS,{int(n % 100 > 90)}" for n in range(300)]
    sampled = read_ttl_log(written(tmp_path, "\n".join(["time_s,channel,state", *samples]) + "\n"))
    assert [t.cs_onset_s for t in sampled.trials] == [9.1, 19.1, 29.1]
    assert not any("goes high" in each for each in sampled.remarks)


def test_the_number_of_a_trial_is_no_state(tmp_path: Path) -> None:
    rows = [f"{at_s},{name} {n}" for n, (cs_s, us_s) in enumerate(FIVE_PAIRED, start=1)
            for at_s, name in ((cs_s, "CS"), (us_s, "US"))]  # fmt: skip
    with pytest.raises(TrialFileError, match="the channels found are: CS 1, US 1, CS 2"):
        read_ttl_log(written(tmp_path, "\n".join(["time_s,event", *rows]) + "\n"))
    switched = "time_s,event\n1,CS 1\n1.2,CS 0\n5,CS 1\n5.2,CS 0\n"
    assert [t.cs_onset_s for t in read_ttl_log(written(tmp_path, switched)).trials] == [1.0, 5.0]


@pytest.mark.parametrize("ends", [("CS",), ("US",), ("CS", "US"), ()])
@pytest.mark.parametrize("mark", [" ", "_"])
def test_an_end_that_only_one_channel_logs_loses_no_pulse(
    tmp_path: Path, ends: tuple[str, ...], mark: str
) -> None:
    rows = []
    for cs_s, us_s in FIVE_PAIRED:
        rows += [f"{cs_s},CS{mark}1", f"{us_s},US{mark}1"]
        rows += [f"{us_s + 0.1},{channel}{mark}0" for channel in ends]
    found = read_ttl_log(written(tmp_path, "\n".join(["time_s,event", *rows]) + "\n"))
    assert [(t.cs_onset_s, t.us_onset_s) for t in found.trials] == FIVE_PAIRED
    assert found.remarks == ()


def test_numbered_channels_bounces_and_trains(tmp_path: Path) -> None:
    text = "time_s,channel,state\n" + "".join(
        f"{time},{channel},{state}\n"
        for time, channel, state in [
            (1.0, 3, 1), (1.001, 3, 0), (1.002, 3, 1), (1.4, 3, 0),
            (1.45, 4, 1), (1.5, 4, 0), (1.6, 4, 1), (1.65, 4, 0),
        ]
    )  # fmt: skip
    found = read_ttl_log(written(tmp_path, text), TtlSettings("3", "4"))
    assert len(found.trials) == 1
    assert found.trials[0].us_onset_s == 1.45
    assert any("CS onsets within 50 ms" in remark for remark in found.remarks)
    assert any("followed another US" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time_s,channel,state\n1,A,1\n2,B,0\n", "the channels found are: A, B"),
        ("channel,state\nCS,1\n", "expected a column time_s"),
        ("time_s,channel,state\n1,CS,maybe\n", "line 2: state is 'maybe'"),
        ("time_s,channel,state\nsoon,CS,1\n", "line 2: time_s is 'soon'"),
        ("time_s,CS\n1,0\n2,0\n", "no pulse on the channels"),
    ],
)
def test_errors_of_logs(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(TrialFileError, match=expected):
        read_ttl_log(written(tmp_path, text))


@given(
    st.lists(st.integers(0, 600), unique=True, max_size=12),
    st.lists(st.integers(0, 600), unique=True, max_size=12),
)
def test_every_cs_becomes_one_trial_and_no_us_is_used_twice(cs: list[int], us: list[int]) -> None:
    found = trials_from_onsets([float(s) for s in cs], [s + 0.45 for s in us]).trials
    assert sorted(t.cs_onset_s for t in found if math.isfinite(t.cs_onset_s)) == sorted(cs)
    us_found = [t.us_onset_s for t in found if math.isfinite(t.us_onset_s)]
    assert len(us_found) == len(set(us_found))
    assert set(us_found) <= {s + 0.45 for s in us}
    assert {t.cs_onset_s for t in found if t.trial_type is TrialType.PAIRED} >= set(cs) & set(us)


def lit_trace(
    rate_hz: float, onsets_s: np.ndarray, *, noise: float, seed: int, drift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Brightness of a lamp that burns for 0.4 s, seen by a camera that exposes all the time."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0, onsets_s[-1] + 3, 1 / rate_hz)
    edges_s = np.concatenate([times_s - 0.5 / rate_hz, [times_s[-1] + 0.5 / rate_hz]])
    lit_s = sum(np.clip(edges_s - onset_s, 0, 0.4) for onset_s in onsets_s)
    share = np.diff(lit_s) * rate_hz
    room = 60 + drift * np.sin(2 * np.pi * times_s / 90)
    return room + 40 * share + noise * random.standard_normal(len(times_s)), times_s


@pytest.mark.parametrize("rate_hz", [30, 60, 200, 500])
@pytest.mark.parametrize("drift", [0.0, 45.0])
def test_a_light_is_found_to_a_part_of_a_frame(rate_hz: float, drift: float) -> None:
    onsets_s = 3 + np.cumsum(np.random.default_rng(4).uniform(5, 9, 25))
    brightness, times_s = lit_trace(rate_hz, onsets_s, noise=1.0, seed=5, drift=drift)
    found = detect_led_onsets(brightness, times_s)
    assert len(found.onsets_s) == 25
    errors_ms = (found.onsets_s - onsets_s) * 1000
    assert np.abs(errors_ms).max() < 0.3 * 1000 / rate_hz
    np.testing.assert_allclose(found.offsets_s - onsets_s, 0.4, atol=0.8 / rate_hz)
    np.testing.assert_allclose(found.uncertainty_ms, 500 / rate_hz)


def test_lost_frames_widen_the_uncertainty_and_shift_nothing() -> None:
    onsets_s = np.array([5.0, 15.0, 25.0])
    brightness, times_s = lit_trace(100, onsets_s, noise=0.5, seed=1)
    kept = np.ones(len(times_s), dtype=bool)
    kept[(times_s > 14.965) & (times_s < 15.035)] = False
    kept[::17] = False
    found = detect_led_onsets(brightness[kept], times_s[kept])
    assert np.abs(found.onsets_s - onsets_s)[[0, 2]].max() < 0.006
    assert abs(found.onsets_s[1] - 15.0) < 0.045
    assert found.uncertainty_ms[1] > 30


def test_a_light_that_is_on_from_the_start() -> None:
    brightness = np.repeat([100.0, 20.0, 100.0, 20.0], 30)
    found = detect_led_onsets(brightness, np.arange(120) / 30)
    assert len(found.onsets_s) == 1
    assert "on when the recording began" in found.remarks[0]


@pytest.mark.parametrize("kind", ["noise", "still", "motion"])
def test_where_no_light_is_none_is_found(kind: str) -> None:
    random = np.random.default_rng(2)
    brightness = {
        "noise": 80 + 3 * random.standard_normal(3000),
        "still": np.full(3000, 80.0),
        "motion": 80 + np.cumsum(random.standard_normal(3000)) * 0.3,
    }[kind]
    with pytest.raises(ConditioningError, match="no light goes on in that region"):
        detect_led_onsets(brightness, np.arange(3000) / 30, LedSettings())


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ConditioningError, match="one value for each frame"):
        detect_led_onsets([1.0, 2.0], [1.0])
    with pytest.raises(ConditioningError, match="rising times"):
        detect_led_onsets([1.0, 2.0, 3.0], [1.0, 1.0, 2.0])


def test_a_list_on_another_clock_is_placed_by_the_light() -> None:
    random = np.random.default_rng(7)
    listed_s = np.cumsum(random.uniform(6, 12, 40))
    trials = [
        Trial("u", TrialType.US_ONLY, us_onset_s=1.0),
        *(
            Trial(str(i), TrialType.PAIRED, float(s), float(s) + 0.45)
            for i, s in enumerate(listed_s)
        ),
    ]
    seen_s = listed_s * (1 + 80e-6) + 1234.5 + random.normal(0, 0.005, 40)
    seen_s = np.delete(seen_s, [3, 17])
    found = place_on_video_clock(trials, np.append(seen_s, [1200.0, 1800.0]))
    cs_s = [trial.cs_onset_s for trial in found.trials[1:]]
    np.testing.assert_allclose(cs_s, listed_s * (1 + 80e-6) + 1234.5, atol=0.02)
    assert found.trials[0].us_onset_s == pytest.approx(1235.5, abs=0.02)
    assert found.trials[1].us_onset_s - found.trials[1].cs_onset_s == pytest.approx(0.45, abs=1e-4)
    assert "38 of 40 trials" in found.remarks[0]
    with pytest.raises(ConditioningError, match="belongs to this video"):
        place_on_video_clock(trials, np.sort(random.uniform(0, 400, 12)))
