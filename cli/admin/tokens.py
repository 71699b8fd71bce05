"""``poolctl admin tokens``: who may do what at a pool."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from cli.frame.errors import UsageError
from cli.frame.options import Argument, DryRunOption, Option, YesOption, command, group, single
from cli.frame.output import Invocation, Reply, TableText, listing

if TYPE_CHECKING:
    from pool_server.wire.people import InvitationResponse, TokenResponse


app = group("List, create and revoke tokens (admin).")

RoleOption = Annotated[
    Literal["viewer", "contributor", "curator", "admin"],
    Option("Each role includes the ones before it; see 'poolctl admin roles'."),
]
PoolWideOption = Annotated[bool, Option("The role holds for every site (pool admins only).")]


@command(app, "ls", "admin tokens ls")
def list_tokens(invocation: Invocation) -> Reply:
    """List the tokens of the sites that you manage. Secrets are not stored and not shown."""
    with invocation.pool() as pool:
        tokens = pool.tokens.list()
    return listing(
        tokens,
        ["id", "token", "role", "user", "made by", "scopes", "state", "last used"],
        lambda token: [
            token.token_id,
            f"{token.site}/{token.name}",
            role_words(token.role, pool_wide=token.pool_wide),
            token.user or "",
            token.made_by or "",
            "all" if token.scopes is None else " ".join(token.scopes) or "none",
            _token_state(token),
            day(token.last_used_at) or "never",
        ],
        keep=("token", "state", "role", "user", "last used"),
        empty="no tokens",
    )


@command(
    app,
    "create",
    "admin tokens create infant-lab laptop",
    "admin tokens create infant-lab readonly --role viewer --expires-in-days 90",
    "admin tokens create infant-lab desk --scope models:read --scope merges --user ada",
    "admin tokens create infant-lab nightly --for-machine",
)
def create_token(
    invocation: Invocation,
    site: Annotated[str, Argument("The site.", "SITE")],
    name: Annotated[
        str, Argument("A name that says what the token is for, such as laptop.", "NAME")
    ],
    *,
    role: RoleOption = "contributor",
    pool_wide: PoolWideOption = False,
    scope: Annotated[
        Sequence[str],
        Option("Restrict the token to a scope; repeatable. Default: all of its role.", "SCOPE"),
    ] = (),
    user: Annotated[
        str,
        Option("The owner, who bounds its rights. Default: you, if you are of the site.", "USER"),
    ] = "",
    for_machine: Annotated[
        bool, Option("The site owns the token, not a user: it stays valid when you are disabled.")
    ] = False,
    expires_in_days: Annotated[
        int | None, Option("Days until it expires. Default: never.", "DAYS", min=1, max=3660)
    ] = None,
) -> Reply:
    """Create a token for a site, and print its secret. It is shown only once."""
    if user and for_machine:
        raise UsageError("a token is either a user's (--user) or --for-machine, not both")
    with invocation.pool() as pool:
        token = pool.tokens.create(
            site,
            name,
            role=role,
            pool_wide=pool_wide,
            scopes=scope or None,
            user=user or None,
            for_machine=for_machine,
            expires_in_days=expires_in_days,
        )
        endpoint = pool.endpoint
    invocation.note(
        f"token {token.token_id} of {token.site}/{token.name} "
        f"({role_words(token.role, pool_wide=token.pool_wide)}, "
        f"{f'user {token.user}' if token.user else 'owned by the site'}); it is shown only "
        f"now. Its holder logs in with: poolctl auth login {endpoint}"
    )
    return Reply(token, token.secret, [token.secret])


@command(app, "revoke", "admin tokens revoke TOKEN_ID --yes")
def revoke_token(
    invocation: Invocation,
    token_id: Annotated[str, Argument("As 'poolctl admin tokens ls' shows it.", "TOKEN_ID")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Revoke a token permanently."""
    return _revoke(invocation, "token", token_id, yes=yes, dry_run=dry_run)


def _revoke(invocation: Invocation, what: str, key: str, *, yes: bool, dry_run: bool) -> Reply:
    data = {f"{what}_id": key, "revoked": not dry_run}
    if dry_run:
        return Reply(data, f"would revoke {what} {key}", [key])
    invocation.confirm(f"Revoke {what} {key}?", assume_yes=yes)
    with invocation.pool() as pool:
        (pool.tokens if what == "token" else pool.invitations).revoke(key)
    return Reply(data, f"revoked {what} {key}", [key])


def role_words(role: str, *, pool_wide: bool) -> str:
    return f"{role} (pool)" if pool_wide else role


def day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment is not None else ""


def _token_state(token: "TokenResponse") -> str:
    if token.revoked_at is not None:
        return f"revoked {day(token.revoked_at)}"
    return f"until {day(token.expires_at)}" if token.expires_at else "valid"


# ``poolctl admin invitations``: letting people in.
invitations_app = group("Invite people to a site, list and revoke invitations.")


@command(invitations_app, "ls", "admin invitations ls")
def list_invitations(invocation: Invocation) -> Reply:
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
            _invitation_state(each),
        ],
        keep=("state", "site", "e-mail", "role"),
        empty="no invitations",
    )


@command(
    invitations_app,
    "create",
    "admin invitations create infant-lab",
    "admin invitations create infant-lab --role admin --email ada@lab.example",
)
def create_invitation(
    invocation: Invocation,
    site: Annotated[str, Argument("The site.", "SITE")],
    *,
    role: RoleOption = "contributor",
    pool_wide: PoolWideOption = False,
    email: Annotated[
        str, Option("The person's e-mail address, for your information; nothing is sent.")
    ] = "",
    expires_in_days: Annotated[int, Option("", "DAYS", min=1, max=90)] = 7,
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


@command(invitations_app, "revoke", "admin invitations revoke INVITATION_ID --yes")
def revoke_invitation(
    invocation: Invocation,
    invitation_id: Annotated[
        str, Argument("As 'poolctl admin invitations ls' shows it.", "INVITATION_ID")
    ],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Revoke an invitation. A user who has accepted it stays."""
    return _revoke(invocation, "invitation", invitation_id, yes=yes, dry_run=dry_run)


def _invitation_state(invitation: "InvitationResponse") -> str:
    if invitation.used_at is not None:
        return f"used {day(invitation.used_at)} by {invitation.used_by}"
    if invitation.revoked_at is not None:
        return f"revoked {day(invitation.revoked_at)}"
    return f"until {day(invitation.expires_at)}"


# ``poolctl admin roles``: what people and tokens may do.
roles_app = single()

_ROLES = {
    "viewer": "see and fetch what is shared with the site",
    "contributor": "also upload, share, merge, take part in rounds, post scores",
    "curator": "also decide what is published: the pool's curators for every site",
    "admin": "also look after users, invitations and tokens: the pool's admins of every site",
}


@command(roles_app, "roles", "admin roles")
def roles(_invocation: Invocation) -> Reply:
    """Explain the roles, each of which includes the ones before it, and the scopes."""
    from pool_server.wire.people import SCOPES

    table = TableText(["role", "may"], [[name, text] for name, text in _ROLES.items()])
    scopes = TableText(
        ["scope", "a token narrowed to it may"], [[name, text] for name, text in SCOPES.items()]
    )
    data = {"roles": _ROLES, "scopes": SCOPES}
    return Reply(data, [table, "", scopes], list(_ROLES))
