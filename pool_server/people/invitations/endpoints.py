"""Addresses of invitations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from pool_server.errors import TooManyRequestsError
from pool_server.http.error_responses import documented, request_id_of
from pool_server.http.identity import SiteAdmin, needs
from pool_server.http.rate_limits import Limits, client_address, limited_by
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.invitations import repository, service
from pool_server.people.tokens.creators import find_creators
from pool_server.people.tokens.endpoints import TOO_MANY
from pool_server.wire.people.tokens import TokenCreatedResponse
from pool_server.wire.people.users import (
    AcceptanceRequest,
    InvitationCreatedResponse,
    InvitationList,
    InvitationRequest,
)

router = APIRouter(prefix="/invitations", tags=["users"])


@router.get("", dependencies=[needs("admin")], summary="List the invitations")
def list_invitations(caller: SiteAdmin, session: ReadingSession) -> InvitationList:
    """Return invitations to one's own site, newest first; to all for the pool's admins."""
    found, creators = (
        repository.list_invitations(session, caller),
        find_creators(session).invitations,
    )
    return InvitationList(
        items=[service.describe_invitation(each, creators.get(each.id)) for each in found]
    )


@router.post(
    "",
    status_code=201,
    dependencies=[needs("admin")],
    summary="Invite somebody",
    responses=documented(TooManyRequestsError),
)
def invite(
    caller: SiteAdmin, session: WritingSession, limits: Limits, request: InvitationRequest
) -> InvitationCreatedResponse:
    """Invite one person to a site. The answer holds the secret to pass on, this once.

    For admins of the site.
    """
    limits.token_acts.take(caller.token_id, TOO_MANY)
    return service.invite(session, caller, request)


@router.post(
    "/accept",
    status_code=201,
    summary="Accept an invitation",
    responses=documented(TooManyRequestsError),
)
def accept(
    http_request: Request, session: WritingSession, limits: Limits, request: AcceptanceRequest
) -> TokenCreatedResponse:
    """Become a user of the site that invited, and get a first token. Needs no token.

    An invitation is used once.
    """
    address = client_address(http_request)
    limits.acceptances.take(limited_by(address), "invitations from your address")
    return service.accept(session, request, address=address, request_id=request_id_of(http_request))


@router.delete(
    "/{invitation_id}",
    status_code=204,
    dependencies=[needs("admin")],
    summary="Revoke an invitation",
    responses=documented(TooManyRequestsError),
)
def revoke_invitation(
    caller: SiteAdmin,
    session: WritingSession,
    limits: Limits,
    invitation_id: Annotated[
        str,
        Path(
            pattern="^[0-9a-f]{16}$",
            description="Identifier from the list of invitations.",
            examples=["4f1d2c3b4a596877"],
        ),
    ],
) -> None:
    """Make an invitation worthless; one that was used or is over stays as it is."""
    limits.token_acts.take(caller.token_id, TOO_MANY)
    service.revoke_invitation(session, caller, invitation_id)
