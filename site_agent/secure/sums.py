"""A lab's visits to the secure sums of an undertaking: it shares, tags and verifies."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregators.errors import FormatError
from aggregators.formats import file_digest, read_model
from aggregators.methods.networks.round_files import read_network_contribution
from aggregators.methods.refitting import read_contribution
from aggregators.models import Int64, LeafContribution, StateDict
from aggregators.secure_sum import layout as sum_layout
from aggregators.secure_sum.layout import BitBudget
from aggregators.secure_sum.sharing import NUMBER_BYTES, UInt64
from site_agent.errors import InvalidInputError, SecureSumError
from site_agent.secure.lab import Lab, RosterPolicy
from site_agent.secure.session import Session, new_descriptor, parse_descriptor
from site_agent.secure.verification import Mode
from site_agent.work import Progress, no_progress


class EncodedContribution(NamedTuple):
    """The vector that a lab shares: uint64, shape (size of the layout,)."""

    layout: sum_layout.SumLayout
    numbers: UInt64


def encode_network_file(
    contribution: Path, base: Path, budget: sum_layout.BitBudget, *, mean: str = "samples"
) -> EncodedContribution:
    """Return the differences from the base that a contribution's file holds, and its weight.

    Parameters
    ----------
    mean : str
        ``samples``: the weight is the number of samples. ``sites``: it is 1 for each lab, so the
        sum states the number of labs as its samples.

    Raises
    ------
    FormatError
        The file is not a contribution to a network.
    IncompatibleModelsError
        It was made to another base.
    ConversionError
        A number is out of the charter's range; names the entry.
    """
    network = _read_network(base)
    update = read_network_contribution(contribution)
    if mean == "sites":
        update = replace(update, samples=1)
    layout = sum_layout.network_layout(network, file_digest(base), update.settings)
    numbers = sum_layout.encode_network(layout, update, network, budget)
    return EncodedContribution(layout, numbers)


def encode_leaf_presence(contribution: Path, budget: sum_layout.BitBudget) -> EncodedContribution:
    """Return which leaves a lab reaches, for the first of the two sessions of a leaf refinement."""
    changes = read_contribution(contribution)
    layout = sum_layout.leaf_presence_layout(changes)
    return EncodedContribution(layout, sum_layout.encode_leaves(layout, changes, budget))


def encode_leaf_sums(
    contribution: Path, labs_per_leaf: Int64, least: int, budget: sum_layout.BitBudget
) -> EncodedContribution:
    """Return the weighted changes of the leaves that enough labs reach, for the second session.

    Parameters
    ----------
    labs_per_leaf : int64, shape (leaves,)
        The result of the first session (`read_presence`).
    least : int
        The charter's `least_labs`.
    """
    changes: LeafContribution = read_contribution(contribution)
    layout = sum_layout.leaf_sums_layout(
        sum_layout.leaf_presence_layout(changes), labs_per_leaf, least
    )
    return EncodedContribution(layout, sum_layout.encode_leaves(layout, changes, budget))


def read_presence(path: Path) -> Int64:
    """Return how many labs reach each leaf, from the result of a first session."""
    content = path.read_bytes()
    if len(content) % NUMBER_BYTES:
        raise InvalidInputError(f"{path}: not the result of a session that counts labs by leaf")
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


def _read_network(path: Path) -> StateDict:
    model = read_model(path)
    if not isinstance(model, StateDict):
        raise FormatError("base", 0, "another model", "a network").about(str(path))
    return model


_POLL_S = (0.1, 2.0)
"""Shortest and longest wait between two looks: short after something happened."""


@dataclass(frozen=True)
class SumVisit:
    """The state of a sum after a visit."""

    session: str
    """The last session that this site took part in."""
    phase: str
    """The session's current phase; ``complete`` once the sum is there."""
    waiting: tuple[str, ...]
    """Labs or servers that must act next."""
    total: Path | None = None
    """The verified sum, as one contribution."""


@dataclass(frozen=True)
class SecureSums:
    """The secure sums of one undertaking of several labs, as one of them takes part in them."""

    lab: Lab
    labs: tuple[str, ...]
    """The labs that each session must invite."""
    purpose: str
    """The session descriptor's text on the undertaking, with the digest of its terms. This lab
    takes no part in a session of other terms."""
    policy: RosterPolicy
    mode: Mode = "servers"
    progress: Progress = no_progress

    @property
    def budget(self) -> BitBudget:
        """How numbers are encoded, by the charter."""
        return self.lab.charter.budget

    @property
    def least_labs(self) -> int:
        """Fewest labs that must reach a leaf before its changes are summed."""
        return self.lab.charter.terms.least_labs

    def take_part(self, encoded: EncodedContribution, target: Path) -> SumVisit:
        """Take the next step in the session of one sum: share, tag or verify."""
        lab = self.lab
        lab.approve_base(encoded.layout.base_digest)
        session = self._find_session(encoded) or self._open_session(encoded)
        if not lab.share(session, encoded.layout, encoded.numbers, self.labs):
            return SumVisit(session, "keys", lab.review(session).waiting)
        view = lab.visit(session, self.policy, self._show_roster)
        if view.is_void:
            return SumVisit(session, "void", ())
        if view.phase != "complete":
            return SumVisit(session, view.phase, _waiting_for(view))
        if not target.is_file():
            lab.finish(session, target, self.mode)
        return SumVisit(session, view.phase, (), target)

    def _show_roster(self, labs: Sequence[str]) -> None:
        self.progress(None, f"the sum is over {', '.join(labs)}")

    def _find_session(self, encoded: EncodedContribution) -> str:
        """Return the first session of this sum that is not void; empty where there is none."""
        return next((name for name, view in self._sessions(encoded) if not view.is_void), "")

    def _open_session(self, encoded: EncodedContribution) -> str:
        attempts = [view.descriptor.attempt for _, view in self._sessions(encoded)]
        descriptor = new_descriptor(
            self.lab.charter,
            encoded.layout,
            self.lab.clock(),
            labs=self.labs,
            attempt=max(attempts, default=0) + 1,
            purpose=self.purpose,
        )
        self.lab.board.open_session(descriptor.to_bytes())
        # Another lab may have opened one at the same moment: all take the first.
        if not (session := self._find_session(encoded)):
            raise SecureSumError((), hint="the pool does not show the session that was opened")
        return session

    def _sessions(self, encoded: EncodedContribution) -> Iterator[tuple[str, Session]]:
        for name in self.lab.board.sessions():
            try:
                content = self.lab.board.descriptor(name)
                descriptor = parse_descriptor(content, self.lab.charter)
            except InvalidInputError:
                continue  # of another charter, or not a session at all
            # Anybody may open a session with fewer labs or other terms: not for this one.
            bound = descriptor.purpose == self.purpose and set(descriptor.labs) == set(self.labs)
            if bound and descriptor.layout.digest == encoded.layout.digest:
                yield name, self.lab.review(name)


def visit_until_summed(step: Callable[[], SumVisit], *, wait: bool, progress: Progress) -> SumVisit:
    """Take a lab's possible steps; where it waits, repeat them until the last sum is there."""
    before, wait_s = None, _POLL_S[0]
    while True:
        try:
            visit = step()
        except SecureSumError as error:
            # With too few labs the servers give a session up, and the next step begins another.
            faults = {(fault.phase, fault.kind) for fault in error.faults}
            if not wait or faults != {("receipt", "refusal")}:
                raise
            visit = SumVisit("", str(error), ())
        if visit.total is not None or not wait:
            return visit
        wait_s = _POLL_S[0] if visit != before else min(1.5 * wait_s, _POLL_S[1])
        before = visit
        progress(None, f"{visit.phase}: waiting for {', '.join(visit.waiting) or 'the servers'}")
        time.sleep(wait_s)


def _waiting_for(view: Session) -> tuple[str, ...]:
    """Return the parties that must act next; before the receipts, the labs that have not shared."""
    if view.phase == "receipt" and len(view.shares) < len(view.descriptor.labs):
        return tuple(lab for lab in view.descriptor.labs if lab not in view.shares)
    return view.waiting
