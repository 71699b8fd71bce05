"""Receipts of network updates: the verdict names a leak where there is one, and no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import LEAST_CONTROL, PrivacyReceipt, receipt_lines
from site_agent.attacks.leaks import leak_of_network, separation
from site_agent.attacks.membership import probe_by_shadows
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.probing import probe_gaze
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.local_training import train_contribution
from site_agent.networks.files import new_network

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

    def __init__(self, folder: Path, others: GazeSamples) -> None:
        self.base, self.others, self.folder = new_network("gaze-lenet", 5), others, folder
        write_model(self.base, folder / "base.safetensors")

    def train(
        self, samples: GazeSamples, training: LocalTraining, site: str = "site", **guard: bool
    ) -> NetworkContribution:
        digest = file_digest(self.folder / "base.safetensors")
        return train_contribution(
            self.base, digest, samples, training, site=site, round_number=1, **guard
        )

    def probe(self, sent: NetworkContribution, members: GazeSamples) -> PrivacyReceipt:
        write_network_contribution(sent, self.folder / "sent.contribution")
        files = self.folder / "sent.contribution", self.folder / "base.safetensors"
        return probe_gaze(*files, GazeSides(members, self.others), "update").receipt


@pytest.fixture
def probing(persons: list[GazeSamples], tmp_path: Path) -> Probing:
    return Probing(tmp_path, join_samples(persons[SITES:]))


def test_the_verdict_on_an_honest_update_of_one_step_names_the_leak(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    members = persons[0]
    receipt = probing.probe(probing.train(members, ONE_STEP, guarded=False), members)
    assert receipt.level == "high"
    assert "can tell that it was among the 16 training pictures" in receipt.verdict
    assert receipt.verdict.endswith(").")
    findings = {finding.name: finding for finding in receipt.attacks}
    assert receipt.attacks[0] is findings["membership: gradient regression"]
    assert receipt.attacks[0].found.value > 0.99
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
    assert "No differential privacy" in sentences[1]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    assert sum(widths) + 3 * 2 <= 80


def test_a_sum_of_15_sites_that_train_as_they_do_by_default_shows_nothing(
    probing: Probing, persons: list[GazeSamples]
) -> None:
    made = [
        probing.train(samples, FLOORS, f"site-{n}") for n, samples in enumerate(persons[:SITES])
    ]
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
    receipt = probing.probe(summed, persons[0])
    assert receipt.level == "none found", receipt.verdict
    assert "did better than chance. Others may find more." in receipt.verdict
    assert sum(finding.is_judged for finding in receipt.attacks) >= 6
    assert receipt.protection.startswith("No differential privacy")


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
        from site_agent.attacks.leaks import apply_update

        return apply_update(probing.base, probing.train(samples, ONE_STEP, name, guarded=False))

    members = persons[0]
    leak = leak_of_network(probing.base, train(members, "site"))
    attack = probe_by_shadows(leak, members, probing.others, train, count=6, seed=0)
    assert attack.is_member.sum() == len(members)
    assert separation(attack.scores, attack.is_member, resamples=0).auc > 0.95
