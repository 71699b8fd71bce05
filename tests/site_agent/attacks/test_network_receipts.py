"""Receipts of network updates, and the span attack in updates and sums."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.round_options import OPEN_SENTENCE, LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import LEAST_CONTROL, PrivacyReceipt, receipt_lines
from site_agent.attacks.leaks import apply_update, leak_of_network
from site_agent.attacks.membership import (
    layer_inputs,
    probe_by_shadows,
    relative_scores,
    span_scores,
)
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.pages import write_receipt
from site_agent.attacks.receipt.probing import audit_epsilon, probe, refuted_epsilon
from site_agent.attacks.separation import separation
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.leak_checks import audit_base, warn_of_span
from site_agent.federated.local_training import train_at_site
from site_agent.networks.modules import from_module, new_network, to_module

ONE_STEP = LocalTraining(epochs=1, batch_size=65_536, learning_rate=0.01)

FLOORS = LocalTraining(epochs=2, batch_size=16, learning_rate=0.01)

SITES = 15

pytestmark = pytest.mark.usefixtures("small_lenet")


@pytest.fixture(scope="module")
def persons() -> list[GazeSamples]:
    settings = RenderSettings(
        persons=SITES + 6, frames_per_person=16, sessions=(1, 1), seed=3, skews=Skews(amount=1.0)
    )
    return [render_person(settings, number) for number in settings.numbers]


class Probing:
    """A base, the updates of sites, and receipts."""

    def __init__(self, folder: Path, others: GazeSamples, base: StateDict | None = None) -> None:
        self.base = new_network("gaze-lenet", 5) if base is None else base
        self.others, self.folder = others, folder
        write_model(self.base, folder / "base.safetensors")

    def train(
        self, samples: GazeSamples, training: LocalTraining, site: str = "site", **guard: bool
    ) -> NetworkContribution:
        digest = file_digest(self.folder / "base.safetensors")
        return train_at_site(
            self.base, digest, samples, training, site=site, round_number=1, **guard
        ).contribution

    def probe(self, sent: NetworkContribution, members: GazeSamples) -> PrivacyReceipt:
        write_network_contribution(sent, self.folder / "sent.contribution")
        sent_file, base = self.folder / "sent.contribution", self.folder / "base.safetensors"
        return probe(sent_file, "update", GazeSides(members, self.others), base=base).receipt


@pytest.fixture
def probing(persons: list[GazeSamples], tmp_path: Path) -> Probing:
    return Probing(tmp_path, GazeSamples.join(persons[SITES:]))


def test_the_verdict_on_an_honest_update_of_one_step_names_the_leak(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    members = persons[0]
    receipt = probing.probe(probing.train(members, ONE_STEP, guarded=False), members)
    assert receipt.level == "high", receipt_lines(receipt)
    assert "can tell that it was among the 16 training pictures" in receipt.verdict
    assert receipt.verdict.endswith(").")
    findings = {finding.name: finding for finding in receipt.attacks}
    assert receipt.attacks[0] is findings["membership: span of fc1"]
    for name in ("membership: span of fc1", "membership: gradient regression"):
        assert findings[name].found.value > 0.99
    assert "16 samples, the layer 300 units" in receipt.attacks[0].note
    assert receipt.bounds is not None
    assert receipt.bounds.at_most is None
    pictures = findings["one-step inversion: rows of the update"]
    assert pictures.found.value > 0.5
    assert pictures.chance == 0.0
    assert int(pictures.note.split(" pictures have ")[1].split()[0]) > 25, "dB"
    for finding in receipt.attacks:
        if finding.reveals in {"membership", "pictures"}:
            assert finding.control is not None
            assert finding.control.value >= LEAST_CONTROL, finding.name
    sentences, rows = receipt_lines(receipt)
    assert sentences[0].startswith("Leak: high. Anyone with a picture of an eye")
    assert OPEN_SENTENCE in sentences[1]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    assert sum(widths) + 3 * 2 <= 80


def test_a_sum_of_13_sites_shows_nothing_but_the_span_of_a_wide_layer(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    sites = [GazeSamples.join(persons[:3]), *persons[3:SITES]]
    made = [probing.train(samples, FLOORS, f"site-{n}") for n, samples in enumerate(sites)]
    means = {
        name: np.mean(
            [contribution.network.tensors[name] for contribution in made], axis=0, dtype=np.float32
        )
        for name in probing.base.infos
    }
    summed = NetworkContribution(
        StateDict(means, dict(probing.base.infos)), "differences",
        sum(contribution.samples for contribution in made), made[0].base_digest, made[0].settings,
    )  # fmt: skip
    receipt = probing.probe(summed, sites[0])
    span, *others = receipt.attacks
    assert span.name == "membership: span of fc1"
    assert summed.samples < 300, "units of fc1"
    assert span.found.value > 0.9
    assert receipt.level in {"some", "high"}, receipt_lines(receipt)[1][:3]
    assert not any(finding.share for finding in others), others
    assert sum(finding.is_judged for finding in receipt.attacks) >= 6
    assert receipt.protection.startswith(f"Open: {OPEN_SENTENCE}")


@pytest.mark.slow
def test_a_receipt_says_how_much_differential_privacy_a_contribution_has(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    training = LocalTraining(epochs=1, dp_epsilon=8.0)
    sent = probing.train(persons[0], training)
    receipt = probing.probe(sent, persons[0])
    assert "each sample: epsilon 8 at delta 1e-05" in receipt.protection
    assert "not whether a person took part" in receipt.protection
    assert receipt.level in {"none found", "unclear"}


def test_shadow_networks_find_members_by_likelihood_ratios(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    def train(samples: GazeSamples, name: str) -> StateDict:
        return apply_update(probing.base, probing.train(samples, ONE_STEP, name, guarded=False))

    members = persons[0]
    leak = leak_of_network(probing.base, train(members, "site"))
    attacks = probe_by_shadows(leak, members, probing.others, train, count=6, seed=0)
    assert attacks["LiRA"].is_member.sum() == len(members)
    aucs = {
        name: separation(attack.scores, attack.is_member, resamples=0).auc
        for name, attack in attacks.items()
    }
    assert aucs["LiRA"] > 0.95
    # This step overshoots, and raises the losses of members.
    assert aucs["RMIA"] > 0.7


def test_relative_likelihoods_find_the_members_that_a_network_learnt_better() -> None:
    draw = np.random.default_rng(0)
    is_member = np.arange(200) < 100
    hardness = draw.uniform(0.1, 1.0, 200)
    shadows = hardness * draw.uniform(0.9, 1.1, (8, 200))
    loss = hardness * np.where(is_member, 0.6, 1.0) * draw.uniform(0.9, 1.1, 200)
    scores = relative_scores(loss, shadows, is_member)
    assert separation(scores, is_member, resamples=0).auc > 0.95
    assert separation(-loss, is_member, resamples=0).auc < 0.8, "without references"


def build_decoy(base: StateDict, public: GazeSamples) -> StateDict:
    """Return a camera with unrelated rows, by weights on channels that are always 0."""
    module: Any = to_module(base).eval()
    draw, dead = np.random.default_rng(0), 8
    with torch.no_grad():
        module.conv2.weight[:dead] = 0
        module.conv2.bias[:dead] = 0
        features = torch.from_numpy(layer_inputs(from_module(module, "gaze-lenet"), public)["fc1"])
        features = features[:, :-1].float()
        units, inputs = module.fc1.weight.shape
        live = np.arange(inputs) >= dead * inputs // 20
        row = draw.normal(size=inputs) * live / inputs**0.5
        decoys = draw.normal(size=(units, inputs)) * ~live
        decoys *= 3 * np.linalg.norm(row) / np.linalg.norm(decoys, axis=1)[:, None]
        common = torch.from_numpy(row.astype(np.float32))
        levels = torch.quantile(features @ common, torch.linspace(0.001, 0.999, units))
        sign = torch.where(torch.arange(units) < units // 2, 1.0, -1.0)
        module.fc1.weight[:] = sign[:, None] * common + torch.from_numpy(decoys.astype(np.float32))
        module.fc1.bias[:] = -sign * levels
        module.fc2.weight[:, :units] = 0.02
        module.fc2.bias[:] = 5
    return from_module(module, "gaze-lenet")


def test_a_camera_in_disguise_is_named_although_controls_cannot_train_it(
    persons: list[GazeSamples], tmp_path: Path
) -> None:
    members, public = GazeSamples.join(persons[:2]), GazeSamples.join(persons[SITES:])
    probing = Probing(tmp_path, public, build_decoy(new_network("gaze-lenet", 5), public))
    assert "answer alike" in " ".join(audit_base(probing.base, members))
    sent = probing.train(members, LocalTraining(learning_rate=0.001, momentum=0), guarded=False)
    receipt = probing.probe(sent, members)
    assert receipt.level == "high", receipt_lines(receipt)
    findings = {finding.name: finding for finding in receipt.attacks}
    assert findings["imprint: the base as a camera"].found.value > 0.4
    failed = findings["membership: loss now"]
    assert not failed.is_judged
    assert "could not be judged: the loss is" in failed.note
    audit = findings["audit of the base"]
    assert audit.is_judged
    assert audit.found.value == 1
    assert "answer alike" in audit.note
    files = write_receipt(receipt, {}, tmp_path / "receipt", "sent.contribution")
    page = files[2].read_text()
    assert hashlib.sha256(files[0].read_bytes()).hexdigest() in page
    for part in (receipt.artifact_digest, "signature", receipt.attacks[0].name, "Epsilon"):
        assert part in page


def check_bounds(seeds: range, persons: list[GazeSamples]) -> None:
    base = new_network("gaze-lenet", 5)
    sides = GazeSides(GazeSamples.join(persons[:4]), persons[SITES])
    for training in (
        LocalTraining(epochs=1, dp_epsilon=1.0),
        LocalTraining(epochs=1, dp_epsilon=8.0, dp_layers="all"),
    ):
        bounds = [audit_epsilon(base, sides, training, seed) for seed in seeds]
        assert all(bound.at_least <= (bound.at_most or 0) for bound in bounds)
        assert all(bound.at_most == training.dp_epsilon for bound in bounds)


def test_attacks_refute_no_epsilon_of_the_accountant(persons: list[GazeSamples]) -> None:
    check_bounds(range(3), persons)


@pytest.mark.slow
def test_attacks_refute_no_epsilon_of_the_accountant_in_100_seeds(
    persons: list[GazeSamples],
) -> None:
    check_bounds(range(100), persons)


@pytest.mark.parametrize(("epsilon", "labs"), [(None, 1), (None, 3), (8.0, 3)])
def test_updates_and_sums_have_both_bounds(
    persons: list[GazeSamples], epsilon: float | None, labs: int
) -> None:
    training = LocalTraining(epochs=1, learning_rate=0.002, dp_epsilon=epsilon, dp_layers="all")
    sides = GazeSides(GazeSamples.join(persons[:4]), GazeSamples.join(persons[SITES:]))
    bound = audit_epsilon(new_network("gaze-lenet", 5), sides, training, 0, labs=labs)
    assert bound.at_most == epsilon
    if epsilon is None:
        assert bound.at_least > 1, "the span of the sum holds the samples of all labs"
        assert "not bounded above, at least" in bound.sentence
    else:
        assert bound.at_least <= epsilon


def test_right_guesses_refute_small_epsilons_only() -> None:
    assert refuted_epsilon(100, 100, 100, 1e-5, 0.05) > 3
    assert refuted_epsilon(50, 100, 100, 1e-5, 0.05) == 0
    assert refuted_epsilon(100, 100, 100, 0.1, 0.05) == 0, "a large delta explains everything"


SPAN_SITES = 5

UNITS = 300

"""Of the first dense layer of the small network."""


@pytest.fixture(scope="module")
def span_persons() -> list[GazeSamples]:
    settings = RenderSettings(
        persons=SPAN_SITES + 4,
        frames_per_person=40,
        sessions=(1, 1),
        seed=3,
        skews=Skews(amount=1.0),
    )
    return [render_person(settings, number) for number in settings.numbers]


def auc_of(base: StateDict, after: StateDict, members: GazeSamples, others: GazeSamples) -> float:
    candidates = GazeSamples.join([members, others])
    scores = span_scores(leak_of_network(base, after), candidates)
    assert list(scores) == ["span of fc1"]
    is_member = np.arange(len(candidates)) < len(members)
    return separation(scores["span of fc1"], is_member, resamples=0).auc


@pytest.mark.parametrize(("training", "least"), [
    (LocalTraining(learning_rate=0.002), 0.99), (LocalTraining(), 0.9),
])  # fmt: skip
def test_the_span_of_a_sum_tells_the_samples_of_every_site(
    training: LocalTraining, least: float, span_persons: list[GazeSamples]
) -> None:
    base, others = new_network("gaze-lenet", 5), GazeSamples.join(span_persons[SPAN_SITES:])
    updates = [
        train_at_site(base, "0" * 64, samples, training, site=f"s{n}", round_number=1).contribution
        for n, samples in enumerate(span_persons[:SPAN_SITES])
    ]
    assert sum(len(samples) for samples in span_persons[:SPAN_SITES]) < UNITS
    alone, summed = apply_update(base, updates[0]), apply_update(base, *updates)
    assert auc_of(base, alone, span_persons[0], others) >= least
    for samples in span_persons[:SPAN_SITES]:
        assert auc_of(base, summed, samples, others) >= least
    without = apply_update(base, *updates[1:])
    assert auc_of(base, without, span_persons[0], others) < 0.9


def test_sites_with_fewer_samples_than_units_are_warned() -> None:
    network = new_network("gaze-lenet", 5)
    assert "fewer than the 300 units" in warn_of_span(network, UNITS - 1)
    assert warn_of_span(network, UNITS) == ""
