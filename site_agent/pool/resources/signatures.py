"""Keys of sites, and signatures of their models."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pool_server.wire import cards, merges, names, signatures, uploads
from pool_server.wire.models import LineageResponse, ModelVersionResponse
from pool_server.wire.signatures.keys import PrivateKey, pae
from pool_server.wire.signatures.statements import Revocation, text_digest
from site_agent.errors import InvalidInputError, PoolAnswerError, PoolRefusedRequestError
from site_agent.pool import profiles, signing
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request, version_path
from site_agent.pool.verification import SignaturePolicy, Verification, Verifier


class Signatures:
    """Keys and signatures."""

    def __init__(
        self,
        connection: PoolConnection,
        cache: ModelCache,
        policy: SignaturePolicy,
        key_folder: Path,
    ) -> None:
        self._pool = connection
        self._cache = cache
        self.policy = policy
        self.key_folder = key_folder

    # -- keys -----------------------------------------------------------------------------

    def keys(self, site: str) -> list[signatures.KeyResponse]:
        """Return the keys of a site, revoked and imported ones too, oldest first."""
        return self._pool.get(_keys_path(site), signatures.KeyList).items

    def register_key(self, key: PrivateKey, site: str, name: str) -> signatures.KeyResponse:
        """Register a key of the site, with a proof that we hold it."""
        public = key.public
        asked = self._pool.post(
            f"{_keys_path(site)}/challenge",
            signatures.ChallengeResponse,
            signatures.ChallengeRequest(public_key=public.text),
            repeatable=True,
        )
        # Sign only a challenge for this very site and key.
        expected = [signatures.CHALLENGE_START, site, public.key_id]
        if asked.challenge.split(" ")[:3] != expected:
            raise PoolAnswerError(
                f"{self._pool.endpoint} wants {asked.challenge[:200]!r} signed; expected a "
                f"challenge that begins with {' '.join(expected)!r}"
            )
        signature = key.sign(pae(signatures.CHALLENGE_TYPE, asked.challenge.encode()))
        request = build_request(
            signatures.KeyRequest,
            name=name,
            public_key=public.text,
            challenge=asked.challenge,
            signature=base64.b64encode(signature).decode(),
        )
        return self._pool.post(_keys_path(site), signatures.KeyResponse, request, repeatable=True)

    def revoke_key(self, site: str, key_id: str, reason: Revocation) -> signatures.KeyResponse:
        """Revoke a key; its earlier signatures stay valid only if it is `superseded`."""
        if not re.fullmatch(names.DIGEST_PATTERN, key_id):
            raise PoolRefusedRequestError(
                f"{key_id!r} is not a key identifier; see: poolctl keys ls"
            )
        request = signatures.KeyRevocationRequest(reason=reason)
        path = f"{_keys_path(site)}/{key_id}/revoke"
        return self._pool.post(path, signatures.KeyResponse, request, repeatable=True)

    def signing_key(self, site: str) -> signing.SigningKey | None:
        """Return the key with which this profile signs for a site; None if it has none."""
        return signing.load_key(self.key_folder, site)

    # -- statements -----------------------------------------------------------------------

    def statement(self, version: ModelVersionResponse) -> signatures.StatementResponse:
        """Return the signed statement of a version, unverified."""
        return self._pool.get(_statement_path(version), signatures.StatementResponse)

    def card(self, version: ModelVersionResponse) -> str:
        """Return a version's card as its site wrote it, unverified; empty where it wrote none."""
        path = f"{version_path(version.address)}/card"
        return self._pool.get(path, cards.CardResponse).source if version.has_card else ""

    def recipe(self, version: ModelVersionResponse) -> Mapping[str, Any] | None:
        """Return a version's recipe, unverified; None where it was not merged."""
        path = f"{version_path(version.address)}/lineage"
        return self._pool.get(path, LineageResponse).recipe if version.has_recipe else None

    def sign(self, address: str | names.ModelAddress) -> signatures.StatementResponse:
        """Sign an own version that has no signature, or one that no longer holds."""
        version = self._pool.get(version_path(address), ModelVersionResponse)
        return self._pool.write(
            "PUT",
            _statement_path(version),
            signatures.StatementResponse,
            self.statement_of(version),
        )

    def statement_of(
        self, version: ModelVersionResponse, *, card: str | None = None
    ) -> signatures.SignedStatement:
        """Return a signed statement of all facts about an own version, with `card` if given."""
        key = self.signing_key(version.site)
        if key is None:
            raise InvalidInputError(
                f"no key for site {version.site!r} in this profile; make one with: "
                f"poolctl keys create --site {version.site}"
            )
        recipe = self.recipe(version)
        facts = signing.facts_of_version(
            version,
            card_digest=text_digest(self.card(version) if card is None else card),
            recipe_digest=None if recipe is None else merges.recipe_digest(recipe),
        )
        return signing.sign_facts(facts, key.key)

    def signed(self, request: uploads.UploadRequest, path: Path) -> uploads.UploadRequest:
        """Return an upload request signed, where this profile has a key of the site."""
        key = self.signing_key(request.site)
        if key is None:
            return request
        statement = signing.sign_facts(signing.facts_of_request(request, path), key.key)
        return request.model_copy(update={"statement": statement})

    # -- verification ---------------------------------------------------------------------

    def verify(
        self,
        version: ModelVersionResponse,
        *,
        pin: bool = True,
        may_be_unsigned: bool = False,
        card: str | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> Verification:
        """Check the signature of a version; see `site_agent.pool.verification`."""
        verifier = Verifier(
            pool=profiles.host_of(self._pool.endpoint),
            policy=self.policy,
            cache=self._cache,
            source=None if profiles.is_offline() else self,
        )
        return verifier.verify(
            version, pin=pin, may_be_unsigned=may_be_unsigned, card=card, recipe=recipe
        )


def _keys_path(site: str) -> str:
    if not re.fullmatch(names.NAME_PATTERN, site):
        raise PoolRefusedRequestError(
            f"{site!r} is not a site name", hint="poolctl admin sites ls lists them"
        )
    return f"/api/v1/sites/{site}/keys"


def _statement_path(version: ModelVersionResponse) -> str:
    return f"{version_path(version.address)}/statement"
