"""``poolctl models share|publish|sign|quarantine|rm``: sharing and states of models."""

from collections.abc import Sequence
from typing import Annotated

from cli.frame import options
from cli.frame.errors import UsageError
from cli.frame.output import Invocation, Reply, TableText
from cli.models.records import state_words
from cli.options.versions import VisibilityOption
from pool_server.wire.models import RIGHTS, ModelVersionResponse, SharingResponse
from site_agent.pool.client import parse_address

app = options.single()

_AUDIENCES = {
    "private": "its own site only",
    "sites": "the sites that are listed",
    "consortium": "all sites of the pool",
}


@options.command(
    app,
    "share",
    "models share site-a/face-68",
    "models share site-a/face-68 --visibility private",
    "models share site-a/face-68 --with site-b --with site-c=see,download",
    "models share site-a/face-68 --visibility consortium --rights download",
)
def share(
    invocation: Invocation,
    address: Annotated[str, options.Argument("[SITE/]NAME of your site.", "ADDRESS")],
    *,
    visibility: VisibilityOption = None,
    with_site: Annotated[
        Sequence[str],
        options.Option(
            "Share with this site; repeatable. Others see nothing.", "SITE[=RIGHTS]", name="--with"
        ),
    ] = (),
    rights: Annotated[
        str | None,
        options.Option(
            "Rights of all who see it: download, merge, redistribute; '' for none.", "A,B"
        ),
    ] = None,
) -> Reply:
    """Set the visibility and the rights of a model; without options, show them.

    The new settings replace the old ones. The rights are see, download, merge and redistribute
    (pass on copies); every right includes see.
    """
    listed = dict(_read_site(word) for word in with_site)
    audience = visibility or ("sites" if listed else None)
    if audience is None and rights is not None:
        raise UsageError("--rights needs --visibility or --with")
    if listed and audience != "sites":
        raise UsageError(f"--with lists sites, which goes with --visibility sites, not {audience}")
    if audience == "sites" and not listed:
        raise UsageError("--visibility sites needs --with SITE; for nobody: --visibility private")
    granted = None if rights is None else _read_rights(rights, "--rights")
    with invocation.pool() as pool:
        if audience is None:
            return _describe(pool.models.sharing(address))
        return _describe(pool.models.share(address, audience, rights=granted, sites=listed))


def _describe(sharing: SharingResponse) -> Reply:
    rows = [["seen by", _AUDIENCES[sharing.visibility]]]
    if sharing.visibility == "consortium":
        rows.append(["they may", _words(sharing.rights)])
    rows += [[site.site, _words(site.rights or ())] for site in sharing.sites]
    rows.append(["you may", _words(sharing.your_rights)])
    return Reply(sharing, TableText([sharing.address, ""], rows), [sharing.address])


def _words(rights: Sequence[str]) -> str:
    return ", ".join(rights) or "nothing"


def _read_site(word: str) -> tuple[str, list[str] | None]:
    """Parse ``SITE`` or ``SITE=RIGHTS``."""
    site, equals, rights = word.partition("=")
    if not site:
        raise UsageError(f"--with {word!r}: expected SITE or SITE=RIGHTS")
    return site, _read_rights(rights, f"--with {word!r}") if equals else None


def _read_rights(text: str, option: str) -> list[str]:
    rights = [word.strip() for word in text.split(",") if word.strip()]
    for right in rights:
        if right not in RIGHTS:
            raise UsageError(
                f"{option}: {right!r} is not a right; expected some of {', '.join(RIGHTS)}"
            )
    return rights


# ``poolctl models publish|sign|quarantine|rm``: from draft to published and away.


@options.command(app, "publish", "models publish site-a/face-68@3")
def publish(invocation: Invocation, address: options.NewestArgument) -> Reply:
    """Publish a draft, or release a version from quarantine, to everyone with access to its model.

    In a curated pool only curators of the pool can publish; in others, everyone with the right to
    upload to the site. Only curators release.
    """
    with invocation.pool() as pool:
        if pool.version(address).state == "quarantined":
            return _reply(pool.models.release(address))
        return _reply(pool.models.publish(address))


@options.command(
    app, "sign", "models sign site-a/face-68@2", "models sign site-a/face-68@2 --publish"
)
def sign(
    invocation: Invocation,
    addresses: Annotated[
        list[str], options.Argument("[SITE/]NAME[@VERSION] of your site.", "ADDRESS")
    ],
    publish_too: Annotated[
        bool, options.Option("Publish the drafts among them afterwards.", name="--publish")
    ] = False,
) -> Reply:
    """Sign versions that are unsigned, or signed by a revoked key.

    For versions that were uploaded by a browser or merged on the pool, which has no key of yours.
    You sign the pool's description of a version; check it first with 'poolctl models info'.
    """
    with invocation.pool() as pool:
        signed = [pool.signatures.sign(address) for address in addresses]
        drafts = [
            version.address
            for version in (pool.version(statement.address) for statement in signed)
            if version.state == "draft"
        ]
        for address in drafts:
            if publish_too:
                pool.models.publish(address)
            else:
                invocation.note(
                    f"{address} is still a draft; others get it by: poolctl models publish "
                    f"{address}"
                )
    lines = [
        f"{statement.address}: signed with {statement.key.key_id[:16]}"
        f"{' and published' if publish_too and statement.address in drafts else ''}"
        for statement in signed
    ]
    return Reply({"items": signed}, lines, [statement.address for statement in signed])


@options.command(
    app,
    "quarantine",
    "models quarantine site-a/face-68@3 --reason 'Landmarks of one eye are swapped'",
)
def quarantine(
    invocation: Invocation,
    address: options.NewestArgument,
    *,
    reason: Annotated[str, options.Option("The reason.")],
) -> Reply:
    """Hide a version from other sites until 'poolctl models publish' (curators only)."""
    with invocation.pool() as pool:
        return _reply(pool.models.quarantine(address, reason))


@options.command(app, "rm", "models rm site-a/face-68@2")
def rm(
    invocation: Invocation,
    address: options.VersionArgument,
    *,
    despite_descendants: Annotated[
        bool, options.Option("Delete it although other models were made from it.")
    ] = False,
    yes: options.YesOption = False,
) -> Reply:
    """Delete a version of your own permanently.

    Version numbers are never reused. Models that were made from it stay, and so do its bytes while
    another version has them. To warn its users, withdraw it instead: a withdrawal follows the model
    through all merges.
    """
    if not parse_address(address).reference:
        raise UsageError(f"{address}: name the version (@...); each is deleted by itself")
    with invocation.pool() as pool:
        version = pool.version(address)
        invocation.confirm(f"Delete {version.address} permanently?", assume_yes=yes)
        pool.models.delete_version(version.address, force=despite_descendants)
    return Reply({"deleted": [version.address]}, f"deleted {version.address}", [version.address])


def _reply(version: ModelVersionResponse) -> Reply:
    return Reply(version, f"{version.address} is {state_words(version)}", [version.address])
