"""A new network as a base for rounds."""

from __future__ import annotations

from pathlib import Path

from aggregators import file_digest
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
