"""Models and versions: looking them up by name, reference or digest."""

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
from pool_server.wire.models import LATEST
from pool_server.wire.names import ModelAddress

NAMED = "pool_named"
"""Key in the ASGI scope shared by one page's requests: the versions they have named."""
_NUMBER = re.compile(r"^[0-9]{1,9}$")


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
        hint="`poolctl models ls` lists the pool's models.",
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
    """Return the version with this reference, as `resolve_versions` does."""
    address = ModelAddress(site, name, reference)
    return resolve_versions(session, caller, [address], versions=versions)[0]


def resolve_versions(
    session: Session,
    caller: Caller,
    addresses: Sequence[ModelAddress],
    *,
    versions: repository.Versions = repository.whole_versions,
) -> list[ModelVersionRecord]:
    """Return the versions at these addresses, by one statement.

    A reference is a number, ``latest`` or empty (the newest available version), or
    ``sha256:DIGEST``. Deleted and hidden versions are reported as missing.
    """
    version_queries = [
        repository.VersionQuery(
            address.site, address.name, _reference_conditions(address.reference)
        )
        for address in addresses
    ]
    resolved = repository.find_versions(session, caller, version_queries, versions)
    return [
        version or _refuse(session, caller, address)
        for version, address in zip(resolved, addresses, strict=True)
    ]


def _reference_conditions(reference: str) -> list[ColumnElement[bool]]:
    """Return the conditions on a version with this reference."""
    if reference.startswith("sha256:"):
        digest = queries.read_digest(reference.removeprefix("sha256:"))
        return [ModelVersionRecord.digest == digest]
    if _NUMBER.fullmatch(reference):
        return [ModelVersionRecord.number == int(reference)]
    if reference in {"", LATEST}:
        return []
    raise QueryError(
        f"{reference[:80]!r} is not a version; expected a number, `latest`, or sha256:DIGEST"
    )


def _refuse(session: Session, caller: Caller, address: ModelAddress) -> NoReturn:
    site, name = address.site, address.name
    if repository.find_visible_model(session, caller, site, name) is None:
        raise no_model(site, name)
    raise MissingError(
        f"{site}/{name} has no version {address.reference or LATEST}",
        code="version_not_found",
        hint=f"`poolctl models ls --name {name}` lists its versions.",
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


def lock_to_correct(session: Session, version: ModelVersionRecord, field: str) -> None:
    """Lock a version's state; raise `ConflictError`, naming `field`, if it is withdrawn."""
    repository.lock_state(session, version)
    if version.state == WITHDRAWN:
        raise ConflictError(
            f"the version is withdrawn; its {field} cannot be changed", code="wrong_state"
        )


VersionToRead = Annotated[ModelVersionRecord, Depends(version_to_read)]
VersionToName = Annotated[ModelVersionRecord, Depends(version_to_name)]
VersionToChange = Annotated[ModelVersionRecord, Depends(version_to_change)]
"""The version named by the address of a request, loaded by the request's session."""


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
