"""Trial lists, pulse logs and lights in the picture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.trials import TrialType
from site_agent.errors import TableFileError
from site_agent.eyeblink.conditioning.led_onsets import detect_led_onsets
from site_agent.eyeblink.conditioning.trials import (
    TrialList,
    TtlSettings,
    read_trials_csv,
    trials_from_onsets,
    trials_of_pulses,
)
from site_agent.eyeblink.text_tables import read_table

GOOD = """trial,trial_type,cs_onset_s,us_onset_s
1,paired,3.0,3.45
2,cs_only,12.5,
3,us_only,,20.25
"""


def written(folder: Path, text: str, name: str = "trials.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read_log(folder: Path, text: str, settings: TtlSettings | None = None) -> TrialList:
    return trials_of_pulses(read_table(written(folder, text)), settings)


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
    ("line", "expected"),
    [
        ("4,paired,30,", "a paired trial needs us_onset_s"),
        ("4,cs_only,,31", "a cs_only trial needs cs_onset_s"),
        ("4,us_only,30,31", "leave it empty, or call the trial paired"),
        ("4,paired,31,30", "us_onset_s 30 is not after cs_onset_s 31"),
        ("4,paired,half past,30", "cs_onset_s is 'half past', expected a number"),
        ('4,paired,"30,5",31', "cs_onset_s is '30,5', expected a number (for decimal commas"),
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
    found = read_log(tmp_path, LOGS[kind])
    assert [(str(t.trial_type), t.reference_s) for t in found.trials] == [
        ("paired", 1.0),
        ("cs_only", 5.0),
        ("us_only", 9.0),
    ]
    assert found.trials[0].us_onset_s == pytest.approx(1.45)


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
    found = detect_led_onsets(brightness, times_s)
    assert len(found.onsets_s) == 25
    errors_ms = (found.onsets_s - onsets_s) * 1000
    assert np.abs(errors_ms).max() < 0.3 * 1000 / rate_hz
