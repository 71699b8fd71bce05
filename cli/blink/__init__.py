"""``poolctl blink``, in full ``poolctl blink analyse``."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cli.blink import batch, inputs, joint, review
from cli.blink import inputs as blink_inputs
from cli.frame.app import GroupWithDefault, new_app
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Option, command
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from site_agent.eyeblink.batch.sessions import LEFT_OUT
from site_agent.eyeblink.conditioning.summary import SessionSummary
from site_agent.eyeblink.review.actions import LOG_NAME
from site_agent.eyeblink.session import BlinkSession
from site_agent.pool.profiles import store_usual_landmarks
from site_agent.wording import count_words


class _BlinkGroup(GroupWithDefault):
    default_name = "analyse"


app = new_app(_BlinkGroup)

SESSION_SETTINGS = CommandSettings(
    blink_inputs.ANALYSIS_SETTINGS.defaults,
    [name for name in LEFT_OUT if not name.startswith("labels.")],
)
"""Also the labels of one session, which a study takes from its table."""


@command(
    app,
    "analyse",
    "blink session.mp4",
    "blink analyse session.mp4 --landmarks merged.dat -o out/ --remember",
    "blink session.mp4 --detector merged.svm --landmarks merged.dat -o out/",
    "blink session.mp4 --landmarks site-d/merged-68 -o out/",
    "blink fast.avi --timestamps times.csv --landmarks merged.dat -o out/",
    "blink slow-motion.avi --frame-rate-hz 500 --landmarks merged.dat -o out/",
    "blink ear.csv --frame-rate-hz 30 -o out/",
    "blink session.mp4 --landmarks merged.dat --trials trials.csv --overlay --nwb -o out/",
    "blink session.mp4 --landmarks merged.dat --set subject=01 --nwb -o out/",
    "blink session.mp4 --landmarks merged.dat --set face=central --set cr_threshold=0.15",
)
def analyse(
    invocation: Invocation,
    chosen: blink_inputs.BlinkInput,
    *,
    output: Annotated[
        Path | None, Option("Folder of the results. Default: VIDEO_blinks.", "FOLDER")
    ] = None,
    detector: blink_inputs.DetectorOption = "",
    landmarks: blink_inputs.LandmarksOption = "",
    remember: Annotated[
        bool, Option("Use these landmarks also when 'poolctl blink' is given none.")
    ] = False,
    trials: Annotated[
        Path | None,
        Option(
            "Trials of a conditioning session: a CSV file with trial_type, cs_onset_s and "
            "us_onset_s, or a log of TTL pulses."
        ),
    ] = None,
    files: blink_inputs.ExtraFiles,
    settings: SettingsOptions,
) -> Reply:
    """Find eyeblinks in a video, or in a trace of eye aspect ratios.

    Writes tables of frames and blinks (with --trials also of conditioned responses), a report
    (report.html), the meaning of the columns (datapackage.json) and the provenance to a folder.
    Nothing leaves this machine.
    You can omit the word "analyse". Without --landmarks it uses the model given last with
    --remember, or else a starter trained once on drawn faces, for a first look.

    A damaged video is analysed as far as it can be read, and a video without a face gives tables
    with empty cells; both print a warning and exit with 0. A file that is not a video is refused.
    """
    if remember and not landmarks:
        raise UsageError("--remember goes with --landmarks only")
    chosen.check()
    if trials is not None and not trials.is_file():
        raise InputMissingError(f"--trials {trials}: no such file")
    folder = output or chosen.folder()
    chosen.require_own_folder(folder)
    analysis = replace(SESSION_SETTINGS.read(settings), outputs=files.names)
    if (folder / "review" / LOG_NAME).exists():
        invocation.warn(f"{folder} has a review, which holds only while the results stay the same")
    session = blink_inputs.run_input(
        invocation,
        chosen,
        {"detector": detector, "landmarks": landmarks},
        {"out_dir": folder, "settings": analysis, "trials": trials},
    )
    if remember:
        is_file = Path(landmarks).is_file()
        store_usual_landmarks(str(Path(landmarks).absolute()) if is_file else landmarks)
    return _reply(invocation, session, folder)


def _reply(invocation: Invocation, session: BlinkSession, folder: Path) -> Reply:
    for warning in session.warnings:
        invocation.warn(warning)
    closures = f"{session.closures} (PERCLOS {_percent(session.perclos_pct)})"
    rows = [
        ["longer closures", closures if session.calibrated else "not known: see the warning"],
        ["recording", f"{session.seconds:.1f} s, {session.frames} frames"],
        ["eyes seen", f"{session.valid_pct:.1f} % of the frames"],
        ["EAR open, closed", f"{session.open_ear:.3f}, {session.closed_ear:.3f}"],
        ["FEC", "calibrated" if session.calibrated else "not calibrated: see the warning"],
        *_conditioning_rows(session.conditioning),
        *[[name, str(path)] for name, path in session.files.items()],
    ]
    return Reply(session, [_verdict(session), TableText(["what", "value"], rows)], [str(folder)])


def _verdict(session: BlinkSession) -> str:
    if not session.calibrated:
        return "How often the person blinked is not known: see the warning."
    conditioning = session.conditioning
    among = "" if conditioning is None else " with those of the trials"
    text = f"{count_words(session.blinks, 'blink')}{among}, {_rate(session.blinks_per_minute)}"
    if conditioning is not None:
        text += f"; {_responses(conditioning)}"
    if session.damaged_frames:
        text += f"; {count_words(session.damaged_frames, 'frame')} behind damage not judged"
    report = session.files.get("report")
    return f"{text}." + (f" Read {report} first." if report else "")


def _responses(summary: SessionSummary) -> str:
    rejected = summary.n_trials - summary.n_valid
    if not summary.n_cs_valid:
        return (
            f"conditioned responses are not known: {rejected} of {summary.n_trials} trials rejected"
        )
    text = f"conditioned responses in {summary.n_cr} of {summary.n_cs_valid} trials"
    return f"{text}, {rejected} rejected" if rejected else text


def _percent(value: float) -> str:
    return "not known" if math.isnan(value) else f"{value:.1f} %"


def _amplitude(amplitude_fec: float) -> str:
    if math.isnan(amplitude_fec):
        return "not known"
    return f"{amplitude_fec:.3f} FEC, mean of all valid trials"


def _rate(blinks_per_minute: float) -> str:
    if math.isnan(blinks_per_minute):
        return "the eyes seen for too short a time for a rate"
    return f"{blinks_per_minute:.1f} a minute"


def _conditioning_rows(summary: SessionSummary | None) -> list[list[str]]:
    if summary is None:
        return []
    left_out = f"; left out: {summary.left_out}" if summary.left_out else ""
    return [
        ["trials", f"{summary.n_trials}, {summary.n_trials - summary.n_valid} of them rejected"],
        [
            "CRs",
            f"{summary.n_cr} of {summary.n_cs_valid} trials ({_percent(summary.cr_percent)})"
            f"{left_out}",
        ],
        ["CR amplitude", _amplitude(summary.amplitude_all)],
    ]


app.add_typer(batch.app)
app.add_typer(inputs.app)
app.add_typer(joint.app)
app.add_typer(review.app)
