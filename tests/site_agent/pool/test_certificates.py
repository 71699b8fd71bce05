"""Certificates are read once, and again when others are named."""

import ssl
from pathlib import Path

import certifi
import pytest

from site_agent.pool.storage_connection import trusted_certificates


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
