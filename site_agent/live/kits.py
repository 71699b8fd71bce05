"""Kits: the certificate, the addresses and the facts of each process that takes part.

Every process has a certificate of one authority, which names its role and its name, and serves or
calls only others that have one. The certificates of services are for names of their own
(``server.live``), so that no site can pose as a service, nor one service as another.
"""

import datetime
import json
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.plain_json import write_json

AUTHORITY = "authority"
_FACTS, _CERTIFICATE, _KEY = "kit.json", "certificate.pem", "key.pem"
_AUTHORITY_CERTIFICATE = "authority.pem"
_SITE_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_CERTIFICATE_DAYS = 360
_NAME_SUFFIX = ".live"


@dataclass(frozen=True)
class Kit:
    """A kit on disk."""

    folder: Path
    """An absolute path."""
    role: str
    """``site``, or the role of a service or of a program that calls services."""
    name: str
    """The site's name; of others the role."""
    addresses: Mapping[str, str]
    """Host and port of each service, by its role."""
    sites: tuple[str, ...]
    """All sites of the training; in rounds of whole networks only the server's kit knows them."""

    def listening_at(self) -> tuple[str, int]:
        """Return host and port of a service's own address."""
        host, _, port = self.addresses[self.role].rpartition(":")
        return host, int(port)

    def server_context(self) -> ssl.SSLContext:
        """Return how a service talks TLS: with those only that have a certificate.

        Raises `InvalidInputError`: a certificate of the kit has expired.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return self._loaded(context)

    def client_context(self) -> ssl.SSLContext:
        """Return how a process calls services; raises as `server_context`."""
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        for name in (_CERTIFICATE, _AUTHORITY_CERTIFICATE):
            content = (self.folder / name).read_bytes()
            until = x509.load_pem_x509_certificate(content).not_valid_after_utc
            if until < datetime.datetime.now(datetime.UTC):
                # The other side would only see a connection that breaks.
                raise InvalidInputError(
                    f"{self.folder / name}: was valid until {until:%Y-%m-%d}",
                    hint="have the kits of all made again, in a new folder",
                )
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / _CERTIFICATE, self.folder / _KEY)
        context.load_verify_locations(self.folder / _AUTHORITY_CERTIFICATE)
        return context


def service_name(role: str) -> str:
    """Return the name in a service's certificate."""
    return role + _NAME_SUFFIX


def read_facts(folder: Path, *roles: str) -> dict[str, Any]:
    """Return the facts of the kit in a folder, which must have one of the roles, if any."""
    try:
        facts: dict[str, Any] = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{folder}: found no kit, expected a folder that 'provision' made"
        ) from error
    if roles and facts["role"] not in roles:
        raise InvalidInputError(
            f"{folder} is the kit of a {facts['role']}, expected {' or '.join(roles)}"
        )
    return facts


def open_kit(folder: Path, *roles: str) -> Kit:
    """Return the kit in a folder, without the facts of its kind."""
    facts = read_facts(folder, *roles)
    return Kit(
        folder.resolve(), facts["role"], facts["name"], facts["addresses"], tuple(facts["sites"])
    )


def require_names(names: Iterable[str], addresses: Mapping[str, str]) -> None:
    """Raise `InvalidInputError` for a name that no site may have, or an address that is none."""
    reserved = (AUTHORITY, *addresses)
    for name in names:
        if not re.fullmatch(_SITE_NAME, name) or name in reserved:
            raise InvalidInputError(
                f"site {name!r}: expected small letters, digits, - and _, and none of "
                f"{', '.join(reserved)}"
            )
    for role, address in addresses.items():
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidInputError(f"{role} {address!r}: expected HOST:PORT")


@dataclass(frozen=True)
class Authority:
    """The key that signs the certificates of all kits."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        """Return the authority in a folder, made where there is none."""
        if folder.is_dir():
            certificate = x509.load_pem_x509_certificate((folder / _CERTIFICATE).read_bytes())
            key = serialization.load_pem_private_key((folder / _KEY).read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            return cls(certificate, key)
        folder.mkdir(mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a live training")])
        builder = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = builder.add_extension(signs, critical=True).sign(key, hashes.SHA256())
        _write_pair(folder, certificate, key)
        return cls(certificate, key)

    def make_kit(
        self,
        folder: Path,
        role: str,
        name: str,
        addresses: Mapping[str, str],
        facts: Mapping[str, Any],
    ) -> None:
        """Make the folder of a kit: a certificate with its key, and facts.

        `addresses`: As in `Kit`; a role among them serves.
        """
        folder.mkdir(mode=0o700)
        self._issue(folder, role, name, serves=role in addresses)
        own_facts = {"role": role, "name": name, "addresses": dict(addresses)}
        write_json(folder / _FACTS, {**own_facts, **facts}, mode=0o600)

    def _issue(self, folder: Path, role: str, name: str, *, serves: bool) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject, self.certificate.subject, key.public_key())
        if serves:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([x509.DNSName(service_name(role))])
            builder = builder.add_extension(names, critical=False)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
        )
        _write_pair(folder, builder.sign(self.key, hashes.SHA256()), key)
        pem = self.certificate.public_bytes(serialization.Encoding.PEM)
        write_whole(folder / _AUTHORITY_CERTIFICATE, pem)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _write_pair(
    folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    write_whole(folder / _CERTIFICATE, pem)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_whole(folder / _KEY, private, mode=0o600)
