"""``poolctl admin invitations``: letting people in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.admin.tokens import PoolWideOption, RoleOption, day, role_words
from cli.frame.options import DryRunOption, YesOption, command, group
from cli.frame.output import Invocation, Reply, listing

if TYPE_CHECKING:
    from pool_server.wire.people import InvitationResponse

app = group("Invite people to a site, list and revoke invitations.")


@command(app, "ls", examples=["admin invitations ls"])
def ls(invocation: Invocation) -> Reply:
    """List invitations to your site, newest first. Pool admins see all sites."""
    with invocation.pool() as pool:
        invitations = pool.invitations.list()
    return listing(
        invitations,
        ["id", "site", "role", "e-mail", "by", "state"],
        lambda each: [
            each.invitation_id,
            each.site,
            role_words(each.role, pool_wide=each.pool_wide),
            each.email,
            each.made_by or each.created_by,
            _state(each),
        ],
        empty="no invitations",
    )


@command(
    app,
    "create",
    examples=[
        "admin invitations create infant-lab",
        "admin invitations create infant-lab --role admin --email ada@lab.example",
    ],
)
def create(
    invocation: Invocation,
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site.")],
    *,
    role: RoleOption = "contributor",
    pool_wide: PoolWideOption = False,
    email: Annotated[
        str,
        typer.Option(help="The person's e-mail address, for your information; nothing is sent."),
    ] = "",
    expires_in_days: Annotated[int, typer.Option(min=1, max=90, metavar="DAYS")] = 7,
) -> Reply:
    """Invite one person, and print the secret to pass on. It is shown only once."""
    with invocation.pool() as pool:
        made = pool.invitations.create(
            site, role=role, pool_wide=pool_wide, email=email, expires_in_days=expires_in_days
        )
        endpoint = pool.endpoint
    invocation.note(
        f"invitation {made.invitation_id} to {made.site} "
        f"({role_words(made.role, pool_wide=made.pool_wide)}), until {day(made.expires_at)}; it is "
        f"shown only now, and used once: poolctl auth accept-invitation {endpoint} --name NAME"
    )
    return Reply(made, made.secret, [made.secret])


@command(app, "revoke", examples=["admin invitations revoke INVITATION_ID --yes"])
def revoke(
    invocation: Invocation,
    invitation_id: Annotated[
        str,
        typer.Argument(metavar="INVITATION_ID", help="As 'poolctl admin invitations ls' shows it."),
    ],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Revoke an invitation. A user who has accepted it stays."""
    data = {"invitation_id": invitation_id, "revoked": not dry_run}
    if dry_run:
        return Reply(data, f"would revoke invitation {invitation_id}", [invitation_id])
    invocation.confirm(f"Revoke invitation {invitation_id}?", assume_yes=yes)
    with invocation.pool() as pool:
        pool.invitations.revoke(invitation_id)
    return Reply(data, f"revoked invitation {invitation_id}", [invitation_id])


def _state(invitation: InvitationResponse) -> str:
    if invitation.used_at is not None:
        return f"used {day(invitation.used_at)} by {invitation.used_by}"
    if invitation.revoked_at is not None:
        return f"revoked {day(invitation.revoked_at)}"
    return f"until {day(invitation.expires_at)}"
