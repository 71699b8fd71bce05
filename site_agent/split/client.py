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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aggregators.formats import decode_model, encode_model
from aggregators.methods.networks.round_files import (
    contribution_as_network,
    read_network_contribution,
    write_network_contribution,
)
from aggregators.models import Float32, NetworkContribution, StateDict, TensorInfo
from aggregators.secure_sum.layout import SumEntry, SumLayout, encode_network, network_layout
from aggregators.whole_file import write_whole
from site_agent import errors
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.plan import combine, first_model
from site_agent.federated.private_training import PrivacyLedger, plan_privacy
from site_agent.live.connection import ServiceConnection
from site_agent.pool.profiles import privacy_folder
from site_agent.secure.charter import json_digest
from site_agent.secure.lab import Lab, RosterPolicy
from site_agent.secure.sums import EncodedContribution, SecureSums
from site_agent.split import frozen, kits, messages, part_checks, parts, training
from site_agent.split.noise import Alter, SmashedNoise, sensitivity_of
from site_agent.training.gaze.loop import repeatable, to_tensors
from site_agent.work.ledger import Ledger
from site_agent.work.processes import peak_memory_bytes

_POLL_S = 0.2
_HEADER_BYTES = 64 * 1024
_START_AGAIN = frozenset({"round", "attempt", "step", "step_changed", "closing"})
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
    `most_epsilon`: The site's budget for its data, over all trainings with this kit. `lab`: The
    site in the secure sums of the kit's charter.
    """

    def __init__(
        self, kit: kits.SplitKit, samples: GazeSamples, *, accepted: str = "",
        patience_s: float = 120.0, most_epsilon: float | None = None, lab: Lab | None = None,
        note: Note = print,
    ) -> None:  # fmt: skip
        self.kit, self._samples, self._note, self._lab = kit, samples, note, lab
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
        assert bool(self.kit.charter) == (self._lab is not None), "a charter goes with a lab"
        began_s = time.monotonic()
        while True:
            status = self.status()
            if status["finished"]:
                break
            if status["stopped"]:
                self._note(f"the training was stopped {self._after(status)}")
                break
            number, site = int(status["round"]), self.kit.name
            is_done = site in status["done"]
            sums_part = self._lab is not None and not self.kit.plan.trains_server_alone
            if is_done and not sums_part:
                time.sleep(_POLL_S)
                continue
            try:
                part = self._known_origin(status)
                if is_done:
                    self._send_summed_part(number, part, int(status["done"][site]["attempt"]))
                else:
                    self._take_part(number, part, status)
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
        self._note(f"the parts {self._after(status)}")
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

    def _after(self, status: Mapping[str, Any]) -> str:
        return f"after {len(status['closed'])} of {self.kit.plan.rounds} rounds"

    def _take_part(self, number: int, part: StateDict, status: Mapping[str, Any]) -> None:
        """Train in a round, and send both results."""
        plan, digest = self.kit.plan, str(status["client_digest"])
        part_checks.require_safe_part(f"{number} of {plan.rounds}", part, self._samples, plan)
        if plan.trains_server_alone:
            self._send_means(number, part, status)
            return
        attempt = self._begin(number, status)
        path = f"/rounds/{number}/{attempt}"
        self._spend(number, attempt)
        remote = RemoteServer(self._server, self.kit, number, attempt)
        began_s = time.monotonic()
        made = self._train(part, remote, number)
        self._training_s += time.monotonic() - began_s
        contribution = training.contribution_of(made.differences, made.samples, digest, plan)
        if self._lab is None:
            body = encode_model(contribution_as_network(contribution), "safetensors")
            # The main server counts only sites that the aggregator has, too.
            self._aggregator.call("PUT", f"{path}/part", body)
        else:
            weight = 1 if plan.mean == "sites" else made.samples
            weighted = replace(contribution, samples=weight)
            write_network_contribution(weighted, self._summed_path("own", number))
        self._server.post_json(f"{path}/done", {"steps": made.steps})
        self._rounds += 1
        self._steps += made.steps
        self._note(f"round {number} of {plan.rounds}: loss {np.rad2deg(made.loss):.2f} degrees")

    def _begin(self, number: int, status: Mapping[str, Any]) -> int:
        attempt = self._next_attempt(number, int(status["attempt"]))
        samples = {"samples": len(self._samples)}
        self._server.post_json(f"/rounds/{number}/{attempt}/begin", samples)
        return attempt

    def _summed_path(self, kind: str, number: int) -> Path:
        """Return the file of a round's own contribution (``own``) or its verified ``sum``."""
        return self.kit.folder / f"{kind}-{number:04}.contribution"

    def _sum(self, number: int, layout: SumLayout, base: StateDict) -> NetworkContribution | None:
        """Take the next step in a round's secure sum; return the sum of all sites once verified."""
        assert self._lab is not None
        target = self._summed_path("sum", number)
        if not target.is_file():
            update = read_network_contribution(self._summed_path("own", number))
            numbers = encode_network(layout, update, base, self._lab.charter.budget)
            # Sums over fewer sites would show by their differences what one of them gave.
            everyone = RosterPolicy(insists_on=frozenset(self.kit.sites) - {self.kit.name})
            purpose = f"split training {self.kit.plan.digest}"
            sums = SecureSums(self._lab, self.kit.sites, purpose, everyone)
            if sums.take_part(EncodedContribution(layout, numbers), target).total is None:
                return None
        return read_network_contribution(target)

    def _send_summed_part(self, number: int, part: StateDict, attempt: int) -> None:
        """Take the next step in the sum of client parts; send the aggregator the sum alone."""
        layout = network_layout(part, first_model(part).digest, self.kit.plan.training.shared())
        is_sent = self._summed_path("sent", number)
        total = None if is_sent.is_file() else self._sum(number, layout, part)
        if total is None:
            time.sleep(_POLL_S)
            return
        stated = replace(total, samples=len(self._samples))
        body = encode_model(contribution_as_network(stated), "safetensors")
        self._aggregator.call("PUT", f"/rounds/{number}/{attempt}/part", body)
        write_whole(is_sent, b"")

    def _send_means(self, number: int, part: StateDict, status: Mapping[str, Any]) -> None:
        """Take the next step in the sum of smashed data; send the main server the means alone."""
        plan, kit = self.kit.plan, self.kit
        counts = dict(status["samples"])
        if counts.setdefault(kit.name, len(self._samples)) != len(self._samples):
            # With other counts, rows would hold the data of a single site.
            raise errors.FederationError("the server states another number of samples of this site")
        if kit.name not in status["samples"]:
            self._begin(number, status)
        if set(counts) != set(kit.sites):
            time.sleep(_POLL_S)
            return
        means = frozen.MeansPlan.of(plan, number, counts)
        shapes = messages.body_shapes(plan)["smashed"].entries
        layout = SumLayout(
            kind="network",
            base_digest=json_digest([plan.digest, number, first_model(part).digest, counts]),
            entries=tuple(
                SumEntry(name=name, dtype="F32", shape=(means.rows, *shape))
                for name, shape in sorted(shapes.items())
            ),
        )
        if not (path := self._summed_path("own", number)).is_file():
            smashed = frozen.smash(part, self._samples, plan, self._alter(part))
            tensors = vars(means.give(kit.name, smashed))
            infos = {name: TensorInfo("F32", values.shape) for name, values in tensors.items()}
            network = StateDict(tensors, infos)
            update = NetworkContribution(network, "differences", 1, layout.base_digest, {})
            write_network_contribution(update, path)
        if (total := self._sum(number, layout, StateDict({}, {}))) is None:
            time.sleep(_POLL_S)
            return
        mean = (total.network.tensors[name] for name in frozen.SmashedData.NAMES)
        summed = frozen.SmashedData(*(x.astype(np.float32) * len(kit.sites) for x in mean))
        self._send_smashed(means.mean(summed), number)
        self._rounds += 1

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
                if self._lab is not None and not self.kit.plan.trains_server_alone:
                    self._require_own_sum(number, part)
                name = f"{number} of {self.kit.plan.rounds}"
                part_checks.require_near(name, part, self._known_part, self.kit.plan.found_cut)
            self._known_part, self._known_number = part, number
        assert self._known_part is not None
        return self._known_part

    def _require_own_sum(self, number: int, part: StateDict) -> None:
        """Raise `FederationError` unless the verified sum makes this client part."""
        assert self._known_part is not None
        total = read_network_contribution(self._summed_path("sum", number - 1))
        base = first_model(self._known_part)
        made = combine(self.kit.plan.averaging, base, {"sum": total}).model.digest
        if made != first_model(part).digest:
            raise errors.FederationError(
                f"the client part of round {number} is not the sum that this site verified: the "
                "aggregator is wrong, or lies"
            )

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

    def _send_smashed(self, made: frozen.SmashedData, number: int) -> None:
        """Send the means, which all sites have, if this is the first site; the others confirm."""
        pieces, digest = 0, hashlib.sha256()
        for first in range(0, len(made), messages.ROWS_AT_ONCE):
            rows = slice(first, first + messages.ROWS_AT_ONCE)
            body = messages.encode_arrays({name: x[rows] for name, x in vars(made).items()})
            digest.update(body)
            if self.kit.name == min(self.kit.sites):
                self._server.call("POST", f"/smashed/{number}/{pieces}", body)
                pieces += 1
        content = {"pieces": pieces, "samples": len(self._samples), "digest": digest.hexdigest()}
        self._server.post_json(f"/smashed/{number}/end", content)
        self._note(f"sent means of smashed data of {len(made)} images")

    def _report(self, began_s: float, digest: str) -> ClientReport:
        server, aggregator = self._server, self._aggregator
        return ClientReport(
            self.kit.name, self._rounds, self._steps, len(self._samples),
            server.sent_bytes + server.received_bytes,
            aggregator.sent_bytes + aggregator.received_bytes,
            time.monotonic() - began_s, self._training_s,
            peak_memory_bytes(), digest,
        )  # fmt: skip
