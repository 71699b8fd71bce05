"""The site's side of live rounds: train the server's networks on the site's own data."""

import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any

from aggregators.errors import AggregatorError
from aggregators.formats import decode_model
from aggregators.methods.merging import encode_input
from aggregators.models import StateDict
from site_agent.errors import ConflictError, FederationError, SiteAgentError, UntrustedServiceError
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.live.kits import SERVER
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.local_training import Privacy
from site_agent.federated.personal import PersonalStore
from site_agent.federated.plan import FederationPlan, digest_run, read_plan
from site_agent.federated.rounds import SiteGuards, train_in_round
from site_agent.federated.tasks import Task, task_of_network
from site_agent.live.connection import ServiceConnection
from site_agent.live.kits import Kit
from site_agent.pool.profiles import personal_folder, privacy_folder
from site_agent.training_record import remember_learned

_POLL_S, _TRY_AGAIN_S = 0.2, 1.0
_MOST_NETWORK_BYTES = 512 * 1024**2
"""Several times the size of today's networks."""


class LiveSite:
    """A site of a federation; use it as a context manager."""

    def __init__(self, kit: Kit, rules: SiteRules, *, note: Callable[[str], None]) -> None:
        self.kit, self._rules, self._note = kit, rules, note
        self._server = ServiceConnection(kit, SERVER, patience_s=5.0)
        self._samples: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.ending = threading.Event()
        self._presence = threading.Thread(
            target=self._report_presence, name="presence", daemon=True
        )

    def __enter__(self) -> "LiveSite":
        self._presence.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: object, _at: TracebackType | None
    ) -> None:
        self.ending.set()
        self._presence.join()
        self._server.close()

    def _report_presence(self) -> None:
        """Report presence, also during training; the server holds each call open."""
        with ServiceConnection(self.kit, SERVER, patience_s=0.0) as server:
            while not self.ending.is_set():
                try:
                    server.get_json("/presence")
                except FederationError:
                    self.ending.wait(_TRY_AGAIN_S)

    def run(self) -> None:
        """Take part in all rounds until `ending` is set.

        Raises `UntrustedServiceError` if the server is not of this kit's federation.
        """
        last_note = ""
        while not self.ending.is_set():
            try:
                task = self._server.get_json("/task")
                if last_note != "connected":
                    last_note = "connected"
                    self._note(f"connected to the server at {self.kit.addresses[SERVER]}")
                if not self._carry_out(task):
                    self.ending.wait(_POLL_S)
            except UntrustedServiceError:
                raise
            except ConflictError:
                self.ending.wait(_POLL_S)  # the round has ended
            except FederationError as error:
                if last_note != str(error):
                    last_note = str(error)
                    self._note(last_note)
                self.ending.wait(_TRY_AGAIN_S)

    def _carry_out(self, task: Mapping[str, Any]) -> bool:
        """Carry out a task of the server; return False if there was nothing to do."""
        if "reply" in task:
            self._take_reply(task, int(task["reply"]))
        if "round" not in task:
            return "reply" in task
        number = int(task["round"])
        path = f"/rounds/{number}"
        content = self._server.call("GET", f"{path}/base", most_bytes=_MOST_NETWORK_BYTES)
        try:
            body, samples, least_others = self._contribute(number, task, content)
        except (AggregatorError, SiteAgentError, ValueError, KeyError, TypeError, OSError) as error:
            self._note(f"round {number}: no contribution: {error}")
            # Its message may name persons and files of the site.
            self._server.post_json(f"{path}/refusal", {"error": type(error).__name__})
            return True
        self._note(f"round {number}: trained on {samples} samples")
        self._server.call("PUT", f"{path}/contribution/{least_others}", body)
        return True

    def _contribute(
        self, number: int, facts: Mapping[str, Any], content: bytes
    ) -> tuple[bytes, int, int]:
        plan, digest = read_plan(facts["plan"]), sha256(content).hexdigest()
        base = decode_model(content)
        if not isinstance(base, StateDict):
            raise FederationError("the server sent no network")
        samples, learned = self._read(task_of_network(base))
        first_base, site, rules = str(facts["first_base"]), self.kit.name, self._rules
        least_others = rules.admit(plan, first_base, number, base, digest, site=site)
        seed = ContributionLedger(rules.ledger).order_seed(
            site, digest_run(plan, first_base), digest
        )
        privacy = Privacy(privacy_folder(), rules.most_epsilon)
        contribution = train_in_round(
            base,
            digest,
            samples,
            plan.method,
            plan.split,
            parts=_store_of(plan, first_base),
            site=site,
            number=number,
            guards=SiteGuards(f"{number} of this run", privacy, seed, rules.max_hours),
        )
        body = bytes(encode_input(contribution))
        name = f"the contribution of {site} to live round {number}"
        remember_learned(sha256(body).hexdigest(), {"name": name, **learned})
        return body, contribution.samples, least_others

    def _read(self, task: Task) -> tuple[Any, dict[str, Any]]:
        """Return the samples that train, and their marks; read once for all rounds."""
        key = repr(task)
        if key not in self._samples:
            samples = task.read(self._rules.data, self._rules.persons)
            self._samples = {key: (samples, task.learned(samples))}
        return self._samples[key]

    def _take_reply(self, task: Mapping[str, Any], number: int) -> None:
        """Put a round's reply in this site's personal part, and confirm it."""
        path = f"/rounds/{number}/reply"
        content = self._server.call("GET", path, most_bytes=_MOST_NETWORK_BYTES)
        try:
            store = _store_of(read_plan(task["plan"]), str(task["first_base"]))
            store.take_reply(self.kit.name, number, content)
        except (SiteAgentError, ValueError, KeyError, TypeError, OSError) as error:
            self._note(f"round {number}: no reply was kept: {error}")
        self._server.call("DELETE", path)


def _store_of(plan: FederationPlan, first_base: str) -> PersonalStore:
    """Return the store of this site's personal parts in a run."""
    return PersonalStore(personal_folder() / f"live-{digest_run(plan, first_base)[:16]}")
