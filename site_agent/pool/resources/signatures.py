"""What a site asks of its pool about keys and signatures; `PoolClient` has all of it."""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pool_server.wire.models.cards import CardResponse
from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.names import DIGEST_PATTERN, NAME_PATTERN, ModelAddress
from pool_server.wire.signatures.dsse import pae
from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.signatures.signatures import (
    CHALLENGE_START,
    CHALLENGE_TYPE,
    ChallengeRequest,
    ChallengeResponse,
    KeyList,
    KeyRequest,
    KeyResponse,
    KeyRevocationRequest,
    SignedStatement,
    StatementResponse,
)
from pool_server.wire.signatures.statements import Revocation
from pool_server.wire.transfers.uploads import UploadRequest
from site_agent.errors import PoolAnswerError, PoolRefusedRequestError, SigningKeyError
from site_agent.pool import profiles
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.trust.signing import SigningKey, load_key, sign_version, signed_request
from site_agent.pool.trust.verification import SignaturePolicy, Verification, Verifier

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

Request = TypeVar("Request", bound=UploadRequest)


class PoolSignatures(ABC):
    """The part of `PoolClient` that is about keys and signatures."""

    endpoint: str
    cache: ModelCache
    signatures: SignaturePolicy
    key_folder: Path

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    # -- keys -----------------------------------------------------------------------------

    def site_keys(self, site: str) -> list[KeyResponse]:
        """Return the keys of a site, revoked and imported ones too, oldest first."""
        return self._connection.get(_keys_path(site), KeyList).items

    def register_key(self, key: PrivateKey, site: str, name: str) -> KeyResponse:
        """Register a key of one's own site, proving that one holds it.

        Raises
        ------
        PoolClientError
        """
        public = key.public
        asked = self._connection.post(
            f"{_keys_path(site)}/challenge",
            ChallengeResponse,
            ChallengeRequest(public_key=public.text),
            repeatable=True,
        )
        # Nothing is signed but a challenge for this very site and key.
        expected = [CHALLENGE_START, site, public.key_id]
        if asked.challenge.split(" ")[:3] != expected:
            raise PoolAnswerError(
                f"{self.endpoint} wants {asked.challenge[:200]!r} signed; expected a challenge "
                f"that begins with {' '.join(expected)!r}"
            )
        signature = key.sign(pae(CHALLENGE_TYPE, asked.challenge.encode()))
        request = build_request(
            KeyRequest,
            name=name,
            public_key=public.text,
            challenge=asked.challenge,
            signature=base64.b64encode(signature).decode(),
        )
        return self._connection.post(_keys_path(site), KeyResponse, request, repeatable=True)

    def revoke_key(self, site: str, key_id: str, reason: Revocation) -> KeyResponse:
        """End a key: what it signed before stays good only if it is `superseded`."""
        if not re.fullmatch(DIGEST_PATTERN, key_id):
            raise PoolRefusedRequestError(f"{key_id!r} is no key; see: poolctl keys ls")
        request = KeyRevocationRequest(reason=reason)
        path = f"{_keys_path(site)}/{key_id}/revoke"
        return self._connection.post(path, KeyResponse, request, repeatable=True)

    def signing_key(self, site: str) -> SigningKey | None:
        """Return the key with which this profile signs for a site; None where it does not.

        Raises
        ------
        SigningKeyError
            It cannot be read.
        """
        return load_key(self.key_folder, site)

    # -- statements -----------------------------------------------------------------------

    def statement(self, version: ModelVersionResponse) -> StatementResponse:
        """Return what was signed of a version; nothing is verified."""
        return self._connection.get(_statement_path(version), StatementResponse)

    def sign(self, address: str | ModelAddress) -> StatementResponse:
        """Sign a version of one's own that was published without, or with a revoked key.

        Raises
        ------
        SigningKeyError
            This profile has no key for the site.
        PoolClientError
        """
        client = self._as_client()
        version = client.version(address)
        key = self.signing_key(version.site)
        if key is None:
            raise SigningKeyError(
                f"no key for site {version.site!r} in this profile; make one with: "
                f"poolctl keys create --site {version.site}"
            )
        recipe: Mapping[str, Any] | None = None
        if version.has_recipe:
            recipe = client.lineage(version.address).recipe
        card = ""
        if version.has_card:
            card = self._connection.get(f"{_version_path(version)}/card", CardResponse).source
        signed = sign_version(version, recipe, card, key.key)
        return self._put_statement(version, signed)

    def _put_statement(
        self, version: ModelVersionResponse, signed: SignedStatement
    ) -> StatementResponse:
        response = self._connection.send(
            "PUT",
            _statement_path(version),
            content=signed.model_dump_json().encode(),
            headers={"Content-Type": "application/json"},
        )
        return StatementResponse.model_validate_json(response.content)

    def _with_statement(self, request: Request, path: Path) -> Request:
        """Return an announcement signed, where this profile has a key of the site."""
        key = self.signing_key(request.site)
        return request if key is None else signed_request(request, path, key.key)

    # -- verification ---------------------------------------------------------------------

    def verify(self, version: ModelVersionResponse, *, pin: bool = True) -> Verification:
        """Check the signature of a version; see `site_agent.pool.trust.verification`.

        Raises
        ------
        SignatureRefusedError, KeyNotTrustedError, SignatureMissingError
        """
        offline = profiles.is_offline()
        verifier = Verifier(
            pool=profiles.host_of(self.endpoint),
            policy=self.signatures,
            cache=self.cache,
            fetch_statement=None if offline else self.statement,
            fetch_keys=None if offline else self.site_keys,
        )
        return verifier.verify(version, pin=pin)

    def _as_client(self) -> PoolClient:
        from site_agent.pool.client import PoolClient

        assert isinstance(self, PoolClient)
        return self


def _keys_path(site: str) -> str:
    if not re.fullmatch(NAME_PATTERN, site):
        raise PoolRefusedRequestError(
            f"{site!r} is no name of a site", hint="poolctl admin sites ls lists them"
        )
    return f"/api/v1/sites/{site}/keys"


def _statement_path(version: ModelVersionResponse) -> str:
    return f"{_version_path(version)}/statement"


def _version_path(version: ModelVersionResponse) -> str:
    return f"/api/v1/models/{version.site}/{version.name}/versions/{version.version}"
