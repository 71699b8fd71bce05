"""The certificates by which servers are known.

To read them takes longer than to send a request, so they are read once, however many connections
a process opens.
"""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpx


def trusted_certificates(*, trust_env: bool) -> ssl.SSLContext:
    """Return what connections verify servers with; the same object as long as nothing changes.

    Parameters
    ----------
    trust_env : bool
        Whether the variables SSL_CERT_FILE and SSL_CERT_DIR may name other certificates.
    """
    named = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
    return _read_certificates(tuple(os.environ.get(name, "") for name in named))


@cache
def _read_certificates(places: tuple[str, ...]) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=bool(places))
