"""One probe: from an artifact and two groups of persons to a receipt.

The persons of ``--data`` trained the artifact, those of ``--holdout`` did not; `findings` refuses
groups that share a person or a picture, because attacks would then seem to fail. The kind of
artifact decides the attacks: `sub_models`, `leaf_sums` or `networks`, each a generator of findings
with chance and a control that was made to leak. The receipt gathers them with a description of the
artifact, the assumed attacker and the compute; its verdict is that of the worst attack
(`pool_server.wire.cards`). `findings.receipt_page` makes a page of it, and ``poolctl upload
--receipt`` sends it along.
"""

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import file_digest
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.protections import describe_protection
from pool_server.wire.cards import AttackFinding, PrivacyReceipt, ReceiptMode
from site_agent.attacks.receipt.findings import require_held_out
from site_agent.attacks.receipt.leaf_sums import attack_leaf_sums
from site_agent.attacks.receipt.networks import (
    GazeSides,
    attack_roster,
    attack_update,
    audit_epsilon,
    training_of,
)
from site_agent.attacks.receipt.sub_models import FaceSides, attack_sub_model
from site_agent.datasets.gaze.records import GazeSamples, sample_marks
from site_agent.datasets.records import image_marks
from site_agent.errors import InvalidInputError
from site_agent.networks.files import read_network
from site_agent.refinement import read_base
from site_agent.work import Progress, no_progress

WHAT_LEFT: Mapping[ReceiptMode, str] = {
    "sub-model": "A trained model: its weights, or its trees and its mean shape. No image.",
    "leaf-sums": "Of each leaf of a landmark model, the change after the site's fit and the number "
    "of samples that reach it. No image.",
    "update": "The differences of a network's parameters after the site's training, the number of "
    "samples, and how it trained. No image.",
    "secure-sum": "The sum of the contributions of all sites of a round, and who they are. The "
    "site's own contribution was seen by nobody.",
    "smashed-data": "What the first stages of a network make of each image, once for each pass.",
}
ATTACKERS: Mapping[ReceiptMode, str] = {
    "sub-model": "Anybody with the right to download the model, with pictures of the persons in "
    "question.",
    "leaf-sums": "The pool or another reader of the contribution, with the base; for the camera "
    "base, the author of the base.",
    "update": "The pool or another reader of the contribution, with the base, pictures of the "
    "persons in question, and of public persons where the site gave some.",
    "secure-sum": "Any party of the round, with the base and pictures of the persons in question.",
    "smashed-data": "The main server of a split training, with pictures of other persons; attacker "
    "C also has the client part, and so needs the part aggregator.",
}


@dataclass(frozen=True, eq=False)
class ProbedReceipt:
    """A receipt, and pictures for its page: PNG files by their captions."""

    receipt: PrivacyReceipt
    pictures: Mapping[str, bytes] = field(default_factory=dict)


def probe_faces(
    artifact: Path,
    sides: FaceSides,
    mode: Literal["sub-model", "leaf-sums"],
    *,
    base: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> ProbedReceipt:
    """Attack a face model or leaf sums with the faces of a site and of held-out persons.

    Raises `InvalidInputError`: a person or picture is on both sides, or artifact, base and faces do
    not fit each other. `FormatError`: a file is something else.
    """
    members, others = sides.members.dataset, sides.others.dataset
    require_held_out(
        set(sides.members.persons),
        set(sides.others.persons),
        {"own": image_marks(members), "others": image_marks(others)},
    )
    started = time.monotonic()
    pictures: Mapping[str, bytes] = {}
    if mode == "sub-model":
        findings, pictures = attack_sub_model(artifact, sides, seed)
    else:
        if base is None:
            raise InvalidInputError("leaf sums are attacked with their base: --base FILE")
        findings = attack_leaf_sums(artifact, read_base(base), sides, seed)
    attacks = _gather(findings, progress)
    persons = sides.members.persons, sides.others.persons
    return ProbedReceipt(
        make_receipt(artifact, mode, attacks, persons, seed=seed, started=started), pictures
    )


def probe_gaze(
    artifact: Path,
    base: Path,
    sides: GazeSides,
    mode: Literal["update", "secure-sum"],
    *,
    contributions: Sequence[Path] = (),
    shadows: int = 0,
    seed: int = 0,
    progress: Progress = no_progress,
) -> ProbedReceipt:
    """Attack a network's contribution, or the sum of a round, with a site's samples and others.

    `contributions`: Secure sum: those that were summed, which only a trial knows. `shadows`:
    Networks to train for likelihood ratios of each sample, which takes long; 0: none.

    Raises `InvalidInputError`: a person or picture is on both sides or public, or the artifact was
    made to another base. `FormatError`: a file is something else.
    """
    require_persons_apart(sides)
    started = time.monotonic()
    network = read_network(base)
    findings = attack_update(artifact, base, network, sides, seed, shadows=shadows)
    attacks = _gather(findings, progress)
    if contributions:
        samples = read_network_contribution(artifact).samples
        attacks += attack_roster(contributions, network, samples)
    persons = sides.members.person, sides.others.person
    receipt = make_receipt(artifact, mode, attacks, persons, seed=seed, started=started)
    sent = read_network_contribution(artifact)
    training = training_of(sent)
    labs = round(sent.samples / len(sides.members)) if mode == "secure-sum" else 1
    receipt.bounds = audit_epsilon(network, sides, training, seed, labs=max(1, labs))
    protection = describe_protection(training, secure=mode == "secure-sum")
    receipt.protection = f"{protection[0].upper()}{protection[1:]}; as the contribution says."
    if training.dp_epsilon is not None and training.dp_unit == "sample":
        receipt.protection += " Epsilon covers samples, not whether a person took part."
    return ProbedReceipt(receipt)


def require_persons_apart(sides: GazeSides) -> None:
    def marks(members: GazeSamples, others: GazeSamples) -> dict[str, Sequence[str]]:
        return {"own": sample_marks(members), "others": sample_marks(others)}

    members, others = set(sides.members.person), set(sides.others.person)
    require_held_out(members, others, marks(sides.members, sides.others))
    if sides.public is None:
        return
    public = set(sides.public.person)
    if both := sorted(public & (members | others)):
        raise InvalidInputError(
            f"{len(both)} persons of --reference are in --data or --holdout: {', '.join(both[:5])}"
        )
    if len(public) < 2:
        raise InvalidInputError(f"--reference has {len(public)} persons; expected at least 2")


def _gather(findings: Iterable[AttackFinding], progress: Progress) -> list[AttackFinding]:
    attacks = []
    for finding in findings:
        attacks.append(finding)
        # Attacks decide as they go which of them apply, so the share done is not known.
        progress(None, finding.name)
    return attacks


def make_receipt(
    artifact: Path,
    mode: ReceiptMode,
    attacks: list[AttackFinding],
    persons: tuple[NDArray[np.str_], NDArray[np.str_]],
    *,
    seed: int,
    started: float,
) -> PrivacyReceipt:
    """Return the receipt of attacks; `persons`: of each sample of the site, and of the others."""
    members, others = persons
    compute = f"{os.cpu_count()} cores ({platform.machine()}), poolctl {version('poolctl')}"
    return PrivacyReceipt(
        measured_on=datetime.now(UTC).date(),
        mode=mode,
        artifact_digest=file_digest(artifact),
        what_left=WHAT_LEFT[mode],
        attacker=ATTACKERS[mode],
        attacks=attacks,
        seed=seed,
        seconds=round(time.monotonic() - started, 1),
        compute=compute,
        persons=len(set(members)),
        samples=len(members),
        held_out_persons=len(set(others)),
        held_out_samples=len(others),
    )
