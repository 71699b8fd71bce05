"""Sharing of models with other sites."""

from collections.abc import Iterable
from typing import cast

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import GrantRecord, ModelRecord, SiteRecord
from pool_server.errors import NotAllowedError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import ModelName, SiteName
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.people.sites import find_sites
from pool_server.registry.access import PRIVATE, SITES, curates_pool, rights_of, rights_of_site
from pool_server.registry.service import get_model
from pool_server.wire import models
from pool_server.wire.names import ModelAddress

router = APIRouter(prefix="/models/{site}/{name}/sharing", tags=["models"])

SHARED_EVENT = "model.shared"


@router.get("", dependencies=[needs("models:read")], summary="Show the sharing of a model")
def show(
    caller: SignedIn, session: ReadingSession, site: SiteName, name: ModelName
) -> models.SharingResponse:
    """Return a model's audience, its rights, and your own rights.

    Only the model's own site sees which other sites are listed.
    """
    return describe_sharing(session, caller, get_model(session, caller, site, name))


@router.put("", dependencies=[needs("models:write")], summary="Share a model")
def share(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    parts: Parts,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    request: models.SharingRequest,
) -> models.SharingResponse:
    """Set the audience of a model and its rights. For contributors of its site.

    Files that were downloaded before stay with their sites; the change restricts further search,
    download, merging and redistribution within the pool.
    """
    address = ModelAddress(site, name)
    model = get_model(session, caller, address.site, address.name)
    if not caller.may_upload_to(address.site):
        raise NotAllowedError(
            f"only contributors of {address.site} can share {address.site}/{address.name}; you "
            f"are {caller.role_in_words}",
            hint=f"Ask {address.site} to share it.",
        )
    # Locked, so that two concurrent requests cannot mix their lists.
    session.execute(select(ModelRecord.id).where(ModelRecord.id == model.id).with_for_update())
    session.refresh(model, ["visibility", "rights", "grants"])
    sites = {site.name: site for site in find_sites(session)}
    before = {site.id: rights_of_site(site.id, model) for site in sites.values()}
    rights = parts.settings.rights_of_new_models if request.rights is None else request.rights
    model.visibility = request.visibility
    model.rights = drop_see(rights)
    _replace_grants(session, model, _read_list(request, rights, address, sites))
    session.flush()
    record_act(
        session,
        caller,
        "model.share",
        f"{address.site}/{address.name}",
        visibility=model.visibility,
        rights=model.rights,
        sites={listed_site.site: listed_site.rights for listed_site in request.sites},
    )
    _notify_of_gains(session, model, before, sites.values())
    return describe_sharing(session, caller, model)


def describe_sharing(
    session: Session, caller: Caller, model: ModelRecord
) -> models.SharingResponse:
    """Return the sharing of a model that the caller may know.

    `model` must be loaded with its site and grants.
    """
    listed_ids = [grant.site_id for grant in model.grants]
    query = select(SiteRecord.id, SiteRecord.name).where(SiteRecord.id.in_(listed_ids))
    names = {row.id: row.name for row in session.execute(query)} if listed_ids else {}
    knows_all = model.site_id == caller.site_id or curates_pool(caller)
    listed = [
        models.ListedSite(site=names[grant.site_id], rights=sort_rights({"see", *grant.rights}))
        for grant in model.grants
        if knows_all or grant.site_id == caller.site_id
    ]
    return models.SharingResponse(
        address=str(ModelAddress(model.site.name, model.name)),
        visibility=cast("models.Visibility", model.visibility),
        rights=sort_rights(set() if model.visibility == PRIVATE else {"see", *model.rights}),
        sites=sorted(listed, key=lambda site: site.site),
        your_rights=sort_rights(rights_of(caller, model)),
    )


def share_alike(model: ModelRecord, original: ModelRecord | None) -> None:
    """Share a new model for listed sites with the sites that may see another model.

    The site of `original` is among them. Both must be loaded with their grants.
    """
    if model.visibility != SITES or original is None:
        return
    rights = {grant.site_id: list(grant.rights) for grant in original.grants}
    rights[original.site_id] = list(model.rights)
    rights.pop(model.site_id, None)
    model.grants.extend(
        GrantRecord(site_id=site_id, rights=granted) for site_id, granted in rights.items()
    )


def sort_rights(rights: Iterable[str]) -> list[models.Right]:
    return [right for right in models.RIGHTS if right in set(rights)]


def drop_see(rights: Iterable[str]) -> list[str]:
    """Return rights in their stored form: any right implies the right to see the model."""
    return [right for right in sort_rights(rights) if right != "see"]


def _read_list(
    request: models.SharingRequest,
    rights: Iterable[str],
    address: ModelAddress,
    sites: dict[str, SiteRecord],
) -> dict[int, list[str]]:
    """Return the rights of the listed sites by site id."""
    if request.sites and request.visibility != SITES:
        raise RefusedError(
            f"sites are listed, but visibility is {request.visibility!r}",
            code="sharing_refused",
            hint=f"Give visibility {SITES!r}, or list no sites.",
        )
    listed: dict[int, list[str]] = {}
    for listed_site in request.sites:
        site = sites.get(listed_site.site)
        if site is None or listed_site.site == address.site or site.id in listed:
            problem = (
                "the pool has no such site"
                if site is None
                else "it owns the model and has all rights"
                if listed_site.site == address.site
                else "it is listed twice"
            )
            raise RefusedError(
                f"{address.site}/{address.name} cannot be shared with site {listed_site.site!r}: "
                f"{problem}",
                code="sharing_refused",
                hint="`poolctl admin sites ls` lists the sites.",
            )
        listed[site.id] = drop_see(rights if listed_site.rights is None else listed_site.rights)
    return listed


def _replace_grants(
    session: Session, model: ModelRecord, rights_by_site: dict[int, list[str]]
) -> None:
    kept = {grant.site_id: grant for grant in model.grants if grant.site_id in rights_by_site}
    for grant in model.grants:
        if grant.site_id not in kept:
            session.delete(grant)
    for site_id, rights in rights_by_site.items():
        if site_id in kept:
            kept[site_id].rights = rights
        else:
            session.add(GrantRecord(model_id=model.id, site_id=site_id, rights=rights))
    session.flush()
    session.refresh(model, ["grants"])


def _notify_of_gains(
    session: Session,
    model: ModelRecord,
    before: dict[int, frozenset[models.Right]],
    sites: Iterable[SiteRecord],
) -> None:
    """Notify sites that are listed by name and gained a right."""
    listed = {grant.site_id for grant in model.grants}
    events: list[NewEvent] = []
    for site in sites:
        rights = rights_of_site(site.id, model)
        if site.id in listed and rights - before[site.id]:
            details: dict[str, object] = {"rights": sort_rights(rights), "by": model.site.name}
            subject = str(ModelAddress(model.site.name, model.name))
            events.append(NewEvent(site.id, SHARED_EVENT, subject, details))
    write_events(session, events)
