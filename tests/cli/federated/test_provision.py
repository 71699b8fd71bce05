"""Start-up kits: their rights, and refused requests."""

import json
from pathlib import Path

from tests.cli.conftest import run_process

ADDRESS = ("--server", "localhost:8790")


def test_kits_allow_our_classes_only_and_sites_are_added_later(tmp_path: Path) -> None:
    kits = tmp_path / "kits"
    both = ("--sites", "site-a,site-b")
    made = run_process("federated", "provision", *ADDRESS, *both, "-o", kits, "-q")
    assert [Path(line).name for line in made.out.split()] == [
        "server",
        "site-a",
        "site-b",
        "submit",
    ]
    before = (kits / "site-a/startup/client.crt").read_bytes()
    added = run_process("federated", "provision", *ADDRESS, "--sites", "site-c", "-o", kits, "-q")
    assert added.out.split() == [str(kits / "site-c")]
    assert (kits / "site-a/startup/client.crt").read_bytes() == before
    assert json.loads((kits / "submit/sites.json").read_text()) == ["site-a", "site-b", "site-c"]
    package = "site_agent.federated.engines.flare"
    for name, allowed in {
        "server": f"{package}.controller.RoundsController",
        "site-a": f"{package}.executor.SiteExecutor",
        "site-c": f"{package}.executor.SiteExecutor",
    }.items():
        local = kits / name / "local"
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_allow_list"] == [allowed]
        assert resources["class_list_enforcement_mode"] == "enforce"
        permissions = json.loads((local / "authorization.json").read_text())["permissions"]
        assert len(permissions) == 4
        for rights in permissions.values():
            assert rights["byoc"] == rights["shell_commands"] == "none"
    assert not any(path.stat().st_mode & 0o077 for path in kits.iterdir())
    elsewhere = ("--server", "localhost:8791", "--sites", "site-d", "-o", kits)
    refused = run_process("federated", "provision", *elsewhere)
    assert refused.code == 2
    assert "kits of a server at localhost:8790" in refused.err
    wrong = run_process("federated", "server", kits / "site-a")
    assert wrong.code == 2
    assert "is the kit of a site, expected server" in wrong.err
