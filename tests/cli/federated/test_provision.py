"""Kits of live rounds."""

from pathlib import Path

from site_agent.federated.live.kits import read_kit
from tests.cli.conftest import run_here

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
    assert read_kit(kits / "server").sites == ("site-a", "site-b", "site-c")
