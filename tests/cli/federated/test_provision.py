"""Kits of live rounds."""

from pathlib import Path

from tests.cli.conftest import run_process

ADDRESS = ("--server", "localhost:8790")


def test_kits_are_for_their_owner_and_sites_are_added_later(tmp_path: Path) -> None:
    kits = tmp_path / "kits"
    both = ("--sites", "site-a,site-b")
    made = run_process("federated", "provision", *ADDRESS, *both, "-o", kits, "-q")
    names = [Path(line).name for line in made.out.split()]
    assert names == ["server", "site-a", "site-b", "submit"]
    before = (kits / "site-a" / "certificate.pem").read_bytes()
    added = run_process("federated", "provision", *ADDRESS, "--sites", "site-c", "-o", kits, "-q")
    assert added.out.split() == [str(kits / "site-c")]
    assert (kits / "site-a" / "certificate.pem").read_bytes() == before
    authority = (kits / "site-a" / "authority.pem").read_bytes()
    assert (kits / "site-c" / "authority.pem").read_bytes() == authority
    assert not any(path.stat().st_mode & 0o077 for path in kits.iterdir())
    elsewhere = ("--server", "localhost:8791", "--sites", "site-d", "-o", kits)
    refused = run_process("federated", "provision", *elsewhere)
    assert refused.code == 2
    assert "kits of a server at localhost:8790" in refused.err
    wrong = run_process("live", "serve", kits / "site-a")
    assert wrong.code == 2
    assert "is the kit of a site, expected server or aggregator" in wrong.err
