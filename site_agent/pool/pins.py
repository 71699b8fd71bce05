"""Certificates that a login pinned: the only ones that prove a pool to this machine.

An address with a fingerprint, ``https://lab.example.org:8710#sha256=HEX``, names the certificate of
a pool that no public authority has signed. `pin_certificate` stores it; every connection to that
host and port then trusts it alone, and no authority's word for another.
"""

import hashlib
import hmac
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from aggregators.whole_file import write_whole
from site_agent import errors
from site_agent.own_folders import config_folder
from site_agent.pool.profiles import host_of, normalise_endpoint

_PIN = re.compile(r"sha256=([0-9a-f]{64})")
_LONGEST_WAIT_S = 20.0


def pin_certificate(address: str) -> str:
    """Pin the certificate that an address names by fingerprint; return the bare address.

    Raises `InvalidInputError` for another form of fingerprint, `PoolUnreachableError` without an
    answer, and `SignatureError` for another certificate.
    """
    place, _, fragment = address.strip().partition("#")
    endpoint = normalise_endpoint(place)
    if not fragment:
        return endpoint
    pin = _PIN.fullmatch(fragment.replace(":", "").lower())
    parts = urlsplit(endpoint)
    if pin is None or parts.scheme != "https":
        raise errors.InvalidInputError(
            f"found {address!r}, expected https://HOST:PORT#sha256= with 64 hexadecimal digits",
            hint="copy the whole address that 'poolctl serve' printed",
        )
    try:
        server = (parts.hostname or "", parts.port or 443)
        pem = ssl.get_server_certificate(server, timeout=_LONGEST_WAIT_S)
    except OSError as error:
        raise errors.PoolUnreachableError(f"no answer from {endpoint}: {error}") from error
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    if not hmac.compare_digest(fingerprint, pin[1]):
        raise errors.SignatureError(
            f"{endpoint} shows a certificate with SHA-256 {fingerprint}, expected {pin[1]}",
            hint="somebody may stand between you and the pool: ask its admin for the fingerprint",
        )
    file = _pin_file(endpoint)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(file, pem, mode=0o600)
    return endpoint


def pinned_context(url: str) -> ssl.SSLContext | None:
    """Return a context that trusts the pinned certificate alone; None without one."""
    try:
        pem = _pin_file(url).read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate itself is known, so its names say nothing more.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context


def _pin_file(url: str) -> Path:
    return config_folder() / "pins" / f"{host_of(url)}.pem"
