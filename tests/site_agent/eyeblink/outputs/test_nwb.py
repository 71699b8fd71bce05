"""The NWB file, read back by its own library and checked by the inspector."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from site_agent.eyeblink.outputs.registry import OUTPUTS, write_outputs
from site_agent.eyeblink.session import AnalysedSession

pynwb = pytest.importorskip("pynwb", reason="pynwb is not installed (extra nwb)")

TABLES_AND_NWB = [output for output in OUTPUTS if output.essential or output.name == "nwb"]

pytestmark = pytest.mark.filterwarnings("ignore")
"""The library's own warnings about its dependencies are not ours."""


@pytest.fixture
def nwb_path(labelled: AnalysedSession, tmp_path: Path) -> Path:
    settings = replace(labelled.settings, outputs=frozenset({"nwb"}))
    return write_outputs(
        replace(labelled, settings=settings), tmp_path, outputs=TABLES_AND_NWB
    ).files["nwb"]


def test_the_file_is_valid_and_holds_the_results(labelled: AnalysedSession, nwb_path: Path) -> None:
    with pynwb.NWBHDF5IO(str(nwb_path), "r") as io:
        assert pynwb.validate(io=io) == []
        read = io.read()
        assert read.session_start_time == datetime(2024, 5, 6, 7, 8, tzinfo=UTC)
        assert read.subject.subject_id == "01"
        behavior = read.processing["behavior"]
        fec = behavior["EyelidClosure"]["fec"]
        np.testing.assert_array_equal(fec.data[:], labelled.fec())
        times_s = labelled.trace.timestamps_s
        np.testing.assert_array_equal(fec.timestamps[:], times_s)
        ear = behavior["EyeAspectRatio"]
        np.testing.assert_array_equal(ear["ear_left"].data[:], labelled.trace.ear_left)
        np.testing.assert_array_equal(ear["ear_left"].timestamps[:], times_s)
        blinks = read.intervals["blinks"]
        assert blinks["start_time"][:] == pytest.approx([b.onset_s for b in labelled.blinks])
        assert blinks["amplitude_fec"][:] == pytest.approx(
            [b.amplitude_fec for b in labelled.blinks]
        )
        assert labelled.conditioning is not None
        trials = labelled.conditioning.trials
        words = {True: "yes", False: "no", None: "n/a"}
        assert list(read.trials["cr"][:]) == [words[trial.cr] for trial in trials]
