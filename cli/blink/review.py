"""``poolctl blink review`` and ``report``: correct blinks in the browser, and report a study."""

import math
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cli.blink.inputs import SessionsArgument
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from site_agent.errors import ReviewFolderError, SiteAgentError
from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from site_agent.eyeblink.review.reviewed_session import (
    SessionReport,
    find_model,
    report_session,
    write_reviewed_sessions,
)
from site_agent.eyeblink.review.training_export import export_training_set
from site_agent.eyeblink.session_folder import find_outputs, study_folders
from site_agent.tasks.learning import learn_from_reviews
from site_agent.wording import count_words

app = single()


def _sessions_in(place: Path) -> list[Path]:
    """Return the table of blinks of each session in a place."""
    sessions = [place] if place.is_file() else find_outputs(place, "blinks.csv")
    if not sessions:
        raise InputMissingError(f"{place}: no results; expected those of poolctl blink")
    return sessions


# ``poolctl blink report``.
@command(app, "report", "blink report study/", "blink report out/ --reviewed")
def report(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    reviewed: Annotated[
        bool, Option("Write report and tables with the reviewed blinks, next to the others.")
    ] = False,
) -> Reply:
    """Show the blinks of analysed sessions, and how far they are reviewed.

    With --reviewed, reviewed blinks take the place of the automatic ones: the folder 'reviewed' of
    a session gets its report and tables, and a study sessions_reviewed.csv next to sessions.csv.
    The automatic results do not change. Sessions without a review are counted as they are.
    """
    sessions: list[SessionReport] = []
    files: list[Path] = []
    for place in places:
        reports, written = _report_place(invocation, place, reviewed=reviewed)
        sessions += reports
        files += written
    rows = [
        [
            str(session.place.parent),
            str(session.summary.blinks),
            str(session.summary.closures),
            f"{session.summary.blinks_per_minute:.1f}",
            session.review_words,
        ]
        for session in sessions
    ]
    items = [
        {"session": session.place.parent, "review": session.review, "summary": session.summary}
        for session in sessions
    ]
    waiting = sum(session.review.get("unreviewed", 0) for session in sessions)
    unseen = sum(not session.review for session in sessions)
    counted = [
        f"{count_words(count, noun)} not reviewed"
        for count, noun in ((unseen, "session"), (waiting, "blink"))
        if count
    ]
    reviewed_words = ", ".join(counted) or "all reviewed"
    blinks = count_words(sum(session.summary.blinks for session in sessions), "blink")
    verdict = f"{blinks} in {count_words(len(sessions), 'session')} ({reviewed_words})."
    table = TableText(["session", "blinks", "closures", "a minute", "review"], rows)
    lines = [f"written {path}" for path in files]
    return Reply(
        {"items": items, "files": files}, [verdict, table, *lines], [row[0] for row in rows]
    )


def _report_place(
    invocation: Invocation, place: Path, *, reviewed: bool
) -> tuple[list[SessionReport], list[Path]]:
    """Return the reports of the sessions in a place, and the written files."""
    places = []
    for session in _sessions_in(place):
        with invocation.progress(f"report {session.parent.name}") as progress:
            places.append(report_session(session, reviewed=reviewed, progress=progress))
    files = [
        session.summary.files["report"] for session in places if "report" in session.summary.files
    ]
    if reviewed and study_folders(place):
        files.append(write_reviewed_sessions(place))
    return places, files


# ``poolctl blink review`` and ``learn``.
ReviewLandmarksOption = Annotated[
    str, Option("Model of landmarks to correct. Default: that of the analysis.", "FILE|ADDRESS")
]
ReviewDetectorOption = Annotated[
    str,
    Option("Detector for frames without a face. Default: that of the analysis.", "FILE|ADDRESS"),
]


@command(
    app,
    "review",
    "blink review out/",
    "blink review out/ --video session.mp4 --landmarks merged.dat",
    "blink review out/ --landmarks merged.dat --export corrected.xml",
)
def review(
    invocation: Invocation,
    results: Annotated[
        Path, Argument("Results of 'poolctl blink', or a file of one session in them.", "OUT")
    ],
    *,
    video: Annotated[
        Path | None, Option("The video or images, if they are not next to OUT.")
    ] = None,
    trace_only: Annotated[bool, Option("Review the trace without a video.")] = False,
    landmarks: ReviewLandmarksOption = "",
    detector: ReviewDetectorOption = "",
    reviewer: Annotated[
        str, Option("Name saved with every correction. Default: your user name.", "NAME")
    ] = "",
    port: Annotated[int, Option("Port on 127.0.0.1; 0 chooses a free one.", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, Option("Print the address and do not open a browser.")] = False,
    export: Annotated[
        Path | None,
        Option("Write the chosen frames as a training set, and open no page.", "FACES.XML"),
    ] = None,
) -> Reply | None:
    """Review the blinks that were found: accept, correct, delete, add.

    Opens a page in the browser that only this machine can reach. Corrections are saved in
    OUT/review: corrections.jsonl has every action, blinks_reviewed.csv the reviewed blinks. The
    automatic result does not change. Stop with Ctrl-C.
    """
    if trace_only and video is not None:
        raise UsageError("--trace-only and --video contradict each other")
    model = _model_path(invocation, results, "landmarks", landmarks)
    with open_review(
        results,
        video=video,
        trace_only=trace_only,
        landmarks=model,
        detector=_model_path(invocation, results, "detector", detector),
        reviewer=reviewer or None,
    ) as review:
        for warning in review.warnings:
            invocation.warn(warning)
        if export is not None:
            return _export(invocation, review, export)
        _serve(invocation, review, port, open_browser=not no_browser)
    return None


@command(
    app, "learn", "blink learn study/ -o eyes-2.dat", "blink learn out-1/ out-2/ -o eyes-2.dat"
)
def learn(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    output: Annotated[Path, Option("The refined model.", "FILE")],
    landmarks: ReviewLandmarksOption = "",
    detector: ReviewDetectorOption = "",
    rounds: Annotated[int, Option("Rounds of refinement.", min=1)] = 3,
) -> Reply:
    """Refine your eye model with the frames that were chosen in reviews, and measure the gain.

    Each reviewed session is left out once: a model refined with the frames of all others is
    measured on its frames, and finds the blinks in its video again. The result is refined with all
    of them. OUTPUT-frames.xml next to it has the frames, for 'poolctl rounds contribute'.
    """
    sessions = [session for place in places for session in _sessions_in(place)]
    base = _model_path(invocation, sessions[0], "landmarks", landmarks)
    if base is None:
        raise UsageError("expected --landmarks FILE, the model to refine")
    file = _model_path(invocation, sessions[0], "detector", detector)
    with invocation.progress("learn from reviews") as report:
        learned = learn_from_reviews(
            sessions, base, output, detector=file, rounds=rounds, progress=report
        )
    rows = [
        [str(gain.place), str(gain.frames), *map(_change, (gain.errors, gain.f1), (4, 3))]
        for gain in learned.gains
    ]
    count = count_words(len(rows), "session")
    verdict = (
        f"{count_words(learned.frames, 'frame')} of {count}. On left-out sessions: error "
        f"{_change(learned.mean_errors, 4)}, F1 of blinks {_change(learned.mean_f1, 3)}."
    )
    before, after = learned.mean_errors
    if after >= before:
        invocation.warn("the new model is no better on left-out sessions: keep the old one")
    table = TableText(["left out", "frames", "error", "F1 of blinks"], rows)
    files = TableText(["what", "value"], [["model", str(output)], ["frames", str(learned.faces)]])
    return Reply(learned, [verdict, table, files], [str(output)])


def _change(values: tuple[float, float], digits: int) -> str:
    if any(map(math.isnan, values)):
        return "not known"
    return " -> ".join(f"{value:.{digits}f}" for value in values)


def _model_path(invocation: Invocation, results: Path, role: str, word: str) -> Path | None:
    """Return the model that was asked for, or else that of the analysis."""
    if word:
        return invocation.model_file(word).path
    try:
        model = find_model(results, role)
        return invocation.model_file(model).path if isinstance(model, str) else model
    except ReviewFolderError:
        raise
    except SiteAgentError as error:
        what = "no landmarks will be shown" if role == "landmarks" else "dlib's detector is used"
        invocation.warn(f"{what}: {error}")
        return None


def _serve(invocation: Invocation, review: ReviewSession, port: int, *, open_browser: bool) -> None:
    from site_agent.eyeblink.review.server import opening_page, serve_review

    with ExitStack() as open_files:

        def show_address(url: str) -> None:
            folder = review.log.path.parent
            rows = [["page", url], ["corrections", str(folder)], ["reviewer", review.reviewer]]
            facts = {"url": url, "corrections": folder, "reviewer": review.reviewer}
            events = review.state.events
            waiting = sum(event.awaits_review for event in events)
            verdict = f"{waiting} of {count_words(len(events), 'blink')} not reviewed."
            table = TableText(["what", "value"], rows)
            invocation.print_reply(Reply(facts, [verdict, table], [url]))
            invocation.note("stop with Ctrl-C; every correction is saved at once")
            if open_browser:
                webbrowser.open(open_files.enter_context(opening_page(url)).as_uri())

        serve_review(review, port=port, on_ready=show_address)


def _export(invocation: Invocation, review: ReviewSession, path: Path) -> Reply:
    with invocation.progress(f"export {path.name}") as report:
        written = export_training_set(review, path, progress=report)
    rows = [
        ["training set", str(written.path)],
        ["frames", f"{written.images}, {written.corrected_images} with corrected landmarks"],
        ["enlarged", f"{written.scale} times"],
    ]
    return Reply(written, TableText(["what", "value"], rows), [str(written.path)])
