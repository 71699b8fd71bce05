"""The pages that show and change lists: home, videos, adding, analysing, jobs."""

import hashlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from site_agent import own_folders
from site_agent.app.places import MOST_ENTRIES, Place, Places, allowed_folder, found_below
from site_agent.app.recordings import (
    Recording,
    Standing,
    Studies,
    Study,
    copies,
    read_names,
    videos_in,
)
from site_agent.app.rendering import ENTRIES, page_response, redirect
from site_agent.app.watching import Watch
from site_agent.errors import InvalidInputError, NotFoundError, SiteAgentError
from site_agent.eyeblink.batch.sessions import LEFT_OUT, VIDEO_SUFFIXES
from site_agent.eyeblink.outputs.registry import ON_REQUEST
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.jobs.analysing import analysis_request
from site_agent.jobs.folder import Job, JobFolder, JobView
from site_agent.plain_json import write_json
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import usual_landmarks
from site_agent.pool.sent import read_sent, sent_by, sent_verdict
from site_agent.pool.signing import kind_of
from site_agent.settings import Setting, list_settings, setting_text, with_values
from site_agent.training.ert import kept_starter
from site_agent.wording import count_words

_ORDER = {"failed": 0, "review": 1, "new": 2, "running": 3, "waiting": 4, "done": 5}
_STATE_WORDS = {
    "new": "New", "running": "In work", "review": "To review", "done": "Done", "failed": "Failed",
}  # fmt: skip
_DRAWN_S = 20.0


@dataclass(frozen=True)
class ModelChoice:
    """A landmark model that can be chosen, with the reason to do so."""

    id: str
    name: str
    remark: str
    path: Path
    needs_starter: bool = False


@dataclass
class Lab:
    """The things that pages show: the studies, the jobs, and the folders that may be listed."""

    studies: Studies
    jobs: JobFolder
    places: Places = field(default_factory=Places)
    stop: Callable[[], None] = lambda: None
    """Ends the server."""

    def __post_init__(self) -> None:
        self.watch = Watch(self.studies)

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """Return a page within the frame of all pages."""
        views = values.pop("views", None) or self.jobs.views()
        return page_response(
            template, at=request.scope["at"], status=status, csrf=request.scope["session"].csrf,
            path=request.scope["path"], entries=ENTRIES, busy=busy_state(views),
            waiting_rounds=self.watch.rounds, **values,
        )  # fmt: skip

    @contextmanager
    def pool(self) -> Iterator[PoolClient]:
        """Return a client of the lab's pool for a page: it does not wait long."""
        with sent_by("app"), PoolClient(timeout_s=10.0, attempts=2) as pool:
            yield pool

    def faces(self) -> Path | None:
        """Return the annotated faces that were chosen last, if they are still there."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            path = Path(json.loads(self._kept.read_text(encoding="utf-8"))["faces"])
            return path if path.exists() else None
        return None

    def keep_faces(self, typed: str) -> Path | None:
        """Keep annotated faces that a person named; None if the text is empty."""
        if not (typed := typed.strip().strip("\"'")):
            return None
        path = Path(typed).expanduser()
        allowed_folder(path if path.is_dir() else path.parent)
        if not path.exists():
            raise InvalidInputError(f"{path}: no such file or folder; expected annotated faces")
        write_json(self._kept, {"faces": str(path)}, mode=0o600)
        return path

    def ask(self, kind: str, title: str, group: str, **asked: Any) -> Job:
        """Ask for a job, and have it done."""
        job = self.jobs.add(kind, title, asked, group=group, asked_by="app")
        self.jobs.start_runner()
        return job

    @property
    def _kept(self) -> Path:
        return self.studies.folder / "faces.json"

    def quit(self, request: Request) -> Response:
        """End the app; jobs go on."""
        self.stop()
        return page_response("quit.html", at=request.scope["at"])

    # Home
    def home(self, request: Request) -> Response:
        """Show a verdict on the study, the work that waits for a person, and the jobs."""
        study, views = self.studies.current(), self.jobs.views()
        standings = self.studies.standings(study, views)
        if not standings:
            jobs = [view for view in views if view.job.group == "try"]
            return self.page(request, "first.html", views=views, jobs=jobs)
        states = Counter(standing.state for standing in standings)
        open_views = [view for view in views if not view.ended]
        ended = sorted(
            (view for view in views if view.state.state == "done" and view.job.kind == "analyse"),
            key=lambda view: view.state.ended or 0.0, reverse=True,
        )  # fmt: skip
        numbers = {standing.recording.session: standing for standing in standings}
        return self.page(
            request, "home.html", views=views, study=study, states=states,
            verdict=verdict_of(states), open_views=open_views,
            failed=[standing for standing in standings if standing.state == "failed"],
            finished=[numbers[n] for view in ended if (n := _name_of(view.job)) in numbers][:5],
            model=_model_name(standings), taken=_query_job(request, views), watch=self.watch,
            fresh=self._fresh(), sent=sent_verdict([item for item in read_sent() if item.is_item]),
        )  # fmt: skip

    def try_drawn(self, request: Request) -> Response:
        """Draw a video, train the starter, and find the blinks of the one with the other."""
        study = replace(self.studies.current(), id="try", name="First look")
        study = replace(study, folder=str(study.place.with_name("first-look")))
        video = study.place.with_name("drawn-video").resolve() / "drawn_person.mp4"
        if not study.recordings():
            self.studies.keep(study)
            study.write([Recording("drawn_person", str(video))])
            drawn = self.jobs.add(
                "draw", "Drawing a video of a blinking person",
                {"path": str(video), "seconds": _DRAWN_S}, group="try", asked_by="app",
            )  # fmt: skip
            self._look(study, after=[drawn.id])
            self._analyse(study, study.recordings(), self.models(study)[-1], after=[drawn.id])
        else:
            self.studies.keep(study)
        self.jobs.start_runner()
        return redirect(request, "/")

    # Videos
    def videos(self, request: Request, wrong: Mapping[str, str] | None = None) -> Response:
        """List the recordings of the study: state, and result or reason.

        `wrong`: Sessions that were typed and are no numbers, by recording.
        """
        query, study, views = request.query_params, self.studies.current(), self.jobs.views()
        standings = self.studies.standings(study, views)
        states = Counter(standing.state for standing in standings)
        states["running"] += states.pop("waiting", 0)
        text, state = query.get("text", "").casefold(), query.get("state", "")
        binned = [Standing(row, "taken out") for row in self.studies.binned(study)]
        shown = (
            binned
            if state == "bin"
            else [
                standing
                for standing in standings
                if (
                    not state or state == {"waiting": "running"}.get(standing.state, standing.state)
                )
                and text
                in f"{standing.recording.file_name} {standing.recording.participant} "
                f"{standing.recording.group}".casefold()
            ]
        )
        orders: Mapping[str, Callable[[Standing], Any]] = {
            "newest": lambda standing: [-ord(letter) for letter in standing.recording.added],
            "name": lambda standing: (
                standing.recording.participant,
                standing.recording.session_number,
            ),
        }
        order = query.get("order", "")
        shown.sort(key=orders.get(order, lambda standing: _ORDER.get(standing.state, 0)))
        return self.page(
            request, "videos.html", status=422 if wrong else 200, wrong=wrong or {},
            views=views, study=study, shown=shown, states=states,
            total=len(standings), filters=_STATE_WORDS, state=state, order=order,
            text=query.get("text", ""), fresh=[s for s in standings if s.state == "new"],
            removed="removed" in query and bool(binned), binned=len(binned), watch=self.watch,
            new_files=self._fresh(), copies=copies(standings),
            others=[other for other in self.studies.all() if other.id != study.id],
        )  # fmt: skip

    def change_cells(self, request: Request) -> Response:
        """Keep participants, sessions and groups as a person corrected them."""
        columns = ("participant", "session_number", "group")
        study = self.studies.current()
        changed: dict[str, dict[str, str]] = {}
        wrong: dict[str, str] = {}
        for row in study.recordings():
            for column in columns:
                values = request.scope["form"].get(f"{column}-{row.recording}")
                if values is not None and values[0].strip() != getattr(row, column):
                    cells = changed.setdefault(row.recording, {})
                    cells[column] = values[0].strip()
                    if column == "session_number":
                        cells[column] = _decimal(values[0])
                        if not re.fullmatch(r"(\d+(\.\d+)?)?", cells[column]):
                            wrong[row.recording] = cells.pop(column)
        if any(changed.values()):
            self.studies.change(study, changed)
            self.gather(study)
            self.jobs.start_runner()
        if wrong:
            return self.videos(request, wrong)
        return redirect(request, "/videos")

    def picture(self, request: Request) -> Response:
        """Return the small picture of a recording."""
        study = self.studies.current()
        recording = study.find(request.path_params["recording"])
        path = study.looks / f"{recording.recording}.jpg"
        if not path.is_file():
            return Response(status_code=404)
        return FileResponse(path, media_type="image/jpeg")

    # Add
    def choose(self, request: Request, problem: str = "", typed: str = "") -> Response:
        """Show folders, and the videos of one as they would be added."""
        study, number = self.studies.current(), request.query_params.get("place", "")
        starts = self.places.starts(study.added)
        place = starts[0] if starts else None
        below: list[Place] = []
        videos: list[Path] = []
        trials: dict[Path, Path] = {}
        others = Counter[str]()
        try:
            place = self.places.find(number) if number else place
            if place is not None:
                below = self.places.below(place)
                videos, trials, others = videos_in(place.path, MOST_ENTRIES)
        except (SiteAgentError, OSError) as error:
            problem = problem or str(error)
        readings = read_names(videos)
        rows = study.recordings()
        known = {row.video for row in rows}
        here = {path.name for path in videos}
        lost = [row.file_name for row in rows if row.recording in self.watch.lost]
        return self.page(
            request, "choose.html", starts=starts, place=place, below=below, videos=videos,
            trials=trials, others=others, readings=readings, known=known, problem=problem,
            unfit={path for path in videos if not str(path).isprintable()}, typed=typed,
            lost=lost, moved=[name for name in lost if name in here], most=MOST_ENTRIES,
            above=_above(self.places, place),
            count=sum(others[suffix] for suffix in VIDEO_SUFFIXES),
        )  # fmt: skip

    def paste_folder(self, request: Request) -> Response:
        """Go to a folder that was typed or pasted."""
        typed = request.scope["form"].get("folder", [""])[0].strip().strip("\"'")
        try:
            path = Path(typed).expanduser()
            if not path.is_absolute():
                raise InvalidInputError(
                    f"{typed!r} is no whole path; expected one like {Path.home() / 'Videos'}"
                )
            place = self.places.place(path.parent if path.is_file() else path)
        except (SiteAgentError, OSError, RuntimeError, ValueError) as error:
            return self.choose(request, str(error), typed)
        return redirect(request, f"/videos/add?place={place.id}")

    def add(self, request: Request) -> Response:
        """Add the videos of a folder to the study; nothing is copied."""
        place = self.places.find(request.scope["form"].get("place", [""])[0])
        chosen = set(request.scope["form"].get("video", []))
        videos, trials, _ = videos_in(place.path)
        videos = [path for path in videos if path.name in chosen]
        if not videos:
            raise InvalidInputError("no video is chosen; expected at least one")
        if self.studies.current().id == "try":
            self.studies.keep(self.studies.first())
        study = self.studies.add(place.path, videos, trials)
        self._look(study)
        return redirect(request, "/videos")

    def _look(self, study: Study, after: Sequence[str] = ()) -> None:
        """Ask for a look at the videos that nobody has looked at."""
        missing = {
            row.recording: row.video
            for row in study.recordings()
            if not (study.looks / f"{row.recording}.json").exists()
        }
        if missing:
            self.jobs.add(
                "look", f"Looking at {count_words(len(missing), 'video')}",
                {"videos": missing, "looks": str(study.looks)}, after=after, asked_by="app",
            )  # fmt: skip
            self.jobs.start_runner()

    def chosen(self, request: Request) -> Response:
        """Analyse the chosen recordings, or take them out of the list."""
        chosen = request.scope["form"].get("recording", [])
        if request.scope["form"].get("do") == ["forget"]:
            self.studies.forget(set(chosen))
            return redirect(request, "/videos?removed=1")
        query = "&".join(f"recording={number}" for number in chosen if number.isalnum())
        return redirect(request, f"/videos/analyse?{query}")

    def restore(self, request: Request) -> Response:
        """Bring back the chosen recordings, or those that were taken out last."""
        self.studies.restore(set(request.scope["form"].get("recording", [])))
        return redirect(request, "/videos")

    def switch(self, request: Request) -> Response:
        """Show another study from now on."""
        known = {study.id: study for study in self.studies.all()}
        number = request.scope["form"].get("study", [""])[0]
        if number not in known:
            raise NotFoundError(f"there is no study {number!r}")
        self.studies.keep(known[number])
        return redirect(request, "/videos")

    def find(self, request: Request) -> Response:
        """Go to the folder of dropped files; browsers tell their names alone."""
        names = {name for name in request.scope["form"].get("name", []) if Path(name).name == name}
        starts = self.places.starts(self.studies.current().added)
        hits = found_below([place.path for place in starts], names)
        folders = Counter(path.parent for paths in hits.values() for path in paths)
        if not folders:
            name = min(names, default="the file")
            text = (
                f"Where is {name}? Browsers do not say where a dropped file lies: choose its folder"
            )
            return self.choose(request, text)
        place = self.places.place(folders.most_common(1)[0][0])
        return redirect(request, f"/videos/add?place={place.id}")

    def follow(self, request: Request) -> Response:
        """Note that moved videos lie in this folder now."""
        place = self.places.find(request.scope["form"].get("place", [""])[0])
        study = self.studies.current()
        count = self.studies.follow_moved(study, [place.path], by_name=True)
        if self.watch.lost and not count:
            raise InvalidInputError(
                f"{place.name} holds none of the videos that were analysed: those of the same "
                "names have another content, or two have one name; nothing was changed"
            )
        added = tuple(dict.fromkeys((*study.added, str(place.path))))
        self.studies.keep(replace(study, added=added))
        self.watch.look()
        return redirect(request, "/videos")

    def _fresh(self) -> list[tuple[Place, int]]:
        """Return the added folders with new videos, and their number."""
        folders = []
        for folder, count in self.watch.fresh.items():
            with suppress(InvalidInputError):
                folders.append((self.places.place(folder), count))
        return folders

    # Analyse
    def analyse_form(
        self, request: Request, chosen: Sequence[str] = (), problem: str = "", status: int = 200
    ) -> Response:
        """Ask for the model, the face, and more files."""
        chosen = chosen or request.query_params.getlist("recording")
        study, views = self.studies.current(), self.jobs.views()
        form = request.scope.get("form", {})
        standings = self.studies.standings(study, views)
        if not chosen:
            chosen = [
                standing.recording.recording for standing in standings if standing.state == "new"
            ]
        rows = [
            standing.recording for standing in standings if standing.recording.recording in chosen
        ]
        groups: dict[str, dict[str, Setting]] = {}
        for name, setting in list_settings(
            BlinkAnalysisSettings(), (*_LEFT_OUT, "faces.face")
        ).items():
            groups.setdefault(name.partition(".")[0].replace("_", " "), {})[name] = setting
        return self.page(
            request, "analyse.html", status=status, views=views, study=study, rows=rows,
            models=self.models(study), problem=problem, groups=groups, as_text=setting_text,
            trials=sum(bool(row.trials) for row in rows), extra=sorted(ON_REQUEST),
            kept={name: values[0] for name, values in form.items()},
            several={row.landmarks for row in study.recordings()} - {""},
        )  # fmt: skip

    def analyse(self, request: Request) -> Response:
        """Ask for the analysis of the chosen recordings."""
        form = request.scope["form"]
        study = self.studies.current()
        rows = [study.find(number) for number in form.get("recording", [])]
        models = {model.id: model for model in self.models(study)}
        try:
            if not rows:
                raise InvalidInputError("no recording is chosen")
            model = models.get(form.get("model", [""])[0])
            if model is None:
                raise InvalidInputError("choose a model")
            values = {
                name.removeprefix("set:"): _decimal(texts[0])
                for name, texts in form.items()
                if name.startswith("set:") and texts[0].strip()
            }
            settings = with_values(BlinkAnalysisSettings(), values, _LEFT_OUT)
            outputs = frozenset(form.get("output", [])) & set(ON_REQUEST)
            settings = replace(settings, outputs=outputs)
        except SiteAgentError as error:
            chosen = form.get("recording", [])
            return self.analyse_form(request, chosen, str(error), status=422)
        self._analyse(study, rows, model, settings)
        self.jobs.start_runner()
        return redirect(request, "/videos")

    def _analyse(
        self,
        study: Study,
        rows: Sequence[Recording],
        model: ModelChoice,
        settings: BlinkAnalysisSettings = BlinkAnalysisSettings(),
        after: Sequence[str] = (),
    ) -> None:
        cells = {row.recording: {"landmarks": str(model.path)} for row in rows}
        self.studies.change(study, cells)
        group = "try" if study.id == "try" else secrets.token_hex(4)
        if model.needs_starter:
            open_views = [view for view in self.jobs.views() if not view.ended]
            begun = [view.job for view in open_views if view.job.kind == "starter"]
            title = "Training a starter model on 250 drawn faces"
            starter = (begun or [self.jobs.add("starter", title, {}, asked_by="app")])[0]
            after = [*after, starter.id]
        sessions = study.sessions()
        for row in rows:
            self.jobs.add(
                "analyse", row.file_name,
                analysis_request(sessions[row.session], study.place, settings),
                group=group, after=after, asked_by="app",
            )  # fmt: skip
        self.gather(study)

    def gather(self, study: Study) -> None:
        """Ask for the tables of the study once all that is asked for has ended."""
        views = [view for view in self.jobs.views() if not view.ended]
        before = []
        for view in views:
            if view.job.request.get("study") != study.folder:
                continue
            if view.job.kind == "study" and view.state.state == "waiting":
                with suppress(InvalidInputError):  # it has begun meanwhile
                    self.jobs.cancel(view.job.id)
                    self.jobs.remove(view.job.id)
            elif view.job.kind == "analyse":
                before.append(view.job.id)
        self.jobs.add(
            "study", f"Tables of {study.name}", {"study": study.folder},
            after=before, gathers=True, asked_by="app",
        )  # fmt: skip

    def models(self, study: Study) -> list[ModelChoice]:
        """Return the models to choose from, the most sensible first."""
        choices: dict[Path, ModelChoice] = {}

        def offer(path: Path, name: str, remark: str, *, needs_starter: bool = False) -> None:
            if path not in choices and (needs_starter or path.is_file()):
                number = "starter" if needs_starter else _number_of(path)
                choices[path] = ModelChoice(number, name, remark, path, needs_starter)

        starter = kept_starter(own_folders.cache_folder())
        used = Counter(row.landmarks for row in study.recordings() if row.landmarks)
        for model, count in used.most_common():
            if Path(model) != starter:
                text = f"used by {count_words(count, 'recording')} of this study"
                offer(Path(model), Path(model).name, text)
        if (usual := usual_landmarks()) and Path(usual).is_file():
            offer(Path(usual), Path(usual).name, "your usual model")
        cache = ModelCache()
        for entry in cache.entries():
            blob = cache.find(entry.digest) if entry.complete else None
            if blob is not None and entry.addresses:
                offer(blob, entry.addresses[0].removeprefix("pool://"), "from the pool")
        for folder in study.added:
            for path in sorted(Path(folder).glob("*.dat")):
                if _is_landmark_model(path):
                    offer(path, path.name, f"lies in {Path(folder).name}")
        remark = "has seen drawn faces only: for a first look, not for a paper"
        offer(starter, "Starter model", remark, needs_starter=not starter.is_file())
        return list(choices.values())

    # Jobs
    def all_jobs(self, request: Request) -> Response:
        """List all jobs."""
        views = self.jobs.views()
        # In their order those that are still to be done, then the others, the newest first.
        ended = [view for view in reversed(views) if view.ended]
        shown = [*(view for view in views if not view.ended), *ended]
        return self.page(
            request, "jobs.html", views=views, all=shown, is_paused=self.jobs.is_paused
        )

    def pause(self, request: Request) -> Response:
        """Let no further job begin, or let them begin again."""
        self.jobs.pause(paused="pause" in request.scope["form"])
        self.jobs.start_runner()
        return redirect(request, "/jobs")

    def job(self, request: Request) -> Response:
        """Show the events of one job, and its reason."""
        view = self.jobs.view(request.path_params["job"])
        number = view.job.id
        return self.page(
            request, "job.html", view=view, events=self.jobs.events(number),
            log=self.jobs.log(number), command=f"poolctl jobs ls {number}",
        )  # fmt: skip

    def change_job(self, request: Request) -> Response:
        """Cancel, retry or put first one job."""
        number, action = request.path_params["job"], request.path_params["action"]
        if action == "cancel":
            self.jobs.cancel(number)
        elif action == "retry":
            self._retry(number)
        elif action == "next":
            self.jobs.put_first(number)
        else:
            raise NotFoundError(f"jobs cannot be asked to {action!r}")
        self.jobs.start_runner()
        back = request.scope["form"].get("back", ["/"])[0]
        path = back if back in ("/", "/videos", "/jobs") else "/"
        return redirect(request, f"{path}?taken={number}" if action == "cancel" else path)

    def _retry(self, number: str) -> None:
        """Ask for a job again; of an analysis with the video and trials as they are now."""
        job = self.jobs.view(number).job
        asked = job.request
        study = next((s for s in self.studies.all() if s.folder == asked.get("study")), None)
        session = study.sessions().get(_name_of(job)) if study and job.kind == "analyse" else None
        if study is None or session is None:
            self.jobs.retry(number)
            return
        now = analysis_request(session, study.place, BlinkAnalysisSettings())["session"]
        if json.loads(json.dumps(now)) == asked["session"]:
            self.jobs.retry(number)
        else:
            again = {**asked, "session": now}
            self.jobs.add("analyse", job.title, again, group=job.group, asked_by="app")
            self.jobs.remove(number)
        self.gather(study)


_LEFT_OUT = (*LEFT_OUT, "labels", "files")


def _number_of(path: Path) -> str:
    """Return a name for a file in a form."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _is_landmark_model(path: Path) -> bool:
    """Return whether a file is one by its first bytes: other programs also write ``.dat``."""
    with suppress(OSError):
        return kind_of(path) == "ert"
    return False


def _decimal(text: str) -> str:
    """Read a German decimal comma; tuples keep theirs."""
    before, comma, after = text.strip().partition(",")
    is_decimal = comma and before.lstrip("-").isdigit() and after.isdigit()
    return f"{before}.{after}" if is_decimal else text.strip()


def busy_state(views: Sequence[JobView]) -> dict[str, Any] | None:
    """Return the summary of jobs for the bar; None where none waits or runs."""
    waiting = sum(view.state.state == "waiting" for view in views)
    shares = [view.state.share or 0.0 for view in views if view.state.state == "running"]
    if not shares and not waiting:
        return None
    percent = round(100 * sum(shares) / len(shares)) if shares else 0
    return {"running": len(shares), "waiting": waiting, "percent": percent}


def verdict_of(states: Counter[str]) -> str:
    """Return one sentence on a study."""
    total = sum(states.values())
    analysed = states["done"] + states["review"]
    if analysed == total:
        review = states["review"]
        rest = f"; to review: {review}" if review else ""
        return f"All {total} are analysed{rest}." if total > 1 else f"It is analysed{rest}."
    parts = [f"Analysed: {analysed} of {count_words(total, 'recording')}"]
    for state, text in (("failed", "failed"), ("review", "to review"), ("new", "new")):
        if states[state]:
            parts.append(f"{states[state]} {text}")
    busy = states["running"] + states["waiting"]
    return ", ".join(parts) + (f"; in work: {busy}." if busy else ".")


def _name_of(job: Job) -> str:
    return str(job.request["session"]["name"])


def _model_name(standings: Sequence[Standing]) -> str:
    used = Counter(
        standing.recording.landmarks for standing in standings if standing.recording.landmarks
    )
    return ModelCache().name_of(Path(used.most_common(1)[0][0])) if used else ""


def _query_job(request: Request, views: Sequence[JobView]) -> JobView | None:
    number = request.query_params.get("taken", "")
    matching = (view for view in views if view.job.id == number)
    return next((view for view in matching if view.state.state == "cancelled"), None)


def _above(places: Places, place: Place | None) -> Place | None:
    if place is None or place.path.parent == place.path:
        return None
    try:
        allowed_folder(place.path.parent)
        return places.place(place.path.parent)
    except InvalidInputError:
        return None
