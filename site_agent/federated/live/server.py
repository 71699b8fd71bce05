"""The server of live rounds: it offers the network of a round, and combines the contributions.

Sites may lie about their contributions and their samples; bodies are bounded, and checked before
they are kept. Contributions are kept as files only until their round is combined.
"""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from aggregators.errors import AggregatorError, ContributionError, first_problem
from aggregators.formats import decode_model, file_digest, read_model
from aggregators.methods.networks import round_files
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import ConflictError, FederationError, InvalidInputError, SiteAgentError
from site_agent.federated.live import messages
from site_agent.federated.plan import CombinedFiles, FederationPlan, combine_files
from site_agent.federated.rounds import Courier, hold_rounds
from site_agent.live.kits import Kit
from site_agent.plain_json import write_json
from site_agent.wording import count_words

FEWEST_CONTRIBUTIONS = 2
"""The mean of one site's contribution would be the contribution itself. Sites may ask for more."""

LOST_S = 60.0
"""Silence after which a site counts as lost. So does a site after its connection breaks: sites call
all the time, even while training, and a killed process ends its connections."""

_MOST_OTHERS = 1000
_REPLY_LIMIT_S = 20.0
_REFUSAL = re.compile(r"[A-Za-z_]{1,64}")
"""The name of an error's class."""

_RUN = "run.json"


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
    """The rounds of one federation; for several threads."""

    def __init__(
        self,
        kit: Kit,
        *,
        note: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.note, self._clock = kit.folder / "run", note, clock
        self.files = messages.RoundFiles(self.folder)
        self.changed, self._starting = threading.Condition(), threading.Lock()
        # After a start, sites get time to call before they count as lost.
        self._began_s = clock()
        self._seen: dict[str, float] = {}
        self._gone: set[str] = set()
        self._thread: threading.Thread | None = None
        self.run: messages.Run | None = None
        self.state, self.problem = "", ""
        self.reports: list[messages.RoundReport] = []
        self.asked: _Asked | None = None
        self.replies: dict[str, tuple[int, bytes]] = {}
        self._load()

    def _load(self) -> None:
        if not (self.folder / _RUN).is_file():
            return
        content = json.loads((self.folder / _RUN).read_text(encoding="utf-8"))
        self.run = messages.Run.model_validate(content["run"])
        self.state, self.problem = content["state"], content["problem"]
        self.reports = list(self.files.read_reports())
        if self.state == "running":
            self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._hold, name="rounds", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """Describe the progress of the rounds."""
        with self.changed:
            run, sites = self.run, () if self.run is None else self.run.sites
            return {
                "run": "" if run is None else run.digest,
                "first_round": 0 if run is None else run.first_round,
                "round": self._next_number(),
                "rounds": 0 if run is None else run.read_plan().rounds,
                "state": self.state,
                "finished": self.state == "finished",
                "stopped": self.state in ("", "stopped", "failed"),
                "problem": self.problem,
                "expected": sorted(name for name in self._seen if not self.is_lost(name)),
                "done": [] if self.asked is None else sorted(self.asked.answered),
                "sites": list(sites),
                "reports": [asdict(report) for report in self.reports],
            }

    def _next_number(self) -> int:
        if self.reports:
            return self.reports[-1].number + 1
        return 0 if self.run is None else self.run.first_round

    def is_lost(self, site: str) -> bool:
        """Return whether a site has disconnected or has been silent for too long."""
        silent_s = self._clock() - self._seen.get(site, self._began_s)
        return site in self._gone or silent_s > LOST_S

    def hear(self, site: str, has_broken_off: bool = False) -> None:
        """Note that a site has called, or that its connection has broken."""
        with self.changed:
            self._seen[site] = self._clock()
            if not has_broken_off:
                self._gone.discard(site)
            elif site not in self._gone:
                self._gone.add(site)
                self.changed.notify_all()

    # The submitter's requests.
    def upload(self, content: bytes, *, is_state: bool) -> None:
        """Keep the network of a run, or the state next to it, until the run starts."""
        path = self._incoming / messages.BASE
        if is_state:
            path = round_files.state_path(path)
            round_files.decode_optimiser_state(content)
        elif not isinstance(decode_model(content), StateDict):
            raise InvalidInputError("found no network")
        else:
            shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, mode=0o600)

    @property
    def _incoming(self) -> Path:
        return self.folder.with_name("incoming")

    def start(self, content: Mapping[str, Any]) -> None:
        """Start the rounds of a run, or resume them if they are of the same run."""
        try:
            run = messages.Run.model_validate(dict(content))
            plan = run.read_plan()
        except ValidationError as error:
            raise InvalidInputError(f"run: {first_problem(error)}") from error
        with self._starting:
            if self._is_running(run):
                return
            if self._thread is not None:
                self._thread.join()
            with self.changed:
                here, following = self.run, self._next_number()
                if (
                    here is None
                    or here.digest != run.digest
                    or not here.first_round <= run.first_round <= following
                ):
                    self._place(run)
                else:
                    self.run = run.model_copy(update={"first_round": here.first_round})
                if self._next_number() > plan.rounds:
                    self._set("finished")
                    return
                self._set("running")
                self._begin()

    def _is_running(self, run: messages.Run) -> bool:
        """Return whether these rounds are under way; raise `ConflictError` if others are."""
        with self.changed:
            if self.state != "running" or self.run is None:
                return False
            if self.run.digest != run.digest:
                raise ConflictError("the server is at work on other rounds", code="busy")
            return True

    def _place(self, run: messages.Run) -> None:
        """Put the uploaded network where the rounds of a new run begin."""
        base = self._incoming / messages.BASE
        if not base.is_file() or file_digest(base) != run.base:
            raise InvalidInputError("the run's network has not been uploaded")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        target = self.files.network(run.first_round - 1)
        base.replace(target)
        if (state := round_files.state_path(base)).is_file():
            state.replace(round_files.state_path(target))
        self.run, self.reports = run, []

    def stop(self) -> None:
        """End the rounds under way."""
        with self.changed:
            if self.state == "running":
                self._set("stopped")

    def _set(self, state: str, problem: str = "") -> None:
        self.state, self.problem = state, problem
        assert self.run is not None, "there is no state without a run"
        content = {"run": self.run.model_dump(mode="json"), "state": state, "problem": problem}
        write_json(self.folder / _RUN, content, mode=0o600)
        self.changed.notify_all()

    # The sites' requests.
    def task(self, site: str) -> dict[str, Any]:
        """Return the task of a site: a reply to fetch, and a round to train in."""
        self.hear(site)
        with self.changed:
            run, asked = self.run, self.asked
            if run is None or site not in run.sites:
                return {}
            facts: dict[str, Any] = {"plan": run.plan, "first_base": run.first_base}
            if site in self.replies:
                facts["reply"] = self.replies[site][0]
            if asked is not None and site in asked.sites and site not in asked.answered:
                facts |= {"round": asked.number, "digest": asked.digest}
            return facts

    def base_of(self, number: int) -> Path:
        """Return the file of the network of the round under way."""
        with self.changed:
            return self._require_asked("", number).base

    def most_bytes(self) -> int:
        """Return the largest size of a contribution."""
        with self.changed:
            asked = self.asked
            return 2 * asked.base.stat().st_size + 1024**2 if asked else 0

    def receive(self, site: str, number: int, least_others: int, content: bytes) -> None:
        """Take a site's contribution; one that cannot be combined leaves the site out."""
        with self.changed:
            asked, run = self._require_asked(site, number), self.run
            assert run is not None, "a round is asked for"
            plan = run.read_plan()
        try:
            if not 1 <= least_others <= _MOST_OTHERS:
                raise ContributionError(f"asks for {least_others} other sites")
            round_files.check_network_contribution(
                round_files.decode_network_contribution(content),
                asked.network,
                base_digest=asked.digest,
                settings=plan.training.shared(),
                replies=find_method(plan.method).replies,
            )
        except AggregatorError as error:
            self.leave_out(site, number, f"its contribution {error}")
            raise
        path = asked.folder / f"{site}.contribution"
        write_whole(path, content, mode=0o600)
        with self.changed:
            if self._require_asked(site, number) is asked and site not in asked.answered:
                asked.files[site], asked.least_others[site] = path, least_others
                self.changed.notify_all()

    def refuse(self, site: str, number: int, word: str) -> None:
        """Note that a site does not contribute, with the type of its error."""
        # A site chooses the word, and people read it.
        word = word if _REFUSAL.fullmatch(word) else "an answer of another kind"
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

    # The thread that holds the rounds.
    def _hold(self) -> None:
        assert self.run is not None, "a run was started"
        plan, number = self.run.read_plan(), self._next_number()
        courier = _LiveCourier(self, plan, self.run)
        try:
            for report in hold_rounds(plan, courier, first=number):
                number = report.number + 1
            with self.changed:
                self._set("finished")
        except (AggregatorError, SiteAgentError, OSError) as error:
            with self.changed:
                if self.state == "running":
                    self._set("failed", f"round {number}: {error}")
                    self.note(f"round {number} made no network: {error}")
        finally:
            courier.clear()


class _LiveCourier(Courier[Path, CombinedFiles, messages.RoundReport]):
    """Waits for the sites to fetch the round's network and to send their contributions."""

    def __init__(self, server: RoundsServer, plan: FederationPlan, run: messages.Run) -> None:
        self.sites, self._server, self._plan, self._run = run.sites, server, plan, run
        self._folder = server.folder / "contributions"
        self._asked: _Asked | None = None

    def collect(self, number: int, sites: Sequence[str]) -> dict[str, Path]:
        server, base = self._server, self._server.files.network(number - 1)
        # Those that a killed process left go now.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        network = cast("StateDict", read_model(base))
        asked = _Asked(
            number, base, file_digest(base), network, sites, self._folder, time.monotonic()
        )
        self._asked = asked
        until_s = asked.began_s + self._run.round_limit_s
        with server.changed:
            server.asked = asked
            while self._waiting(asked):
                if time.monotonic() > until_s or server.state != "running":
                    break
                server.changed.wait(timeout=min(1.0, max(0.01, until_s - time.monotonic())))
            server.asked = None
            if server.state != "running":
                raise FederationError("the rounds were stopped")
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
        base = self._server.files.network(number - 1)
        state = round_files.state_path(base)
        combined = combine_files(
            self._plan,
            base,
            state if state.is_file() else None,
            contributions,
            self._server.files.network(number),
        )
        self.clear()
        if find_method(self._plan.method).replies:
            # Nobody else gets the replies, and the submitter would download the state.
            round_files.state_path(self._server.files.network(number)).unlink(missing_ok=True)
        return combined

    def deliver(self, site: str, number: int, reply: bytes) -> None:
        server, until_s = self._server, time.monotonic() + _REPLY_LIMIT_S
        with server.changed:
            server.replies[site] = number, reply
            while site in server.replies and not server.is_lost(site):
                if time.monotonic() > until_s or server.state != "running":
                    break
                server.changed.wait(timeout=1.0)
            if server.replies.pop(site, None) is not None:
                server.note(f"round {number}: {site} has not taken its reply")

    def end(self, number: int, combined: CombinedFiles) -> messages.RoundReport:
        server, asked = self._server, self._asked
        assert asked is not None, "the round was held"
        report = messages.RoundReport(
            number,
            dict(combined.update_digests),
            tuple(site for site in asked.sites if site not in combined.update_digests),
            combined.digest,
            round(time.monotonic() - asked.began_s, 2),
            combined.warnings,
            asked.left_out,
        )
        with server.changed:
            server.files.add_report(report)
            server.reports.append(report)
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
