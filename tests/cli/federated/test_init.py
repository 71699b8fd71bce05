"""A new network as a base for rounds."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from aggregators import file_digest, write_model
from aggregators.models import StateDict
from site_agent.networks.files import read_network
from site_agent.networks.modules import new_network, problem_of_new
from tests.cli.conftest import Run


def test_equal_seeds_give_equal_networks(poolctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "base.safetensors"
    made = poolctl("federated", "init", "-o", file, "--json").data
    assert made["architecture"] == "gaze-lenet"
    assert made["digest"] == file_digest(file)
    assert poolctl("federated", "init", "-o", file).code == 0
    refused = poolctl("federated", "init", "--seed", "1", "-o", file)
    assert refused.code == 7
    assert "another model already exists" in refused.err
    unknown = poolctl("federated", "init", "--architecture", "alexnet", "-o", tmp_path / "x")
    assert unknown.code == 2
    assert "expected one of gaze-lenet, gaze-lenet-wide, gaze-resnet18" in unknown.err


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
