"""Trial lists and pulse logs."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import TableFileError
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
