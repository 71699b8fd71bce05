"""``poolctl blink batch``: analyse the videos of a study, in parallel and resumably."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cli.blink.inputs import ANALYSIS_SETTINGS, DetectorOption, ExtraFiles, LandmarksOption
from cli.frame.errors import incomplete
from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.options.engine import EngineOptions, reply_of_share
from site_agent.eyeblink.batch import run_batch
from site_agent.eyeblink.batch.record import BatchResult, SessionOutcome
from site_agent.eyeblink.outputs.registry import check_requested
from site_agent.eyeblink.study import StudySummary, write_study
from site_agent.eyeblink.study.learning_curve import CHANGE_UNITS
from site_agent.wording import count_words, first_lines

app = single()


@command(
    app,
    "batch",
    "blink batch recordings/ --landmarks merged.dat -o study/",
    "blink batch sessions.csv --detector merged.svm --landmarks merged.dat -o study/",
    "blink batch sessions.csv --landmarks merged.dat -o study/ --nwb",
    "blink batch traces.csv -o study/ --workers 4 --settings settings.toml",
)
def batch(
    invocation: Invocation,
    sessions: Annotated[
        Path, Argument("A folder of videos or traces, or a table (CSV) of sessions.", "SESSIONS")
    ],
    *,
    output: Annotated[Path, Option("Folder of the results.", "FOLDER")],
    detector: DetectorOption = "",
    landmarks: LandmarksOption = "",
    frame_rate_hz: Annotated[
        float | None,
        Option("Frame rate of traces and images; for videos it replaces their timestamps."),
    ] = None,
    redo: Annotated[bool, Option("Repeat finished sessions.")] = False,
    engine: EngineOptions,
    files: ExtraFiles,
    settings: SettingsOptions,
) -> Reply:
    """Analyse many sessions in parallel, and the study as a whole.

    A table has the columns session, video or trace, trials, participant, session_number, group,
    timestamps, frame_rate_hz, detector, landmarks, age, sex, session_start, overlay, nwb, and any
    setting by its name (closed_from, cs_channel); paths are relative to the table. In a folder,
    NAME_trials.csv holds the trials of the recording NAME.

    Every session gets a folder in STUDY when it is complete. To continue after an interruption, run
    the same command again: sessions that are finished with the same files and settings are skipped.
    If a session fails, the others continue; batch.csv gives the reason, and the exit code is 5.
    sessions.csv and learning_curve.csv hold the study's results.
    """
    from site_agent.tasks.batches import prepare_batch

    settings_of_all = replace(ANALYSIS_SETTINGS.read(settings), outputs=files.names)
    check_requested(files.names)
    prepared = prepare_batch(
        invocation,
        sessions,
        output,
        detector=detector,
        landmarks=landmarks,
        frame_rate_hz=frame_rate_hz,
    )
    chosen = prepared.sessions
    engine.refuse_redo(redo=redo)
    studies: list[StudySummary] = []
    with invocation.progress(f"batch {output.name}") as report:
        result = run_batch(
            chosen,
            output,
            settings=settings_of_all,
            workers=engine.workers,
            share=engine.chosen_share,
            redo=redo,
            addresses=prepared.addresses,
            on_outcome=lambda outcome: _note_outcome(invocation, outcome),
            gather=lambda records: studies.append(
                write_study(output, records, [session.name for session in chosen])
            ),
            progress=report,
        )
    if result.elsewhere:
        return reply_of_share(output, result.elsewhere, len(result.records), "session")
    (study,) = studies
    for remark in study.remarks:
        invocation.warn(remark)
    _check_complete(result)
    return _reply(result, study)


def _note_outcome(invocation: Invocation, outcome: SessionOutcome) -> None:
    # Those that failed are listed at the end.
    if outcome.state == "done" and outcome.record is not None:
        summary = outcome.record.summary
        text = f"{count_words(summary['blinks'], 'blink')} in {summary['seconds']:.1f} s"
        trials = outcome.record.conditioning
        if trials is not None:
            text += f", CRs in {trials['n_cr']} of {trials['n_cs_valid']} trials"
            text += f" ({trials['n_trials'] - trials['n_valid']} rejected)"
        warned = f", {count_words(len(outcome.warnings), 'warning')}" if outcome.warnings else ""
        invocation.note(f"{outcome.session}  {text}{warned}  ({outcome.took_s:.1f} s)")


def _check_complete(result: BatchResult) -> None:
    failed = [outcome for outcome in result.outcomes if outcome.state == "failed"]
    if not failed:
        return
    lines = first_lines([f"{outcome.session}: {outcome.reason}" for outcome in failed])
    rest = count_words(len(result.outcomes) - len(failed), "session")
    text = (
        f"{len(failed)} of {len(result.outcomes)} sessions failed; {rest} finished in "
        f"{result.study}, where batch.csv lists all"
    )
    raise incomplete("batch", text, lines)


def _reply(result: BatchResult, study: StudySummary) -> Reply:
    warned = sum(bool(outcome.warnings) for outcome in result.outcomes)
    blinks = sum(outcome.record.summary["blinks"] for outcome in result.outcomes if outcome.record)
    verdict = (
        f"{count_words(blinks, 'blink')} in {count_words(len(result.outcomes), 'session')}: "
        f"{result.count('done')} analysed, {result.count('skipped')} were finished; "
        f"{warned or 'none'} with warnings{' (see batch.csv)' if warned else ''}"
    )
    withheld = sum(bool((record.conditioning or {}).get("withheld")) for record in result.records)
    if withheld:
        verdict += f"; {count_words(withheld, 'session')} with too few valid trials left out"
    rows = []
    for group, curves in study.curves.items():
        for curve in curves:
            slope, unit = curve.slope, CHANGE_UNITS[curve.measure]
            text = f"{slope.estimate:+.3g} {unit} a session, 95 %: {slope.interval}"
            rows.append([f"{curve.measure} {group}".rstrip(), f"{text} ({curve.method})"])
    rows += [[name.replace("_", " "), str(path)] for name, path in study.files.items()]
    data = {
        "study": result.study,
        "workers": result.workers,
        "sessions": [
            {
                "session": outcome.session,
                "state": outcome.state,
                "took_s": outcome.took_s,
                "summary": outcome.record.summary if outcome.record else None,
                "conditioning": outcome.record.conditioning if outcome.record else None,
                "warnings": outcome.warnings,
            }
            for outcome in result.outcomes
        ],
        "learning": {
            group: [curve.to_dict() for curve in curves] for group, curves in study.curves.items()
        },
        "remarks": study.remarks,
        "files": study.files,
    }
    return Reply(data, [verdict, TableText(["what", "value"], rows)], [str(result.study)])
