"""The server of the app, and its start: one for each POOL_HOME."""

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from site_agent.app.entry import HOST, USUAL_PORT, AppFolder, Guard
from site_agent.app.models import Models
from site_agent.app.pages import Lab
from site_agent.app.recordings import Studies
from site_agent.app.rendering import page_response, problem_page, static_file
from site_agent.app.results import Results
from site_agent.app.rounds import Rounds
from site_agent.app.settings import LabSettings
from site_agent.app.training import Training
from site_agent.errors import BusyError, NotFoundError, SiteAgentError
from site_agent.eyeblink.review.server import local_listener, local_server
from site_agent.jobs.folder import JobFolder, JobView
from site_agent.wording import duration_words

_EVENT_INTERVAL_S = 0.5
_MOST_PORTS = 20


def app_application(lab: Lab, results: Results) -> Starlette:
    """Return the application behind the guard."""
    post = {"methods": ["POST"]}
    models, settings, rounds = Models(lab), LabSettings(lab), Rounds(lab)
    training = Training(lab, models)
    application = Starlette(
        routes=[
            Route("/", lab.home),
            Route("/try", lab.try_drawn, **post),  # type: ignore[arg-type]
            Route("/videos", lab.videos),
            Route("/videos/cells", lab.change_cells, **post),  # type: ignore[arg-type]
            Route("/videos/chosen", lab.chosen, **post),  # type: ignore[arg-type]
            Route("/videos/find", lab.find, **post),  # type: ignore[arg-type]
            Route("/videos/moved", lab.follow, **post),  # type: ignore[arg-type]
            Route("/videos/restore", lab.restore, **post),  # type: ignore[arg-type]
            Route("/studies/switch", lab.switch, **post),  # type: ignore[arg-type]
            Route("/videos/add", lab.choose),
            Route("/videos/add/folder", lab.paste_folder, **post),  # type: ignore[arg-type]
            Route("/videos/add/videos", lab.add, **post),  # type: ignore[arg-type]
            Route("/videos/analyse", lab.analyse_form),
            Route("/videos/analyse/start", lab.analyse, **post),  # type: ignore[arg-type]
            Route("/pictures/{recording}.jpg", lab.picture),
            Route("/results", results.study),
            Route("/results/files/{name}", results.study_file),
            Route("/results/reviewed", results.tabulate_reviews, **post),  # type: ignore[arg-type]
            Route("/results/criteria", results.ask_criteria, **post),  # type: ignore[arg-type]
            Route("/results/{recording}", results.show),
            Route("/results/{recording}/files/{name}", results.file),
            Mount("/results/{recording}/review", results.review),
            Route("/models", models.show),
            Route("/models/merge", models.merge_form),
            Route("/models/merge/start", models.merge, **post),  # type: ignore[arg-type]
            Route("/models/ask/{action}", models.change, **post),  # type: ignore[arg-type]
            Route("/models/{model}", models.one),
            Route("/models/{model}/share", models.share),
            Route("/models/{model}/send", models.send, **post),  # type: ignore[arg-type]
            Route("/train", training.show),
            Route("/train/check", training.check, **post),  # type: ignore[arg-type]
            Route("/train/start", training.start, **post),  # type: ignore[arg-type]
            Route("/train/{job}", training.one),
            Route("/rounds", rounds.show),
            Route("/rounds/{round}", rounds.one),
            Route("/rounds/{round}/{action}", rounds.change, **post),  # type: ignore[arg-type]
            Route("/settings", settings.show),
            Route("/settings/{action}", settings.change, **post),  # type: ignore[arg-type]
            Route("/sent", settings.sent),
            Route("/sent/withdraw", settings.withdrawing),
            Route("/sent/withdraw/send", settings.withdraw, **post),  # type: ignore[arg-type]
            Route("/quit", lab.quit, **post),  # type: ignore[arg-type]
            Route("/jobs", lab.all_jobs),
            Route("/jobs/pause", lab.pause, **post),  # type: ignore[arg-type]
            Route("/jobs/{job}", lab.job),
            Route("/jobs/{job}/{action}", lab.change_job, **post),  # type: ignore[arg-type]
            Route("/events", _Events(lab).stream),
            Route("/enter", _enter),
            Route("/alive", _alive),
            Route("/static/{digest}/{name}", static_file),
        ],
        exception_handlers={
            HTTPException: _no_page, NotFoundError: _problem, SiteAgentError: _problem,
            Exception: _problem,
        },
    )  # fmt: skip
    # It would send browsers to addresses without the prefix.
    application.router.redirect_slashes = False
    return application


def _no_page(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return problem_page(request, "There is no page at this address", status=status)


def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, SiteAgentError):
        status = 404 if isinstance(error, NotFoundError) else 409
        return problem_page(request, str(error), error.hint, status=status)
    # The server logs it with its traceback.
    text = f"An unexpected error, a mistake in poolctl: {type(error).__name__}: {error}"
    hint = "Go back and try again; if it comes again, send these words to the help desk."
    return problem_page(request, text, hint, status=500)


def _enter(request: Request) -> Response:
    return page_response("enter.html", at=request.scope["at"])


def _alive(request: Request) -> Response:  # noqa: ARG001
    return Response(status_code=204)


class _Events:
    """Server-sent events: the changed states of jobs, numbers and words only."""

    def __init__(self, lab: Lab) -> None:
        self._jobs, self._watch = lab.jobs, lab.watch

    def stream(self, request: Request) -> Response:
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[str]:
        sent: dict[str, Any] | None = None
        while not await request.is_disconnected():
            views = await run_in_threadpool(self._jobs.views)
            if any(not view.ended for view in views):
                # A runner that was killed is started again while the app is open.
                await run_in_threadpool(self._jobs.start_runner)
            states = {view.job.id: _described(view) for view in views}
            # Pages are refreshed by it, as by a job that goes on.
            states["outside"] = {"state": self._watch.news, "percent": None, "left": ""}
            if sent is None:
                yield "event: hello\ndata: {}\n\n"
            else:
                for number, state in states.items():
                    if sent.get(number) != state:
                        yield f"data: {json.dumps({'job': number, **state})}\n\n"
            sent = states
            await asyncio.sleep(_EVENT_INTERVAL_S)


def _described(view: JobView) -> dict[str, Any]:
    state = view.state
    left = duration_words(state.seconds_left) if state.seconds_left else ""
    share = None if state.share is None else round(100 * state.share)
    return {"state": state.state, "percent": share, "left": left}


def serve_app(
    folder: AppFolder,
    results_folder: Path,
    *,
    port: int | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the app until SIGINT or SIGTERM.

    `results_folder`: For the first study. `on_ready`: Called with the address, which holds no
    ticket, once the server answers.
    """
    folder.make()
    ports = [port] if port is not None else range(USUAL_PORT, USUAL_PORT + _MOST_PORTS)
    lab = Lab(Studies(folder.place, results_folder), JobFolder())
    ended = threading.Event()
    threading.Thread(target=lab.watch.run, args=(ended,), daemon=True).start()
    results = Results(lab)
    for candidate in ports:
        try:
            with local_listener(candidate) as listener:
                number = listener.getsockname()[1]
                # Where somebody has the usual port, an old bookmark would lead to a stranger.
                usual = number == USUAL_PORT
                prefix = folder.prefix() if usual else secrets.token_urlsafe(16)
                folder.note_running(number, prefix)
                guarded = Guard(app_application(lab, results), folder, prefix, number)
                lab.jobs.start_runner()
                address = f"http://{HOST}:{number}/{prefix}"
                server = local_server(guarded, partial(on_ready, address))
                lab.stop = partial(setattr, server, "should_exit", True)
                try:
                    server.run(sockets=[listener])
                finally:
                    ended.set()
                    results.close()
                return
        except BusyError:
            if candidate == ports[-1]:
                raise
