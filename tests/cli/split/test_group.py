"""Tables of cuts and costs, kits for secure sums, and the receipt of smashed data."""

from pathlib import Path

import numpy as np

from aggregators.formats import write_model
from pool_server.wire.cards import PrivacyReceipt
from pool_server.wire.signatures.keys import PrivateKey
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.networks.modules import new_network
from site_agent.secure.charter import create_charter
from tests.cli.conftest import Run
from tests.site_agent.federated.small_sites import samples_at


def test_cuts_are_listed_with_their_sizes(poolctl: Run) -> None:
    shown = poolctl("split", "plan", "--set=architecture=gaze-lenet-wide")
    assert "8,960 and 500" in shown.out
    resnet = ("--set=architecture=gaze-resnet18", "--set=cut=stem")
    cuts = [poolctl("split", "plan", *settings, "--json").data["cuts"] for settings in ((), resnet)]
    assert list(map(len, cuts)) == [4, 3]
    poolctl("split", "plan", "--set=architecture=no-net").fails(2, "unknown architecture 'no-net'")


def test_cost_says_where_split_training_loses(poolctl: Run) -> None:
    wide = ("split", "plan", "--set=architecture=gaze-lenet-wide")
    shown = poolctl(*wide, "--set=rounds=10")
    assert "move 30.11 GB, FedAvg 3.27 GB: 9.2 times as much" in shown.out
    assert "71,680 bytes for an image and pass, which has 2,160 bytes itself" in shown.out
    assert "15,297,004" in shown.out
    assert "MPC inference is not offered" in shown.out
    few = poolctl(*wide, "--set=cut=fc1", "--set=images=10", "--json").data
    assert few["times_fedavg"] < 1.2


def test_privacy_says_what_each_epsilon_covers(poolctl: Run) -> None:
    shown = poolctl("split", "plan", "--set=noise_level=0.5", "--set=rounds=10")
    assert "No epsilon covers an image as a whole against the main server" in shown.out
    assert "reach the main server 10 times" in shown.out
    arguments = ["--set=dp_epsilon=8", "--set=sites=14"]
    persons = poolctl("split", "plan", *arguments, "--set=dp_covers=person")
    assert "all images of a person" in persons.out
    assert "expect nothing to be learned" in persons.out
    facts = poolctl("split", "plan", *arguments, "--set=noise_level=0.5", "--json").data
    assert (facts["weights"]["epsilon"], facts["pixel_epsilon"]) == (8, 10)
    assert "without noise" in facts["weights"]["covers"]


def test_a_site_needs_the_charter_of_its_kit(poolctl: Run, tmp_path: Path) -> None:
    keys = [
        {name: PrivateKey.generate().public.text for name in names}
        for names in (("sum-1", "sum-2"), ("a", "b", "c"))
    ]
    charter = create_charter("eyes", *keys)
    file = tmp_path / "eyes.toml"
    file.write_bytes(charter.content)
    arguments = ("split", "provision", "--server", "h:1", "--aggregator", "h:2", "--sites", "a,b,c")
    made = poolctl(
        *arguments, "-o", tmp_path / "kits", "--secure", file, "--set=variant=mean-smashed"
    )
    assert made.code == 0, made.err
    (tmp_path / "gaze").mkdir()
    write_samples(tmp_path / "gaze", [samples_at(0, 10)])
    poolctl("split", "client", tmp_path / "kits" / "a", "--data", tmp_path / "gaze").fails(
        2, charter.digest[:16]
    )
    without = poolctl(*arguments, "-o", tmp_path / "more", "--set=variant=mean-smashed")
    assert "mean-smashed needs a secure sum" in without.err
    assert "poolctl secure charter create" in without.err


def test_an_attack_writes_a_receipt_with_its_verdict_first(tmp_path: Path, poolctl: Run) -> None:
    network = tmp_path / "gaze.safetensors"
    write_model(new_network("gaze-lenet"), network)
    for name, people in (("mine", (0, 1)), ("public", (2, 3))):
        (tmp_path / name).mkdir()
        write_samples(tmp_path / name, [samples_at(number, 8) for number in people])
    arguments = ["--data", tmp_path / "mine", "--holdout", tmp_path / "public"]
    out = tmp_path / "receipt"
    probe = ("privacy", "probe", network, "--mode", "smashed-data", "--set=passes=1")
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
