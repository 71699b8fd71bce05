"""An OpenID provider for tests: honest by default, and with a lie for each attack."""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

# Making one takes a second.
make_key = cache(lambda name: RSAKey.generate_key(2048, {"kid": name}))
CLIENT, SECRET = "the-pool", "s3cret:/with colon"


@dataclass
class OpenIdProvider:
    """Claims and behaviour of the provider; tests change them."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "person-1"})
    """Of the next person to log in."""
    lies: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token alone."""
    description: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: make_key("first"))
    algorithm: str = "RS256"
    accounts: set[str] = field(default_factory=lambda: {"person-1"})
    """Accounts that exist: others are not renewed."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    takes_codes_twice: bool = False
    refresh_tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Answers of paths that do not behave."""

    def log_in(self, address: str) -> dict[str, str]:
        """Return the answer that a browser brings back from an address of this provider."""
        query = dict(parse_qsl(urlsplit(address).query))
        code = secrets.token_hex(8)
        self.codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.issuer}

    def sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": self.algorithm, "kid": self.key.kid}
        if self.algorithm in {"none", "HS256"}:
            signed = b".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
            # The public key, known to everybody, as the secret.
            forged = hmac.digest(self.key.as_pem(private=False), signed, "sha256")
            return b".".join(
                [signed, _encode(forged if self.algorithm == "HS256" else b"")]
            ).decode()
        return jwt.encode(header, claims, self.key, algorithms=[self.algorithm])

    def id_token(self, nonce: str | None) -> str:
        now = int(time.time())
        honest = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        whole = {**honest, "sub": self.claims["sub"], **self.lies}
        return self.sign({name: value for name, value in whole.items() if value is not None})

    def answer(self, path: str, form: dict[str, str], headers: Any) -> tuple[int, bytes]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        status, answer = 200, {}
        if path == "/.well-known/openid-configuration":
            answer = {"issuer": self.issuer}
            for name in (
                "authorization_endpoint",
                "token_endpoint",
                "userinfo_endpoint",
                "jwks_uri",
            ):
                answer[name] = f"{self.issuer}/{name}"
            answer |= {"authorization_response_iss_parameter_supported": True, **self.description}
        elif path == "/jwks_uri":
            answer = dict(KeySet([self.key]).as_dict())
        elif path == "/userinfo_endpoint":
            answer = self.claims
        elif path == "/token_endpoint":
            status, answer = self.exchange(form, headers)
        return status, json.dumps(answer).encode()

    def exchange(self, form: dict[str, str], headers: Any) -> tuple[int, dict[str, Any]]:
        name, _, secret = base64.b64decode(headers["authorization"][6:]).decode().partition(":")
        assert (unquote(name), unquote(secret)) == (CLIENT, SECRET)
        refresh = secrets.token_hex(8)
        if form["grant_type"] == "refresh_token":
            claims = self.refresh_tokens.pop(form["refresh_token"], {})
            if claims.get("sub") not in self.accounts:
                return 400, {"error": "invalid_grant"}
            self.refresh_tokens[refresh] = claims
            return 200, {"access_token": "a", "token_type": "Bearer", "refresh_token": refresh}
        asked = self.codes.get(form["code"])
        if not self.takes_codes_twice:
            self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = _encode(digest).decode()
        if asked is None or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        assert form["redirect_uri"] == asked["redirect_uri"]
        self.refresh_tokens[refresh] = dict(self.claims)
        tokens = {"access_token": "a", "token_type": "Bearer", "refresh_token": refresh}
        return 200, {**tokens, "id_token": self.id_token(asked["nonce"])}


def _encode(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


@contextmanager
def running_provider() -> Iterator[OpenIdProvider]:
    """Serve a provider on a port of this machine."""
    provider = OpenIdProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            form = parse_qs(self.rfile.read(length).decode())
            fields = {name: values[0] for name, values in form.items()}
            status, content = provider.answer(urlsplit(self.path).path, fields, self.headers)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", content.decode())
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_words: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
