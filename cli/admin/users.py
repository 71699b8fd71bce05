"""``poolctl admin users``: the people of a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cli.admin.tokens import day, role_words
from cli.frame.errors import UsageError
from cli.frame.options import Argument, DryRunOption, Option, UndoOption, YesOption, command, group
from cli.frame.output import Invocation, Reply, TableText, listing

if TYPE_CHECKING:
    from pool_server.wire.people import InvitationResponse, TokenResponse, UserResponse
    from site_agent.pool.client import PoolClient

app = group("List, change, disable and enable users.")

UserArgument = Annotated[str, Argument("As 'poolctl admin users ls' shows it.", "SITE/USER")]


def read_user(word: str) -> tuple[str, str]:
    """Take ``SITE/USER`` apart."""
    site, slash, user = word.partition("/")
    if not (site and slash and user) or "/" in user:
        raise UsageError(f"{word!r}: expected SITE/USER, for example infant-lab/ada")
    return site, user


@command(app, "ls", "admin users ls")
def ls(invocation: Invocation) -> Reply:
    """List the users of your site. Pool admins see all sites."""
    with invocation.pool() as pool:
        users = pool.users.list()
    return listing(
        users,
        ["user", "role", "name", "e-mail", "since", "state"],
        lambda user: [
            f"{user.site}/{user.name}",
            role_words(user.role, pool_wide=user.pool_wide),
            user.display_name,
            user.email,
            day(user.created_at),
            f"disabled {day(user.disabled_at)}" if user.disabled_at else "",
        ],
        keep=("state", "role", "e-mail"),
        empty="no users yet",
    )


@command(
    app,
    "change",
    "admin users change infant-lab/ada --email ada@lab.example",
    "admin users change infant-lab/ada --role admin --pool-wide",
)
def change(
    invocation: Invocation,
    user: UserArgument,
    *,
    display_name: Annotated[str | None, Option("The user's full name.")] = None,
    email: Annotated[str | None, Option("For people; the pool sends no mail.")] = None,
    role: Annotated[
        Literal["viewer", "contributor", "curator", "admin"] | None,
        Option("The new role; see 'poolctl admin roles'."),
    ] = None,
    pool_wide: Annotated[
        bool | None,
        Option(
            "The role holds for every site (pool admins only), or for the user's own.",
            name="--pool-wide/--own-site",
        ),
    ] = None,
) -> Reply:
    """Change a user's name, e-mail or role. A lower role limits the user's tokens at once."""
    site, name = read_user(user)
    given: dict[str, Any] = {
        "display_name": display_name, "email": email, "role": role, "pool_wide": pool_wide
    }  # fmt: skip
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise UsageError("nothing to change: give --display-name, --email or --role")
    with invocation.pool() as pool:
        changed = pool.users.change(site, name, **changes)
    words = role_words(changed.role, pool_wide=changed.pool_wide)
    return Reply(changed, f"changed user {user} ({words})", [user])


@command(
    app,
    "disable",
    "admin users disable infant-lab/ada --yes",
    "admin users disable infant-lab/ada --undo",
)
def disable(
    invocation: Invocation,
    user: UserArgument,
    undo: UndoOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Refuse a user, all tokens of the user, and the user's open invitations, at once.

    Tokens that the user created for machines or for others stay valid; the command lists them.
    With --undo, the user's tokens and invitations are accepted again.
    """
    site, name = read_user(user)
    if undo:
        with invocation.pool() as pool:
            changed = pool.users.change(site, name, disabled=False)
        return Reply(changed, f"enabled user {user}", [user])
    if dry_run:
        with invocation.pool() as pool:
            reach = find_reach(pool, user)
        data = {"site": site, "name": name, "disabled": False, **reach.data}
        return Reply(data, [f"would disable user {user}", *reach.words("would be")], [user])
    invocation.confirm(f"Disable user {user} with all tokens and open invitations?", assume_yes=yes)
    with invocation.pool() as pool:
        changed = pool.users.change(site, name, disabled=True)
        # Looked for afterwards: until then the user could make more.
        reach = find_reach(pool, user)
    data = {**changed.model_dump(mode="json"), **reach.data}
    return Reply(data, [f"disabled user {user}", *reach.words("are")], [user])


@dataclass(frozen=True)
class Reach:
    """The tokens and invitations of a user, and those that the user gave to others.

    Tokens and invitations are refused while the user is disabled. Tokens that the user made for
    others, and people who came by the user's invitations, stay.
    """

    user: str
    tokens: "Sequence[TokenResponse]"
    invitations: "Sequence[InvitationResponse]"
    others: "Sequence[TokenResponse]"
    people: "Sequence[UserResponse]"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "refused": {"tokens": self.tokens, "invitations": self.invitations},
            "staying": {"tokens": self.others, "users": self.people},
        }

    def words(self, are: str) -> list[str | TableText]:
        """Say it to people, with the command that ends each token that stays."""
        tokens = ", ".join(f"{each.site}/{each.name}" for each in self.tokens)
        invitations = ", ".join(f"{each.invitation_id}" for each in self.invitations)
        words: list[str | TableText] = [
            f"refused {are} the tokens: {tokens or 'none'}",
            f"refused {are} the open invitations: {invitations or 'none'}",
        ]
        if self.others:
            rows = [
                [
                    f"{each.site}/{each.name}",
                    role_words(each.role, pool_wide=each.pool_wide),
                    f"user {each.user}" if each.user else "a machine",
                    f"poolctl admin tokens revoke {each.token_id}",
                ]
                for each in self.others
            ]
            words += [
                f"these tokens stay valid, which {self.user} made and may still have:",
                TableText(["token", "role", "for", "end it with"], rows),
            ]
        if self.people:
            people = ", ".join(f"{each.site}/{each.name}" for each in self.people)
            words.append(f"these users stay, whom {self.user} let in: {people}")
        return words


def find_reach(pool: "PoolClient", user: str) -> Reach:
    """Look through what the pool shows its admin, at this moment."""
    users, tokens, invitations = pool.users.list(), pool.tokens.list(), pool.invitations.list()
    now = datetime.now(UTC)
    disabled = {f"{each.site}/{each.name}" for each in users if each.disabled_at is not None}
    valid = [
        each
        for each in tokens
        if each.revoked_at is None and (each.expires_at is None or each.expires_at > now)
    ]
    mine = [each for each in invitations if each.made_by == user]
    came = {f"{each.site}/{each.used_by}" for each in mine if each.used_by is not None}
    return Reach(
        user,
        tokens=[each for each in valid if _owner(each) == user],
        invitations=[
            each
            for each in mine
            if each.used_at is None and each.revoked_at is None and each.expires_at > now
        ],
        others=[
            each
            for each in valid
            if each.made_by == user and _owner(each) != user and _owner(each) not in disabled
        ],
        people=[
            each
            for each in users
            if f"{each.site}/{each.name}" in came and each.disabled_at is None
        ],
    )


def _owner(token: "TokenResponse") -> str:
    return f"{token.site}/{token.user}" if token.user else ""
