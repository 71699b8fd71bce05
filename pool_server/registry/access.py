"""The one rule of access: who sees a model or version in which state, and what they may do with it.

==================  ==============================================================================
right               what it allows
==================  ==============================================================================
``see``             finding the model, its labels, metrics, lineage, evaluations
``download``        fetching its file, and publishing a copy without sending the bytes again
``merge``           naming it as input of a merge, as base of a round
``redistribute``    passing it on: as a copy under another site's name, or in a bundle; for a
                    file that several sites have, its first publisher grants this
==================  ==============================================================================

The site of a model, and curators and admins of the whole pool, have all rights. To everybody else
a model that is not shared with them does not exist: the answer is the same as for one that is not
there. A refusal of, say, a download names the missing right and the site to ask for it.

A version's state narrows this further:

==============  ==========================================  ====================================
state           who sees it                                 how it comes about
==============  ==========================================  ====================================
``draft``       its own site, and curators of the pool      uploaded as one, or to a curated
                                                            pool by others than its curators, or
                                                            while the same file is quarantined;
                                                            or merged by a pool that demands
                                                            signatures
``available``   everybody who may see the model             uploaded, published, or released
``quarantined`` its own site, and curators of the pool      a curator doubts what was available
``withdrawn``   everybody who asks for it by number,        withdrawn with a reason, once it was
                digest or state; no listing shows it        available; who has it is notified
``deleted``     nobody; family trees keep its digest        deleted; number and name stay taken
==============  ==========================================  ====================================

Three forms of the same rule stand here side by side: conditions for queries (`visible_to`,
`readable_by`, `listed_for`), the rights of one loaded model (`rights_of`), and the terms that the
search index looks for (`access_terms`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, true
from sqlalchemy.orm import aliased

from pool_server.database import records
from pool_server.errors import ConflictError, NotAllowedError
from pool_server.http.identity import Caller
from pool_server.wire.models import RIGHTS, Right, StateChoice, VersionState, Visibility

DRAFT: VersionState = "draft"
AVAILABLE: VersionState = "available"
QUARANTINED: VersionState = "quarantined"
WITHDRAWN: VersionState = "withdrawn"
DELETED: VersionState = "deleted"

ANY: StateChoice = "any"
PUBLIC = (AVAILABLE, WITHDRAWN)
"""States in which everybody who may see the model may ask for the version."""
HIDDEN = (DRAFT, QUARANTINED)
"""States that only the own site and the pool's curators see; they wait for a curator."""

# Nearly every query has these conditions, and to build them takes as long as to run it.
_KEPT = 1024

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


@dataclass(frozen=True)
class Step:
    """A change of state, named by a word such as ``"published"``, and where it may start."""

    word: str
    starts: tuple[str, ...]
    end: str


PUBLISH = Step("published", (DRAFT,), AVAILABLE)
QUARANTINE = Step("quarantined", (AVAILABLE,), QUARANTINED)
RELEASE = Step("released", (QUARANTINED,), AVAILABLE)
WITHDRAW = Step("withdrawn", (AVAILABLE, QUARANTINED), WITHDRAWN)
DELETE = Step("deleted", (DRAFT, AVAILABLE, WITHDRAWN), DELETED)


def move(version: records.ModelVersionRecord, step: Step, actor: str, reason: str = "") -> None:
    """Change a version's state, or raise `ConflictError` if the step does not start there."""
    if version.state not in step.starts:
        raise ConflictError(
            f"version {version.number} is {version.state} and cannot be {step.word}; expected it "
            f"to be {' or '.join(step.starts)}",
            code="wrong_state",
            details={"found": version.state, "expected": list(step.starts)},
        )
    version.state = step.end
    version.state_reason = reason
    version.state_changed_at = records.now_utc()
    version.state_changed_by = actor


def curates_pool(caller: Caller) -> bool:
    """Return whether the caller is a curator or admin of the whole pool."""
    return caller.has_role("curator")


def viewing_site(caller: Caller) -> int | None:
    """Return the site as which the caller sees models; None for who sees all of them."""
    return None if curates_pool(caller) else caller.site_id


def visible_to(caller: Caller) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: the models that the caller may see.

    Other sites see a model only while it has a version that they may see; a model with nothing
    but drafts looks to them as if it did not exist.
    """
    if curates_pool(caller):
        return true()
    version = aliased(records.ModelVersionRecord)
    is_shown = (
        exists()
        .where(version.model_id == records.ModelRecord.id, version.state.in_(PUBLIC))
        .correlate(records.ModelRecord)
    )
    shared = and_(_visible(caller.site_id, curates=False), is_shown)
    return or_(records.ModelRecord.site_id == caller.site_id, shared)


def readable_by(caller: Caller) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord` and `ModelVersionRecord`: what the caller may ask for."""
    return readable(caller.site_id, curates=curates_pool(caller))


@lru_cache(_KEPT)
def readable(site_id: Any, *, curates: bool) -> ColumnElement[bool]:
    """Return `readable_by` for statements that are built once: `site_id` may be a parameter."""
    # An expression, so that no index of states is used: nearly all versions are available.
    state = func.coalesce(records.ModelVersionRecord.state, "")
    inside = true() if curates else records.ModelRecord.site_id == site_id
    shown = or_(state.in_(PUBLIC), and_(state.in_(HIDDEN), inside))
    return and_(_visible(site_id, curates=curates), shown)


def shared_with(site_id: Any) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: what is a site's own or shared with it, in any state."""
    return _visible(site_id, curates=False)


def known_to(site_id: Any) -> ColumnElement[bool]:
    """Return a condition as `readable_by`: what a site may ask for now, or has fetched before.

    What the pool has beyond that (private copies of the same file) neither binds a site nor shows
    in what it is answered.
    """
    fetched = select(records.DownloadRecord.version_id).where(
        records.DownloadRecord.site_id == site_id
    )
    return or_(readable(site_id, curates=False), records.ModelVersionRecord.id.in_(fetched))


def listed_for(caller: Caller, state: StateChoice | None = None) -> ColumnElement[bool]:
    """Return a condition as `readable_by`: the versions that a listing shows to the caller.

    Without `state`, all that are not withdrawn.
    """
    if state is None:
        return and_(readable_by(caller), records.ModelVersionRecord.state != WITHDRAWN)
    if state == ANY:
        return readable_by(caller)
    return and_(readable_by(caller), records.ModelVersionRecord.state == state)


def access_terms(
    caller: Caller, state: StateChoice | None, *, latest: bool = False
) -> list[tuple[str, ...]]:
    """Return groups of search terms of which a version that `listed_for` shows has one each.

    The terms are those of `pool_server.registry.search`.
    """
    if state is None:
        wanted: tuple[str, ...] = (AVAILABLE,) if latest else (AVAILABLE, *HIDDEN)
    else:
        wanted = (*PUBLIC, *HIDDEN) if state == ANY else (state,)
    if curates_pool(caller):
        return [tuple(f"x{each}" for each in wanted)]
    site = caller.site_id
    states = tuple(f"y{site}{each}" if each in HIDDEN else f"x{each}" for each in wanted)
    return [states, ("aall", f"a{site}")]


def rights_of(caller: Caller, model: records.ModelRecord) -> frozenset[Right]:
    """Return what the caller may do with a model, which was loaded with its grants."""
    return ALL_RIGHTS if curates_pool(caller) else rights_of_site(caller.site_id, model)


def rights_of_site(site_id: int, model: records.ModelRecord) -> frozenset[Right]:
    """Return what the people of a site may do with a model, which was loaded with its grants."""
    if site_id == model.site_id:
        return ALL_RIGHTS
    if model.visibility == CONSORTIUM:
        return _add_see(model.rights)
    if model.visibility == SITES:
        for grant in model.grants:
            if grant.site_id == site_id:
                return _add_see(grant.rights)
    return NO_RIGHTS


def may(caller: Caller, model: records.ModelRecord, right: Right) -> bool:
    """Return whether the caller has a right to a model, which was loaded with its grants."""
    return right in rights_of(caller, model)


def require_right(caller: Caller, model: records.ModelRecord, right: Right) -> None:
    """Raise unless the caller has a right to a model, which was loaded by `visible_to`."""
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


def _add_see(rights: Iterable[str]) -> frozenset[Right]:
    return frozenset({"see", *cast("Iterable[Right]", rights)}) & ALL_RIGHTS


@lru_cache(_KEPT)
def _visible(site_id: Any, *, curates: bool) -> ColumnElement[bool]:
    if curates:
        return true()
    granted = select(records.GrantRecord.model_id).where(records.GrantRecord.site_id == site_id)
    return or_(
        records.ModelRecord.visibility == CONSORTIUM,
        records.ModelRecord.site_id == site_id,
        and_(records.ModelRecord.visibility == SITES, records.ModelRecord.id.in_(granted)),
    )
