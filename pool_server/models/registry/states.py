"""The states of a version: who is shown it in which, and how it gets from one to another.

==============  ==========================================  ====================================
state           who sees it                                 how it comes about
==============  ==========================================  ====================================
``draft``       its own site, and curators of the pool      uploaded as one, or by a contributor
                                                            to a pool that is curated; or merged by
                                                            a pool that demands signatures
``available``   everybody who may see the model             uploaded, published, or released
``quarantined`` its own site, and curators of the pool      a curator doubts it
``withdrawn``   everybody who asks for it by number,        withdrawn with a reason; so are told
                digest or state; no listing shows it        those who have it already
``retracted``   as ``withdrawn``, which it is told as, but  withdrawn before it was ever available
                only its own site and curators of the pool
``deleted``     nobody; family trees keep its digest        deleted; number and name stay taken
==============  ==========================================  ====================================

A state only narrows: whether a caller may see the model at all is a question of its visibility
(`pool_server.models.registry.sharing`). The conditions here are for queries that join
`ModelRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from sqlalchemy import ColumnElement, Label, and_, bindparam, or_, select

from pool_server.database.records import GrantRecord, ModelRecord, ModelVersionRecord, now_utc
from pool_server.errors import ConflictError
from pool_server.http.identity import Caller
from pool_server.models.registry.sharing import CONSORTIUM, SITES, has_all_rights
from pool_server.wire.models.models import StateChoice, VersionState

DRAFT: VersionState = "draft"
AVAILABLE: VersionState = "available"
QUARANTINED: VersionState = "quarantined"
WITHDRAWN: VersionState = "withdrawn"
DELETED: VersionState = "deleted"
# A state of its own, for search knows states, and asks nothing else of who may see a version.
RETRACTED: Literal["retracted"] = "retracted"

ANY: StateChoice = "any"
WAITING = (DRAFT, QUARANTINED)
"""States in which a version waits for a curator, or for its owner."""
INSIDE = (*WAITING, RETRACTED)
"""States that only the own site and the pool's curators see."""


@dataclass(frozen=True)
class Step:
    """A change of state that has a name.

    Attributes
    ----------
    word : str
        What was done, as the audit and messages say it (``"published"``).
    starts : tuple of str
        States from which it is possible.
    end : str
    """

    word: str
    starts: tuple[str, ...]
    end: str


PUBLISH = Step("published", (DRAFT,), AVAILABLE)
QUARANTINE = Step("quarantined", (DRAFT, AVAILABLE), QUARANTINED)
HOLD = Step("quarantined", (DRAFT, AVAILABLE, QUARANTINED), QUARANTINED)
"""What a curator of the pool does, also to what a site has quarantined itself."""
RELEASE = Step("released", (QUARANTINED,), AVAILABLE)
WITHDRAW = Step("withdrawn", (DRAFT, AVAILABLE, QUARANTINED), WITHDRAWN)
RETRACT = Step("withdrawn", (DRAFT, QUARANTINED), RETRACTED)
DELETE = Step("deleted", (DRAFT, AVAILABLE, QUARANTINED, WITHDRAWN, RETRACTED), DELETED)


def told_as(stored: str) -> VersionState:
    """Return what clients are told of a state as it is stored."""
    return WITHDRAWN if stored == RETRACTED else cast("VersionState", stored)


def stored_as(state: str) -> tuple[str, ...]:
    """Return the stored states that clients are told of as `state`."""
    return (WITHDRAWN, RETRACTED) if state == WITHDRAWN else (state,)


def withdrawing(version: ModelVersionRecord) -> Step:
    """Return the step that withdraws a version: nothing is shown of what was never available."""
    return WITHDRAW if version.was_available else RETRACT


def curates_pool(caller: Caller) -> bool:
    """Tell whether the caller is a curator or admin of the whole pool."""
    return caller.has_role("curator")


def listed_for(caller: Caller, state: StateChoice | None = None) -> ColumnElement[bool]:
    """Return which versions a listing shows to `caller`, as far as their state goes.

    Parameters
    ----------
    state : StateChoice, optional
        Only versions in this state; ``any`` adds those that are withdrawn. When None, all that
        are available, with the drafts and quarantined versions that the caller may see.
    """
    if state is None:
        return or_(ModelVersionRecord.state == AVAILABLE, _inside_for(caller, WAITING))
    condition = or_(
        ModelVersionRecord.state.in_((AVAILABLE, WITHDRAWN)), _inside_for(caller, INSIDE)
    )
    if state == ANY:
        return condition
    return and_(ModelVersionRecord.state.in_(stored_as(state)), condition)


def readable_by(caller: Caller) -> ColumnElement[bool]:
    """Return which versions `caller` can ask for one by one, as far as their state goes."""
    return listed_for(caller, ANY)


def traced_by(caller: Caller) -> ColumnElement[bool]:
    """Return whose recipes `caller` may be told of, as far as the state of the versions goes.

    Deleted versions keep what they were made of. Of one that was never available nobody is told
    more once it is deleted than before.
    """
    gone = ModelVersionRecord.state == DELETED
    if not curates_pool(caller):
        is_own = ModelRecord.site_id == caller.site_id
        gone = and_(gone, or_(ModelVersionRecord.was_available, is_own))
    return or_(readable_by(caller), gone)


def is_still_traced(caller: Caller, version: Standing, *, was_available: bool) -> bool:
    """Tell what `visible_to` and `traced_by` say of one version that `is_shown` to nobody."""
    if version.state != DELETED:
        return False
    may_know = was_available or version.site_id == caller.site_id or curates_pool(caller)
    return may_know and is_visible(caller, version)


def standing_columns() -> list[Label[Any]]:
    """Select what decides whether a caller is shown a version: the fields of `Standing`, in order.

    Whoever asks, in whichever state, the statement is the same: it is made, and planned, once.
    The parameter ``caller_site`` is the number of the caller's site.
    """
    granted = select(GrantRecord.model_id).where(GrantRecord.site_id == bindparam("caller_site"))
    return [
        ModelRecord.site_id.label("site_id"),
        ModelRecord.visibility.label("visibility"),
        ModelRecord.id.in_(granted).label("is_granted"),
        ModelVersionRecord.state.label("state"),
    ]


class Standing(Protocol):
    """What was selected by `standing_columns`."""

    @property
    def site_id(self) -> int: ...
    @property
    def visibility(self) -> str: ...
    @property
    def is_granted(self) -> bool: ...
    @property
    def state(self) -> str: ...


def is_visible(caller: Caller, version: Standing) -> bool:
    """Tell what `visible_to` says of the model of one version."""
    return (
        version.visibility == CONSORTIUM
        or version.site_id == caller.site_id
        or (version.visibility == SITES and version.is_granted)
        or has_all_rights(caller)
    )


def is_shown(caller: Caller, version: Standing, state: StateChoice | None = ANY) -> bool:
    """Tell what `visible_to` and `listed_for` say of one version."""
    listed = is_listed(caller, version.site_id, version.state, state)
    return listed and is_visible(caller, version)


def is_listed(caller: Caller, site_id: int, found: str, wanted: StateChoice | None) -> bool:
    """Tell what `listed_for` says of a version of a site in a state."""
    inside = found in INSIDE and (site_id == caller.site_id or curates_pool(caller))
    if not (inside or found in {AVAILABLE, WITHDRAWN}):
        return False
    if wanted is None:
        return told_as(found) != WITHDRAWN
    return wanted in {ANY, told_as(found)}


def readable_now(caller: Caller, version: ModelVersionRecord) -> bool:
    """Tell what `readable_by` says of one version, whose model must be loaded."""
    return is_listed(caller, version.model.site_id, version.state, ANY)


def move(version: ModelVersionRecord, step: Step, actor: str, reason: str = "") -> None:
    """Change a version's state.

    Parameters
    ----------
    actor : str
        Site and token of who does it.
    reason : str
        Shown with the state; empty for none.

    Raises
    ------
    ConflictError
        The step does not begin where the version is.
    """
    if version.state not in step.starts:
        found, starts = told_as(version.state), list(dict.fromkeys(map(told_as, step.starts)))
        raise ConflictError(
            f"the version is {found} and cannot be {step.word}; expected it to be "
            f"{' or '.join(starts)}",
            code="wrong_state",
            details={"found": found, "expected": starts},
        )
    version.state = step.end
    if step.end == AVAILABLE:
        version.was_available, version.held_by_pool = True, False
    version.state_reason = reason
    version.state_changed_at = now_utc()
    version.state_changed_by = actor


def _inside_for(caller: Caller, states: tuple[str, ...]) -> ColumnElement[bool]:
    inside = ModelVersionRecord.state.in_(states)
    if curates_pool(caller):
        return inside
    return and_(inside, ModelRecord.site_id == caller.site_id)
