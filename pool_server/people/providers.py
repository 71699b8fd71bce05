"""OpenID providers as the pool asks them: the only place where the server is a client.

Every address comes from the provider's own description, so each is checked before anything is
sent: TLS, no redirects, and no address of an internal network except on the issuer's own host,
which the admin chose.
"""

import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from pool_server.errors import ProviderFailedError, SignOnRefusedError
from pool_server.settings import SignOnProvider

# Signatures by a public key only: with `none` or HS256 anybody could sign.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ALGORITHMS += ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
_PUBLIC_TYPES = {"RSA", "EC", "OKP"}
CLOCK_SKEW_S = 60
DESCRIPTION_LIFETIME_S = 3600.0
KEYS_LEAST_AGE_S = 60.0
"""A flood of forged key names makes the pool fetch the keys at most this often."""
TIMEOUT_S = 5.0
LONGEST_EXCHANGE_S = 15.0
MOST_BYTES = 1024 * 1024
MOST_SUBJECT = 255


@dataclass(frozen=True)
class Confirmation:
    """A provider's statement about a person."""

    claims: Mapping[str, Any]
    refresh_token: str = ""

    @property
    def subject(self) -> str:
        return str(self.claims["sub"])

    @property
    def verified_email(self) -> str:
        """The address, if the provider has verified that the person reads its mail."""
        is_verified = self.claims.get("email_verified")
        email = self.claims.get("email")
        if isinstance(email, str) and (is_verified is True or is_verified == "true"):
            return email
        return ""


class Provider:
    """One provider; its description and its keys are fetched when they are needed."""

    def __init__(self, settings: SignOnProvider) -> None:
        self.settings = settings
        self._issuer = urlsplit(settings.issuer)
        self._lock = threading.Lock()
        self._description = _Kept()
        self._keys = _Kept()
        self._client = httpx.Client(
            transport=_CheckedTransport(self._issuer.hostname or ""),
            timeout=TIMEOUT_S,
            trust_env=False,
            follow_redirects=False,
        )

    def login_address(
        self, redirect: str, state: str, nonce: str, challenge: str, **extra: str
    ) -> str:
        """Return the address at which a person logs in."""
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": self.settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **extra,
        }
        address = self._endpoint("authorization_endpoint")
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query, quote_via=quote)}"

    def require_own_answer(self, issuer: str | None) -> None:
        """Raise unless an answer names this provider as its sender (RFC 9207)."""
        says_so = self._describe().get("authorization_response_iss_parameter_supported") is True
        if issuer != self.settings.issuer and (says_so or issuer is not None):
            raise SignOnRefusedError(
                f"the answer comes from {issuer or 'no issuer'}, expected {self.settings.issuer}"
            )

    def confirm_code(self, code: str, redirect: str, verifier: str, nonce: str) -> Confirmation:
        """Exchange the code of a log-in for the provider's statement about the person."""
        answer = self._ask_token(
            grant_type="authorization_code",
            code=code,
            redirect_uri=redirect,
            code_verifier=verifier,
        )
        claims = self._read_id_token(answer.get("id_token"), nonce)
        return self._with_userinfo(claims, answer)

    def confirm_again(self, subject: str, refresh_token: str) -> Confirmation:
        """Return the provider's present statement about a person.

        Raises `SignOnRefusedError`: the refresh token has ended, or is another person's.
        """
        answer = self._ask_token(grant_type="refresh_token", refresh_token=refresh_token)
        claims = {"iss": self.settings.issuer, "sub": subject}
        is_confirmed = "id_token" in answer or "userinfo_endpoint" in self._describe()
        if "id_token" in answer:
            claims = self._read_id_token(answer["id_token"], None)
        if not is_confirmed or claims["sub"] != subject:
            raise SignOnRefusedError("the renewed log-in confirms no account, or another one")
        return self._with_userinfo(claims, {"refresh_token": refresh_token, **answer})

    def _ask_token(self, **form: str) -> dict[str, Any]:
        description = self._describe()
        methods = description.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        name, secret = self.settings.client_id, self.settings.client_secret.get_secret_value()
        basic = httpx.BasicAuth(quote(name, safe=""), quote(secret, safe=""))
        if "client_secret_basic" not in methods:
            form |= {"client_id": name, "client_secret": secret}
        auth = basic if "client_secret_basic" in methods else None
        address = self._endpoint("token_endpoint")
        return self._fetch(self._client.build_request("POST", address, data=form), auth)

    def _with_userinfo(self, claims: dict[str, Any], answer: Mapping[str, Any]) -> Confirmation:
        """Add the claims that only the second endpoint of many providers gives."""
        if "userinfo_endpoint" in self._describe():
            headers = {"authorization": f"Bearer {answer.get('access_token', '')}"}
            address = self._endpoint("userinfo_endpoint")
            info = self._fetch(self._client.build_request("GET", address, headers=headers), None)
            if info.get("sub") != claims["sub"]:
                raise SignOnRefusedError("the provider's two answers name different persons")
            claims = info | claims
        refresh_token = answer.get("refresh_token")
        return Confirmation(claims, refresh_token if isinstance(refresh_token, str) else "")

    def _read_id_token(self, text: object, nonce: str | None) -> dict[str, Any]:
        """Return the claims of a token that this provider signed for this pool and log-in."""
        if not isinstance(text, str):
            raise SignOnRefusedError("the provider sent no ID token")
        client = self.settings.client_id
        checks = jwt.JWTClaimsRegistry(
            leeway=CLOCK_SKEW_S,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": client},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            # The token of a renewal has none.
            nonce={"essential": True, "value": nonce} if nonce else {"essential": False},
        )
        try:
            claims = self._verify(text)
            checks.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise SignOnRefusedError(f"the provider's ID token is not valid: {error}") from error
        audience = claims["aud"]
        is_shared = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if is_shared else client) != client:
            raise SignOnRefusedError("the ID token was made for another client of the provider")
        if not 0 < len(claims["sub"]) <= MOST_SUBJECT or not claims["sub"].isprintable():
            raise SignOnRefusedError("the ID token's subject is empty, too long or unprintable")
        return claims

    def _verify(self, text: str) -> dict[str, Any]:
        """Return a token's claims; where no key fits, the provider may have new ones."""
        keys = self._fetch_keys(DESCRIPTION_LIFETIME_S)
        try:
            return dict(jwt.decode(text, keys, algorithms=ALGORITHMS).claims)
        except (JoseError, ValueError):
            newer = self._fetch_keys(KEYS_LEAST_AGE_S)
            if newer is keys:
                raise
            return dict(jwt.decode(text, newer, algorithms=ALGORITHMS).claims)

    def _fetch_keys(self, oldest_s: float) -> KeySet:
        with self._lock:
            if not self._keys.is_fresh(oldest_s):
                listed = self._fetch_json(self._endpoint("jwks_uri")).get("keys")
                public = [
                    key
                    for key in (listed if isinstance(listed, list) else [])
                    if isinstance(key, dict)
                    and key.get("kty") in _PUBLIC_TYPES
                    and key.get("use", "sig") == "sig"
                ]
                self._keys = _Kept(KeySet.import_key_set({"keys": public}), time.monotonic())
            keys: KeySet = self._keys.value
            return keys

    def _describe(self) -> dict[str, Any]:
        """Return the provider's description of itself."""
        if not self._description.is_fresh(DESCRIPTION_LIFETIME_S):
            issuer = self.settings.issuer
            description = self._fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if description.get("issuer") != issuer:
                raise ProviderFailedError(
                    f"{issuer} describes itself as {description.get('issuer')!r}",
                    hint="The pool's admin must write the issuer exactly as the provider does.",
                )
            self._description = _Kept(description, time.monotonic())
        kept: dict[str, Any] = self._description.value
        return kept

    def _endpoint(self, name: str) -> str:
        """Return an address of the description; it has TLS if the issuer has."""
        address = self._describe().get(name)
        if not isinstance(address, str) or urlsplit(address).scheme not in {
            "https",
            self._issuer.scheme,
        }:
            raise ProviderFailedError(f"{self.settings.issuer} names no usable {name}")
        return address

    def _fetch_json(self, address: str) -> dict[str, Any]:
        return self._fetch(self._client.build_request("GET", address), None)

    def _fetch(self, request: httpx.Request, auth: httpx.Auth | None) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer."""
        request.headers["accept"] = "application/json"
        place, deadline = str(request.url).split("?")[0], time.monotonic() + LONGEST_EXCHANGE_S
        try:
            response = self._client.send(request, auth=auth, stream=True)
            try:
                content = b""
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MOST_BYTES or time.monotonic() > deadline:
                        raise ValueError("its answer is too long")
            finally:
                response.close()
            answer = json.loads(content)
            if not isinstance(answer, dict):
                raise ValueError("its answer is no JSON object")
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise ProviderFailedError(
                f"{place} does not answer as a provider does: {error}",
                hint="Try again in a moment, or log in with a token.",
            ) from error
        if response.status_code == 200:
            return answer
        if answer.get("error") == "invalid_grant":
            raise SignOnRefusedError("the provider says that this log-in has ended or was used")
        raise ProviderFailedError(f"{place} answered {response.status_code}: {answer.get('error')}")


@dataclass(frozen=True)
class _Kept:
    value: Any = None
    fetched_at: float = field(default=float("-inf"))

    def is_fresh(self, oldest_s: float) -> bool:
        return time.monotonic() - self.fetched_at < oldest_s


class _CheckedTransport(httpx.HTTPTransport):
    """Connects to the address that it has checked, so that no name can change in between."""

    def __init__(self, issuer_host: str) -> None:
        # The system's authorities: an institute's own are installed there.
        super().__init__(
            verify=ssl.create_default_context(), limits=httpx.Limits(max_keepalive_connections=0)
        )
        self._issuer_host = issuer_host

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        try:
            answers = socket.getaddrinfo(host, request.url.port or 443, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpx.ConnectError(f"{host} is unknown: {error}") from error
        addresses = [str(answer[4][0]).split("%")[0] for answer in answers]
        is_public = all(ipaddress.ip_address(address).is_global for address in addresses)
        if host != self._issuer_host and not is_public:
            raise httpx.ConnectError(f"{host} is an address of an internal network")
        request.extensions["sni_hostname"] = host
        request.url = request.url.copy_with(host=addresses[0])
        return super().handle_request(request)


@lru_cache(maxsize=64)
def open_provider(settings: SignOnProvider) -> Provider:
    """Return the provider of these settings, one for the whole process."""
    return Provider(settings)
