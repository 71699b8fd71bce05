"""TLS without a proxy: by the operator's certificate, or by one that the pool makes itself."""

import datetime
import hashlib
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aggregators.whole_file import write_whole
from pool_server.errors import StartError
from pool_server.settings import PoolSettings

_VALID_DAYS = 3650


@dataclass(frozen=True)
class ServerCertificate:
    """The files of a server's certificate and key, in PEM."""

    certificate: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate in DER, in hexadecimal."""
        pem = self.certificate.read_text(encoding="ascii")
        first = pem[: pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


def pin_of(settings: PoolSettings) -> str:
    """Return the end of the pool's address that pins its certificate; empty without one."""
    pair = server_certificate(settings)
    return "" if pair is None else f"#sha256={pair.fingerprint}"


def server_certificate(settings: PoolSettings) -> ServerCertificate | None:
    """Return the certificate that the settings ask for, made at the first start if self-signed.

    Raises `StartError`: for half a pair, and for files that TLS cannot use.
    """
    if settings.tls_certificate is None and settings.tls_key is None:
        return _own_certificate(settings) if settings.speaks_tls else None
    if settings.tls_certificate is None or settings.tls_key is None or settings.self_signed:
        raise StartError(
            "found a part of the settings of TLS, expected tls_certificate with tls_key, or "
            "self_signed alone",
            code="tls_unusable",
            hint="Give both files, or --self-signed.",
        )
    pair = ServerCertificate(settings.tls_certificate, settings.tls_key)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
    except OSError as error:  # ssl.SSLError is one
        raise StartError(
            f"{pair.certificate} and {pair.key} cannot serve TLS: {error.strerror or error}",
            code="tls_unusable",
            hint="Expected a certificate in PEM and its key, without a password.",
        ) from error
    return pair


def _own_certificate(settings: PoolSettings) -> ServerCertificate:
    file = settings.own_certificate
    pair = ServerCertificate(file, file.with_name("certificate-key.pem"))
    if pair.certificate.exists() and pair.key.exists():
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "poolctl")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = {"localhost", socket.gethostname(), socket.getfqdn()}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(host) for host in sorted(hosts) if host.isascii() and host]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The key first: a certificate without its key would be pinned and then replaced.
    write_whole(pair.key, private, mode=0o600)
    write_whole(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return pair
