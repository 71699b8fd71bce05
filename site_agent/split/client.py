"""A site in a split training: its images stay here, its client part is trained here.

How a round goes. The client asks the main server for the round under way, fetches the client part
from the aggregator, compares its digest with the one that the main server knows, and looks at its
origin (`part_checks`). It writes the number of its attempt to its ledger, trains
(`training.train_client`), sends the trained part to the aggregator, and then tells the main server
that it is done. If either service has lost it, or the client was killed, it restarts the round
as the next attempt.

A client part may be a camera, which hands the server pictures instead of features: the maker of
the first one may lie, or the aggregator. Smashed data behind honest filters show much of an image,
too (`site_agent.attacks`).
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aggregators.formats import decode_model, encode_model
from aggregators.methods.networks.round_files import contribution_as_network
from aggregators.models import Float32, StateDict
from aggregators.whole_file import write_whole
from site_agent import errors
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.private_training import PrivacyLedger, plan_privacy
from site_agent.live.connection import ServiceConnection
from site_agent.plain_json import write_json
from site_agent.pool.profiles import privacy_folder
from site_agent.split import in_process, kits, messages, part_checks, parts, training
from site_agent.split.noise import Alter, SmashedNoise, sensitivity_of
from site_agent.training.gaze.loop import repeatable, to_tensors
from site_agent.work.ledger import Ledger
from site_agent.work.measurements import peak_memory_bytes

_POLL_S = 0.2
_HEADER_BYTES = 64 * 1024
_START_AGAIN = frozenset({"round", "attempt", "step", "step_changed", "turn", "closing"})
"""Codes of conflicts after which the client asks for the state of the round."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class ClientReport:
    """A report on a client's work since it was last started."""

    site: str
    rounds: int
    steps: int
    samples: int
    server_bytes: int
    """Bodies in both directions."""
    aggregator_bytes: int
    """Bodies in both directions."""
    seconds: float
    """Including the wait for other sites."""
    training_seconds: float
    """Including the wait for the main server's answers."""
    peak_memory_bytes: int
    part_digest: str


class RemoteServer:
    """The main server's half of a site's steps in one attempt (`training.Server`)."""

    def __init__(
        self, connection: ServiceConnection, kit: kits.SplitKit, number: int, attempt: int
    ) -> None:
        self._connection, self._path = connection, f"/rounds/{number}/{attempt}"
        self._shapes = messages.answer_shapes(kit.plan)

    def step(
        self, number: int, smashed: Float32, head: Float32, gaze: Float32
    ) -> training.StepAnswer:
        """See `training.Server`."""
        answer = self._ask("step", number, smashed=smashed, head=head, gaze=gaze)
        # A step of DP-SGD that draws no sample has no loss.
        loss = float(answer["loss"][0]) if len(answer["loss"]) else 0.0
        return training.StepAnswer(answer["gradient"], loss)

    def forward(self, number: int, smashed: Float32) -> Float32:
        """See `training.Server`."""
        return self._ask("forward", number, smashed=smashed)["features"]

    def backward(self, number: int, gradient: Float32) -> Float32:
        """See `training.Server`."""
        return self._ask("backward", number, gradient=gradient)["gradient"]

    def _ask(self, kind: str, number: int, **arrays: Float32) -> dict[str, Float32]:
        shape = self._shapes[kind]
        answer = self._connection.call(
            "POST",
            f"{self._path}/{kind}/{number}",
            messages.encode_arrays(arrays),
            most_bytes=shape.most_bytes,
        )
        try:
            return messages.decode_arrays(answer, shape)
        except errors.InvalidInputError as error:
            raise errors.FederationError(
                f"the server's answer to {kind} {number}: {error}"
            ) from error


class SplitClient:
    """A site's client; use it as a context manager.

    `kit`: Of the site; its folder keeps the ledger and the newest client part. `accepted`: The
    digest of a first client part of the site's own, or of a maker that may have the images.
    `patience_s`: For so long a service that does not answer is called again.
    `most_epsilon`: The site's budget for its data, over all trainings with this kit.
    """

    def __init__(
        self, kit: kits.SplitKit, samples: GazeSamples, *, accepted: str = "",
        patience_s: float = 120.0, most_epsilon: float | None = None, note: Note = print,
    ) -> None:  # fmt: skip
        self.kit, self._samples, self._note = kit, samples, note
        self._accepted = accepted
        self._known_part: StateDict | None = None
        self._known_number = 0
        self._most_epsilon = most_epsilon
        self._server = ServiceConnection(kit, kits.SERVER, patience_s=patience_s)
        self._aggregator = ServiceConnection(kit, kits.AGGREGATOR, patience_s=patience_s)
        self._ledger = Ledger(kit.folder / "attempts.jsonl")
        self._rounds = self._steps = 0
        self._training_s = 0.0

    def __enter__(self) -> "SplitClient":
        return self

    def __exit__(self, *_error: object) -> None:
        for connection in (self._server, self._aggregator):
            connection.close()

    @property
    def part_path(self) -> Path:
        """The file of the client part after the training."""
        return self.kit.folder / "client-part.safetensors"

    def status(self) -> dict[str, Any]:
        """Return the main server's status of the training."""
        status = self._server.get_json("/status")
        if status.get("plan") != self.kit.plan.digest:
            raise errors.FederationError("the server holds another plan than this kit")
        return status

    def run(self) -> ClientReport:
        """Take part until the last round has ended.

        Raises `ContributionWithheldError`: a client part that no training makes, or settings that
        no site accepts, and `FederationError`: a service refuses, does not answer, or contradicts
        the other.
        """
        began_s = time.monotonic()
        while True:
            status = self.status()
            if status["finished"] or status["stopped"]:
                break
            number, site = int(status["round"]), self.kit.name
            is_done = site in status["done"]
            # In V2, sites train in turn; otherwise all may train at once.
            if is_done or status["turn"] not in ("", site):
                time.sleep(_POLL_S)
                continue
            try:
                self._take_part(number, self._known_origin(status), status)
            except errors.ConflictError as error:
                if error.code not in _START_AGAIN:
                    raise
                time.sleep(_POLL_S)
        last = self._known_origin(status)
        write_whole(self.part_path, encode_model(last))
        return self._report(began_s, str(status["client_digest"]))

    def predict(self, samples: GazeSamples) -> Float32:
        """Return the gaze in patches, shape (n, 2), by the newest parts of both services."""
        status = self.status()
        part = self._known_origin(status)
        cut = self.kit.plan.found_cut
        module = parts.to_part_module(part, cut, "client")
        front, tail = cut.front_stages(module.stages), cut.tail_stages(module.stages)
        shape, alter = messages.answer_shapes(self.kit.plan)["predict"], self._alter(part)
        data, results = to_tensors(samples), []
        with repeatable(), torch.inference_mode():
            for piece in torch.split(torch.arange(len(data)), messages.ROWS_AT_ONCE):
                smashed = module.run_stages(front, data.patches[piece], data.head[piece])
                # Noise as in training: the server must get no more here than there.
                arrays = {"smashed": alter(smashed).contiguous().numpy()}
                if not cut.tail:
                    arrays["head"] = data.head[piece].numpy()
                answer = self._server.call(
                    "POST", "/predict", messages.encode_arrays(arrays), most_bytes=shape.most_bytes
                )
                gaze = training.as_tensor(messages.decode_arrays(answer, shape)["found"])
                results.append(module.run_stages(tail, gaze, data.head[piece]).numpy())
        return np.concatenate(results)

    def _take_part(self, number: int, part: StateDict, status: Mapping[str, Any]) -> None:
        """Train in a round, and send both results."""
        plan, digest = self.kit.plan, str(status["client_digest"])
        part_checks.require_safe_part(f"{number} of {plan.rounds}", part, self._samples, plan)
        if plan.trains_server_alone:
            self._send_smashed(part)
            return
        attempt = self._next_attempt(number, int(status["attempt"]))
        path = f"/rounds/{number}/{attempt}"
        self._server.post_json(f"{path}/begin", {"samples": len(self._samples)})
        self._spend(number, attempt)
        remote = RemoteServer(self._server, self.kit, number, attempt)
        began_s = time.monotonic()
        made = self._train(part, remote, number)
        self._training_s += time.monotonic() - began_s
        contribution = training.contribution_of(made.differences, made.samples, digest, plan)
        body = encode_model(contribution_as_network(contribution), "safetensors")
        # The main server counts only sites that the aggregator has, too.
        self._aggregator.call("PUT", f"{path}/part", body)
        self._server.post_json(f"{path}/done", {"steps": made.steps})
        self._rounds += 1
        self._steps += made.steps
        self._note(f"round {number} of {plan.rounds}: loss {np.rad2deg(made.loss):.2f} degrees")

    def _train(self, part: StateDict, remote: RemoteServer, number: int) -> training.ClientUpdate:
        return training.train_client(
            part, self._samples, self.kit.plan, remote,
            site=self.kit.name, round_number=number, alter=self._alter(part),
        )  # fmt: skip

    def _alter(self, part: StateDict) -> Alter:
        """Return fresh noise for smashed data; nobody can repeat it."""
        plan = self.kit.plan
        if plan.noise_level == 0:
            return lambda smashed: smashed
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        return SmashedNoise.of(plan).alter(sensitivity_of(part, plan.found_cut), generator)

    def _spend(self, number: int, attempt: int) -> None:
        """Charge an attempt to the privacy ledger before any of its data leave."""
        plan = self.kit.plan
        if plan.is_private:
            PrivacyLedger(privacy_folder()).spend(
                plan_privacy(plan.training, len(self._samples)),
                plan.training,
                self._samples,
                round_name=f"{number} of {plan.digest[:16]}, attempt {attempt}",
                most_epsilon=self._most_epsilon,
            )

    def _known_origin(self, status: Mapping[str, Any]) -> StateDict:
        """Return the current client part, after looking at all parts since the first.

        Raises `ContributionWithheldError`: the first one is not the site's own, nor one that it can
        repeat, or a later one is too far from the one before.
        """
        digests = [
            self.kit.first_client,
            *(str(item["client_digest"]) for item in status["closed"]),
        ]
        for number in range(self._known_number + 1, int(status["round"]) + 1):
            part = self._fetch_part(number, digests[number - 1])
            if self._known_part is None:
                part_checks.require_known_origin(self.kit, self._accepted)
            else:
                name = f"{number} of {self.kit.plan.rounds}"
                part_checks.require_near(name, part, self._known_part, self.kit.plan.found_cut)
            self._known_part, self._known_number = part, number
        assert self._known_part is not None
        return self._known_part

    def _fetch_part(self, number: int, digest: str) -> StateDict:
        """Return the client part of a round, which must be the one that both services name."""
        cut = self.kit.plan.found_cut
        most = _HEADER_BYTES + 8 * sum(
            int(np.prod(shape)) for shape in parts.part_shapes(cut, "client").values()
        )
        content = self._aggregator.call("GET", f"/parts/{number}", most_bytes=most)
        expected = {digest, self.kit.first_client} if number == 1 else {digest}
        if {hashlib.sha256(content).hexdigest()} != expected:
            raise errors.FederationError(
                f"the client part of round {number} is not the one that the server and the kit "
                "name: one of the services is wrong, or lies"
            )
        part = decode_model(content)
        if (
            not isinstance(part, StateDict)
            or parts.cut_of(part, "client", "the client part") != cut
        ):
            raise errors.FederationError(f"the client part of round {number} is of another cut")
        return part

    def _next_attempt(self, number: int, known: int) -> int:
        """Return the number of this attempt, after writing it to disk."""
        with self._ledger.at_work():
            before = [entry["attempt"] for entry in self._ledger.find("attempt", round=str(number))]
            attempt = int(max([known, *before])) + 1
            self._ledger.append({"kind": "attempt", "round": str(number), "attempt": attempt})
        return attempt

    def _send_smashed(self, part: StateDict) -> None:
        """Send the smashed data of all images once."""
        made = in_process.smash(part, self._samples, self.kit.plan, self._alter(part))
        pieces = [
            {
                name: values[first : first + messages.ROWS_AT_ONCE]
                for name, values in vars(made).items()
            }
            for first in range(0, len(made), messages.ROWS_AT_ONCE)
        ]
        for index, piece in enumerate(pieces):
            self._server.call("POST", f"/smashed/{index}", messages.encode_arrays(piece))
        content = {"pieces": len(pieces), "samples": len(made)}
        self._server.post_json("/smashed/end", content)
        self._note(f"sent the smashed data of {len(made)} images")

    def _report(self, began_s: float, digest: str) -> ClientReport:
        server, aggregator = self._server, self._aggregator
        report = ClientReport(
            self.kit.name, self._rounds, self._steps, len(self._samples),
            server.sent_bytes + server.received_bytes,
            aggregator.sent_bytes + aggregator.received_bytes,
            time.monotonic() - began_s, self._training_s,
            peak_memory_bytes(), digest,
        )  # fmt: skip
        write_json(self.kit.folder / "report.json", report)
        return report
