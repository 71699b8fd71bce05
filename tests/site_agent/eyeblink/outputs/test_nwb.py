"""The NWB file, read back by its own library and checked by the inspector."""

import warnings
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import InvalidInputError, MissingExtraError
from site_agent.eyeblink.outputs.registry import OUTPUTS, check_requested, write_outputs
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.session_folder import SessionLabels

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
        texts = {True: "yes", False: "no", None: "n/a"}
        assert list(read.trials["cr"][:]) == [texts[trial.cr] for trial in trials]


def test_the_inspector_finds_no_violation(nwb_path: Path) -> None:
    inspector = pytest.importorskip("nwbinspector", reason="nwbinspector is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messages = list(inspector.inspect_nwbfile(nwbfile_path=str(nwb_path)))
    worse = [
        message for message in messages if message.importance.name != "BEST_PRACTICE_SUGGESTION"
    ]
    assert worse == []
    # This program does not know the experimenter.
    assert {message.check_function_name for message in messages} <= {
        "check_experimenter_exists",
        "check_institution",
    }


def test_without_a_start_it_cannot_be_written(labelled: AnalysedSession, tmp_path: Path) -> None:
    settings = replace(labelled.settings, outputs=frozenset({"nwb"}))
    written = write_outputs(
        replace(labelled, start=None, settings=settings), tmp_path / "out", outputs=TABLES_AND_NWB
    )
    assert "nwb" not in written.files
    assert "the time at which the session began" in written.warnings[-1]


def test_requested_outputs_are_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    check_requested(["overlay", "nwb"])
    with pytest.raises(InvalidInputError, match="no output 'pdf' on request; expected overlay"):
        check_requested(["pdf"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"poolctl\[nwb\]"):
        check_requested(["nwb"])


@pytest.mark.parametrize(("age", "is_known"), [("P21Y", True), ("21", False), ("P", False)])
def test_an_age_is_a_duration(age: str, is_known: bool) -> None:
    with nullcontext() if is_known else pytest.raises(InvalidInputError, match="such as P21Y"):
        SessionLabels(age=age)
