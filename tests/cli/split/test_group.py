"""Tables of cuts and costs."""

from tests.cli.conftest import Run


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
