"""``poolctl personal``: a site's part of a network is shown, exported and never uploaded."""

from pathlib import Path

import pytest

from aggregators import write_model
from site_agent.federated.in_process import run_rounds
from site_agent.federated.personal import PersonalStore
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from tests.cli.conftest import Run
from tests.site_agent.federated.small_sites import small_sites

SERIES = "3f2a9c1e0b7d4a65"


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hold two rounds of fedper, keep the part of one site, and return the network of all."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    return hold_rounds(tmp_path, "fedper", 2)


def hold_rounds(tmp_path: Path, method: str, rounds: int) -> Path:
    sites = dict(list(small_sites().items())[:2])
    plan = make_plan(method, {"batch_size": 8}, rounds=rounds)
    last = list(run_rounds(new_network("gaze-lenet"), sites, plan))[-1]
    PersonalStore(tmp_path / "home" / "personal" / SERIES).keep(last.parts["site-0"])
    path = tmp_path / "result.safetensors"
    write_model(last.model.network, path)
    return path


def test_a_part_is_shown_exported_and_refused_by_upload(
    poolctl: Run, result: Path, tmp_path: Path
) -> None:
    listed = poolctl("personal", "ls", "--json").data
    assert [(part["series"], part["site"], part["round"]) for part in listed] == [
        (SERIES, "site-0", 2)
    ]
    shown = poolctl("personal", "ls", SERIES[:6])
    assert shown.out.startswith(
        "site-0 keeps 0.1% of the numbers to itself after round 2 of fedper"
    )
    assert "fc2.weight" in shown.out
    mine = tmp_path / "mine.safetensors"
    assert poolctl("personal", "export", SERIES, "--network", result, "-o", mine).code == 0
    for path in (mine, Path(listed[0]["file"])):
        assert poolctl("upload", path, "--name", "site-0/mine", "--json").code == 5
    assert mine.read_bytes() != result.read_bytes()
    assert poolctl("personal", "rm", SERIES, "--yes").code == 0
    assert "no personal parts" in poolctl("personal", "ls").out
    poolctl("personal", "ls", SERIES, "--json").fails(4, "file_not_found")


def test_a_last_layer_that_was_mixed_is_not_called_kept(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    hold_rounds(tmp_path, "fedpac", 1)
    assert poolctl("personal", "ls", SERIES).out.startswith(
        "site-0 has 0.1% of the numbers, mixed for it alone, after round 1 of fedpac"
    )
