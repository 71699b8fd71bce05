"""The environment of commands: proxies, certificates, tokens, and no home directory."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import certifi
import httpx
import pytest

from aggregators.formats import write_model
from cli.frame.app import main
from site_agent.errors import PoolUnreachableError
from site_agent.pool.client import PoolClient
from site_agent.pool.connection import PoolConnection
from site_agent.pool.storage_connection import trusted_certificates
from tests.aggregators.small_models import make_detector
from tests.conftest import PROJECT_ROOT

VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:1"),
        ("all_proxy", "socks://127.0.0.1:1"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:1"),
        ("HTTP_PROXY", "http://a:b:c"),
        ("NO_PROXY", "localhost,[::1]"),
        ("no_proxy", "::1/128"),
        ("NO_PROXY", "http://[::1]:80:90"),
        ("SSL_CERT_FILE", "/no/such.pem"),
        ("SSL_CERT_FILE", "/etc/passwd"),
        ("SSL_CERT_DIR", "/no/such"),
        ("POOL_TOKEN", "pat_ab\u200bc"),
        ("POOL_TOKEN", "\ufeffpat_abc"),
        ("POOL_ENDPOINT", "https://po\u200bol.invalid"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    variable: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("POOL_HOME", str(tmp_path))
    monkeypatch.setenv("POOL_ENDPOINT", "https://pool.invalid")
    monkeypatch.setenv("POOL_TOKEN", "pat_abc")
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("MY_PROXY_PASSWORD", "hidden-word")
    assert main(["models", "ls"]) == 2
    said = capsys.readouterr().err
    assert ("the address of the pool" if variable == "POOL_ENDPOINT" else variable) in said
    assert "--debug" not in said
    assert "hidden-word" not in said


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_a_socks_proxy_is_asked_for_the_pool(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def cut_off() -> None:
            client, _ = server.accept()
            with client:
                client.recv(64)
                client.sendall(b"\x05\x00")  # version 5, no login
                asked.append(client.recv(512))
                # Connected, and then cut off: httpcore leaves the socket of a refusal open.
                client.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")

        proxy = threading.Thread(target=cut_off)
        proxy.start()
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("POOL_HOME", str(tmp_path))
        with (
            PoolClient("https://pool.invalid", "pat_abc", attempts=1) as pool,
            pytest.raises(PoolUnreachableError),
        ):
            pool.whoami()
        proxy.join(540)
    assert b"pool.invalid" in asked[0]


WITHOUT_HOME = """
import os, sys
try:
    import pwd
    def unknown(*_): raise KeyError("no such user")
    pwd.getpwuid = pwd.getpwnam = unknown
except ImportError:
    pass
from cli.frame.app import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_a_home_files_are_merged_and_no_folder_is_named_tilde(tmp_path: Path) -> None:
    models = [tmp_path / "a.svm", tmp_path / "b.svm"]
    for seed, model in enumerate(models):
        write_model(make_detector(seed), model)
    names = {"a.svm", "b.svm", "m.svm", "m.svm.recipe.json"}
    kept = {"PATH", "PYTHONPATH", "SYSTEMROOT", "TMPDIR"}
    variables = {name: value for name, value in os.environ.items() if name in kept}
    variables["PYTHONPATH"] = str(PROJECT_ROOT)
    merge = ["merge", "mwma", *map(str, models), "-o", "m.svm"]
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME, *merge],
        cwd=tmp_path, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert {path.name for path in tmp_path.iterdir()} == names
    env = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME, "env", "--json"],
        cwd=tmp_path, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "POOL_HOME" in env.stderr
    assert "~" not in env.stdout


def test_the_clock_is_that_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOL_OFFLINE", raising=False)
    connection = PoolConnection("https://pool.invalid", "pat_abc")
    ahead = datetime.now(UTC) + timedelta(days=3)
    headers = {"Date": format_datetime(ahead, usegmt=True)}
    body = httpx.ByteStream(b"")
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=body))
    connection.__dict__["_http_client"] = httpx.Client(transport=transport)
    assert abs(connection.now() - datetime.now(UTC)) < timedelta(minutes=1)
    connection.send("GET", "https://pool.invalid/api/v1/whoami")
    assert abs(connection.now() - ahead) < timedelta(minutes=1)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_terminal_in_ascii_ends_no_command(options: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "dr\u00e4wn"
    assert main(["dataset", "draw", "faces", str(folder), "--set", "images=2", "--quiet"]) == 0
    variables = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    code = "import sys; from cli.frame.app import main; sys.exit(main(sys.argv[1:]))"
    command = ["dataset", "check", *map(str, folder.glob("*.xml")), *options]
    run = subprocess.run(
        [sys.executable, "-c", code, *command],
        env=variables, capture_output=True, text=True, encoding="ascii", check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    if options:
        assert json.loads(run.stdout)["data"]["datasets"][0]["dataset"] == str(
            *folder.glob("*.xml")
        )
    else:
        assert "2 images" in run.stdout


def test_the_variables_name_other_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    usual = trusted_certificates(trust_env=True)
    assert trusted_certificates(trust_env=True) is usual
    assert usual.verify_mode is ssl.CERT_REQUIRED
    assert usual.check_hostname
    assert usual.cert_store_stats()["x509_ca"] > 1

    mark = "-----END CERTIFICATE-----"
    certificate = tmp_path / "own.pem"
    certificate.write_text(Path(certifi.where()).read_text().split(mark)[0] + mark + "\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert trusted_certificates(trust_env=True).cert_store_stats()["x509_ca"] == 1
    assert trusted_certificates(trust_env=False).cert_store_stats() == usual.cert_store_stats()
