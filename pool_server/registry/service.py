"""Models and versions: look them up, list them, count what they have in common."""

import re
from collections.abc import Sequence
from typing import Annotated, NoReturn

from fastapi import Depends, Request
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from pool_server.database.records import ModelRecord, ModelVersionRecord
from pool_server.errors import ConflictError, MissingError, QueryError
from pool_server.http.identity import Caller, SignedIn
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry import query as queries
from pool_server.registry import repository
from pool_server.registry.access import WITHDRAWN
from pool_server.wire.models import ALIAS_PATTERN, LATEST
from pool_server.wire.names import ModelAddress

NAMED = "pool_named"
"""Key in the scope of the requests that one page makes: the versions that they have named."""
_NUMBER = re.compile(r"^[0-9]{1,9}$")
_ALIAS = re.compile(ALIAS_PATTERN)


def get_model(session: Session, caller: Caller, site: str, name: str) -> ModelRecord:
    """Return a model that the caller may see, with its site and grants."""
    model = repository.find_visible_model(session, caller, site, name)
    if model is None:
        raise no_model(site, name)
    return model


def no_model(site: str, name: str) -> MissingError:
    return MissingError(
        f"the pool has no model {site}/{name}",
        code="model_not_found",
        hint="`poolctl models ls` lists what is there.",
    )


def resolve_version(
    session: Session,
    caller: Caller,
    site: str,
    name: str,
    reference: str,
    *,
    versions: repository.Versions = repository.whole_versions,
) -> ModelVersionRecord:
    """Return the version that a reference means.

    A number, ``latest`` or nothing (the newest that is available), ``sha256:DIGEST``, or an
    alias. What is deleted, or not for the caller to see, is answered for as if it were not there.
    """
    conditions = _meant_by(reference)
    version = repository.find_version(session, caller, site, name, *conditions, versions=versions)
    return version or _refuse(session, caller, ModelAddress(site, name, reference))


def resolve_versions(
    session: Session,
    caller: Caller,
    addresses: Sequence[ModelAddress],
    *,
    versions: repository.Versions = repository.whole_versions,
) -> list[ModelVersionRecord]:
    """Return the versions that these addresses mean, as `resolve_version`, by one statement."""
    wanted = [
        repository.Wanted(each.site, each.name, _meant_by(each.reference)) for each in addresses
    ]
    found = repository.find_versions(session, caller, wanted, versions)
    return [
        version or _refuse(session, caller, address)
        for version, address in zip(found, addresses, strict=True)
    ]


def _meant_by(reference: str) -> list[ColumnElement[bool]]:
    """Return the conditions that a reference stands for."""
    if reference.startswith("sha256:"):
        digest = queries.read_digest(reference.removeprefix("sha256:"))
        return [ModelVersionRecord.digest == digest]
    if _NUMBER.fullmatch(reference):
        return [ModelVersionRecord.number == int(reference)]
    if reference in {"", LATEST}:
        return []
    if not _ALIAS.fullmatch(reference):
        raise QueryError(
            f"{reference[:80]!r} is not a version; expected a number, `latest`, an alias, or "
            "sha256:DIGEST"
        )
    return [repository.has_alias(reference)]


def _refuse(session: Session, caller: Caller, address: ModelAddress) -> NoReturn:
    site, name = address.site, address.name
    if repository.find_visible_model(session, caller, site, name) is None:
        raise no_model(site, name)
    raise MissingError(
        f"{site}/{name} has no version {address.reference or LATEST}",
        code="version_not_found",
        hint=f"`poolctl models ls --name {name}` lists the versions there are.",
    )


def version_to_read(
    caller: SignedIn, session: ReadingSession, site: SiteName, name: ModelName, reference: Reference
) -> ModelVersionRecord:
    return resolve_version(session, caller, site, name, reference)


def version_to_name(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> ModelVersionRecord:
    named: dict[tuple[str, str, str], ModelVersionRecord] = request.scope.get(NAMED, {})
    known = named.get((site, name, reference))
    if known is not None:
        return session.merge(known, load=False)
    bare = repository.bare_versions
    version = resolve_version(session, caller, site, name, reference, versions=bare)
    named[site, name, reference] = named[site, name, str(version.number)] = version
    return version


def version_to_change(
    caller: SignedIn, session: WritingSession, site: SiteName, name: ModelName, reference: Reference
) -> ModelVersionRecord:
    return resolve_version(session, caller, site, name, reference)


def lock_to_correct(session: Session, version: ModelVersionRecord, what: str) -> None:
    """Lock a version's state; `ConflictError` where it is withdrawn, so that `what` stays."""
    repository.lock_state(session, version)
    if version.state == WITHDRAWN:
        raise ConflictError(
            f"the version is withdrawn; its {what} stays as it is",
            code="wrong_state",
            details={"found": WITHDRAWN},
        )


VersionToRead = Annotated[ModelVersionRecord, Depends(version_to_read)]
VersionToName = Annotated[ModelVersionRecord, Depends(version_to_name)]
VersionToChange = Annotated[ModelVersionRecord, Depends(version_to_change)]
"""The version that the address of a request names, loaded by the session of the request."""


def find_named(
    session: Session,
    caller: Caller,
    text: str,
    *,
    hint: str,
    versions: repository.Versions = repository.whole_versions,
) -> ModelVersionRecord:
    """Return the version at an address, or the oldest of a file, by ``sha256:DIGEST``."""
    if not text.startswith("sha256:"):
        address = queries.read_address(text)
        return resolve_version(
            session, caller, address.site, address.name, address.reference, versions=versions
        )
    digest = queries.read_digest(text.removeprefix("sha256:"))
    version = repository.find_anywhere(session, caller, digest, versions)
    if version is None:
        raise MissingError(
            f"the pool has no model with digest {digest}", code="version_not_found", hint=hint
        )
    return version
