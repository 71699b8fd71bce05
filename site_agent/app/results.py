"""The page of one result, and its review under the same navigation bar."""

import csv
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from site_agent.app.pages import Lab
from site_agent.app.recordings import Recording, Standing, Study, copies, reviewed_ns
from site_agent.app.rendering import page_response, plainly, problem_page, redirect
from site_agent.errors import NotFoundError, SiteAgentError
from site_agent.eyeblink.batch.record import SessionRecord
from site_agent.eyeblink.review.endpoints import STATIC, review_application
from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from site_agent.eyeblink.review.reviewed_session import REVIEWED, find_model
from site_agent.eyeblink.session_folder import REVIEW_FOLDER
from site_agent.eyeblink.study.learning_curve import CHANGE_UNITS, UNTOLD
from site_agent.pool.cache import ModelCache
from site_agent.wording import count_words
from site_agent.work.files import require_in_place

_MOST_OPEN = 4
_MOST_ROWS = 500
_FILES = {
    "report.html": "the report, for reading and printing",
    "blinks.csv": "one row a blink",
    "frames.csv": "one row a frame",
    "trials.csv": "one row a trial",
    "session.json": "all numbers, for programs",
    "overlay.mp4": "the video with landmarks",
    "session.nwb": "for Neurodata Without Borders",
    "provenance.json": "the model, the settings, the digests",
}
_REVIEW_FILES = {REVIEWED.file_name: "one row a blink, as reviewed"}


_STUDY_FILES = {
    "sessions.csv": "one row a session",
    "sessions_reviewed.csv": "the same, with reviewed blinks",
    "all_trials.csv": "one row a trial",
    "learning_curve.csv": "points and lines of the curve",
    "learning_curve.json": "the fits, for programs",
    "learning_curve.png": "the figure",
    "criteria.csv": "one row a definition of a response",
    "participants.csv": "one row a participant: sessions and trials up to the criterion",
    "models.csv": "mixed models of the trials",
    "sessions.png": "the trials of all sessions, a figure",
    "batch.csv": "state and reason of each session",
}
_UNITS = dict[str, str](CHANGE_UNITS.items())
_MEASURES = {
    "cr_percent": "Responses",
    "amplitude_all": "Amplitude, all trials",
    "amplitude_cr": "Amplitude of responses",
}


def difference_verdict(difference: Mapping[str, Any], measure: str) -> str:
    """Return one sentence on the difference between two groups."""
    sign = -1.0 if difference["verdict"] == "negative" else 1.0
    # A share of trials changes by no more than 100 points.
    most, unit = 100.0 if measure == "cr_percent" else math.inf, _UNITS[measure]
    both = (sign * difference[end] for end in ("low", "high"))
    ends = sorted(max(-most, min(most, end)) for end in both)
    interval = f"95 %: {ends[0]:.3g} to {ends[1]:.3g} {unit}".replace("-", "−")
    higher, lower = difference["groups"][:: -int(sign)]
    if difference["verdict"] == "unclear":
        return f"{_MEASURES[measure]}: no clear difference of {higher} from {lower} ({interval})."
    size = f"{abs(difference['estimate']):.3g} {unit}"
    return f"{_MEASURES[measure]}: {size} more in {higher} than in {lower} ({interval})."


def study_verdict(
    curves: Sequence[tuple[str, Mapping[str, Any]]],
    shown: Sequence[Standing],
    measure: str,
    *,
    is_gathering: bool = False,
) -> str:
    """Return one sentence on a study: the change over sessions, else the number of blinks."""
    if not curves or all(curve["slope"]["verdict"] == UNTOLD for _, curve in curves):
        records = [standing.record for standing in shown if standing.record is not None]
        if not records:
            return "No recording is analysed yet."
        blinks = sum(record.summary["blinks"] for record in records)
        text = f"{count_words(blinks, 'blink')} in {count_words(len(records), 'session')}."
        if curves:
            return f"{text} Participants are {UNTOLD} how responses change."
        has_trials = any(record.conditioning for record in records) and not is_gathering
        return f"{text} A curve needs two sessions of a participant." if has_trials else text
    one = "" if measure == "cr_percent" else "s"
    parts = []
    for group, curve in curves:
        slope, name = curve["slope"], _MEASURES[measure].lower()
        size = f" by {abs(slope['estimate']):.3g} {_UNITS[measure]} a session"
        change = {
            "positive": f"{name} rise{one}{size}",
            "negative": f"{name} fall{one}{size}",
            "unclear": f"{name} do{'es' if one else ''} not clearly change",
        }.get(slope["verdict"], f"{name}: {UNTOLD}")
        parts.append(f"{group}: {change}" if group else change)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def verdict_of(record: SessionRecord) -> str:
    """Return one sentence on a session."""
    summary, trials = record.summary, record.conditioning
    if not summary.get("valid_pct"):
        return "How often the person blinked is not known: the eyes were seen in no frame."
    if not summary.get("calibrated", True):
        return "How often the person blinked is not known: the eyes could not be calibrated."
    blinks = count_words(summary["blinks"], "blink") if summary["blinks"] else "No blink"
    rate = summary.get("blinks_per_minute")
    text = f"{blinks} in {_clock(summary['seconds'])}"
    among = " with those of the trials" if trials is not None else ""
    text += f", {rate:.1f} a minute{among}" if rate is not None and summary["blinks"] else ""
    if "unreviewed" in summary:
        waiting, before = summary["unreviewed"], summary["blinks_found"]
        text += f"; {waiting} not reviewed" if waiting else "; reviewed"
        text += f" ({before} found by the analysis)" if before != summary["blinks"] else ""
    if damaged := summary.get("damaged_frames"):
        text += f"; {count_words(damaged, 'frame')} behind damage in the video not judged"
    if trials is not None and trials["n_cs_valid"]:
        share = 100 * trials["n_cr"] / trials["n_cs_valid"]
        responses = f"Conditioned responses in {trials['n_cr']} of {trials['n_cs_valid']} trials"
        return f"{responses} ({share:.0f} %). {text}."
    return f"{text}."


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{round(seconds % 60):02d} min"


@dataclass
class Results:
    """Results of recordings; a few stay open, so that their frames load fast."""

    lab: Lab
    _open: OrderedDict[Path, tuple[ReviewSession, Starlette]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Close all that is open."""
        with self._lock:
            while self._open:
                self._open.popitem()[1][0].close()

    def show(self, request: Request) -> Response:
        """Show verdict, warnings, frame and trace, blinks or trials, and files."""
        study, standing, standings = self._find(request)
        record = standing.record
        if record is None:
            raise NotFoundError(f"{standing.recording.session} has no result yet")
        folder = study.place / standing.recording.session
        warnings = standing.weaknesses
        review, is_reviewed = folder / REVIEW_FOLDER, "unreviewed" in record.summary
        files = [*_listed(folder, _FILES), *_listed(review, _REVIEW_FILES)]
        blinks = review / REVIEWED.file_name if is_reviewed else folder / "blinks.csv"
        order = [standing for standing in standings if standing.record is not None]
        place = order.index(standing)
        return self.lab.page(
            request, "result.html", study=study, recording=standing.recording, record=record,
            verdict=verdict_of(record), main_warnings=warnings[:3], remarks=warnings[3:],
            blinks=_rows(blinks), trials=_rows(folder / "trials.csv"), files=files,
            before=order[place - 1].recording if place else None,
            after=order[place + 1].recording if place + 1 < len(order) else None,
            model=ModelCache().name_of(Path(standing.recording.landmarks)),
            at_s=request.query_params.get("at", ""),
            is_lost=standing.recording.recording in self.lab.watch.lost,
            has_report=(folder / "report.html").is_file(),
            command=f"poolctl blink batch {study.table} -o {study.place}",
        )  # fmt: skip

    def study(self, request: Request) -> Response:
        """Show the change over sessions, the sessions, those left out, and the tables."""
        study, views = self.lab.studies.current(), self.lab.jobs.views()
        standings = self.lab.studies.standings(study, views)
        shown = [standing for standing in standings if standing.record is not None]
        fits: dict[str, Any] = {"groups": {}, "remarks": []}
        with suppress(OSError, ValueError):
            fits = json.loads((study.place / "learning_curve.json").read_text(encoding="utf-8"))
        measure = request.query_params.get("measure", "")
        measure = measure if measure in _MEASURES else "cr_percent"
        curves = [
            (group, curve)
            for group, fitted in fits["groups"].items()
            for curve in fitted
            if curve["measure"] == measure
        ]
        differences = [
            row
            for row in fits.get("differences", ())
            if row["measure"] == measure and row["verdict"] != UNTOLD
        ]
        question = "groups" if differences else "learning"
        is_told = differences or any(curve["slope"]["verdict"] != UNTOLD for _, curve in curves)
        # While they wait or are written, tables are those of fewer recordings.
        is_gathering = any(
            view.job.kind == "study" and view.job.request["study"] == study.folder
            for view in views
            if not view.ended
        )
        verdict = study_verdict(curves, shown, measure, is_gathering=is_gathering)
        if differences:
            verdict = f"{difference_verdict(differences[0], measure)} {verdict}"
        criteria = _criteria(study.place, question, measure) if is_told else None
        if criteria:
            agreeing, of = sum(row["agrees"] for row in criteria["rows"]), len(criteria["rows"])
            verdict += f" Definitions of a response that agree: {agreeing} of {of}."
        return self.lab.page(
            request, "study.html", views=views, study=study, shown=shown, curves=curves,
            verdict=verdict, measures=_MEASURES, measure=measure, question=question,
            unit=_UNITS[measure],
            participants=_participants(curves), criteria=criteria, is_told=is_told,
            difference=differences[0] if differences else None,
            judging=[v for v in views if v.job.kind == "criteria" and v.state.state != "done"][-1:],
            remarks=[*fits["remarks"], *_copied(standings)], left_out=_left_out(standings),
            is_newly_reviewed=_is_newly_reviewed(study, shown),
            has_trials=any(standing.record.conditioning for standing in shown if standing.record),
            busy_sessions=sum(s.state in {"waiting", "running"} for s in standings),
            models=len({standing.recording.landmarks for standing in shown}),
            files=[] if is_gathering else _listed(study.place, _STUDY_FILES),
            is_gathering=is_gathering,
            command=f"poolctl blink batch {study.table} -o {study.place}",
        )  # fmt: skip

    def ask_criteria(self, request: Request) -> Response:
        """Ask whether the conclusion depends on the definition of a response."""
        form = request.scope["form"]
        measure, question = (form.get(name, [""])[0] for name in ("measure", "question"))
        if measure not in _MEASURES or question not in {"groups", "learning"}:
            raise NotFoundError(f"there is no measure {measure!r} or question {question!r}")
        study = self.lab.studies.current()
        self.lab.ask(
            "criteria", f"Other definitions of a response for {study.name}", "", measure=measure,
            study=study.folder, question=question,
        )  # fmt: skip
        return redirect(request, f"/results?measure={measure}")

    def tabulate_reviews(self, request: Request) -> Response:
        """Ask for the tables of the study with the reviewed blinks."""
        self.lab.gather(self.lab.studies.current())
        return redirect(request, "/results")

    def study_file(self, request: Request) -> Response:
        """Return a table or the figure of the study by its name; never another path."""
        name, place = request.path_params["name"], self.lab.studies.current().place
        if name not in _STUDY_FILES or not (place / name).is_file():
            raise NotFoundError(f"the study has no file {name!r}")
        is_saved = "save" in request.query_params
        return FileResponse(place / name, filename=name if is_saved else None)

    def file(self, request: Request) -> Response:
        """Return a file of a result by its name; never another path."""
        study, standing, _ = self._find(request)
        name = request.path_params["name"]
        folder, record = study.place / standing.recording.session, standing.record
        written = (*record.files, "report.html") if record is not None else ()
        path = folder / REVIEW_FOLDER / name if name in _REVIEW_FILES else folder / name
        is_ours = name in _REVIEW_FILES or (name in _FILES and name in written)
        if not is_ours or not path.is_file():
            raise NotFoundError(f"the result has no file {name!r}")
        if name == "report.html" and "save" not in request.query_params:
            policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
            return FileResponse(path, headers={"content-security-policy": policy})
        return FileResponse(path, filename=f"{standing.recording.session}_{name}")

    async def review(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the review of its recording."""
        request = Request(scope, receive)
        try:
            study, standing, standings = self._find(request)
            application = self._application(study, standing)
        except SiteAgentError as error:
            await problem_page(request, str(error), error.hint, status=409)(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope["root_path"])
        if path == "/":
            waiting = [standing.recording for standing in standings if standing.state == "review"]
            page = _review_page(request, standing.recording, waiting)
            await page(scope, receive, send)
            return
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await application(inner, receive, send)

    def _find(self, request: Request) -> tuple[Study, Standing, list[Standing]]:
        study = self.lab.studies.current()
        standings = self.lab.studies.standings(study, self.lab.jobs.views())
        number = request.path_params["recording"]
        for standing in standings:
            if standing.recording.recording == number:
                return study, standing, standings
        raise NotFoundError(f"the study {study.name!r} has no recording {number}")

    def _application(self, study: Study, standing: Standing) -> Starlette:
        folder = study.place / standing.recording.session
        with self._lock:
            if folder in self._open:
                self._open.move_to_end(folder)
                return self._open[folder][1]
            video = Path(standing.recording.video)
            if video.exists():
                require_in_place(video)
            review = open_review(
                folder,
                video=video if video.exists() else None,
                trace_only=not video.exists(),
                landmarks=_model(folder, Path(standing.recording.landmarks)),
                detector=None,
            )
            self._open[folder] = review, review_application(review, plainly)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1][0].close()
            return self._open[folder][1]


def _model(folder: Path, known: Path) -> Path | None:
    """Return the landmark model of the analysis, if it still exists."""
    if known.is_file():
        return known
    try:
        model = find_model(folder, "landmarks")
    except SiteAgentError:
        return None
    return model if isinstance(model, Path) else None


def _listed(folder: Path, files: Mapping[str, str]) -> list[tuple[str, str, int]]:
    paths = [folder / name for name in files]
    return [(path.name, files[path.name], path.stat().st_size) for path in paths if path.is_file()]


def _is_newly_reviewed(study: Study, shown: Sequence[Standing]) -> bool:
    """Return whether a review is newer than the table of reviewed sessions."""
    table = study.place / "sessions_reviewed.csv"
    written_ns = table.stat().st_mtime_ns if table.is_file() else 0
    return any(
        "unreviewed" in standing.record.summary
        and reviewed_ns(study.place / standing.recording.session) > written_ns
        for standing in shown
        if standing.record is not None
    )


def _copied(standings: Sequence[Standing]) -> list[str]:
    names = {standing.recording.recording: standing.recording.file_name for standing in standings}
    return [
        f"{names[number]} seems to be a copy of {original}: both count"
        for number, original in copies(standings).items()
    ]


def _left_out(standings: Sequence[Standing]) -> list[tuple[str, str]]:
    """Return the recordings without numbers in the study, each with the reason."""
    reasons = []
    for standing in standings:
        name, trials = (
            standing.recording.file_name,
            standing.record and standing.record.conditioning,
        )
        if standing.record is None:
            reasons.append((name, standing.reason or "not analysed yet"))
        elif trials and trials.get("withheld"):
            reasons.append((name, "too few valid trials for a percentage"))
    return reasons


def _participants(
    curves: Sequence[tuple[str, Mapping[str, Any]]],
) -> tuple[list[float], list[tuple[str, str, dict[float, float]]]]:
    """Return the numbers of all sessions, and each participant's group and values by session."""
    rows: dict[tuple[str, str], dict[float, float]] = {}
    for group, curve in curves:
        for point in curve["points"]:
            row = rows.setdefault((point["participant"], group), {})
            row[point["position"]] = point["value"]
    sessions = sorted({number for row in rows.values() for number in row})
    return sessions, [(who, group, row) for (who, group), row in sorted(rows.items())]


def _criteria(study: Path, question: str, measure: str) -> Mapping[str, Any] | None:
    """Return the study under other definitions, unless its sessions have changed since."""
    path = study / "criteria.json"
    with suppress(OSError, ValueError):
        comparison: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        is_new = path.stat().st_mtime_ns >= (study / "learning_curve.json").stat().st_mtime_ns
        if is_new and (comparison["question"], comparison["measure"]) == (question, measure):
            return comparison
    return None


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [row for row, _ in zip(csv.DictReader(file), range(_MOST_ROWS), strict=False)]
    except FileNotFoundError:
        return []


def _review_page(request: Request, recording: Recording, waiting: Sequence[Recording]) -> Response:
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    others = [other for other in waiting if other.recording != recording.recording]
    bar = page_response(
        "review_bar.html", at=request.scope["at"], recording=recording, waiting=others,
        csrf=request.scope["session"].csrf,
    )  # fmt: skip
    head, _, links = bytes(bar.body).decode().partition("<!-- bar -->")
    return HTMLResponse(
        html.replace("</head>", f"{head}</head>").replace("<body>", f"<body>{links}")
    )
