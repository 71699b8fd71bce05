"""The receipt of smashed data."""

from pathlib import Path

import numpy as np

from aggregators.formats import write_model
from pool_server.wire.cards import PrivacyReceipt
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.networks.modules import new_network
from tests.cli.conftest import Run
from tests.site_agent.federated.small_sites import samples_at


def test_an_attack_writes_a_receipt_with_its_verdict_first(tmp_path: Path, poolctl: Run) -> None:
    network = tmp_path / "gaze.safetensors"
    write_model(new_network("gaze-lenet"), network)
    for name, people in (("mine", (0, 1)), ("public", (2, 3))):
        (tmp_path / name).mkdir()
        write_samples(tmp_path / name, [samples_at(number, 8) for number in people])
    arguments = ["--data", tmp_path / "mine", "--holdout", tmp_path / "public"]
    out = tmp_path / "receipt"
    probe = ("privacy", "probe", network, "--mode", "smashed-data", "--set", "passes=1")
    shown = poolctl(*probe, *arguments, "-o", out)
    assert shown.out.startswith("Leak: some. Any receiver of the smashed data can draw the 16 eyes")
    receipt = PrivacyReceipt.model_validate_json((out / "receipt.json").read_text())
    assert receipt.mode == "smashed-data"
    gains = {attack.name[:10]: attack for attack in receipt.attacks if attack.reveals == "pictures"}
    assert gains["attacker C"].found.value > 0.3
    assert gains["attacker C"].is_judged
    assert np.isfinite([attack.found.value for attack in receipt.attacks]).all()
    assert gains["attacker C"].needs == "pictures of others; C the client part"
    page = (out / "receipt.html").read_text()
    assert gains["attacker C"].needs in page
    assert "data:image/png" in page
    same = poolctl(*probe, *arguments[:3], tmp_path / "mine", "-o", tmp_path / "x")
    assert "2 persons are in --data and in --holdout" in same.err
