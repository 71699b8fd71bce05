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
    sites = dict(list(small_sites().items())[:2])
    plan = make_plan("fedper", {"batch_size": 8}, rounds=2)
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
    shown = poolctl("personal", "ls").out
    assert "0.1%" in shown
    assert "fedper" in shown
    mine = tmp_path / "mine.safetensors"
    assert poolctl("personal", "export", SERIES, "--network", result, "-o", mine).code == 0
    for path in (mine, Path(listed[0]["file"])):
        assert poolctl("upload", path, "--name", "site-0/mine", "--json").code == 5
    assert mine.read_bytes() != result.read_bytes()
    other = ("personal", "export", "0" * 16, "--network", result, "-o", tmp_path / "x", "--json")
    poolctl(*other).fails(4, "file_not_found")
