"""Trial lists, pulse logs, and lights in the picture."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError, InvalidInputError, TableFileError
from site_agent.eyeblink.conditioning.led_onsets import (
    LightMeter,
    detect_led_onsets,
    light_regions,
    place_on_video_clock,
    trials_by_lights,
)
from site_agent.eyeblink.conditioning.trials import (
    TrialList,
    TrialTiming,
    TtlSettings,
    read_trials,
    read_trials_csv,
    session_cs_us_interval_ms,
    trials_from_onsets,
    trials_of,
    trials_of_pulses,
)
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.pictures.video import write_video
from site_agent.pictures.video_reading import VideoReader
from site_agent.text_tables import Decimal, read_table

GOOD = """trial,trial_type,cs_onset_s,us_onset_s
1,paired,3.0,3.45
2,cs_only,12.5,
3,us_only,,20.25
"""


def written(folder: Path, text: str, name: str = "trials.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read_log(folder: Path, text: str, settings: TtlSettings = TtlSettings()) -> TrialList:
    return trials_of_pulses(read_table(written(folder, text)), settings)


def test_a_list_of_trials_is_read(tmp_path: Path) -> None:
    trial_list = read_trials_csv(written(tmp_path, GOOD))
    assert [trial.trial for trial in trial_list.trials] == ["1", "2", "3"]
    assert [trial.trial_type for trial in trial_list.trials] == ["paired", "cs_only", "us_only"]
    assert trial_list.trials[0].us_onset_s == 3.45
    assert math.isnan(trial_list.trials[1].us_onset_s)
    assert math.isnan(trial_list.trials[2].cs_onset_s)
    assert trial_list.trials[2].line == 4
    assert trial_list.remarks == ()


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("\ufeff" + GOOD.replace("\n", "\r\n"), "."),
        (GOOD.replace(",", "\t"), "."),
        (GOOD.replace(",", ";").replace(".", ","), ","),
        (GOOD.replace("12.5,", "12.5,n/a") + "\n,,,\n", "."),
        (GOOD.replace("trial_type", "Trial Type").replace("us_only", "US-only"), "."),
        (GOOD.replace("_onset_s", "_onset_ms").replace(".", "").replace("30,345", "3000,3450")
         .replace("125", "12500").replace("2025", "20250"), "."),
    ],
    ids=["windows", "tabs", "decimal commas", "empty", "spelling", "ms"],
)  # fmt: skip
def test_lists_as_other_programs_write_them(tmp_path: Path, text: str, decimal: Decimal) -> None:
    expected = read_trials_csv(written(tmp_path, GOOD, "expected.csv")).trials
    trials = trials_of(read_table(written(tmp_path, text), decimal)).trials
    for ours, theirs in zip(trials, expected, strict=True):
        assert (ours.trial, ours.trial_type) == (theirs.trial, theirs.trial_type)
        np.testing.assert_allclose(
            [ours.cs_onset_s, ours.us_onset_s], [theirs.cs_onset_s, theirs.us_onset_s]
        )


def test_trials_with_numbers_that_began_again_are_kept_under_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + "1,cs_only,30,\n1,cs_only,40,\n")
    with pytest.raises(TableFileError, match="rename_repeated=yes where the numbers began again"):
        read_trials(path)
    renamed = read_trials(path, TrialTiming(rename_repeated=True))
    assert [trial.trial for trial in renamed.trials] == ["1", "2", "3", "1-2", "1-3"]


def test_a_moment_that_is_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "trial,cs_onset_s\n1,14:30:00.5\n2,14:61:00\n")
    with pytest.raises(TableFileError, match="cs_onset_s: minute must be in"):
        read_trials(path)


def test_types_follow_from_the_onsets_and_trials_are_sorted(tmp_path: Path) -> None:
    trial_list = read_trials_csv(written(tmp_path, "cs_onset_s,us_onset_s\n9,9.5\n3,\n,1\n"))
    assert [str(trial.trial_type) for trial in trial_list.trials] == [
        "us_only",
        "cs_only",
        "paired",
    ]
    assert [trial.trial for trial in trial_list.trials] == ["3", "2", "1"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("4,paired,30,", "a paired trial needs us_onset_s"),
        ("4,cs_only,,31", "a cs_only trial needs cs_onset_s"),
        ("4,us_only,30,31", "leave it empty, or call the trial paired"),
        ("4,paired,31,30", "us_onset_s 30 is not after cs_onset_s 31"),
        ("4,paired,half past,30", "cs_onset_s is 'half past', expected a number"),
        ('4,paired,"30,5",31', "cs_onset_s is '30,5', expected a number (other numbers"),
        ("4,extinction,30,31", "expected cs_only, us_only or paired"),
        ("2,cs_only,30,", "trial '2' is on line 3 too"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, line: str, expected: str) -> None:
    path = written(tmp_path, GOOD + line + "\n")
    with pytest.raises(TableFileError, match="line 5") as caught:
        read_trials_csv(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"trial,trial_type,cs_onset_s,us_onset_s\n", "has a header but no trial"),
        (b"a,b\n1,2\n", r"a, b \(separated by commas, UTF-8\); expected trial, trial_type"),
        (b"cs_onset_s,cs_onset_s\n1,2\n", "is there twice"),
    ],
)
def test_files_that_are_not_lists(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "trials.csv"
    path.write_bytes(data)
    with pytest.raises(TableFileError, match=expected):
        read_trials_csv(path)
    with pytest.raises(TableFileError, match="No such file"):
        read_trials_csv(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trial,cs_onset_s,us_start_s\n1,3,3.2\n", "'us_start_s' is not known; did you mean us_on"),
        ("cs_onset_ms,Puff onset ms\n3000,3200\n", "'puff_onset_ms' .* did you mean us_onset_ms"),
        ("us_onset_s,cs\n3,2.8\n", "'cs' is not known; did you mean cs_onset_s"),
        ("cs_onset_s,us_onset_s,type\n3,3.2,cs only\n", "'type' .* did you mean trial_type"),
        ("cs_onset_s,us_onset_s,TrialType\n3,3.2,probe\n", "'trialtype' .* mean trial_type"),
        (
            "trial_type,cs_start_s,us_onset_s\npaired,3,3.2\npaired,9,9.2\n",
            "'cs_start_s' is not known; did you mean cs_onset_s.*are trial_type, cs_start_s",
        ),
        (
            "trial_type,cs_s2,us_onset_s\npaired,,3.2\npaired,,9.2\n",
            "a paired trial needs a column cs_onset_s, which is missing.*columns are trial_type",
        ),
    ],
)
def test_a_misspelled_or_missing_column_is_named_once(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(TableFileError, match=f"(?s){expected}") as caught:
        read_trials_csv(written(tmp_path, text))
    assert str(caught.value).count("line 1") == 2
    assert "line 2" not in str(caught.value)


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    notes = "cs_onset_s,us_onset_s,us_pressure_psi,note\n3,3.2,20,paired well\n"
    assert read_trials_csv(written(tmp_path, notes)).remarks == (
        "trials.csv: only copied, not used: us_pressure_psi, note",
    )
    alone = read_trials_csv(written(tmp_path, "cs_onset_s,puff_s\n3,3.2\n")).remarks
    assert "no trial has a US" in alone[0]
    assert "taken as cs_only" in alone[0]
    assert alone[1].endswith("not used: puff_s")
    for text in (
        "trial_type,cs_onset_s,us_onset_frame\ncs_only,3,3\n",
        "cs_onset_s,cr_onset_ms\n3,3300\n",
    ):
        remark = read_trials_csv(written(tmp_path, text)).remarks[-1]
        assert "not used: " in remark


@pytest.mark.parametrize(
    ("rows", "remark"),
    [
        ("3,CS\n3.4,US\n", None),
        ("3,CS\n3.4,puff\n", "found CS, puff, so that all trials are cs_only; if the US"),
        ("3,tone\n3.4,US\n", "found tone, US, so that all trials are us_only; if the CS"),
        ("3000,CS\n3400,US\n", "no US follows a CS within 2000 ms"),
        ("3,CS\n13,US\n", "or are CS and US unpaired on purpose?"),
    ],
)
def test_logs_without_one_of_the_stimuli_or_without_pairs_are_remarked_on(
    tmp_path: Path, rows: str, remark: str | None
) -> None:
    remarks = " ".join(read_trials(written(tmp_path, "time_s,event\n" + rows)).remarks)
    assert (remark in remarks) if remark else remarks == ""


@pytest.mark.parametrize(
    ("rows", "is_named"),
    [("3,3.4\n13,13.4\n", False), ("3,3.4\n3,3.4\n", True), ("3,3.4\n3.5,\n13,13.4\n", True)],
)
def test_trials_at_the_time_of_others_are_remarked_on(
    tmp_path: Path, rows: str, is_named: bool
) -> None:
    remarks = read_trials_csv(written(tmp_path, "cs_onset_s,us_onset_s\n" + rows)).remarks
    assert any("1 trial begins less" in remark for remark in remarks) == is_named


def test_a_us_long_after_its_cs_is_remarked_on(tmp_path: Path) -> None:
    trial_list = read_trials_csv(written(tmp_path, "cs_onset_s,us_onset_s\n3000,3450\n"))
    assert "are the onsets in seconds?" in " ".join(trial_list.remarks)


def test_the_interval_comes_from_the_paired_trials() -> None:
    trials = trials_from_onsets([1.0, 11.0, 21.0], [1.4, 11.4]).trials
    assert session_cs_us_interval_ms(trials, 450.0) == (pytest.approx(400.0), True)
    probes = [Trial("1", TrialType.CS_ONLY, 1.0, 1.3), Trial("2", TrialType.CS_ONLY, 9.0)]
    assert session_cs_us_interval_ms(probes, 450.0) == (pytest.approx(300.0), True)
    assert session_cs_us_interval_ms(probes[1:], 450.0) == (450.0, False)


LOGS = {
    "states": "time_s,channel,state\n1,CS,1\n1.45,us,1\n1.5,CS,0\n1.5,US,0\n5,CS,1\n5.5,CS,0\n"
    "9,US,1\n9.1,US,0\n2,camera,1\n",
    "edges": "timestamp_ms\tchannel\tedge\n1000\tCS\trising\n1450\tUS\trising\n1500\tCS\tfalling\n"
    "5000\tCS\trising\n9000\tUS\trising\n",
    "events": "time_s,event\n1,CS\n1.45,US\n5,CS\n9,US\n",
    "bids": "onset\tduration\ttrial_type\tvalue\n1\t0.4\tCS\t1\n1.45\t0\tUS\t2\n5\t0\tCS\t1\n"
    "9\t0\tUS\tn/a\n",
    "levels": "time_s,CS,US\n0,0.1,0\n1,4.9,0\n1.45,5,5\n1.5,0,5\n2,0,0\n5,5,0\n6,0,0\n9,0,5\n",
}


@pytest.mark.parametrize("kind", sorted(LOGS))
def test_pulses_become_trials(tmp_path: Path, kind: str) -> None:
    trial_list = read_log(tmp_path, LOGS[kind])
    assert [(str(t.trial_type), t.reference_s) for t in trial_list.trials] == [
        ("paired", 1.0),
        ("cs_only", 5.0),
        ("us_only", 9.0),
    ]
    assert trial_list.trials[0].us_onset_s == pytest.approx(1.45)


def test_numbered_channels_bounces_and_trains(tmp_path: Path) -> None:
    text = "time_s,channel,state\n" + "".join(
        f"{time},{channel},{state}\n"
        for time, channel, state in [
            (1.0, 3, 1), (1.001, 3, 0), (1.002, 3, 1), (1.4, 3, 0),
            (1.45, 4, 1), (1.5, 4, 0), (1.6, 4, 1), (1.65, 4, 0),
        ]
    )  # fmt: skip
    trial_list = read_log(tmp_path, text, TtlSettings("3", "4"))
    assert len(trial_list.trials) == 1
    assert trial_list.trials[0].us_onset_s == 1.45
    assert any("CS onsets within 50 ms" in remark for remark in trial_list.remarks)
    assert any("followed another US" in remark for remark in trial_list.remarks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time_s,channel,state\n1,A,1\n2,B,0\n", "no pulse on the channels .* found A, B"),
        ("channel,state\nCS,1\n", "one of timestamp_s, time_s"),
        ("time_s,channel,state\n1,CS,maybe\n", "line 2: state is 'maybe'"),
        ("time_s,channel,state\n1,CS,1\n9,CS,1\n", "never low; expected .* edge instead"),
        ("time_s,event\n,CS\n", "line 2: has no time"),
        ("time_s,channel,value\n1,CS,1\n2,CS,0\n", "'value' is not known; did you mean state"),
    ],
)
def test_errors_of_logs(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(TableFileError, match=expected):
        read_log(tmp_path, text)


@given(
    st.lists(st.integers(0, 600), unique=True, max_size=12),
    st.lists(st.integers(0, 600), unique=True, max_size=12),
)
def test_every_cs_becomes_one_trial_and_no_us_is_used_twice(cs: list[int], us: list[int]) -> None:
    trials = trials_from_onsets([float(s) for s in cs], [s + 0.45 for s in us]).trials
    assert sorted(t.cs_onset_s for t in trials if math.isfinite(t.cs_onset_s)) == sorted(cs)
    us_found = [t.us_onset_s for t in trials if math.isfinite(t.us_onset_s)]
    assert len(us_found) == len(set(us_found))
    assert set(us_found) <= {s + 0.45 for s in us}
    assert {t.cs_onset_s for t in trials if t.trial_type is TrialType.PAIRED} >= set(cs) & set(us)


def lit_trace(
    rate_hz: float, onsets_s: np.ndarray, *, noise: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Brightness of a lamp that burns for 0.4 s, seen by a camera that exposes all the time."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0, onsets_s[-1] + 3, 1 / rate_hz)
    edges_s = np.concatenate([times_s - 0.5 / rate_hz, [times_s[-1] + 0.5 / rate_hz]])
    lit_s = sum(np.clip(edges_s - onset_s, 0, 0.4) for onset_s in onsets_s)
    share = np.diff(lit_s) * rate_hz
    return 60 + 40 * share + noise * random.standard_normal(len(times_s)), times_s


@pytest.mark.parametrize("rate_hz", [30, 500])
def test_a_light_is_found_to_a_part_of_a_frame(rate_hz: float) -> None:
    onsets_s = 3 + np.cumsum(np.random.default_rng(4).uniform(5, 9, 25))
    brightness, times_s = lit_trace(rate_hz, onsets_s, noise=1.0, seed=5)
    onsets = detect_led_onsets(brightness, times_s)
    assert len(onsets.onsets_s) == 25
    errors_ms = (onsets.onsets_s - onsets_s) * 1000
    assert np.abs(errors_ms).max() < 0.3 * 1000 / rate_hz


def test_lost_frames_shift_no_onset() -> None:
    onsets_s = np.array([5.0, 15.0, 25.0])
    brightness, times_s = lit_trace(100, onsets_s, noise=0.5, seed=1)
    kept = np.ones(len(times_s), dtype=bool)
    kept[(times_s > 14.965) & (times_s < 15.035)] = False
    kept[::17] = False
    onsets = detect_led_onsets(brightness[kept], times_s[kept])
    assert np.abs(onsets.onsets_s - onsets_s)[[0, 2]].max() < 0.006
    assert abs(onsets.onsets_s[1] - 15.0) < 0.045


def test_an_onset_between_frames_that_are_not_judged_is_not_known() -> None:
    onsets_s = np.array([5.0, 15.0, 25.0])
    brightness, times_s = lit_trace(100, onsets_s, noise=0.5, seed=1)
    brightness[(times_s > 14.8) & (times_s < 15.2)] = np.nan
    onsets = detect_led_onsets(brightness, times_s)
    assert onsets.onsets_s == pytest.approx([5.0, 25.0], abs=0.006)
    assert "1 onset" in onsets.remarks[0]


def test_a_bounce_behind_an_onset_that_is_not_known_is_no_onset() -> None:
    times_s = np.delete(np.arange(4000) / 100, np.arange(975, 1025))
    lit = (times_s % 10 < 0.4) & (times_s > 5)
    for bounce_s in (20.2, 30.2):
        lit &= ~((times_s > bounce_s - 0.001) & (times_s < bounce_s + 0.005))
    onsets = detect_led_onsets(np.where(lit, 100.0, 20.0), times_s)
    assert onsets.onsets_s == pytest.approx([20.0, 30.0], abs=0.01)


def test_a_light_that_is_on_from_the_start() -> None:
    brightness = np.repeat([100.0, 20.0, 100.0, 20.0], 30)
    onsets = detect_led_onsets(brightness, np.arange(120) / 30)
    assert len(onsets.onsets_s) == 1
    assert "on when the recording began" in onsets.remarks[0]


@pytest.mark.parametrize("kind", ["noise", "still", "motion"])
def test_where_no_light_is_none_is_found(kind: str) -> None:
    random = np.random.default_rng(2)
    brightness = {
        "noise": 80 + 3 * random.standard_normal(3000),
        "still": np.full(3000, 80.0),
        "motion": 80 + np.cumsum(random.standard_normal(3000)) * 0.3,
    }[kind]
    with pytest.raises(ConditioningError, match="no light goes on in that region"):
        detect_led_onsets(brightness, np.arange(3000) / 30)


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
    placed = place_on_video_clock(trials, np.append(seen_s, [1200.0, 1800.0]))
    cs_s = [trial.cs_onset_s for trial in placed.trials[1:]]
    np.testing.assert_allclose(cs_s, listed_s * (1 + 80e-6) + 1234.5, atol=0.02)
    assert placed.trials[0].us_onset_s == pytest.approx(1235.5, abs=0.02)
    assert placed.trials[1].us_onset_s - placed.trials[1].cs_onset_s == pytest.approx(
        0.45, abs=1e-4
    )
    assert "38 of 40 trials" in placed.remarks[0]
    with pytest.raises(ConditioningError, match="belongs to this video"):
        place_on_video_clock(trials, np.sort(random.uniform(0, 400, 12)))


RATE_HZ = 60

CS_AT_S = (2.0, 9.0, 17.5)

US_AT_S = (2.45, 9.45)

CS_LIGHT = (100, 8, 16, 16)

US_LIGHT = (8, 60, 12, 12)

FRAME_S = 1.0 / RATE_HZ


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty seconds of a dim room with two lights; no face is needed."""
    path = tmp_path_factory.mktemp("lights") / "lights.mp4"
    random = np.random.default_rng(3)

    def pictures() -> Iterator[tuple[float, np.ndarray]]:
        for time_s in np.arange(20 * RATE_HZ) * FRAME_S:
            picture = np.full((96, 128, 3), 60 + 10 * np.sin(time_s / 3), dtype=np.float64)
            picture += random.normal(0, 3, picture.shape)
            for place, onsets_s in ((CS_LIGHT, CS_AT_S), (US_LIGHT, US_AT_S)):
                if any(onset_s <= time_s < onset_s + 0.3 for onset_s in onsets_s):
                    x, y, width, height = place
                    picture[y : y + height, x : x + width] = 220
            yield time_s, picture.clip(0, 255).astype(np.uint8)

    write_video(path, pictures(), RATE_HZ)
    return path


def watched(video: Path, timing: TrialTiming) -> LightMeter:
    meter = LightMeter(VideoReader(video), light_regions(timing))
    frames = sum(1 for _ in meter.frames())
    meter.close()
    assert frames == len(meter.timestamps_s) == 20 * RATE_HZ
    return meter


def test_the_lights_alone_tell_the_trials(video: Path) -> None:
    timing = TrialTiming(detect_led=CS_LIGHT, detect_us_led=US_LIGHT)
    trial_list = trials_by_lights(watched(video, timing), None, timing)
    assert [str(trial.trial_type) for trial in trial_list.trials] == ["paired", "paired", "cs_only"]
    np.testing.assert_allclose([t.cs_onset_s for t in trial_list.trials], CS_AT_S, atol=FRAME_S)
    np.testing.assert_allclose([t.us_onset_s for t in trial_list.trials[:2]], US_AT_S, atol=FRAME_S)


def test_the_pairing_window_holds_for_lights_too(video: Path) -> None:
    window = TtlSettings(pairing_window_ms=300.0)
    short = TrialTiming(detect_led=CS_LIGHT, detect_us_led=US_LIGHT, ttl=window)
    trial_list = trials_by_lights(watched(video, short), None, short)
    kinds = [str(trial.trial_type) for trial in trial_list.trials]
    assert kinds == ["cs_only", "us_only", "cs_only", "us_only", "cs_only"]


def test_a_list_of_trials_takes_its_clock_from_the_light(video: Path, tmp_path: Path) -> None:
    # The stimulus program started 100 s before the camera.
    table = tmp_path / "trials.csv"
    rows = [f"{i},cs_only,{100 + onset_s}," for i, onset_s in enumerate(CS_AT_S, start=1)]
    table.write_text("\n".join(["trial,trial_type,cs_onset_s,us_onset_s", *rows]) + "\n")
    timing = TrialTiming(detect_led=CS_LIGHT, latency_ms=20.0)
    placed = trials_by_lights(watched(video, timing), read_trials(table, timing), timing)
    expected_s = np.array(CS_AT_S) + 0.020
    np.testing.assert_allclose([t.cs_onset_s for t in placed.trials], expected_s, atol=FRAME_S)


def test_a_place_outside_the_picture_is_refused(video: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected X,Y,WIDTH,HEIGHT"):
        light_regions(TrialTiming(detect_led=(1, 2, 3)))
    meter = LightMeter(VideoReader(video), {"CS": (120, 90, 20, 20)})
    with pytest.raises(InvalidInputError, match="not within the picture of 128 x 96"):
        next(iter(meter.frames()))
    meter.close()


def test_a_trace_has_no_light(tmp_path: Path) -> None:
    trace = tmp_path / "ear.txt"
    trace.write_text("0.3\n" * 100)
    settings = BlinkAnalysisSettings(trial_timing=TrialTiming(detect_led=CS_LIGHT))
    with pytest.raises(InvalidInputError, match="no picture"):
        run_blink_analysis(TraceFile(trace, 30.0), out_dir=tmp_path / "out", settings=settings)
    assert not (tmp_path / "out").exists()
