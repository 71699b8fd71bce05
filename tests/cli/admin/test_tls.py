"""A pool serves TLS by itself; clients pin its certificate and accept no other."""

import datetime
import shutil
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from site_agent.errors import InvalidInputError
from site_agent.pool.joining import read_joining
from site_agent.pool.profiles import normalise_endpoint
from tests.cli.conftest import Run, first_answer, first_token, start_process


@contextmanager
def serving(data: Path, *options: str) -> Iterator[Any]:
    process = start_process("serve", "--data", data, "--port", "0", "--json", *options)
    try:
        yield first_answer(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=540)


@pytest.fixture
def log_in(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(address: str, token: str) -> Any:
        monkeypatch.setenv("POOL_TOKEN", token)
        return poolctl("auth", "login", address, "--json")

    return run


def test_a_pinned_certificate_is_the_only_proof(
    tmp_path: Path, poolctl: Run, log_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "pool", "--self-signed") as pool:
        url, address, token = pool["url"], pool["address"], first_token(pool)
        assert url.startswith("https://")
        assert address.startswith(f"{url}#sha256=")
        assert (tmp_path / "pool" / "certificate-key.pem").stat().st_mode & 0o077 == 0
        log_in(url, token).fails(8, "pool_unreachable", "does not prove it")
        log_in(address[:-1] + ("0" if address[-1] != "0" else "1"), token).fails(5, "expected")
        assert log_in(address, token).data["pool"] == url
        monkeypatch.delenv("POOL_TOKEN")
        assert poolctl("auth", "whoami", "--json").data["pool"] == url
        assert poolctl("admin", "sites", "create", "site-a").code == 0
        for command in (("token", "site-a", "laptop"), ("invite", "site-a")):
            letter = poolctl("admin", "people", *command).err
            assert f"poolctl auth login '{address}'" in letter, "a lab logs in by it as it stands"
        assert f"poolctl auth login '{address}' --name NAME" in letter
    port = url.rpartition(":")[2]
    link = poolctl("serve", "--data", tmp_path / "pool", "--show-login", "--json").data
    assert link["login_link"].startswith("https://")
    with serving(tmp_path / "pool") as again:
        assert again["address"].partition("#")[2] == address.partition("#")[2], (
            "one for its life, without the option too"
        )
    with authority_server(tmp_path, int(port)) as trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        refused = poolctl("auth", "whoami", "--json")
        assert refused.code == 8
        assert "does not prove it" in refused.error["message"], "a valid chain is not the pin"


@contextmanager
def authority_server(folder: Path, port: int) -> Iterator[Path]:
    """Serve the same address by a certificate that the machine's authorities vouch for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "other.pem", folder / "other-key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield pem
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_certificate_of_the_operator_is_served(tmp_path: Path, log_in: Any) -> None:
    with serving(tmp_path / "first", "--self-signed") as pool:
        fingerprint = pool["address"].partition("#")[2]
    files = [tmp_path / "first" / name for name in ("certificate.pem", "certificate-key.pem")]
    mine = [shutil.copy(file, tmp_path / file.name) for file in files]
    options = ("--tls-certificate", str(mine[0]), "--tls-key", str(mine[1]))
    with serving(tmp_path / "second", *options) as pool:
        assert pool["address"].partition("#")[2] == fingerprint
        assert log_in(pool["address"], first_token(pool)).code == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--tls-certificate", "no.pem"),
        ("--tls-certificate", "no.pem", "--tls-key", "no-key.pem"),
        ("--tls-certificate", "no.pem", "--tls-key", "no-key.pem", "--self-signed"),
    ],
)
def test_unusable_settings_of_tls_are_refused(
    tmp_path: Path, poolctl: Run, options: tuple[str, ...]
) -> None:
    refused = poolctl("serve", "--data", tmp_path / "pool", "--port", "0", "--json", *options)
    assert refused.code != 0
    assert "TLS" in refused.error["message"]


def test_a_pool_in_clear_text_warns_others(tmp_path: Path) -> None:
    for options, warned in ((("--host", "0.0.0.0"), True), ((), False)):
        process = start_process(
            "serve", "--data", tmp_path / "p", "--port", "0", "--json", *options
        )
        first_answer(process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=540)
        assert ("without encryption" in told) == warned


def test_addresses_with_a_fingerprint_are_read_from_letters() -> None:
    pin = "#sha256=" + "ab" * 32
    text = f"The pool: https://lab.example.org:8710{pin}, your invitation: invite_x7"
    assert read_joining(text) == (f"https://lab.example.org:8710{pin}", "invite_x7")
    with pytest.raises(InvalidInputError, match="poolctl auth login"):
        normalise_endpoint(f"https://lab.example.org:8710{pin}")
