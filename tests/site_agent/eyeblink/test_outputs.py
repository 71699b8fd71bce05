"""The files of a session."""

import json
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.openness.signal import calibrate
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.outputs.registry import ON_REQUEST, OUTPUTS, BlinkOutput, write_outputs
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.records import EyeSample, EyeTrace, FaceBox, FaceSource, Gap, TraceBuilder
from site_agent.eyeblink.session import AnalysedSession, BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import SourceFile
from tests.site_agent.eyeblink.drawn_traces import (
    Drawing,
    draw_trace,
    find_blinks,
    rows_of,
    trace_of,
)


def session_of(trace: EyeTrace) -> AnalysedSession:
    return AnalysedSession(
        trace=trace,
        calibration=calibrate(trace.ear),
        blinks=tuple(find_blinks(trace)),
        settings=BlinkAnalysisSettings(),
        sources=(SourceFile("video", "baby.mp4", "0" * 64),),
        recording={"declared_frames": None, "duration_s": float("nan")},
        warnings=("one warning",),
    )


def trace_with_faces() -> EyeTrace:
    builder = TraceBuilder()
    box = FaceBox(10.25, 20.0, 109.0, 119.0)
    nan = float("nan")
    for number in range(4):
        time_s = number / 25.0
        if number == 2:
            sample = EyeSample(
                number, time_s, FaceSource.MISSING, None, nan, nan, nan, 0.0, Gap.NO_FACE
            )
        else:
            source = FaceSource.DETECT if number == 0 else FaceSource.FOLLOW
            score = 1.5 if number == 0 else nan
            sample = EyeSample(number, time_s, source, box, score, 0.3, nan, 0.9, Gap.NONE)
        builder.add(sample)
    assert len(builder) == 4
    return builder.build()


ESSENTIAL = [output for output in OUTPUTS if output.essential]

SESSIONS = {
    "blinks-and-gaps": draw_trace(0, Drawing(gaps=5))[0],
    "fast": draw_trace(0, Drawing(seconds=20.0, frame_rate_hz=500.0))[0],
    "with-faces": trace_with_faces(),
    "no-face-at-all": trace_of(np.arange(90) / 30.0, np.full(90, np.nan)),
    "one-frame": trace_of(np.zeros(1), np.array([0.3])),
    "nothing": trace_of(np.zeros(0), np.zeros(0)),
    "three-hours": trace_of(np.arange(10_800.0), 0.3 + 0.01 * np.sin(np.arange(10_800.0))),
}


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(item, id=name, marks=[pytest.mark.slow] if name == "three-hours" else [])
        for name, item in SESSIONS.items()
    ],
)
@pytest.mark.parametrize(
    "output",
    [output for output in OUTPUTS if output.name not in ON_REQUEST],
    ids=lambda output: output.name,
)
def test_every_output_accepts_every_session(
    output: BlinkOutput, trace: EyeTrace, tmp_path: Path
) -> None:
    output.write(session_of(trace), tmp_path / output.file_name)
    assert [path.name for path in tmp_path.iterdir()] == [output.file_name]
    assert (tmp_path / output.file_name).stat().st_size > 0


def test_frames_table(tmp_path: Path) -> None:
    files = write_outputs(session_of(trace_with_faces()), tmp_path / "out", outputs=ESSENTIAL).files
    rows = rows_of(files["frames"])
    assert [row["source"] for row in rows] == ["detect", "follow", "missing", "follow"]
    assert [row["face_found"] for row in rows] == ["true", "true", "false", "true"]
    assert [row["reason"] for row in rows] == ["", "", "no-face", ""]
    assert rows[0]["face_left_px"] == "10.25"
    assert rows[0]["face_score"] == "1.5000"
    assert rows[1]["face_score"] == ""
    assert rows[0]["ear_left"] == rows[0]["ear"] == "0.300000"
    assert rows[0]["ear_right"] == rows[2]["ear"] == rows[2]["fec"] == ""
    assert rows[2]["valid"] == "false"


def test_blinks_and_frames_agree_and_can_be_read_again(tmp_path: Path) -> None:
    trace, _ = draw_trace(0, Drawing())
    session = session_of(trace)
    files = write_outputs(session, tmp_path / "out", outputs=ESSENTIAL).files
    blinks, frames = rows_of(files["blinks"]), rows_of(files["frames"])
    assert len(blinks) == len(session.blinks) > 10
    for blink in blinks:
        assert frames[int(blink["peak_frame"])]["blink_id"] == blink["blink_id"]
        assert float(blink["onset_s"]) < float(blink["peak_s"]) < float(blink["offset_s"])
    again = find_blinks(read_trace(files["frames"]))
    assert [blink.peak_frame for blink in again] == [blink.peak_frame for blink in session.blinks]


def test_provenance_is_plain_json(tmp_path: Path) -> None:
    session = session_of(SESSIONS["blinks-and-gaps"])
    files = write_outputs(session, tmp_path / "out", outputs=ESSENTIAL).files

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    text = files["provenance"].read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=refuse)
    assert content["sources"][0] == {
        "role": "video",
        "name": "baby.mp4",
        "sha256": "0" * 64,
        "address": None,
    }
    assert content["recording"]["duration_s"] is None
    assert content["settings"]["blinks"]["least_confidence"] == 0.4
    assert content["warnings"] == ["one warning"]
    assert {"poolctl", "python", "numpy", "dlib-bin", "av"} <= set(content["versions"])


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    def fail(session: AnalysedSession, path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    failing = BlinkOutput("failing", "failing.txt", fail, essential=True)
    session = session_of(SESSIONS["with-faces"])
    with pytest.raises(InvalidInputError, match="No space left"):
        write_outputs(session, tmp_path / "out", outputs=(*ESSENTIAL, failing))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InvalidInputError, match="is a file"):
        write_outputs(session_of(SESSIONS["with-faces"]), tmp_path / "out")


def test_analysis_of_a_trace_file(tmp_path: Path, shared_data: Path) -> None:
    source = shared_data / "ear_traces" / "laiyt" / "concentrate_3m.txt"
    told: list[tuple[float, str]] = []
    summary = run_blink_analysis(
        TraceFile(source, 30.0),
        out_dir=tmp_path / "deep" / "out",
        progress=lambda share, text: told.append((share, text)),
    )
    assert summary.frames == 2631
    assert summary.blinks == len(rows_of(summary.files["blinks"])) > 15
    assert summary.blinks_per_minute == pytest.approx(summary.blinks / (2631 / 30 / 60))
    assert told[-1] == (1.0, "done")
    assert [share for share, _ in told] == sorted(share for share, _ in told)
