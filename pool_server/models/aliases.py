"""Aliases: names of versions that their site may move."""

import re
from typing import Annotated

from fastapi import APIRouter, Path

from pool_server.database.records import AliasRecord, now_utc
from pool_server.errors import ConflictError, MissingError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Uploader, needs
from pool_server.http.parameters import ModelName, SiteName
from pool_server.http.session import WritingSession
from pool_server.registry import repository as registry
from pool_server.registry.access import AVAILABLE, viewing_site
from pool_server.registry.responses import describe_version
from pool_server.registry.service import get_model, resolve_version
from pool_server.wire.models import ALIAS_PATTERN, LATEST, AliasRequest, ModelVersionResponse

router = APIRouter(
    prefix="/models/{site}/{name}/aliases", tags=["models"], dependencies=[needs("models:write")]
)

AliasName = Annotated[
    str, Path(max_length=80, description="Begins with a letter.", examples=["best"])
]

_ALIAS = re.compile(ALIAS_PATTERN)


@router.put("/{alias}", summary="Let an alias mean a version")
def set_alias(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    alias: AliasName,
    request: AliasRequest,
) -> ModelVersionResponse:
    """Let `site/name@alias` mean a version from now on, whatever it meant before.

    An alias is moved when a better version comes; who wants the same bytes for ever takes the
    number or the digest.
    """
    model = get_model(session, caller, site, name)
    caller.require_upload_to(model.site.name)
    require_alias_name(alias)
    # The aliases of a model are changed one after another.
    registry.lock_model(session, model)
    version = resolve_version(session, caller, site, name, request.version)
    registry.lock_state(session, version)
    if version.state != AVAILABLE:
        raise ConflictError(
            f"{site}/{name}@{version.number} is {version.state}; expected it to be available",
            code="wrong_state",
            hint="An alias is for versions that others may take.",
            details={"found": version.state, "expected": [AVAILABLE]},
        )
    record = session.get(AliasRecord, (version.model_id, alias))
    moved_from = None
    if record is None:
        session.add(AliasRecord(model_id=version.model_id, name=alias, version_id=version.id))
    else:
        moved_from = registry.get_version(session, record.version_id).number
        record.version_id = version.id
        record.changed_at = now_utc()
    record_act(
        session,
        caller,
        "alias.set",
        f"{site}/{name}@{alias}",
        version=version.number,
        moved_from=moved_from,
    )
    session.flush()
    session.expire(version)
    return describe_version(session, version.id, viewing_site(caller))


@router.delete("/{alias}", status_code=204, summary="Remove an alias")
def remove_alias(
    caller: Uploader, session: WritingSession, site: SiteName, name: ModelName, alias: AliasName
) -> None:
    """Forget an alias. The version that it meant stays."""
    model = get_model(session, caller, site, name)
    caller.require_upload_to(model.site.name)
    registry.lock_model(session, model)
    record = session.get(AliasRecord, (model.id, alias))
    if record is None:
        raise MissingError(
            f"{site}/{name} has no alias {alias!r}",
            code="alias_not_found",
            hint=f"`poolctl models info {site}/{name}` shows those of the newest version.",
        )
    session.delete(record)
    record_act(session, caller, "alias.remove", f"{site}/{name}@{alias}")


def require_alias_name(alias: str) -> None:
    """Raise unless a word can be an alias: it must not look like a number or a digest."""
    if alias == LATEST:
        raise RefusedError(
            f"{LATEST!r} always means the newest version",
            code="alias_refused",
            hint="Choose another name: best, stable.",
        )
    if not _ALIAS.fullmatch(alias):
        raise RefusedError(
            f"{alias[:80]!r} cannot be an alias; expected a letter a-z, then up to 63 of a-z, 0-9, "
            "'.', '_', '-'",
            code="alias_refused",
            hint="For example best, or study-2026.",
        )
