"""The server of live rounds and its HTTP interface.

It offers the network of a round, and combines the contributions.

Sites may lie about their contributions and their samples; bodies are bounded, and checked before
they are kept. Contributions are kept as files only until their round is combined.
"""

import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from starlette.applications import Starlette

from aggregators.errors import AggregatorError, ContributionError
from aggregators.formats import file_digest, read_model
from aggregators.methods.networks import round_files
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import BusyError, ConflictError, FederationError, SiteAgentError
from site_agent.federated.live.kits import FEWEST_SITES
from site_agent.federated.live.rounds_folder import RoundReport, RoundsFolder
from site_agent.federated.plan import CombinedFiles, combine_files
from site_agent.federated.rounds import Courier, hold_rounds
from site_agent.live import service
from site_agent.live.kits import Kit
from site_agent.wording import count_words
from site_agent.work import Progress

FEWEST_CONTRIBUTIONS = 2
"""The mean of one site's contribution would be the contribution itself. Sites may ask for more."""

LOST_S = 60.0
"""Silence after which a site counts as lost. So does a site after its connection breaks: sites call
all the time, even while training, and a killed process ends its connections."""

_MOST_OTHERS = 1000
_REPLY_LIMIT_S = 20.0
_REFUSAL = re.compile(r"[A-Za-z_]{1,64}")
"""The name of an error's class."""

_POLL_S = 0.3
_WAIT_S = 60.0
"""How long to wait at the start for sites that are not connected."""


@dataclass
class _Asked:
    """The round for which contributions are expected."""

    number: int
    base: Path
    digest: str
    network: StateDict
    sites: Sequence[str]
    folder: Path
    """Of the contributions."""
    began_s: float
    files: dict[str, Path] = field(default_factory=dict)
    least_others: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons for leaving out sites that answered, by site."""

    @property
    def answered(self) -> set[str]:
        return {*self.files, *self.left_out}


class RoundsServer:
    """The rounds of one federation; for several threads.

    `rounds`: Of the plan to hold. `round_limit_s`: How long a site may train in a round.
    """

    def __init__(
        self,
        kit: Kit,
        rounds: RoundsFolder,
        *,
        round_limit_s: float = 600.0,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.sites, self.rounds, self.note = kit.sites, rounds, note
        self.round_limit_s = round_limit_s
        self.changed = threading.Condition()
        # After a start, sites get time to call before they count as lost.
        self._began_s = time.monotonic()
        self._seen: dict[str, float] = {}
        self._gone: set[str] = set()
        self.asked: _Asked | None = None
        self.replies: dict[str, tuple[int, bytes]] = {}

    def status(self, _caller: str = "") -> dict[str, Any]:
        """Describe the progress of the rounds."""
        with self.changed:
            reports, rounds = self.rounds.reports, self.rounds.plan.rounds
            return {
                "round": len(reports) + 1,
                "rounds": rounds,
                "finished": len(reports) == rounds,
                "stopped": False,
                "expected": sorted(name for name in self._seen if not self.is_lost(name)),
                "done": [] if self.asked is None else sorted(self.asked.answered),
                "sites": list(self.sites),
                "reports": [asdict(report) for report in reports],
            }

    def is_lost(self, site: str) -> bool:
        """Return whether a site has disconnected or has been silent for too long."""
        silent_s = time.monotonic() - self._seen.get(site, self._began_s)
        return site in self._gone or silent_s > LOST_S

    def hear(self, site: str, has_broken_off: bool = False) -> None:
        """Note that a site has called, or that its connection has broken."""
        with self.changed:
            self._seen[site] = time.monotonic()
            if not has_broken_off:
                self._gone.discard(site)
            elif site not in self._gone:
                self._gone.add(site)
                self.changed.notify_all()

    def hold(
        self, *, progress: Progress, on_round: Callable[[RoundReport], None] = lambda _report: None
    ) -> None:
        """Hold the rounds of the plan that the folder lacks.

        The process can be killed at any moment: the next call goes on with the round under way.

        `on_round`: Called for each round that has ended, also those of earlier calls.

        Raises `FederationError` if too few sites are connected, or a round fails.
        """
        rounds, total = self.rounds, self.rounds.plan.rounds
        for report in rounds.reports:
            on_round(report)
        if len(rounds.reports) == total:
            return
        self._wait_for_sites(progress)
        courier, number = _LiveCourier(self), len(rounds.reports) + 1
        try:
            for report in hold_rounds(rounds.plan, courier, first=number):
                on_round(report)
                number = report.number + 1
                progress(report.number / total, f"{report.number} of {total} rounds")
        except (AggregatorError, SiteAgentError) as error:
            raise FederationError(
                f"round {number}: {error}", hint="the same command tries again"
            ) from error
        finally:
            courier.clear()

    def _wait_for_sites(self, progress: Progress) -> None:
        """Wait until all sites are connected, or for a time; at least two must be."""
        until_s = time.monotonic() + _WAIT_S
        while missing := set(self.sites) - (connected := set(self.status()["expected"])):
            if time.monotonic() >= until_s:
                break
            progress(None, f"waiting for {', '.join(sorted(missing))}")
            time.sleep(_POLL_S)
        connected &= set(self.sites)
        if len(connected) < FEWEST_SITES:
            raise FederationError(
                f"{len(connected)} sites are connected, expected at least {FEWEST_SITES}",
                hint="each site runs: poolctl federated site KIT --data DATA",
            )

    # The sites' requests.
    def task(self, site: str) -> dict[str, Any]:
        """Return the task of a site: a reply to fetch, and a round to train in."""
        self.hear(site)
        with self.changed:
            rounds, asked = self.rounds, self.asked
            facts: dict[str, Any] = {
                "plan": rounds.plan.model_dump(mode="json"), "first_base": rounds.first_base,
            }  # fmt: skip
            if site in self.replies:
                facts["reply"] = self.replies[site][0]
            if asked is not None and site in asked.sites and site not in asked.answered:
                facts |= {"round": asked.number, "digest": asked.digest}
            return facts

    def base_of(self, _site: str, number: int) -> Path:
        """Return the file of the network of the round under way."""
        with self.changed:
            return self._require_asked("", number).base

    def most_bytes(self) -> int:
        """Return the largest size of a contribution."""
        with self.changed:
            asked = self.asked
            return 2 * asked.base.stat().st_size + 1024**2 if asked else 0

    def receive(self, site: str, number: int, least_others: int, body: bytes) -> None:
        """Take a site's contribution; one that cannot be combined leaves the site out."""
        with self.changed:
            asked, plan = self._require_asked(site, number), self.rounds.plan
        try:
            if not 1 <= least_others <= _MOST_OTHERS:
                raise ContributionError(f"asks for {least_others} other sites")
            round_files.check_network_contribution(
                round_files.decode_network_contribution(body),
                asked.network,
                base_digest=asked.digest,
                settings=plan.training.shared(),
                replies=find_method(plan.method).replies,
            )
        except AggregatorError as error:
            self.leave_out(site, number, f"its contribution {error}")
            raise
        path = asked.folder / f"{site}.contribution"
        write_whole(path, body, mode=0o600)
        with self.changed:
            if self._require_asked(site, number) is asked and site not in asked.answered:
                asked.files[site], asked.least_others[site] = path, least_others
                self.changed.notify_all()

    def refuse(self, site: str, number: int, error: str) -> None:
        """Note that a site does not contribute, with the type of its error."""
        # A site chooses the word, and people read it.
        word = error if _REFUSAL.fullmatch(error) else "an answer of another kind"
        self.leave_out(site, number, f"refused: {word}")

    def leave_out(self, site: str, number: int, reason: str) -> None:
        """Exclude a site from the round under way."""
        with self.changed:
            asked = self._require_asked(site, number)
            if site not in asked.files:
                asked.left_out[site] = reason
                self.changed.notify_all()
        self.note(f"{site} is left out of round {number}: {reason}")

    def reply(self, site: str, number: int) -> bytes:
        """Return the reply to a site's contribution."""
        with self.changed:
            known, content = self.replies.get(site, (0, b""))
            if known != number:
                raise ConflictError(f"there is no reply of round {number}", code="round")
            return content

    def confirm_reply(self, site: str, number: int) -> None:
        """Delete a reply after its site has confirmed it."""
        with self.changed:
            if self.replies.get(site, (0, b""))[0] == number:
                del self.replies[site]
                self.changed.notify_all()

    def _require_asked(self, site: str, number: int) -> _Asked:
        asked = self.asked
        if asked is None or asked.number != number or (site and site not in asked.sites):
            raise ConflictError(f"round {number} is not under way", code="round")
        return asked


class _LiveCourier(Courier[Path, CombinedFiles, RoundReport]):
    """Waits for the sites to fetch the round's network and to send their contributions."""

    def __init__(self, server: RoundsServer) -> None:
        self.sites, self._server, self._rounds = server.sites, server, server.rounds
        self._folder = self._rounds.folder / "contributions"
        self._asked: _Asked | None = None

    def collect(self, number: int, sites: Sequence[str]) -> dict[str, Path]:
        server, base = self._server, self._rounds.network(number - 1)
        # Those that a killed process left go now.
        self.clear()
        self._folder.mkdir(mode=0o700)
        network = cast("StateDict", read_model(base))
        asked = _Asked(
            number, base, file_digest(base), network, sites, self._folder, time.monotonic()
        )
        self._asked = asked
        until_s = asked.began_s + server.round_limit_s
        with server.changed:
            server.asked = asked
            while self._waiting(asked) and time.monotonic() <= until_s:
                server.changed.wait(timeout=min(1.0, max(0.01, until_s - time.monotonic())))
            server.asked = None
        problems = [
            *(f"{site}: {reason}" for site, reason in sorted(asked.left_out.items())),
            *(
                f"{site} is {'lost' if server.is_lost(site) else 'late'}"
                for site in sorted(set(sites) - asked.answered)
            ),
        ]
        shortage = describe_shortage(asked.files, asked.least_others)
        text = "; ".join(
            [count_words(len(asked.files), "usable contribution") + shortage, *problems]
        )
        if shortage:
            raise FederationError(text)
        server.note(f"round {number}: {text}")
        return dict(sorted(asked.files.items()))

    def _waiting(self, asked: _Asked) -> bool:
        missing = set(asked.sites) - asked.answered
        return any(not self._server.is_lost(site) for site in missing)

    def combine(self, number: int, contributions: Mapping[str, Path]) -> CombinedFiles:
        base, output = self._rounds.network(number - 1), self._rounds.network(number)
        state = round_files.state_path(base)
        combined = combine_files(
            self._rounds.plan, base, state if state.is_file() else None, contributions, output
        )
        self.clear()
        if find_method(self._rounds.plan.method).replies:
            # Nobody else gets the replies.
            round_files.state_path(output).unlink(missing_ok=True)
        return combined

    def deliver(self, site: str, number: int, reply: bytes) -> None:
        server, until_s = self._server, time.monotonic() + _REPLY_LIMIT_S
        with server.changed:
            server.replies[site] = number, reply
            while site in server.replies and not server.is_lost(site):
                if time.monotonic() > until_s:
                    break
                server.changed.wait(timeout=1.0)
            if server.replies.pop(site, None) is not None:
                server.note(f"round {number}: {site} has not taken its reply")

    def end(self, number: int, combined: CombinedFiles) -> RoundReport:
        server, asked = self._server, self._asked
        assert asked is not None, "the round was held"
        report = RoundReport(
            number,
            dict(combined.update_digests),
            tuple(site for site in asked.sites if site not in combined.update_digests),
            combined.digest,
            round(time.monotonic() - asked.began_s, 2),
            combined.warnings,
            asked.left_out,
        )
        with server.changed:
            self._rounds.add(report)
        return report

    def clear(self) -> None:
        """Delete the contributions."""
        shutil.rmtree(self._folder, ignore_errors=True)


def describe_shortage(files: Collection[str], least_others: Mapping[str, int]) -> str:
    """Return how many contributions would be needed, and why; empty where they are enough."""
    floor = max((least_others[site] for site in files), default=0)
    if len(files) >= max(FEWEST_CONTRIBUTIONS, floor + 1):
        return ""
    if floor < FEWEST_CONTRIBUTIONS:
        return f", needed {FEWEST_CONTRIBUTIONS}"
    asking = ", ".join(site for site in sorted(files) if least_others[site] == floor)
    return f", needed {floor + 1}: {asking} contributes only with {floor} others (--least-others)"


def rounds_app(server: RoundsServer) -> Starlette:
    """Return the server's HTTP interface."""
    routes, round_ = service.Routes(), "/rounds/{number:int}"

    def leave_out(site: str, number: int, error: service.RefusalError, **_more: int) -> None:
        server.leave_out(site, number, f"its contribution: {error}")

    routes.add("GET", "/status", server.status, roles=())
    routes.add_presence(server.hear)
    routes.add("GET", "/task", server.task)
    routes.add("GET", f"{round_}/base", server.base_of)
    routes.add(
        "PUT", f"{round_}/contribution/{{least_others:int}}", server.receive,
        most_bytes=server.most_bytes, on_too_large=leave_out,
    )  # fmt: skip
    routes.add("POST", f"{round_}/refusal", server.refuse, fields={"error": str})
    routes.add("GET", f"{round_}/reply", server.reply)
    routes.add("DELETE", f"{round_}/reply", server.confirm_reply)
    return routes.app()


@contextmanager
def serving(kit: Kit, server: RoundsServer) -> Iterator[None]:
    """Answer the sites in a thread while the block runs.

    Raises `BusyError`: the address is taken.
    """
    ready, problems = threading.Event(), list[BusyError]()
    process = service.ServiceProcess(kit, rounds_app(server), ready.set)

    def run() -> None:
        try:
            process.run()
        except BusyError as error:
            problems.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    try:
        ready.wait()
        if problems:
            raise problems[0]
        yield
    finally:
        process.should_exit = True
        thread.join()
