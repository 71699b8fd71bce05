"""The submitter's connection to the server of a federation."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from site_agent.errors import FederationError
from site_agent.federated.engines.flare import messages
from site_agent.federated.engines.flare.kits import SUBMITTER, Kit, require_flare
from site_agent.federated.engines.flare.messages import RoundReport

_CONNECT_LIMIT_S = 10.0


class FederationSession:
    """Jobs and connected sites, as the server knows them; a context manager.

    Raises
    ------
    FederationError
        By all methods: the server does not answer, or refuses.
    MissingExtraError
        NVIDIA FLARE is not installed.
    """

    def __init__(self, kit: Kit) -> None:
        require_flare()
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        self._kit = kit
        # Its warnings would go to standard error; what matters becomes an error.
        logging.getLogger("nvflare").addHandler(logging.NullHandler())
        with self._translated("connect"):
            self._session: Any = new_secure_session(
                SUBMITTER, str(kit.folder), timeout=_CONNECT_LIMIT_S
            )

    def __enter__(self) -> FederationSession:
        return self

    def __exit__(self, *_: object) -> None:
        with self._translated("close the session"):
            self._session.close()

    def connected_sites(self) -> set[str]:
        """Return the sites that the server hears from."""
        with self._translated("list the sites"):
            return {client.name for client in self._session.get_system_info().client_info}

    def submit(self, folder: Path) -> str:
        """Send a job, and return its identifier."""
        with self._translated("submit a job"):
            return str(self._session.submit_job(str(folder.resolve())))

    def status(self, job: str) -> tuple[str, list[str]]:
        """Return the status of a job, and what each participant says of its deployment."""
        with self._translated("read a job's status"):
            meta = self._session.get_job_meta(job)
        return str(meta["status"]), [str(line) for line in meta.get("job_deploy_detail") or ()]

    def unfinished_jobs(self) -> dict[str, str]:
        """Return the jobs that wait or run: names by identifier."""
        with self._translated("list the jobs"):
            running = {job.job_id for job in self._session.get_system_info().job_info}
            jobs = self._session.list_jobs()
        # A server that was killed says for ever that its last job runs.
        return {
            str(job["job_id"]): str(job["job_name"])
            for job in jobs
            if not has_finished(job["status"])
            and (job["status"] != "RUNNING" or job["job_id"] in running)
        }

    def rounds_done(self, job: str) -> tuple[RoundReport, ...]:
        """Return the rounds of a running job so far."""
        with self._translated("read a job's progress"):
            stats = self._session.show_stats(job, "server")
        done = stats.get("server", {}).get(messages.RESULTS, {}).get("done", [])
        return messages.read_reports(json.dumps(done))

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the results of a finished job, and return their folder."""
        with self._translated("download a job's results"):
            place = Path(self._session.download_job_result(job, str(folder.resolve())))
        return place / "workspace" / messages.RESULTS

    def delete(self, job: str) -> None:
        """Remove a finished job and its results from the server."""
        with self._translated("delete a job"):
            self._session.delete_job(job)

    def abort(self, job: str) -> None:
        """End a job; its finished rounds can be downloaded."""
        with self._translated("stop a job"):
            self._session.abort_job(job)

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            # FLARE prints what it does.
            with redirect_stdout(io.StringIO()):
                yield
        except Exception as error:
            raise FederationError(
                f"{self._kit.address}: cannot {action}: {error or type(error).__name__}",
                hint="the server runs by: poolctl federated server KIT",
            ) from error


def has_finished(status: str) -> bool:
    """Tell whether a job with this status has ended."""
    return status.startswith("FINISHED")
