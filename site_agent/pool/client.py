"""The pool from Python: ``from site_agent import PoolClient``."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aggregators.formats import read_model
from aggregators.formats.safetensors_file import recognises_safetensors, require_shareable
from pool_server.wire import cards, models, names, people, uploads
from pool_server.wire.models import ModelQuery
from site_agent import errors
from site_agent.pool import profiles, restrictions, signing, verification
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.receiving import Downloaded, receive_version
from site_agent.pool.requests import build_request, parse_address, version_path
from site_agent.pool.resources import administration, rounds
from site_agent.pool.resources import models as evaluations
from site_agent.pool.resources.models import Models, Withdrawals
from site_agent.pool.resources.signatures import Signatures
from site_agent.pool.sending import Uploaded, hash_file, send_version
from site_agent.work import Progress, no_progress

__all__ = ["Downloaded", "ModelQuery", "PoolClient", "Uploaded", "parse_address"]


def refuse_site_only(file: Path) -> None:
    """Raise `SiteOnlyError` for a network that must not leave its site, before anything is sent."""
    with file.open("rb") as content:
        if not recognises_safetensors(content.read(9)):
            return
    # Only the header is read; the pool, not the reader, says how large a model may be.
    require_shareable(read_model(file, max_bytes=file.stat().st_size), file.name)


class PoolClient:
    """The pool of a site: the most used requests, and all others by noun.

    `endpoint` and `token` are by default those of `profile`, a stored login
    (`site_agent.pool.profiles`), or of the active one and the environment. `timeout_s` is the
    longest silence of the pool to put up with; requests that may be repeated are sent up to
    `attempts` times. `signatures` says how strictly the signatures of downloads are checked
    (`site_agent.pool.verification`); by default as ``POOL_SIGNATURES`` says.

    Examples
    --------
    >>> with PoolClient(url, token) as pool:
    ...     sent = pool.upload("site-a.dat", "site-a/face-68", labels={"population": "infant"})
    ...     path = pool.download("site-a/face-68@1").path
    ...     for version in pool.models.find(ModelQuery(kind="ert")):
    ...         print(version.address)
    pool://site-a/face-68@1
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        *,
        profile: str | None = None,
        cache: ModelCache | None = None,
        timeout_s: float = 30.0,
        attempts: int = 5,
        signatures: verification.SignaturePolicy | None = None,
    ) -> None:
        name = ""
        if endpoint is None:
            stored = profiles.load_profile(profile)
            name, endpoint = stored.name, stored.endpoint
            token = token if token is not None else stored.token
        else:
            endpoint = profiles.normalise_endpoint(endpoint)
        self.endpoint = endpoint
        self.cache = cache or ModelCache()
        connection = PoolConnection(endpoint, token or "", timeout_s=timeout_s, attempts=attempts)
        self._connection = connection
        self.models = Models(connection)
        self.withdrawals = Withdrawals(connection)
        self.evaluations = evaluations.Evaluations(connection)
        self.signatures = Signatures(
            connection,
            self.cache,
            signatures or verification.chosen_policy(),
            profiles.key_folder(name, endpoint),
        )
        self.rounds = rounds.Rounds(connection)
        self.secure = rounds.SecureSessions(connection)
        self.merges = rounds.Merges(connection)
        self.events = administration.Events(connection)
        self.uploads = rounds.Uploads(connection)
        self.sites = administration.Sites(connection)
        self.users = administration.Users(connection)
        self.invitations = administration.Invitations(connection)
        self.tokens = administration.Tokens(connection)

    def __repr__(self) -> str:
        return f"PoolClient({self.endpoint!r})"

    def __enter__(self) -> "PoolClient":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the pool."""
        self._connection.close()

    def whoami(self) -> people.IdentityResponse:
        """Return the site, user and role of the token."""
        return self._connection.get("/api/v1/whoami", people.IdentityResponse)

    def now(self) -> datetime:
        """Return the time by the pool's clock."""
        self.whoami()
        return self._connection.now()

    def address(self, text: str | names.ModelAddress) -> names.ModelAddress:
        """Read an address; a name without a site means a model of the token's own site."""
        if isinstance(text, names.ModelAddress):
            return text
        if "/" in text or text.startswith("sha256:"):
            return parse_address(text)
        try:
            where = names.ModelAddress.parse(f"own/{text}")
        except ValueError:
            # Raises as well, and quotes the word as it was given.
            return parse_address(text)
        return replace(where, site=self.whoami().site)

    def version(self, address: str | names.ModelAddress) -> models.ModelVersionResponse:
        """Return the record of a version; when offline, the last one seen."""
        where = self.address(address)
        host = profiles.host_of(self.endpoint)
        if profiles.is_offline():
            known = self.cache.recall(host, where)
            if known is None:
                raise errors.NotFoundError(
                    f"{where}: not in the cache {self.cache.folder}, and POOL_OFFLINE is set",
                    hint="download it once with POOL_OFFLINE unset",
                )
            return models.ModelVersionResponse.model_validate(known)
        version = self._connection.get(version_path(where), models.ModelVersionResponse)
        self.cache.remember(host, version.model_dump(mode="json"), where.reference)
        return version

    def announcement(
        self,
        path: Path | str,
        address: str | names.ModelAddress,
        *,
        recipe: Mapping[str, Any] | None = None,
        sign: bool = True,
        digest: str = "",
        progress: Progress | None = None,
        **fields: Any,
    ) -> uploads.UploadRequest:
        """Return all that `upload` would send besides the file; nothing leaves."""
        file = Path(path)
        where = self.address(address)
        size_bytes = file.stat().st_size
        # Most often the output of a command that failed.
        if size_bytes == 0:
            raise errors.PoolRefusedRequestError(f"{file}: the file is empty")
        refuse_site_only(file)
        request = build_request(
            uploads.UploadRequest,
            site=where.site,
            name=where.name,
            size_bytes=size_bytes,
            digest=digest or hash_file(file, progress or no_progress, share=0.1),
            file_name=file.name[-255:],
            recipe=None if recipe is None else signing.canonical_recipe(recipe),
            **fields,
        )
        return self.signatures.signed(request, file) if sign else request

    def send_announced(
        self, path: Path | str, request: uploads.UploadRequest, progress: Progress | None = None
    ) -> Uploaded:
        """Send an announcement and its file."""
        return send_version(self._connection, Path(path), request, progress or no_progress)

    def upload(
        self,
        path: Path | str,
        address: str | names.ModelAddress,
        *,
        progress: Progress | None = None,
        **fields: Any,
    ) -> Uploaded:
        """Upload a model file as the next version of ``SITE/NAME``.

        `fields` are those of `announcement`, and others of an `UploadRequest`: labels, metrics,
        terms, card, draft ... A merged model also inherits the terms of its inputs, and is refused
        where they forbid the merge. `digest` is the SHA-256 of the file, where the caller knows it
        already. It is signed if there is a key for the site (`poolctl keys create`), unless `sign`
        is false.

        The same file uploaded again returns the existing version. Called again, an interrupted
        upload (`PoolUnreachableError`) goes on where it stopped.
        """
        request = self.announcement(path, address, progress=progress, **fields)
        return self.send_announced(path, request, progress)

    def download(
        self, address: str | names.ModelAddress, *, progress: Progress | None = None
    ) -> Downloaded:
        """Download a version into the cache; for a cached one this is one small request."""
        return self.fetch(self.version(address), progress=progress)

    def fetch(
        self,
        version: models.ModelVersionResponse,
        *,
        may_be_unsigned: bool = False,
        progress: Progress | None = None,
    ) -> Downloaded:
        """Download the file of a known version into the cache, if it is not there.

        First it is refused if it was withdrawn (`WithdrawnError`), cached or not, or if its
        signature does not hold (`SignatureError`). With `may_be_unsigned` it is taken unsigned
        although its site signs: the result of a round that another site has finished.
        """
        # Before the cache is asked: a file that is here must not be used either.
        restrictions.require_usable(version)
        signature = self.signatures.verify(version, may_be_unsigned=may_be_unsigned)
        path = self.cache.find(version.digest)
        if path is not None and path.stat().st_size == version.size_bytes:
            return Downloaded(version, path, 0, signature)
        # A file of another size under this digest was damaged on this disk.
        if path is not None:
            self.cache.remove(version.digest)
        if profiles.is_offline():
            raise errors.NotFoundError(
                f"{version.address}: its file is not in the cache {self.cache.folder}, "
                "and POOL_OFFLINE is set",
                hint="download it once with POOL_OFFLINE unset",
            )
        path, received_bytes = receive_version(
            self._connection, self.cache, version, progress or no_progress
        )
        return Downloaded(version, path, received_bytes, signature)

    def card(self, address: str | names.ModelAddress) -> cards.CardResponse:
        """Return the card of a version, which is the one that its site signed if it signed any.

        The pool adds front matter where there is none, and privacy receipts, both unsigned.
        Anything else that was not signed raises `SignatureError`.
        """
        version = self.version(address)
        card = self.models.card(version.address)
        self.signatures.verify(version, pin=False, card=card.source)
        try:
            written = cards.read_card(card.source)
        except ValueError as error:
            raise errors.PoolAnswerError(f"{version.address}: {error}") from error
        # A card with an empty front matter is shown with that of the record in its place.
        shown = card.source if written.front_matter else written.body
        if shown.strip() not in card.text:
            raise errors.SignatureError(
                f"{version.address}: the pool shows another card than the one that its site wrote"
            )
        return card

    def recipe(self, address: str | names.ModelAddress) -> Mapping[str, Any] | None:
        """Return the recipe of a version, which is the one that its site signed if it signed any.

        Of a version without one, the recipe by which another site made the same file.
        """
        version = self.version(address)
        recipe = self.models.lineage(version.address).recipe
        self.signatures.verify(version, pin=False, recipe=recipe if version.has_recipe else None)
        return recipe

    def write_card(self, address: str | names.ModelAddress, text: str) -> cards.CardResponse:
        """Write a version's card, and sign it again if it was; empty text restores the generated
        one.
        """
        version = self.version(address)
        signed = version.signed_by is not None
        statement = self.signatures.statement_of(version, card=text) if signed else None
        return self.models.write_card(version.address, text, statement)

    def require_merge_right(self, version: models.ModelVersionResponse) -> None:
        """Raise unless the pool lets this site merge a version; not checked offline.

        The pool would refuse the result of a forbidden merge.
        """
        if profiles.is_offline():
            return
        if "merge" not in self.models.sharing(version.address).your_rights:
            raise errors.ForbiddenError(
                f"{version.address} may be seen by your site, but not merged with others: "
                f"{version.site} has not granted the right 'merge'",
                hint=f"ask {version.site} for it; they grant it with "
                f"`poolctl models share {version.site}/{version.name}`",
            )
