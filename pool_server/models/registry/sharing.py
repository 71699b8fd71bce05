"""With whom a model is shared, and what they may do with it: nothing that nobody granted.

==================  ==============================================================================
right               what it allows
==================  ==============================================================================
``see``             finding the model, its labels, metrics, lineage, evaluations
``download``        fetching its file, and being its copy's second owner without sending it
``merge``           naming it as input of a merge, as base of a round
``redistribute``    handing it on: a copy under another site's name beyond those who may download
                    the original, or within a bundle
==================  ==============================================================================

The site of a model, and curators and admins of the whole pool, have all rights. To everybody else
a model that is not shared with them does not exist: it is answered for exactly as one that is
not there. Who may see it but not, say, download it is told which right is missing and whom to ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import ColumnElement, and_, or_, select, true

from pool_server.database.records import GrantRecord, ModelRecord, UploadRecord
from pool_server.errors import NotAllowedError
from pool_server.http.identity import Caller
from pool_server.wire.models.sharing import RIGHTS, Right, Visibility

__all__ = [
    "RIGHTS",
    "Right",
    "has_all_rights",
    "may",
    "require_right",
    "rights_of",
    "rights_of_site",
    "share_alike",
    "sharing_of_first",
    "visible_to",
]

ALL_RIGHTS: frozenset[Right] = frozenset(RIGHTS)
NO_RIGHTS: frozenset[Right] = frozenset()

PRIVATE: Visibility = "private"
SITES: Visibility = "sites"
CONSORTIUM: Visibility = "consortium"

_DONE: dict[Right, str] = {
    "see": "seen",
    "download": "downloaded",
    "merge": "merged with others",
    "redistribute": "handed on",
}


def has_all_rights(caller: Caller) -> bool:
    """Tell whether the caller looks after the models of every site."""
    return caller.has_role("curator")


def visible_to(caller: Caller) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: the models that the caller may see.

    For queries that select from `ModelRecord` or join it.
    """
    if has_all_rights(caller):
        return true()
    granted = select(GrantRecord.model_id).where(GrantRecord.site_id == caller.site_id)
    return or_(
        ModelRecord.visibility == CONSORTIUM,
        ModelRecord.site_id == caller.site_id,
        and_(ModelRecord.visibility == SITES, ModelRecord.id.in_(granted)),
    )


def rights_of(caller: Caller, model: ModelRecord) -> frozenset[Right]:
    """Return what the caller may do with a model, which was loaded with its grants."""
    return ALL_RIGHTS if has_all_rights(caller) else rights_of_site(caller.site_id, model)


def rights_of_site(site_id: int, model: ModelRecord) -> frozenset[Right]:
    """Return what the people of a site may do with a model, which was loaded with its grants."""
    if site_id == model.site_id:
        return ALL_RIGHTS
    if model.visibility == CONSORTIUM:
        return _with_seeing(model.rights)
    if model.visibility == SITES:
        for grant in model.grants:
            if grant.site_id == site_id:
                return _with_seeing(grant.rights)
    return NO_RIGHTS


def may(caller: Caller, model: ModelRecord, right: Right) -> bool:
    """Tell whether the caller has a right to a model, which was loaded with its grants."""
    return right in rights_of(caller, model)


def require_right(caller: Caller, model: ModelRecord, right: Right) -> None:
    """Raise unless the caller has a right to a model that it may see.

    `model` was loaded with its site and grants, by a query limited by `visible_to`.

    Raises
    ------
    NotAllowedError
        Naming the right, and whom to ask.
    """
    if may(caller, model, right):
        return
    address = f"{model.site.name}/{model.name}"
    contact = f" ({model.site.contact})" if model.site.contact else ""
    raise NotAllowedError(
        f"{address} may be seen by site {caller.site!r}, but not {_DONE[right]}: its owner has "
        f"not granted the right {right!r}",
        code="right_missing",
        hint=f"Ask {model.site.name}{contact} for it; they grant it with "
        f"`poolctl models share {address}`.",
        details={"model": address, "right": right, "ask": model.site.name},
    )


def sharing_of_first(upload: UploadRecord) -> dict[str, Any]:
    """Return `visibility` and `rights` of the model whose first version an upload becomes."""
    if upload.visibility is None or upload.rights is None:
        return {}
    return {"visibility": upload.visibility, "rights": upload.rights}


def share_alike(model: ModelRecord, original: ModelRecord | None) -> None:
    """List for a new model that only listed sites see those that another model lists.

    The site of `original` is among them. Both were loaded with their grants.
    """
    if model.visibility != SITES or original is None:
        return
    rights = {grant.site_id: list(grant.rights) for grant in original.grants}
    rights[original.site_id] = list(model.rights)
    rights.pop(model.site_id, None)
    model.grants.extend(
        GrantRecord(site_id=site_id, rights=granted) for site_id, granted in rights.items()
    )


def _with_seeing(rights: Iterable[str]) -> frozenset[Right]:
    return frozenset({"see", *cast("Iterable[Right]", rights)}) & ALL_RIGHTS
