"""Simulating a federation by the command, and comparing methods."""

from pathlib import Path

from aggregators import file_digest
from tests.cli.conftest import Run
from tests.site_agent.datasets.gaze.made import folder_of, samples_of


def test_methods_are_compared_on_sessions_that_were_held_out(poolctl: Run, tmp_path: Path) -> None:
    table = folder_of(
        tmp_path / "gaze", samples_of("a", 12), samples_of("b", 12, 1), samples_of("c", 16, 2)
    )
    arguments = ["federated", "simulate", table, "--site-count", "2", "--option", "batch_size=8"]
    arguments += ["-o", tmp_path / "run"]
    both = ["--method", "fedavg", "--method", "fedadam", "--option", "eta=0.003"]
    both += ["--option", "epochs=2"]
    private = ["--option", "dp_epsilon=1", "--option", "dp_unit=person", "--method", "fedavg"]
    warned = poolctl(*arguments, *private, "--rounds", "1", "-o", tmp_path / "private")
    assert "expect nothing to be learned: with 1 person at each of 2 sites" in warned.err
    assert "begin with a network trained elsewhere (--base)" in warned.err

    shown = poolctl(*arguments, *both, "--rounds", "1")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert "than the constant mean" in lines[0]
    assert [line.split()[0] for line in lines[1:5]] == ["method", "fedavg", "fedadam", "constant"]
    assert "passes" in lines[1]
    assert lines[2].split()[-3] == "2", "passes, not rounds"

    again = poolctl(*arguments, *both, "--rounds", "1", "--json").data
    assert again["sites"] == {"site-1": 14, "site-2": 6}
    plans = [method["plan"] for method in again["methods"]]
    assert [plan["method"] for plan in plans] == ["fedavg", "fedadam"]
    assert [plan["options"].get("eta") for plan in plans] == [None, 0.003]
    for method in again["methods"]:
        (held,) = method["rounds"]
        assert set(held["scores"]) == set(again["reference_scores"]) == {"a", "b", "c"}
        assert held["result"] == file_digest(method["network"])
        assert held["base"] == file_digest(tmp_path / "run/base.safetensors")

    refused = poolctl(*arguments, "--method", "fedavg", "--rounds", "2", "--option", "epochs=1")
    assert refused.code == 2
    assert "was made with epochs 2, not 1; choose another folder" in refused.err
    unknown = poolctl(*arguments, "--method", "fedavg", "--rounds", "2", "--option", "eta=1")
    assert "rounds of fedavg have no option 'eta'" in unknown.err
