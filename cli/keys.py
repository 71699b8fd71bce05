"""``poolctl keys``: sign uploads, and trust the keys of others."""

from typing import Annotated, Any

from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, SiteOption, YesOption, command, group
from cli.frame.output import Invocation, Reply, TableText
from pool_server.wire.signatures import KeyResponse
from pool_server.wire.signatures.keys import readable_fingerprint
from pool_server.wire.signatures.statements import Revocation
from site_agent.pool import trust
from site_agent.pool.profiles import host_of
from site_agent.pool.signing import SigningKey, create_key

app = group("Sign your uploads, and trust the keys of other sites.")

_SHORTEST_PREFIX = 8


@command(app, "create", "keys create", "keys create --name laptop", "keys create --force")
def create(
    invocation: Invocation,
    site: SiteOption = "",
    name: Annotated[str, Option("A name that others see. Default: the token's name.", "NAME")] = "",
    force: Annotated[bool, Option("Rename the old key and create a new one.")] = False,
) -> Reply:
    """Create a key pair for your site and register it at the pool; later uploads are signed.

    The private key is stored in a file that only you can read, and never leaves this machine. A key
    that this machine has already is registered, for example at another pool.
    """
    with invocation.pool() as pool:
        who = pool.whoami()
        site = site or who.site
        key = pool.signatures.signing_key(site)
        if key is None or force:
            key = create_key(pool.signatures.key_folder, site, replace=force)
        known = pool.signatures.register_key(key.key, key.site, name or who.token_name)
        # One's own key: nobody needs to be asked whose it is.
        trust.trust_keys(host_of(pool.endpoint), known.site, [known], "trusted")
    text = [
        f"registered key {readable_fingerprint(known.key_id)} of {known.site} as {known.name}; "
        "uploads are signed now",
        f"the private key is in {key.path}",
    ]
    return Reply(_local(key) | {"name": known.name}, text, [known.key_id])


@command(app, "ls", "keys ls", "keys ls site-b")
def ls(
    invocation: Invocation,
    site: Annotated[str, Argument("The site. Default: your own.", "SITE")] = "",
) -> Reply:
    """List the keys of a site at the pool, and which of them are trusted on this machine.

    Shows the key with which this machine signs for the site; with --json also as PEM.
    """
    with invocation.pool() as pool:
        site_name = site or pool.whoami().site
        keys = pool.signatures.keys(site_name)
        pins = trust.trusted_keys(host_of(pool.endpoint), site_name)
        own_key = pool.signatures.signing_key(site_name)
    rows = []
    items = []
    for key in keys:
        is_own = own_key is not None and own_key.key.public.key_id == key.key_id
        how = pins[key.key_id].how if key.key_id in pins else ""
        state = "revoked, " + key.revoked_as if key.revoked_as else "valid"
        place = f"imported from {key.origin}" if key.origin else "of the site"
        here = ", ".join(word for word in ("signs here" if is_own else "", how) if word)
        rows.append([key.key_id[:16], state, here, key.name, place, f"{key.created_at:%Y-%m-%d}"])
        items.append({**key.model_dump(mode="json"), "signs_here": is_own, "trusted": how or None})
    columns = ["key", "state", "on this machine", "name", "whose", "since"]
    table = TableText(columns, rows, empty=f"{site_name} has registered no key")
    text: list[str | TableText] = [table]
    if own_key is not None:
        public = own_key.key.public
        text += [
            f"this machine signs with {readable_fingerprint(public.key_id)}",
            f"public key {public.text}, private key in {own_key.path}",
        ]
    local = None if own_key is None else _local(own_key)
    return Reply({"items": items, "own": local}, text, [key.key_id for key in keys])


@command(
    app,
    "revoke",
    "keys revoke 21fe31dfa154a261 --reason superseded",
    "keys revoke 21fe31dfa154a261 --reason compromised --yes",
)
def revoke(
    invocation: Invocation,
    key: Annotated[str, Argument("The fingerprint or its beginning.", "KEY")],
    *,
    reason: Annotated[
        Revocation, Option("superseded: earlier signatures stay valid; compromised: they do not.")
    ],
    site: SiteOption = "",
    yes: YesOption = False,
) -> Reply:
    """Revoke one of your site's keys permanently.

    Earlier signatures of a superseded key stay valid. Those of a compromised key are refused until
    you sign the versions again with 'poolctl models sign'.
    """
    with invocation.pool() as pool:
        site_name = site or pool.whoami().site
        chosen = _find(pool.signatures.keys(site_name), key, site_name)
        text = f"key {chosen.key_id[:16]} ({chosen.name}) of {site_name} as {reason}"
        invocation.confirm(f"Revoke {text}?", assume_yes=yes)
        ended = pool.signatures.revoke_key(site_name, chosen.key_id, reason)
    return Reply({"key": ended}, f"revoked {text}", [ended.key_id])


@command(
    app,
    "trust",
    "keys trust site-b",
    "keys trust site-b 21fe31dfa154a261",
    "keys trust site-b --remove",
)
def trust_site(
    invocation: Invocation,
    site: Annotated[str, Argument("The site.", "SITE")],
    key: Annotated[
        str, Argument("The fingerprint or its beginning. Default: all valid keys.", "KEY")
    ] = "",
    remove: Annotated[
        bool, Option("Trust them no longer; the site's next key is a first one.")
    ] = False,
    yes: YesOption = False,
) -> Reply:
    """Trust keys of a site, in addition to those already trusted, or forget them.

    First compare the fingerprint with the site, not through the pool.
    """
    if remove:
        return _forget(invocation, site, key, yes=yes)
    with invocation.pool() as pool:
        known = pool.signatures.keys(site)
        host = host_of(pool.endpoint)
    if key:
        chosen = [_find(known, key, site)]
    else:
        chosen = [
            candidate
            for candidate in known
            if not candidate.origin and candidate.revoked_at is None
        ]
    if not chosen:
        raise UsageError(f"{site} has no valid key at {host}")
    if worst := [candidate for candidate in chosen if candidate.revoked_as == "compromised"]:
        raise UsageError(f"key {worst[0].key_id[:16]} was declared compromised by {site}")
    for candidate in chosen:
        where = f", imported from {candidate.origin}" if candidate.origin else ""
        invocation.note(f"{candidate.name}{where}: {readable_fingerprint(candidate.key_id)}")
    invocation.confirm(f"Trust {len(chosen)} of {site}'s keys at {host}?", assume_yes=yes)
    added = trust.trust_keys(host, site, chosen, "trusted")
    text = f"trusted {len(added)} more of {site}'s keys at {host}"
    return Reply({"pool": host, "site": site, "added": added}, text, [k.key_id for k in added])


def _forget(invocation: Invocation, site: str, key: str, *, yes: bool) -> Reply:
    with invocation.pool() as pool:
        host = host_of(pool.endpoint)
    pins = trust.trusted_keys(host, site)
    chosen = [pin for pin in pins if pin.startswith(_prefix(key))] if key else list(pins)
    if not chosen:
        raise UsageError(f"no such key of {site} at {host} is trusted here")
    invocation.confirm(f"Forget {len(chosen)} of {site}'s keys at {host}?", assume_yes=yes)
    trust.forget_keys(host, site, chosen)
    data = {"pool": host, "site": site, "forgotten": chosen}
    return Reply(data, f"forgot {len(chosen)} of {site}'s keys at {host}", chosen)


def _find(keys: list[KeyResponse], word: str, site: str) -> KeyResponse:
    matching = [key for key in keys if key.key_id.startswith(_prefix(word))]
    if len(matching) != 1:
        what = "no key" if not matching else f"{len(matching)} keys"
        raise UsageError(f"{site} has {what} that begin with {word}; see: poolctl keys ls {site}")
    return matching[0]


def _prefix(word: str) -> str:
    prefix = word.replace(" ", "").lower()
    if len(prefix) < _SHORTEST_PREFIX or set(prefix) - set("0123456789abcdef"):
        raise UsageError(f"{word!r}: expected a fingerprint, at least its first 8 digits 0-9, a-f")
    return prefix


def _local(key: SigningKey) -> dict[str, Any]:
    public = key.key.public
    return {
        "site": key.site,
        "key_id": public.key_id,
        "public_key": public.text,
        "path": key.path,
        "pem": public.to_pem(),
    }
