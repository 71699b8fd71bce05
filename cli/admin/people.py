"""``poolctl admin people``: let people and machines in, change them, shut them out."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, YesOption, command, group
from cli.frame.output import Invocation, Reply, TableText, listing
from pool_server.wire.people import SCOPES, InvitationResponse, Role, TokenResponse, UserResponse
from site_agent.pool.profiles import is_this_machine
from site_agent.pool.storage_connection import address_with_pin
from site_agent.tasks.model_files import whole_id

app = group("Let people and machines in, change their roles, shut them out.")

UserArgument = Annotated[str, Argument("As 'poolctl admin people ls' shows it.", "SITE/USER")]
RoleOption = Annotated[
    Role, Option("Each role includes the ones before it; see 'poolctl admin people ls roles'.")
]
PoolWideOption = Annotated[bool, Option("The role holds for every site (pool admins only).")]


_ROLES = {
    "viewer": "see and fetch what is shared with the site",
    "contributor": "also upload, share, merge, take part in rounds, post scores",
    "curator": "also decide on publication: pool curators, for every site",
    "admin": "also manage users, invitations and tokens: pool admins, for every site",
}


@command(app, "ls", "admin people ls", "admin people ls tokens", "admin people ls roles")
def ls(
    invocation: Invocation,
    kind: Annotated[
        Literal["users", "tokens", "invitations", "roles"],
        Argument("The list to show; roles explains roles and scopes."),
    ] = "users",
) -> Reply:
    """List the users, tokens or invitations of your site, newest first; pool admins see all sites.

    Secrets are neither stored nor shown.
    """
    if kind == "roles":
        return _explain_roles()
    with invocation.pool() as pool:
        if kind == "tokens":
            return _list_tokens(pool.tokens.list())
        if kind == "invitations":
            return _list_invitations(pool.invitations.list())
        return _list_users(pool.users.list())


def _list_users(users: Sequence[UserResponse]) -> Reply:
    return listing(
        users,
        ["user", "state", "role", "e-mail", "name", "since"],
        lambda user: [
            f"{user.site}/{user.name}",
            _user_state(user),
            role_words(user.role, pool_wide=user.pool_wide),
            user.email,
            user.display_name,
            day(user.created_at),
        ],
        empty="no users yet; machines have tokens: poolctl admin people ls tokens",
    )


def _user_state(user: UserResponse) -> str:
    if user.disabled_at:
        return f"disabled {day(user.disabled_at)}"
    return f"signs on, until {user.valid_until:%Y-%m-%d %H:%M}" if user.valid_until else ""


def _list_tokens(tokens: Sequence[TokenResponse]) -> Reply:
    return listing(
        tokens,
        ["id", "token", "state", "role", "user", "last used", "made by", "scopes"],
        lambda token: [
            token.token_id,
            f"{token.site}/{token.name}",
            _token_state(token),
            role_words(token.role, pool_wide=token.pool_wide),
            token.user or "",
            day(token.last_used_at) or "never",
            token.made_by or "",
            "all" if token.scopes is None else " ".join(token.scopes) or "none",
        ],
        empty="no tokens",
    )


def _list_invitations(invitations: Sequence[InvitationResponse]) -> Reply:
    return listing(
        invitations,
        ["id", "state", "site", "for", "role", "by"],
        lambda invitation: [
            invitation.invitation_id,
            _invitation_state(invitation),
            invitation.site,
            invitation.subject or invitation.email,
            role_words(invitation.role, pool_wide=invitation.pool_wide),
            invitation.made_by or invitation.created_by,
        ],
        empty="no invitations",
    )


def _explain_roles() -> Reply:
    table = TableText(["role", "may"], [[name, text] for name, text in _ROLES.items()])
    scopes = TableText(
        ["scope", "a token narrowed to it may"], [[name, text] for name, text in SCOPES.items()]
    )
    return Reply({"roles": _ROLES, "scopes": SCOPES}, [table, "", scopes], list(_ROLES))


@command(
    app,
    "invite",
    "admin people invite infant-lab",
    "admin people invite infant-lab --role admin --email ada@lab.example",
    "admin people invite infant-lab --provider orcid --subject 0000-0002-1825-0097",
)
def invite(
    invocation: Invocation,
    site: Annotated[str, Argument("The site.", "SITE")],
    *,
    role: RoleOption = "contributor",
    pool_wide: PoolWideOption = False,
    email: Annotated[
        str, Option("The person's e-mail address, for your information; nothing is sent.")
    ] = "",
    expires_in_days: Annotated[int, Option("Days until it expires.", "DAYS", min=1, max=90)] = 7,
    provider: Annotated[
        str, Option("For one person who logs in by this provider, with --email or --subject.")
    ] = "",
    subject: Annotated[str, Option("The person's identifier at the provider.", "ID")] = "",
) -> Reply:
    """Invite one person, and print the secret to pass on. It is shown only once.

    With --provider there is no secret: the person with that subject or verified e-mail address at
    the provider becomes a user at the first log-in.
    """
    with invocation.pool() as pool:
        invitation = pool.invitations.create(
            site,
            role=role,
            pool_wide=pool_wide,
            email=email,
            expires_in_days=expires_in_days,
            sign_on=provider,
            subject=subject,
        )
        endpoint = pool.endpoint
    if provider:
        who = subject or email
        text = f"{who} can log in at {endpoint} by {provider} until {day(invitation.expires_at)}"
        data = invitation.model_dump(mode="json", exclude={"secret"})
        return Reply(data, text, [invitation.invitation_id])
    invocation.note(
        f"invitation {invitation.invitation_id} to {invitation.site} "
        f"({role_words(invitation.role, pool_wide=invitation.pool_wide)}), until "
        f"{day(invitation.expires_at)}; it is shown only now, and used once: "
        f"{_login_command(endpoint, ' --name NAME')}"
    )
    return Reply(invitation, invitation.secret, [invitation.secret])


@command(
    app,
    "token",
    "admin people token infant-lab laptop",
    "admin people token infant-lab readonly --role viewer --expires-in-days 90",
    "admin people token infant-lab desk --scope models:read --scope merges --user ada",
    "admin people token infant-lab nightly --for-machine",
)
def token(
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
        str, Option("The owner; caps the token's rights. Default: you, if of this site.", "USER")
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
        created = pool.tokens.create(
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
        f"token {created.token_id} of {created.site}/{created.name} "
        f"({role_words(created.role, pool_wide=created.pool_wide)}, "
        f"{f'user {created.user}' if created.user else 'owned by the site'}); it is shown only "
        f"now. Its holder logs in with: {_login_command(endpoint)}"
    )
    return Reply(created, created.secret, [created.secret])


def _login_command(endpoint: str, options: str = "") -> str:
    command = f"poolctl auth login {shlex.quote(address_with_pin(endpoint))}{options}"
    is_local = is_this_machine(endpoint)
    return command + (" (elsewhere, with this machine's name in it)" if is_local else "")


@command(app, "revoke", "admin people revoke 4f1d2c3b4a596877 --yes")
def revoke(
    invocation: Invocation,
    key: Annotated[
        str, Argument("As 'poolctl admin people ls tokens' or 'ls invitations' shows it.", "ID")
    ],
    yes: YesOption = False,
) -> Reply:
    """Revoke a token or an invitation permanently.

    A user with an accepted invitation stays; see 'poolctl admin people change --disable'.
    """
    with invocation.pool() as pool:
        invitations = [other.invitation_id for other in pool.invitations.list()]
        known = [*invitations, *(token.token_id for token in pool.tokens.list())]
        key = whole_id(key, known, "token or invitation", "poolctl admin people ls tokens")
        is_invitation = key in invitations
        kind = "invitation" if is_invitation else "token"
        invocation.confirm(f"Revoke {kind} {key}?", assume_yes=yes)
        if is_invitation:
            pool.invitations.revoke(key)
        else:
            pool.tokens.revoke(key)
    return Reply({f"{kind}_id": key}, f"revoked {kind} {key}", [key])


@command(
    app,
    "change",
    "admin people change infant-lab/ada --email ada@lab.example",
    "admin people change infant-lab/ada --role admin --pool-wide",
    "admin people change infant-lab/ada --disable --yes",
)
def change(
    invocation: Invocation,
    user: UserArgument,
    *,
    display_name: Annotated[str | None, Option("The user's full name.")] = None,
    email: Annotated[str | None, Option("The user's e-mail; the pool sends no mail.")] = None,
    role: Annotated[
        Role | None, Option("The new role; see 'poolctl admin people ls roles'.")
    ] = None,
    pool_wide: Annotated[
        bool | None,
        Option(
            "The role holds for every site (pool admins only), or for the user's own.",
            name="--pool-wide/--own-site",
        ),
    ] = None,
    disabled: Annotated[
        bool | None, Option("Refuse the user, or accept the user again.", name="--disable/--enable")
    ] = None,
    yes: YesOption = False,
) -> Reply:
    """Change a user's name, e-mail or role. A lower role limits the user's tokens at once.

    --disable refuses the user, all tokens of the user, and the user's open invitations, at once,
    until --enable. Tokens that the user created for machines or for others stay valid; the command
    lists them.
    """
    site, name = read_user(user)
    fields: dict[str, Any] = {
        "display_name": display_name,
        "email": email,
        "role": role,
        "pool_wide": pool_wide,
    }
    changes = {field: value for field, value in fields.items() if value is not None}
    if disabled:
        if changes:
            raise UsageError("--disable cannot be combined with other changes")
        return _disable(invocation, user, yes=yes)
    if disabled is not None:
        changes["disabled"] = disabled
    if not changes:
        raise UsageError("nothing to change: give --display-name, --email, --role or --disable")
    with invocation.pool() as pool:
        changed = pool.users.change(site, name, **changes)
    role_text = role_words(changed.role, pool_wide=changed.pool_wide)
    return Reply(changed, f"changed user {user} ({role_text})", [user])


def _disable(invocation: Invocation, user: str, *, yes: bool) -> Reply:
    site, name = read_user(user)
    invocation.confirm(f"Disable user {user} with all tokens and open invitations?", assume_yes=yes)
    with invocation.pool() as pool:
        changed = pool.users.change(site, name, disabled=True)
        # Only now: until disabled, the user could create more.
        staying = [
            token
            for token in pool.tokens.list()
            if token.made_by == user
            and token.revoked_at is None
            and (token.expires_at is None or token.expires_at > datetime.now(UTC))
            and (token.site, token.user) != (site, name)
        ]
    text: list[str | TableText] = [f"disabled user {user}"]
    if staying:
        rows = [
            [f"{token.site}/{token.name}", f"poolctl admin people revoke {token.token_id}"]
            for token in staying
        ]
        text += [
            f"{user} created these tokens for others, and may still have them:",
            TableText(["token", "end it with"], rows),
        ]
    return Reply({**changed.model_dump(mode="json"), "staying_tokens": staying}, text, [user])


def read_user(word: str) -> tuple[str, str]:
    """Parse ``SITE/USER``."""
    site, slash, user = word.partition("/")
    if not (site and slash and user) or "/" in user:
        raise UsageError(f"{word!r}: expected SITE/USER, for example infant-lab/ada")
    return site, user


def role_words(role: str, *, pool_wide: bool) -> str:
    return f"{role} (pool)" if pool_wide else role


def day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment is not None else ""


def _token_state(token: TokenResponse) -> str:
    if token.revoked_at is not None:
        return f"revoked {day(token.revoked_at)}"
    return token.refused or (f"until {day(token.expires_at)}" if token.expires_at else "valid")


def _invitation_state(invitation: InvitationResponse) -> str:
    if invitation.used_at is not None:
        return f"used {day(invitation.used_at)} by {invitation.used_by}"
    if invitation.revoked_at is not None:
        return f"revoked {day(invitation.revoked_at)}"
    return invitation.refused or f"until {day(invitation.expires_at)}"
