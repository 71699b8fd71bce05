"""Sessions that all outputs are tried on: drawn once, as nothing changes them."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from site_agent.datasets.synthetic.conditioning import ConditioningDesign, draw_conditioning_session
from site_agent.eyeblink.conditioning.analysis import analyse_conditioning
from site_agent.eyeblink.openness.signal import calibrate
from site_agent.eyeblink.session import AnalysedSession, BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import RecordingStart, SessionLabels, SourceFile
from tests.site_agent.eyeblink.drawn_traces import find_blinks, trace_of


@pytest.fixture(scope="session")
def conditioned() -> AnalysedSession:
    """A session of 16 trials at 60 frames a second, with a second in which no eye is seen."""
    drawn = draw_conditioning_session(3, 60.0, ConditioningDesign(n_trials=16))
    ear = drawn.ear.copy()
    ear[600:660] = np.nan
    trace = trace_of(drawn.timestamps_s, ear)
    session = AnalysedSession(
        trace=trace,
        calibration=calibrate(ear),
        blinks=tuple(find_blinks(trace)),
        settings=BlinkAnalysisSettings(),
        sources=(SourceFile("trace", "name <of> a & b.csv", "0" * 64),),
        recording={"frames": len(ear)},
        warnings=("a <warning> & more",),
        start=RecordingStart(datetime(2024, 5, 6, 7, 8, tzinfo=UTC), "as given"),
    )
    conditioning = analyse_conditioning(trace.timestamps_s, session.fec(), drawn.trials)
    return replace(session, conditioning=conditioning)


@pytest.fixture
def labelled(conditioned: AnalysedSession) -> AnalysedSession:
    """The same with labels."""
    labels = SessionLabels("01", "02")
    return replace(conditioned, settings=replace(conditioned.settings, labels=labels))
