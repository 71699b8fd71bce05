"""Traces of closures: read as such, in any scale, and refused under the name of ratios."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import InvalidInputError, TableFileError
from site_agent.eyeblink.openness.traces import looks_like_trace, read_trace
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.text_tables import read_table

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


@pytest.mark.parametrize("scale", [1.0, 0.5, 10.0])
def test_closures_under_the_name_of_ratios_are_refused(tmp_path: Path, scale: float) -> None:
    path = written(tmp_path, "ear", scale * closures())
    with pytest.raises(TableFileError, match=r"rest at \S+ and rise to .* name the column fec"):
        read_trace(path)


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
