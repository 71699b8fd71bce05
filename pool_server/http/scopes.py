"""What a token may be narrowed to, declared by each route.

A token without scopes may all that its role may; one with scopes only what they name, and never
more than its role. Every route that takes a token declares what it needs, where the router or the
route itself is made::

    router = APIRouter(prefix="/rounds", tags=["rounds"], dependencies=[needs("rounds")])

A route that declares nothing is closed to tokens with scopes.
"""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from pool_server.errors import NotAllowedError
from pool_server.wire.people.sites import Scope

_DECLARED = "pool_scopes"


def needs(*scopes: Scope) -> Any:
    """Return a dependency that says which scopes a route needs: all of these.

    Without any, every valid token will do. Dependencies of routers and routes run before those
    of parameters, so that `require_declared_scopes` knows when the token is looked at.
    """

    async def declare(request: Request) -> None:
        request.scope[_DECLARED] = request.scope.get(_DECLARED, frozenset()) | set(scopes)

    return Depends(declare)


def require_declared_scopes(request: Request, granted: frozenset[str] | None) -> None:
    """Raise `NotAllowedError` unless a token's scopes suffice for the route of a request."""
    if granted is None:
        return
    declared = request.scope.get(_DECLARED)
    missing = ["all of them"] if declared is None else sorted(declared - granted)
    if missing:
        raise NotAllowedError(
            f"this token is narrowed to {', '.join(sorted(granted)) or 'nothing'}; this needs the "
            f"scope {' and '.join(missing)}",
            hint="Ask an admin of your site for a token with that scope.",
            details={"scopes": missing},
        )
