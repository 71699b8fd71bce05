"""The states of a version: who is shown it in which, and how it gets from one to another.

==============  ==========================================  ====================================
state           who sees it                                 how it comes about
==============  ==========================================  ====================================
``draft``       its own site, and curators of the pool      uploaded as one, or by a contributor
                                                            to a curated pool, or while the same
                                                            file is quarantined; or merged by a
                                                            pool that demands signatures
``available``   everybody who may see the model             uploaded, published, or released
``quarantined`` its own site, and curators of the pool      a curator doubts what was available
``withdrawn``   everybody who asks for it by number,        withdrawn with a reason, once it was
                digest or state; no listing shows it        available; who has it is told
``deleted``     nobody; family trees keep its digest        deleted; number and name stay taken
==============  ==========================================  ====================================

A state only narrows: whether a caller may see the model at all is a question of its visibility
(`pool_server.models.registry.sharing`). The conditions here are for queries that join
`ModelRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

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

ANY: StateChoice = "any"
HIDDEN = (DRAFT, QUARANTINED)
"""States that only the own site and the pool's curators see; they wait for a curator."""


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
QUARANTINE = Step("quarantined", (AVAILABLE,), QUARANTINED)
RELEASE = Step("released", (QUARANTINED,), AVAILABLE)
WITHDRAW = Step("withdrawn", (AVAILABLE, QUARANTINED), WITHDRAWN)
DELETE = Step("deleted", (DRAFT, AVAILABLE, WITHDRAWN), DELETED)


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
        return or_(ModelVersionRecord.state == AVAILABLE, _hidden_for(caller))
    condition = or_(ModelVersionRecord.state.in_((AVAILABLE, WITHDRAWN)), _hidden_for(caller))
    return condition if state == ANY else and_(ModelVersionRecord.state == state, condition)


def readable_by(caller: Caller) -> ColumnElement[bool]:
    """Return which versions `caller` can ask for one by one, as far as their state goes."""
    return listed_for(caller, ANY)


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
    inside = found in HIDDEN and (site_id == caller.site_id or curates_pool(caller))
    if not (inside or found in {AVAILABLE, WITHDRAWN}):
        return False
    return found != WITHDRAWN if wanted is None else wanted in {ANY, found}


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
        raise ConflictError(
            f"version {version.number} is {version.state} and cannot be {step.word}; expected it "
            f"to be {' or '.join(step.starts)}",
            code="wrong_state",
            details={"found": version.state, "expected": list(step.starts)},
        )
    version.state = step.end
    version.state_reason = reason
    version.state_changed_at = now_utc()
    version.state_changed_by = actor


def _hidden_for(caller: Caller) -> ColumnElement[bool]:
    hidden = ModelVersionRecord.state.in_(HIDDEN)
    return hidden if curates_pool(caller) else and_(hidden, ModelRecord.site_id == caller.site_id)
