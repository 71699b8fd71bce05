"""New networks and kits, and a federation simulated by the command."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from aggregators import file_digest, write_model
from aggregators.models import StateDict
from site_agent.live.kits import open_kit
from site_agent.networks.files import read_network
from site_agent.networks.modules import new_network, problem_of_new
from tests.cli.conftest import Run, run_here
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

    network, copy = again["methods"][0]["network"], tmp_path / "copy.safetensors"
    assert poolctl("convert", network, "-o", copy).code == 0
    for file in (network, copy):
        scored = poolctl("evaluate", file, table, "--set=resamples=20")
        assert "20 of the 40 images are those that round-001.safetensors was trained on" in (
            scored.err
        )
    poolctl(*arguments, "--method", "fedavg", "--rounds", "2", "--option", "epochs=1").fails(
        2, "was made with epochs 2, not 1; choose another folder"
    )
    unknown = poolctl(*arguments, "--method", "fedavg", "--rounds", "2", "--option", "eta=1")
    assert "rounds of fedavg have no option 'eta'" in unknown.err


def test_equal_seeds_give_equal_networks(poolctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "base.safetensors"
    made = poolctl("federated", "init", "-o", file, "--json").data
    assert made["architecture"] == "gaze-lenet"
    assert made["digest"] == file_digest(file)
    poolctl("federated", "init", "-o", file).fails(7, "already exists")
    again = poolctl("federated", "init", "-o", file, "--force", "--json").data
    assert again["digest"] == made["digest"]
    poolctl("federated", "init", "--architecture", "alexnet", "-o", tmp_path / "x").fails(
        2, "expected one of gaze-lenet, gaze-lenet-wide, gaze-resnet18"
    )


def test_all_processors_draw_the_same_new_network(tmp_path: Path) -> None:
    """torch's own draws differ in the last bit without AVX2."""
    names = ("gaze-lenet", "glc-tiny")
    drawing = (
        "import sys\nfrom pathlib import Path\nfrom aggregators import write_model\n"
        "from site_agent.networks.modules import new_network\n"
        "for name in sys.argv[2:]:\n"
        "    file = Path(sys.argv[1], name)\n"
        "    write_model(new_network(name, 3), file, format_name='safetensors')\n"
    )
    subprocess.run(
        [sys.executable, "-c", drawing, tmp_path, *names],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        check=True,
    )
    for name in names:
        file = tmp_path / name
        assert problem_of_new(read_network(file), file_digest(file)) == ""


def test_a_network_that_its_seed_does_not_give_is_told_apart_by_cause(tmp_path: Path) -> None:
    new = new_network("gaze-lenet", 3)
    weight = np.array(new.tensors["fc2.weight"])

    def problem(values: object, **texts: str) -> str:
        tensors = {**new.tensors, "fc2.weight": values}
        file = tmp_path / "altered.safetensors"
        altered = StateDict(tensors, new.infos, {**new.metadata, **texts})
        return problem_of_new(altered, write_model(altered, file, format_name="safetensors"))

    assert "computes otherwise" in problem(np.nextafter(weight, 1))
    assert "another seed, or was changed" in problem(weight + 1)
    assert "another seed, or was changed" in problem(weight, seed="4")
    assert "where torch" in problem(weight, torch="1.0")
    assert "name no seed" in problem(weight, seed="-4")


ADDRESS = ("--server", "localhost:8790")


def test_kits_are_for_their_owner_and_sites_are_added_later(tmp_path: Path) -> None:
    kits = tmp_path / "kits"
    both = ("--sites", "site-a,site-b")
    made = run_here("federated", "provision", *ADDRESS, *both, "-o", kits, "-q")
    names = [Path(line).name for line in made.out.split()]
    assert names == ["server", "site-a", "site-b"]
    before = (kits / "site-a" / "certificate.pem").read_bytes()
    added = run_here("federated", "provision", *ADDRESS, "--sites", "site-c", "-o", kits, "-q")
    assert added.out.split() == [str(kits / "site-c")]
    assert (kits / "site-a" / "certificate.pem").read_bytes() == before
    authority = (kits / "site-a" / "authority.pem").read_bytes()
    assert (kits / "site-c" / "authority.pem").read_bytes() == authority
    assert not any(path.stat().st_mode & 0o077 for path in kits.iterdir())
    elsewhere = ("--server", "localhost:8791", "--sites", "site-d", "-o", kits)
    refused = run_here("federated", "provision", *elsewhere)
    assert refused.code == 2
    assert "kits of a server at localhost:8790" in refused.err
    hold = ("federated", "serve", kits / "site-a", "--base", "base.safetensors", "-o", "run")
    wrong = run_here(*hold)
    assert wrong.code == 2
    assert "is the kit of a site, expected server" in wrong.err
    for command in ("serve", "stop"):
        other = run_here("live", command, kits / "server")
        assert other.code == 2
        assert "'federated serve' holds such rounds, and Ctrl-C ends them" in other.err
    assert open_kit(kits / "server").sites == ("site-a", "site-b", "site-c")
