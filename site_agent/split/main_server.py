"""The main server and its HTTP interface: it trains the server parts, and closes the rounds.

It has one session a site: the site's attempt at the round, with a server part of its own, the
number of the next step, and the answer to the last one. A session lives in memory; a server that is
killed has lost it, and the site restarts its round. Finished work (`done`) is on disk before the
site hears of it.

Possible liars: a site, about everything that it sends. Bodies are bounded and checked
(`messages`), a step cannot be taken twice, and finished parts are checked as those of rounds are.
"""

import hashlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from starlette.applications import Starlette

from aggregators.methods.networks.round_files import check_network_contribution
from aggregators.models import Float32, StateDict
from site_agent.errors import ConflictError, FederationError, InvalidInputError, SiteAgentError
from site_agent.federated.local_training import subtract_network
from site_agent.live import service
from site_agent.live.connection import ServiceConnection
from site_agent.split.kits import AGGREGATOR, START, SplitKit
from site_agent.split.messages import BodyShape, body_shapes, decode_arrays, encode_arrays
from site_agent.split.parts import cut_of, to_part_module
from site_agent.split.plan import FEWEST_SITES
from site_agent.split.rounds_folder import Roster, RoundsFolder, SmashedStore, Taken
from site_agent.split.training import ServerHalf, as_tensor, contribution_of
from site_agent.training.gaze.loop import repeatable

_MOST_SAMPLES = 10_000_000
_MOST_ATTEMPTS = 10_000


@dataclass
class _Session:
    """A site's attempt at a round."""

    round_number: int
    attempt: int
    samples: int
    half: ServerHalf
    next_step: int = 0
    """From 0; a step with a tail counts when its `backward` is done."""
    waits_for: str = ""
    last: tuple[str, int, str] = ("", -1, "")
    """Kind, number and digest of the last message, and the answer to it."""
    answer: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)


class MainServer:
    """The state of the main server; for several threads."""

    def __init__(self, kit: SplitKit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.RLock()
        self._clock, self._limit_s, self._sites = clock, kit.round_limit_s, kit.sites
        self.plan = kit.plan
        self.rounds = RoundsFolder(kit.folder / RoundsFolder.FOLDER, kit.folder / START, kit.plan)
        cut_of(self.rounds.model.network, "server", str(kit.folder / START))
        self.shapes: dict[str, BodyShape] = body_shapes(kit.plan)
        self._first_client, self.is_secure = kit.first_client, bool(kit.charter)
        self._sessions: dict[str, _Session] = {}
        self.stopped = False
        self._open_round(frozenset(self._sites))

    def status(self, site: str = "") -> dict[str, Any]:
        """Return the current round, and a site's task in it."""
        with self._lock:
            self._seen.add(site)
            session = self._sessions.get(site)
            finished = {} if self.rounds.is_finished else self._done()
            return {
                "plan": self.plan.digest,
                "round": self.rounds.number,
                "rounds": self.plan.rounds,
                "finished": self.rounds.is_finished,
                "stopped": self.stopped,
                "client_digest": self._client_digest(),
                "done": {name: asdict(entry) for name, entry in finished.items()},
                "samples": {name: known.samples for name, known in self._sessions.items()},
                "expected": sorted(self._expected),
                "sites": list(self._sites),
                "attempt": 0 if session is None else session.attempt,
                "closed": [asdict(record) for record in self.rounds.closed],
            }

    def begin(self, site: str, number: int, attempt: int, samples: int) -> None:
        """Begin a site's attempt at the round under way; the same call again changes nothing."""
        if not 1 <= attempt <= _MOST_ATTEMPTS or not 2 <= samples <= _MOST_SAMPLES:
            raise InvalidInputError(
                f"attempt {attempt}, samples {samples}: expected 1 to {_MOST_ATTEMPTS}, and 2 to "
                f"{_MOST_SAMPLES}"
            )
        with self._lock:
            self._require_open(site, number)
            known = self._sessions.get(site)
            if known is not None and known.round_number == number:
                if (known.attempt, known.samples) == (attempt, samples):
                    return
                if attempt <= known.attempt:
                    raise ConflictError(
                        f"attempt {known.attempt} is under way, not {attempt}", code="attempt"
                    )
            half = ServerHalf(self.rounds.model.network, self.plan, number, samples=samples)
            self._sessions[site] = _Session(number, attempt, samples, half)
            self._expected |= {site}

    def message(
        self, kind: str, site: str, number: int, attempt: int, *, step: int, body: bytes
    ) -> bytes:
        """Take a step, or half of one, and return the answer.

        `kind`: ``step``; with a tail ``forward`` and then ``backward``. The last message again, in
        the same bytes, gets the same answer.
        """
        session = self._session(site, number, attempt)
        with session.lock:
            digest = hashlib.sha256(body).hexdigest()
            if (kind, step) == session.last[:2]:
                if digest != session.last[2]:
                    raise ConflictError(
                        f"{kind} {step} was another message before", code="step_changed"
                    )
                return session.answer
            if step != session.next_step or kind not in self._kinds(session):
                raise ConflictError(
                    f"expected {' or '.join(self._kinds(session))} {session.next_step}, found "
                    f"{kind} {step}",
                    code="step",
                )
            arrays = decode_arrays(body, self.shapes[kind])
            session.answer = encode_arrays(self._take_step(session, kind, step, arrays))
            session.last = kind, step, digest
            session.waits_for = "backward" if kind == "forward" else ""
            session.next_step += kind != "forward"
            return session.answer

    def _session(self, site: str, number: int, attempt: int) -> _Session:
        with self._lock:
            self._require_open(site, number)
            session = self._sessions.get(site)
            if session is None or (session.round_number, session.attempt) != (number, attempt):
                known = 0 if session is None else session.attempt
                raise ConflictError(
                    f"attempt {known} of {site} is under way, not {attempt}", code="attempt"
                )
            return session

    def done(self, site: str, number: int, attempt: int, steps: int) -> None:
        """Put a site's finished server part on disk; the same call again changes nothing."""
        with self._lock:
            self._require_open(site, number)
            entry = self._done().get(site)
            if entry is not None and entry.attempt == attempt:
                return
            session = self._sessions.get(site)
            place_now = None if session is None else (session.attempt, session.next_step)
            if session is None or place_now != (attempt, steps) or session.waits_for:
                raise ConflictError(
                    f"found attempt and steps {place_now}, expected {(attempt, steps)}",
                    code="attempt",
                )
            if self.rounds.intention() is not None:
                raise ConflictError(f"round {number} is being closed", code="closing")
            self._keep(site, session)
            del self._sessions[site]

    @property
    def smashed(self) -> SmashedStore:
        """The means of smashed data of the round under way."""
        return SmashedStore(self.rounds.round_folder / "smashed", self.shapes["smashed"])

    def take_smashed(self, site: str, number: int, index: int, body: bytes) -> None:
        """Keep means of smashed data; the same message again changes nothing."""
        with self._lock:
            self._require_open(site, number)
            decode_arrays(body, self.shapes["smashed"])
            self.smashed.add(site, index, body)

    def finish_smashed(
        self, site: str, number: int, pieces: int, samples: int, digest: str
    ) -> None:
        """Note that a site has sent all means, or knows the same ones."""
        with self._lock:
            self._require_open(site, number)
            self.smashed.finish(site, pieces, samples, digest)

    def predict(self, _site: str, body: bytes) -> bytes:
        """Return the newest server part's predictions for smashed data of a site."""
        arrays = decode_arrays(body, self.shapes["predict"])
        with self._lock:
            model = self.rounds.model
        cut = self.plan.found_cut
        module = to_part_module(model.network, cut, "server")
        smashed = as_tensor(arrays["smashed"])
        head = arrays.get("head", np.zeros((len(smashed), 2), np.float32))
        with repeatable(), torch.inference_mode():
            output = module.run_stages(
                cut.server_stages(module.stages), smashed, torch.from_numpy(head)
            )
        return encode_arrays({"found": output.numpy()})

    def stop(self, _caller: str = "") -> None:
        """Tell all clients to end."""
        with self._lock:
            self.stopped = True

    # Conditions that close a round; `Closing` asks.
    def ready_to_close(self) -> Roster | None:
        """Return the sites that are done, where the round can end; None while it cannot."""
        with self._lock:
            if self.rounds.is_finished or self.stopped:
                return None
            if (begun := self.rounds.intention()) is not None:
                return begun
            finished = self._done()
            late = self.is_late()
            if self.is_secure:
                return finished if set(finished) == set(self._sites) else None
            complete = self._expected <= set(finished)
            return finished if len(finished) >= FEWEST_SITES and (complete or late) else None

    def is_late(self) -> bool:
        """Return whether the round's time is over."""
        return self._clock() > self._deadline_s

    def is_closing(self) -> bool:
        """Return whether the round's roster has been decided."""
        with self._lock:
            return not self.rounds.is_finished and self.rounds.intention() is not None

    def intend(self, roster: Roster) -> None:
        """Decide the roster of the round's end; no further site can finish."""
        with self._lock:
            self.rounds.intend(roster)

    def close(self, roster: Roster, client_digest: str) -> None:
        """End the round, and open the next."""
        with self._lock:
            number = self.rounds.number
            make: Callable[[], StateDict] | None = None
            if self.plan.trains_server_alone:
                make = lambda: self.smashed.train(  # noqa: E731
                    self.rounds.model.network, self.plan, number, tuple(roster)
                )
            self.rounds.close(number, roster, make=make, client_digest=client_digest)
            self._sessions.clear()
            self._open_round(frozenset(roster) | self._seen)

    def _open_round(self, expected: frozenset[str]) -> None:
        self._expected = set(expected) & set(self._sites)
        self._seen: set[str] = set()
        self._deadline_s = self._clock() + self._limit_s

    def _require_open(self, site: str, number: int) -> None:
        self._seen.add(site)
        if self.stopped or self.rounds.is_finished or number != self.rounds.number:
            raise ConflictError(f"round {self.rounds.number} is under way", code="round")

    def _client_digest(self) -> str:
        closed = self.rounds.closed
        return closed[-1].client_digest if closed else self._first_client

    def _done(self) -> dict[str, Taken]:
        if self.plan.trains_server_alone:
            return self.smashed.complete()
        return {site: entry for site, (entry, _) in self.rounds.contributions().items()}

    def _kinds(self, session: _Session) -> tuple[str, ...]:
        if not self.plan.found_cut.tail:
            return ("step",)
        return (session.waits_for or "forward",)

    def _keep(self, site: str, session: _Session) -> None:
        base = self.rounds.model
        tensors = subtract_network(session.half.trained(), base.network)
        made = contribution_of(
            StateDict(tensors, dict(base.network.infos)), session.samples, base.digest, self.plan
        )
        settings = self.plan.training.shared()
        check_network_contribution(made, base.network, base_digest=base.digest, settings=settings)
        self.rounds.add(site, session.attempt, made)

    def _take_step(
        self, session: _Session, kind: str, step: int, arrays: dict[str, Float32]
    ) -> dict[str, Float32]:
        half = session.half
        if kind == "forward":
            return {"features": half.forward(step, arrays["smashed"])}
        if kind == "backward":
            return {"gradient": half.backward(step, arrays["gradient"])}
        answer = half.step(step, arrays["smashed"], arrays["head"], arrays["gaze"])
        if not math.isfinite(answer.loss) or not np.isfinite(answer.gradient).all():
            raise InvalidInputError(
                f"the loss is {answer.loss} in step {step}: {self.plan.way_out}"
            )
        rows = len(arrays["smashed"])
        return {"gradient": answer.gradient, "loss": np.full(rows, answer.loss, np.float32)}


_LOOK_INTERVAL_S = 0.1
_TRY_AGAIN_S = 1.0

Note = Callable[[str], None]


def main_server_app(server: MainServer) -> Starlette:
    """Return the main server's HTTP interface."""
    routes, shapes = service.Routes(), server.shapes
    attempt = "/rounds/{number:int}/{attempt:int}"

    for kind in ("step", "forward", "backward"):
        path, take = f"{attempt}/{kind}/{{step:int}}", partial(server.message, kind)
        routes.add("POST", path, take, most_bytes=shapes[kind].most_bytes)
    sizes = {name: shape.most_bytes for name, shape in shapes.items()}
    routes.add("GET", "/status", server.status, roles=())
    routes.add("POST", f"{attempt}/begin", server.begin, fields={"samples": int})
    routes.add("POST", f"{attempt}/done", server.done, fields={"steps": int})
    smashed, pieces = "/smashed/{number:int}", {"pieces": int, "samples": int, "digest": str}
    routes.add("POST", f"{smashed}/{{index:int}}", server.take_smashed, most_bytes=sizes["smashed"])
    routes.add("POST", f"{smashed}/end", server.finish_smashed, fields=pieces)
    routes.add("POST", "/predict", server.predict, most_bytes=sizes["predict"])
    routes.add("POST", "/stop", server.stop, roles=("server",))
    return routes.app()


def run_main_server(
    kit: SplitKit, *, note: Note = lambda _text: None, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM, Ctrl-C, or `stop`."""
    server = MainServer(kit)
    process = service.ServiceProcess(kit, main_server_app(server), on_ready)
    closing = Closing(kit, server, note)
    # One thread and one way of computing for all sessions, as clients have them.
    with repeatable():
        closing.start()
        try:
            process.run()
        finally:
            closing.stop()


class Closing:
    """Closes each round when it is time, in a thread of its own."""

    def __init__(self, kit: SplitKit, server: MainServer, note: Note) -> None:
        self._kit, self._server, self._note = kit, server, note
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="closing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(timeout=_TRY_AGAIN_S * 2)

    def _run(self) -> None:
        said = ""
        with ServiceConnection(self._kit, AGGREGATOR, patience_s=math.inf) as aggregator:
            while not self._ending.wait(_LOOK_INTERVAL_S):
                ready = self._server.ready_to_close()
                if ready is None:
                    continue
                try:
                    self._close(aggregator, ready)
                    said = ""
                except (SiteAgentError, OSError) as error:
                    if str(error) != said:
                        said = str(error)
                        self._note(f"the round cannot be closed yet: {said}")
                    self._ending.wait(_TRY_AGAIN_S)

    def _close(self, aggregator: ServiceConnection, ready: Roster) -> None:
        number = self._server.rounds.number
        roster = ready
        if not self._server.is_closing():
            roster = self._received_by_both(aggregator, ready)
            self._server.intend(roster)
        content = {"roster": {site: vars(entry) for site, entry in roster.items()}}
        answer = aggregator.post_json(f"/rounds/{number}/close", content)
        self._server.close(roster, str(answer["digest"]))
        self._note(f"round {number} of {self._server.plan.rounds}: {', '.join(sorted(roster))}")

    def _received_by_both(self, aggregator: ServiceConnection, finished: Roster) -> Roster:
        """Return the sites with the same attempt and samples at both services."""
        if self._server.plan.trains_server_alone:
            return finished
        received = {
            site: Taken(**entry)
            for site, entry in aggregator.get_json("/status")["received"].items()
        }
        both = {site: entry for site, entry in finished.items() if received.get(site) == entry}
        if missing := sorted(set(finished) - set(both)):
            missing_ = ", ".join(
                f"{site}: {finished[site]} here, {received.get(site)} at the aggregator"
                for site in missing
            )
            if self._server.is_secure or len(both) < FEWEST_SITES or not self._server.is_late():
                raise FederationError(f"the services do not have the same of {missing_}")
            self._note(f"left out: {missing_}")
        return both
