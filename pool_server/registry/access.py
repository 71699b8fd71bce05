"""The one rule of access: the visibility of models and versions, and the rights to use them.

==================  ==============================================================================
right               it allows
==================  ==============================================================================
``see``             finding the model, its labels, metrics, lineage, evaluations
``download``        fetching its file, and publishing a copy without sending the bytes again
``merge``           naming it as input of a merge, as base of a round
``redistribute``    passing it on: as a copy under another site's name, or in an export; for a
                    file that several sites have, its first publisher grants this
==================  ==============================================================================

A model's site, and curators and admins of the whole pool, have all rights. To all others a model
that is not shared with them does not exist: they get the same answer as for a missing one. The
refusal of, for example, a download names the missing right and the site to ask for it.

A version's state narrows this further:

==============  ==========================================  ====================================
state           visible to                                  reached by
==============  ==========================================  ====================================
``draft``       its own site, and curators of the pool      an upload as draft, or to a curated
                                                            pool by others than its curators, or
                                                            while the same file is quarantined;
                                                            or a merge by a pool that demands
                                                            signatures
``available``   all sites that may see the model            upload, publication, or release
``quarantined`` its own site, and curators of the pool      a curator's doubt in an available one
``withdrawn``   all sites that ask for it by number,        withdrawal of an available version,
                digest or state; no listing shows it        with a reason; downloaders are notified
``deleted``     nobody; family trees keep its digest        deletion; number and name stay used
==============  ==========================================  ====================================

Two forms of the same rule stand here side by side: conditions for queries (`visible_to`,
`readable_by`, `listed_for`), and the rights of one loaded model (`rights_of`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

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
"""States in which all sites that may see the model may ask for the version."""
HIDDEN = (DRAFT, QUARANTINED)
"""States visible only to the own site and the pool's curators; they await a curator."""

# Nearly every query has these conditions, and building them takes as long as running it.
_CACHED_CONDITIONS = 1024

ALL_RIGHTS: frozenset[Right] = frozenset(RIGHTS)
NO_RIGHTS: frozenset[Right] = frozenset()
PRIVATE: Visibility = "private"
SITES: Visibility = "sites"
CONSORTIUM: Visibility = "consortium"
_PARTICIPLES: dict[Right, str] = {
    "see": "seen",
    "download": "downloaded",
    "merge": "merged with others",
    "redistribute": "passed on",
}


@dataclass(frozen=True)
class Step:
    """A change of state from one of `starts` to `end`, named by a participle (``"published"``)."""

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
        )
    version.state = step.end
    version.state_reason = reason
    version.state_changed_at = records.now_utc()
    version.state_changed_by = actor


def curates_pool(caller: Caller) -> bool:
    """Return whether the caller is a curator or admin of the whole pool."""
    return caller.has_role("curator")


def viewing_site(caller: Caller) -> int | None:
    """Return the site through which the caller sees models; None if the caller sees all of them."""
    return None if curates_pool(caller) else caller.site_id


def visible_to(caller: Caller) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: the models that the caller may see.

    Other sites see a model only while it has a version that they may see; a model with only drafts
    looks to them as if it did not exist.
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
    """Return a condition on `ModelRecord` and `ModelVersionRecord`: versions the caller may see."""
    return readable(caller.site_id, curates=curates_pool(caller))


@lru_cache(_CACHED_CONDITIONS)
def readable(site_id: object, *, curates: bool) -> ColumnElement[bool]:
    """Return `readable_by` for statements that are built once: `site_id` may be a parameter."""
    # An expression disables the index of states, useless because nearly all versions are available.
    state = func.coalesce(records.ModelVersionRecord.state, "")
    inside = true() if curates else records.ModelRecord.site_id == site_id
    shown = or_(state.in_(PUBLIC), and_(state.in_(HIDDEN), inside))
    return and_(_visible(site_id, curates=curates), shown)


def shared_with(site_id: object) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: the site's own models and those shared with it.

    The states of versions do not matter.
    """
    return _visible(site_id, curates=False)


def known_to(site_id: object) -> ColumnElement[bool]:
    """Return a condition as `readable_by`: versions that a site may see now or has downloaded.

    Other copies in the pool (private ones of the same file) neither bind the site nor influence its
    answers.
    """
    fetched = select(records.DownloadRecord.version_id).where(
        records.DownloadRecord.site_id == site_id
    )
    return or_(readable(site_id, curates=False), records.ModelVersionRecord.id.in_(fetched))


def listed_for(caller: Caller, state: StateChoice | None = None) -> ColumnElement[bool]:
    """Return a condition as `readable_by`: the versions that a listing shows to the caller.

    Without `state`, all except withdrawn ones.
    """
    if state is None:
        return and_(readable_by(caller), records.ModelVersionRecord.state != WITHDRAWN)
    if state == ANY:
        return readable_by(caller)
    states = HIDDEN if state == "waiting" else (state,)
    return and_(readable_by(caller), records.ModelVersionRecord.state.in_(states))


def rights_of(caller: Caller, model: records.ModelRecord) -> frozenset[Right]:
    """Return the caller's rights to a model that was loaded with its grants."""
    return ALL_RIGHTS if curates_pool(caller) else rights_of_site(caller.site_id, model)


def rights_of_site(site_id: int, model: records.ModelRecord) -> frozenset[Right]:
    """Return a site's rights to a model that was loaded with its grants."""
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
    """Return whether the caller has a right to a model that was loaded with its grants."""
    return right in rights_of(caller, model)


def require_right(caller: Caller, model: records.ModelRecord, right: Right) -> None:
    """Raise unless the caller has a right to a model that was loaded by `visible_to`."""
    if may(caller, model, right):
        return
    address = f"{model.site.name}/{model.name}"
    contact = f" ({model.site.contact})" if model.site.contact else ""
    raise NotAllowedError(
        f"{address} can be seen by site {caller.site!r}, but not {_PARTICIPLES[right]}: "
        f"its owner has not granted the right {right!r}",
        code="right_missing",
        hint=f"Ask {model.site.name}{contact} for it; they grant it with `poolctl models share "
        f"{address}`.",
    )


def _add_see(rights: Iterable[str]) -> frozenset[Right]:
    return frozenset({"see", *cast("Iterable[Right]", rights)}) & ALL_RIGHTS


@lru_cache(_CACHED_CONDITIONS)
def _visible(site_id: object, *, curates: bool) -> ColumnElement[bool]:
    if curates:
        return true()
    granted = select(records.GrantRecord.model_id).where(records.GrantRecord.site_id == site_id)
    return or_(
        records.ModelRecord.visibility == CONSORTIUM,
        records.ModelRecord.site_id == site_id,
        and_(records.ModelRecord.visibility == SITES, records.ModelRecord.id.in_(granted)),
    )
