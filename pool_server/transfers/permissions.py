"""What the owners of other models must have granted before a file may be announced.

That somebody knows a digest proves nothing: it may come from a family tree or a recipe. Who may
not download a file that the pool has must send it, and hears nothing of it: the announcement is
answered as if the file were new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from pool_server.http.identity import Caller
from pool_server.records import ModelRecord
from pool_server.registry import repository as registry
from pool_server.registry.sharing import CONSORTIUM, Right, may, require_right

# A copy in the hands of another site comes with all rights for that site: copying what everybody
# may download and merge gives nobody anything new.
FREELY_COPIED: frozenset[Right] = frozenset({"download", "merge"})


def require_merge_rights(session: Session, caller: Caller, parents: Collection[str]) -> None:
    """Raise unless the caller may merge every parent that it may see in the pool.

    Parents that it may not see are as those that the pool does not have. Where the pool has a
    parent under several names, one that may be merged is enough.

    Raises
    ------
    RightMissingError
        Naming the parent.
    """
    for homes in registry.visible_homes(session, caller, parents).values():
        if not any(may(caller, model, "merge") for model in homes):
            require_right(caller, homes[0], "merge")


def require_copy_rights(caller: Caller, site_id: int, homes: Sequence[ModelRecord]) -> None:
    """Raise unless a file that the caller may see at `homes` may become a model of a site.

    Raises
    ------
    RightMissingError
        Naming a model that is not to be handed on.
    """
    if homes and not any(_may_copy(caller, site_id, model) for model in homes):
        require_right(caller, homes[0], "redistribute")


def _may_copy(caller: Caller, site_id: int, model: ModelRecord) -> bool:
    return (
        model.site_id == site_id
        or may(caller, model, "redistribute")
        or (model.visibility == CONSORTIUM and set(model.rights) >= FREELY_COPIED)
    )
