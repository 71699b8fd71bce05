"""The app served from a thread, and a browser without script that was let in."""

import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from site_agent.app.entry import AppFolder, Guard
from site_agent.app.pages import Lab
from site_agent.app.recordings import Studies
from site_agent.app.results import Results
from site_agent.app.server import app_application
from site_agent.jobs.folder import JobFolder


@dataclass
class RunningApp:
    """An app with a home of its own; `client` is a browser that was let in."""

    folder: AppFolder
    lab: Lab
    origin: str
    address: str
    client: httpx.Client

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.client.get(f"{self.address}{path}", **options)  # type: ignore[arg-type]

    def csrf(self) -> str:
        token = re.search(r'name="csrf" content="([^"]+)"', self.get("/").text)
        assert token is not None
        return token[1]

    def post(self, path: str, **fields: str | list[str]) -> httpx.Response:
        """Send a form of a page."""
        data = {"csrf": self.csrf(), **fields}
        headers = {"origin": self.origin}
        return self.client.post(f"{self.address}{path}", data=data, headers=headers)

    def add_videos(self, folder: str, names: Iterable[str]) -> dict[str, str]:
        """Add videos of a folder to the study; return the number of each by the file's name."""
        chosen = self.post("/videos/add/folder", folder=folder)
        place = chosen.headers["location"].partition("place=")[2]
        added = self.post("/videos/add/videos", place=place, video=list(names))
        assert added.status_code == 303, added.text
        return {row.file_name: row.recording for row in self.lab.studies.current().recordings()}

    def analyse(self, recordings: Iterable[str]) -> None:
        """Ask for an analysis by the first model that is offered."""
        form = self.get("/videos/analyse").text
        model = form.partition('name="model" value="')[2].partition('"')[0]
        asked = self.post("/videos/analyse/start", recording=list(recordings), model=model)
        assert asked.status_code == 303, asked.text

    def enter(self, client: httpx.Client, ticket: str) -> httpx.Response:
        return client.post(
            f"{self.address}/enter", data={"ticket": ticket}, headers={"origin": self.origin}
        )

    @property
    def cookie(self) -> str:
        return self.client.cookies[self.folder.prefix()]


@contextmanager
def running_app(home: Path, results: Path) -> Iterator[RunningApp]:
    """Serve the app from a thread while the block runs."""
    folder = AppFolder(home / "app")
    folder.make()
    lab = Lab(Studies(folder.place, results), JobFolder(home / "jobs"))
    opened = Results(lab)
    with socket.socket() as listener, httpx.Client(trust_env=False, timeout=540) as client:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        guarded = Guard(app_application(lab, opened), folder, folder.prefix(), port)
        server = uvicorn.Server(
            uvicorn.Config(
                guarded, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            origin = f"http://127.0.0.1:{port}"
            app = RunningApp(folder, lab, origin, f"{origin}/{folder.prefix()}", client)
            assert app.enter(client, folder.new_ticket()).status_code == 204
            yield app
        finally:
            server.should_exit = True
            thread.join()
            opened.close()
