"""Tables of cuts and costs, and kits for secure sums."""

from pathlib import Path

from pool_server.wire.signatures.keys import PrivateKey
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.secure.charter import create_charter
from tests.cli.conftest import Run
from tests.site_agent.federated.small_sites import samples_at


def test_cuts_are_listed_with_their_sizes(poolctl: Run) -> None:
    shown = poolctl("split", "plan", "--set", "architecture=gaze-lenet-wide")
    assert "8,960 and 500" in shown.out
    resnet = ("--set=architecture=gaze-resnet18", "--set=cut=stem")
    cuts = [poolctl("split", "plan", *settings, "--json").data["cuts"] for settings in ((), resnet)]
    assert list(map(len, cuts)) == [4, 3]
    refused = poolctl("split", "plan", "--set", "architecture=no-net")
    assert refused.code == 2
    assert "unknown architecture 'no-net'" in refused.err


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
    refused = poolctl("split", "client", tmp_path / "kits" / "a", "--data", tmp_path / "gaze")
    assert refused.code == 2
    assert charter.digest[:16] in refused.err
    without = poolctl(*arguments, "-o", tmp_path / "more", "--set=variant=mean-smashed")
    assert "mean-smashed needs a secure sum" in without.err
    assert "poolctl secure charter create" in without.err
