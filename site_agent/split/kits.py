"""Kits of a split training: certificates, tokens, addresses and the plan of each process.

Every process has a certificate of one authority, which names its role and its name, and serves or
calls only others that have one. A site also has a token for each of the two services, which runs
out sooner than certificates do; the services know its SHA-256 only. The certificates of services
are for names of their own (``server.split``), so that no site can pose as a service, nor one
service as the other.
"""

import datetime
import hashlib
import json
import re
import secrets
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aggregators.formats import write_model
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.plain_json import write_json
from site_agent.split.plan import FEWEST_SITES, PERSONS_IN_ONE_PROCESS, SplitPlan, read_split_plan

if TYPE_CHECKING:
    from site_agent.split.parts import Parts

KitRole = Literal["server", "aggregator", "site"]
SERVER, AGGREGATOR = "server", "aggregator"
START = "start.safetensors"

_AUTHORITY, _FACTS, _TOKENS = "authority", "kit.json", "tokens.json"
_SITE_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_CERTIFICATE_DAYS = 360
_TOKEN_DAYS = 90
_NAME_SUFFIX = ".split"
_DRAWING = threading.Lock()


@dataclass(frozen=True)
class Kit:
    """A kit on disk."""

    folder: Path
    """Contains ``certificate.pem``, ``key.pem``, ``authority.pem`` and, for services, the part with
    which the first round begins."""
    role: KitRole
    name: str
    """The site's name; ``server`` and ``aggregator`` for the services."""
    addresses: Mapping[str, str]
    """Host and port of ``server`` and ``aggregator``."""
    plan: SplitPlan
    sites: tuple[str, ...]
    """All sites that may take part."""
    first_client: str
    """SHA-256 of the client part with which the first round begins."""
    first_server: str
    """SHA-256 of the server part with which the first round begins."""
    round_limit_s: float
    """Time after which a round ends without the unfinished sites."""
    client_seed: int | None
    """The seed of the first client part, in the kits of sites only: a server with the part would
    guess better from smashed data. None if the part was not drawn."""
    drawn_by: str
    """The program that drew it, such as ``torch 2.9``; others may draw other numbers."""

    def listening_at(self) -> tuple[str, int]:
        """Return host and port of a service's own address."""
        host, _, port = self.addresses[self.role].rpartition(":")
        return host, int(port)

    def token(self, service: str) -> str:
        """Return a site's token for a service."""
        token: str = json.loads((self.folder / _TOKENS).read_text(encoding="utf-8"))[service]
        return token

    def known_tokens(self) -> "dict[str, TokenFacts]":
        """Return a service's facts about tokens, by their SHA-256."""
        content = json.loads((self.folder / _TOKENS).read_text(encoding="utf-8"))
        return {key: TokenFacts(**facts) for key, facts in content.items()}

    def server_context(self) -> ssl.SSLContext:
        """Return how a service talks TLS: with those only that have a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return self._loaded(context)

    def client_context(self) -> ssl.SSLContext:
        """Return how a process calls services."""
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / "certificate.pem", self.folder / "key.pem")
        context.load_verify_locations(self.folder / "authority.pem")
        return context


@dataclass(frozen=True)
class TokenFacts:
    """The site of a token, and its expiry in seconds since 1970."""

    site: str
    not_after: float


def token_digest(token: str) -> str:
    """Return how services know a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def service_name(role: str) -> str:
    """Return the name in a service's certificate."""
    return role + _NAME_SUFFIX


def read_kit(folder: Path, *roles: KitRole) -> Kit:
    """Return the kit in a folder."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{folder}: found no kit, expected a folder that 'poolctl split provision' made"
        ) from error
    kit = Kit(
        folder.resolve(), facts["role"], facts["name"], facts["addresses"],
        read_split_plan(facts["plan"]), tuple(facts["sites"]), facts["first_client"],
        facts["first_server"], facts["round_limit_s"], facts.get("client_seed"),
        facts["drawn_by"],
    )  # fmt: skip
    if roles and kit.role not in roles:
        raise InvalidInputError(
            f"{folder} is the kit of a {kit.role}, expected {' or '.join(roles)}"
        )
    return kit


def drawing_program() -> str:
    """Return the program that draws parts here, with its version."""
    return f"torch {version('torch')}"


def draw_client_part(plan: SplitPlan, seed: int) -> StateDict:
    """Return the first client part of a seed; equal seeds give equal bytes."""
    # torch's random numbers belong to the process: threads would draw from each other's.
    with _DRAWING:
        return _draw_parts(plan, seed).client


def _draw_parts(plan: SplitPlan, seed: int) -> "Parts":
    from site_agent.networks.modules import new_network
    from site_agent.split.parts import split_network

    network = new_network(plan.architecture, seed)
    # Parts fit each other by their metadata, which must not tell the client's seed.
    facts = {**network.metadata, "seed": str(plan.training.seed)}
    return split_network(StateDict(network.tensors, network.infos, facts), plan.found_cut)


def provision(
    output: Path,
    plan: SplitPlan,
    base: StateDict | None,
    *,
    addresses: Mapping[str, str],
    sites: Sequence[str],
    client_seed: int | None = None,
    round_limit_s: float = 600.0,
) -> list[Path]:
    """Make the kits of a training: ``server``, ``aggregator`` and one for each site.

    The folder ``authority`` holds the key that signs certificates; nobody needs it afterwards.

    `base`: The whole network to begin with; its parts go to the two services. None draws a server
    part from the plan's seed, and a client part from `client_seed`, which sites repeat; by default
    a new one. `addresses`: HOST:PORT of ``server`` and ``aggregator``.

    Raises `InvalidInputError`: too few sites, an invalid name or address, a network that does not
    fit, or `output` exists.

    Returns
    -------
    list of Path
        The kits.
    """
    from site_agent.split.parts import Parts, split_network

    names = sorted(set(sites))
    _require_possible(plan, names, addresses)
    if output.exists() and any(output.iterdir()):
        raise InvalidInputError(f"{output}: is not empty, expected a new folder for the kits")
    if base is not None:
        parts, client_seed = split_network(base, plan.found_cut), None
    else:
        client_seed = secrets.randbits(63) if client_seed is None else client_seed
        server = _draw_parts(plan, plan.training.seed).server
        parts = Parts(draw_client_part(plan, client_seed), server)
    output.mkdir(parents=True, exist_ok=True)
    authority = _Authority.create(output / _AUTHORITY)
    placed = [output / SERVER, output / AGGREGATOR, *(output / name for name in names)]
    for folder in placed:
        folder.mkdir(mode=0o700)
    digests = {
        "first_server": write_model(parts.server, output / SERVER / START),
        "first_client": write_model(parts.client, output / AGGREGATOR / START),
    }
    not_after = datetime.datetime.now(datetime.UTC).timestamp() + _TOKEN_DAYS * 86_400
    known: dict[str, dict[str, Any]] = {SERVER: {}, AGGREGATOR: {}}
    for folder in placed:
        kind = _role_of(folder.name)
        authority.issue(folder, kind, folder.name)
        facts = {
            "role": kind, "name": folder.name, "addresses": dict(addresses),
            "plan": plan.model_dump(mode="json"), "sites": names,
            "round_limit_s": round_limit_s, "drawn_by": drawing_program(), **digests,
        }  # fmt: skip
        if kind == "site":
            facts["client_seed"] = client_seed
        write_json(folder / _FACTS, facts, mode=0o600)
        if kind == "site":
            tokens = {service: secrets.token_urlsafe(32) for service in known}
            write_json(folder / _TOKENS, tokens, mode=0o600)
            for service, token in tokens.items():
                known[service][token_digest(token)] = {"site": folder.name, "not_after": not_after}
    for service, entries in known.items():
        write_json(output / service / _TOKENS, entries, mode=0o600)
    return placed


def _require_possible(plan: SplitPlan, names: Sequence[str], addresses: Mapping[str, str]) -> None:
    for name in names:
        if not re.fullmatch(_SITE_NAME, name) or name in (_AUTHORITY, SERVER, AGGREGATOR):
            raise InvalidInputError(
                f"site {name!r}: expected small letters, digits, - and _, and none of "
                f"{_AUTHORITY}, {SERVER}, {AGGREGATOR}"
            )
    if len(names) < FEWEST_SITES:
        raise InvalidInputError(f"found {len(names)} sites, expected at least {FEWEST_SITES}")
    if plan.variant == "mean-smashed":
        raise InvalidInputError(
            "mean-smashed needs a secure sum, as the main server would see the smashed data before "
            "their mean; it can be held in one process only"
        )
    if plan.is_private and plan.dp_covers == "person":
        raise InvalidInputError(PERSONS_IN_ONE_PROCESS)
    for role, address in addresses.items():
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidInputError(f"{role} {address!r}: expected HOST:PORT")


def _role_of(name: str) -> KitRole:
    return "server" if name == SERVER else "aggregator" if name == AGGREGATOR else "site"


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, folder: Path) -> "_Authority":
        folder.mkdir(mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a split training")])
        builder = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = builder.add_extension(signs, critical=True).sign(key, hashes.SHA256())
        _write_pair(folder, certificate, key)
        return cls(certificate, key)

    def issue(self, folder: Path, role: KitRole, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject, self.certificate.subject, key.public_key())
        if role != "site":
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
        write_whole(folder / "authority.pem", pem)


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
    write_whole(folder / "certificate.pem", pem)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_whole(folder / "key.pem", private, mode=0o600)
