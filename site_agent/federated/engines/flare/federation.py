"""The submitter's side of live rounds: its connection to the server, and the rounds in blocks."""

import io
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from aggregators.methods.networks.round_files import state_path
from aggregators.whole_file import write_whole
from site_agent.errors import BusyError, FederationError, InvalidInputError
from site_agent.federated.engines.flare import messages
from site_agent.federated.engines.flare.jobs import write_job
from site_agent.federated.engines.flare.kits import SUBMITTER, Kit, require_flare
from site_agent.federated.plan import FederationPlan, digest_run
from site_agent.work import Progress
from site_agent.work.locks import locked

_BASE, _PLAN, _BLOCK = "base.safetensors", "plan.json", ".block-"
_POLL_S = 1.0
_WAIT_S = 60.0
"""How long to wait at the start for sites that are not connected."""

_FEWEST_SITES = 2
_MOST_EMPTY_BLOCKS = 3
_DELETE_ATTEMPTS = 5


class FederationFolder:
    """The networks of a federation's rounds, and a report of each round."""

    def __init__(self, folder: Path, plan: FederationPlan, base: Path) -> None:
        self.folder, self.plan = folder, plan
        folder.mkdir(parents=True, exist_ok=True)
        self.first_base = file_digest(base)
        content = json.dumps(
            {"plan": plan.model_dump(mode="json"), "base": self.first_base},
            indent=2,
            sort_keys=True,
        )
        place = folder / _PLAN
        if place.is_file() and place.read_text(encoding="utf-8") != f"{content}\n":
            raise InvalidInputError(
                f"{folder} holds rounds of another plan or base: choose another folder"
            )
        if not place.is_file():
            shutil.copyfile(base, folder / _BASE)
            write_whole(place, f"{content}\n")

    @property
    def reports(self) -> tuple[messages.RoundReport, ...]:
        """The rounds that are done, in their order."""
        place = self.folder / messages.REPORT
        return messages.read_reports(place.read_bytes()) if place.is_file() else ()

    def network(self, number: int) -> Path:
        """Return the file of the network that a round made; 0 is the base."""
        return self.folder / (messages.model_name(number) if number else _BASE)

    def job_name(self, finished: int) -> str:
        """Return the name of the job that continues after the finished rounds."""
        return f"{digest_run(self.plan, self.first_base)[:12]}-{finished + 1}"

    def add(self, results: Path) -> tuple[messages.RoundReport, ...]:
        """Take over the rounds of a block, and return their reports."""
        place = results / messages.REPORT
        made = messages.read_reports(place.read_bytes()) if place.is_file() else ()
        for report in made:
            network = results / messages.model_name(report.number)
            if file_digest(network) != report.digest:
                raise FederationError(f"round {report.number}: the network has another digest")
            for source in (network, state_path(network), recipe_path(network)):
                if source.is_file():
                    shutil.move(source, self.folder / source.name)
        if made:
            text = messages.write_reports([*self.reports, *made])
            write_whole(self.folder / messages.REPORT, text)
        return made


def hold_rounds(
    kit: Kit,
    federation: FederationFolder,
    *,
    block_rounds: int,
    round_limit_s: float,
    on_round: Callable[[messages.RoundReport], None],
    progress: Progress,
) -> None:
    """Hold the remaining rounds of a plan.

    It can be killed at any moment: the block under way goes on without it, and the next call takes
    over its results.

    `block_rounds`: Most rounds of one job. `round_limit_s`: How long a site may train in a round.
    `on_round`: Called for each round after its network arrives, also those of earlier calls.

    Raises `BusyError` if another job is at work, or another call in this folder, and
    `FederationError` if the server does not answer, too few sites are connected, or rounds fail.
    """
    busy = BusyError(f"{federation.folder} is in use by another call")
    with locked(federation.folder / ".lock", busy=busy), FederationSession(kit) as session:
        job_name = federation.job_name(len(federation.reports))
        if others := [job for job, name in session.unfinished_jobs().items() if name != job_name]:
            raise BusyError(
                f"the server is at work on job {others[0]}",
                hint=f"stop it with: poolctl federated stop {kit.folder}",
            )
        for left in federation.folder.glob(f"{_BLOCK}*"):
            shutil.rmtree(left)
        for report in federation.reports:
            on_round(report)
        empty = 0
        while (finished := len(federation.reports)) < federation.plan.rounds:
            wait = bool(finished == 0 or empty)
            _wait_for_sites(session, kit.sites, _WAIT_S if wait else 0.0, progress)
            made, problem = _hold_block(
                session,
                kit.sites,
                federation,
                block_rounds=block_rounds,
                round_limit_s=round_limit_s,
                progress=progress,
            )
            for report in made:
                on_round(report)
            empty = 0 if made else empty + 1
            if empty == _MOST_EMPTY_BLOCKS:
                raise FederationError(f"no network after {empty} attempts: {problem}")


def _wait_for_sites(
    session: "FederationSession", sites: Sequence[str], wait_s: float, progress: Progress
) -> None:
    """Wait until all sites are connected, or for a time; at least two have to be."""
    until_s = time.monotonic() + wait_s
    while missing := set(sites) - (connected := session.connected_sites()):
        if time.monotonic() >= until_s:
            break
        progress(None, f"waiting for {', '.join(sorted(missing))}")
        time.sleep(_POLL_S)
    if len(connected) < _FEWEST_SITES:
        raise FederationError(
            f"{len(connected)} sites are connected, expected at least {_FEWEST_SITES}",
            hint="each site runs: poolctl federated site KIT --data DATA",
        )


def _hold_block(
    session: "FederationSession",
    sites: Sequence[str],
    federation: FederationFolder,
    *,
    block_rounds: int,
    round_limit_s: float,
    progress: Progress,
) -> tuple[tuple[messages.RoundReport, ...], str]:
    """Run one job; return the reports of its rounds, and the reason if there are none."""
    finished, total = len(federation.reports), federation.plan.rounds
    rounds = min(block_rounds, total - finished)
    with tempfile.TemporaryDirectory(dir=federation.folder, prefix=_BLOCK) as temporary:
        folder = Path(temporary) / federation.job_name(finished)
        write_job(
            folder,
            federation.plan,
            sites,
            federation.network(finished),
            first_base=federation.first_base,
            first_round=finished + 1,
            rounds=rounds,
            round_limit_s=round_limit_s,
        )
        # One of a call that was killed goes on without it.
        under_way = (job for job, name in session.unfinished_jobs().items() if name == folder.name)
        job = next(under_way, None) or session.submit(folder)
        status, details = _wait_for(
            session,
            job,
            rounds,
            lambda made: progress(
                (finished + made) / total, f"{finished + made} of {total} rounds"
            ),
        )
        results = session.download(job, Path(temporary))
        made = federation.add(results)
        place = results / messages.PROBLEM
        problem = place.read_text(encoding="utf-8") if place.is_file() else ""
        session.delete(job)
    if "ABORTED" in status:
        raise FederationError("the rounds were stopped", hint="the same command goes on with them")
    refused = [line for line in details if not line.endswith(": OK")]
    return made, problem or "; ".join([f"the job ended as {status}", *refused])


def _wait_for(
    session: "FederationSession", job: str, rounds: int, on_rounds: Callable[[int], None]
) -> tuple[str, list[str]]:
    """Wait until a job has ended; `on_rounds` is called with the number of its rounds so far."""
    made = 0
    while True:
        status, details = session.status(job)
        if has_finished(status):
            return status, details
        if made < rounds and status == "RUNNING":
            with suppress(FederationError):  # its process has not begun, or has ended
                made = len(session.rounds_done(job))
        on_rounds(made)
        time.sleep(_POLL_S)


_CONNECT_LIMIT_S = 10.0


class FederationSession:
    """Jobs and connected sites, as the server knows them; a context manager.

    Raises `FederationError`: by all methods: the server does not answer, or refuses, and
    `MissingExtraError`: NVIDIA FLARE is not installed.
    """

    def __init__(self, kit: Kit) -> None:
        require_flare()
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        self._kit = kit
        # Its warnings would go to standard error; what matters becomes an error.
        logging.getLogger("nvflare").addHandler(logging.NullHandler())
        with self._translate_errors("connect"):
            self._session: Any = new_secure_session(
                SUBMITTER, str(kit.folder), timeout=_CONNECT_LIMIT_S
            )

    def __enter__(self) -> "FederationSession":
        return self

    def __exit__(self, *_: object) -> None:
        with self._translate_errors("close the session"):
            self._session.close()

    def connected_sites(self) -> set[str]:
        """Return the sites that the server hears from."""
        with self._translate_errors("list the sites"):
            return {client.name for client in self._session.get_system_info().client_info}

    def submit(self, folder: Path) -> str:
        """Send a job, and return its identifier."""
        with self._translate_errors("submit a job"):
            return str(self._session.submit_job(str(folder.resolve())))

    def status(self, job: str) -> tuple[str, list[str]]:
        """Return the status of a job, and each participant's report of its deployment."""
        with self._translate_errors("read a job's status"):
            meta = self._session.get_job_meta(job)
        return str(meta["status"]), [str(line) for line in meta.get("job_deploy_detail") or ()]

    def unfinished_jobs(self) -> dict[str, str]:
        """Return the jobs that wait or run: names by identifier."""
        with self._translate_errors("list the jobs"):
            running = {job.job_id for job in self._session.get_system_info().job_info}
            jobs = self._session.list_jobs()
        # A server that was killed says for ever that its last job runs.
        return {
            str(job["job_id"]): str(job["job_name"])
            for job in jobs
            if not has_finished(job["status"])
            and (job["status"] != "RUNNING" or job["job_id"] in running)
        }

    def rounds_done(self, job: str) -> tuple[messages.RoundReport, ...]:
        """Return the rounds of a running job so far."""
        with self._translate_errors("read a job's progress"):
            stats = self._session.show_stats(job, "server")
        reports = stats.get("server", {}).get(messages.RESULTS, {}).get("done", [])
        return messages.read_reports(json.dumps(reports))

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the results of a finished job, and return their folder."""
        with self._translate_errors("download a job's results"):
            place = Path(self._session.download_job_result(job, str(folder.resolve())))
        return place / "workspace" / messages.RESULTS

    def delete(self, job: str) -> None:
        """Remove a finished job and its results from the server."""
        from nvflare.fuel.flare_api.api_spec import JobNotFound

        for attempts_left in reversed(range(_DELETE_ATTEMPTS)):
            try:
                with self._translate_errors("delete a job"):
                    self._session.delete_job(job)
                return
            except FederationError as error:
                # Its process may still write into the folder that the server removes. Then the
                # first attempt fails, and has removed the job's record all the same.
                if isinstance(error.__cause__, JobNotFound):
                    return
                if not attempts_left:
                    raise
                time.sleep(_POLL_S)

    def abort(self, job: str) -> None:
        """End a job; its finished rounds can be downloaded."""
        with self._translate_errors("stop a job"):
            self._session.abort_job(job)

    @contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
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
    """Return whether a job with this status has ended."""
    return status.startswith("FINISHED")
