"""The terms of a round: signed by its starter, checked and kept by each site that contributes.

A dishonest pool could show each site a different round. Without the secure sum it would get single
contributions, a different base or other options could make these reveal pictures, and the other
sites could be anybody.

1. **The starter signs** (`start_round`) the terms of the new round in the pool's answer, after
   comparing them with its request (`pool_server.wire.rounds.RoundTerms`): with its keys for models
   and for secure sums, if it has them. Later rounds of the series have the same terms.
2. **Each site checks** (`check_terms`), whenever it contributes: the signature, by a key that it
   knows as the starter's (from accepted charters, or trusted like keys for models), and all terms
   against the round that the pool shows. A starter with a known key must have signed.
3. **It pins them** (`pin_terms`) as first seen, signed or not, and refuses others later.
4. **A secure sum names their digest** in its descriptor, to which all its messages are bound; a lab
   takes part in no other sum of the round (`secure`).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregators.methods.registry import METHODS
from aggregators.methods.round_options import Protection, protect
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import TERMS_TYPE, RoundResponse, RoundTerms, SecureTerms
from pool_server.wire.signatures.keys import PublicKey, seal
from site_agent.errors import ConflictError, PoolAnswerError, SignatureError
from site_agent.plain_json import write_json
from site_agent.pool import profiles, trust
from site_agent.pool.requests import require_same
from site_agent.pool.signing import load_key
from site_agent.secure.charter import require_accepted

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

_CHANGES_LATER = "thin"
"""The option of leaf refinement that may differ between the rounds of a series."""


def start_round(
    pool: "PoolClient",
    base: str | ModelAddress,
    sites: Sequence[str],
    deadline: datetime,
    *,
    options: Mapping[str, Any] | None = None,
    secure: SecureTerms | None = None,
    protection: Protection | None = None,
    **fields: Any,
) -> RoundResponse:
    """Start a round, and sign its terms where this profile has a key; see `Rounds.start`.

    `protection`: Of a round of networks; see `protect` for the default.

    The sites of a secure round count equally unless `options` says otherwise: nobody sees the
    sample count of a single site, so `weight_cap` cannot limit it.

    Raises `PoolAnswerError`, before signing, if the pool's round differs from the requested one.
    """
    version = pool.version(base)
    chosen = METHODS.get(fields.get("method", ""))
    if secure is not None and chosen is not None and "mean" in chosen.options_type.model_fields:
        options = {"mean": "sites", **(options or {})}
    options = protect(
        fields.get("method", ""),
        options or {},
        protection,
        secure=secure is not None,
        base=version.fingerprint,
    )
    fields |= {"options": options, "secure": secure}
    round_ = pool.rounds.start(base, sites, deadline, **fields)
    terms = RoundTerms.of(round_)
    asked: dict[str, Any] = {
        "base": version.digest,
        "sites": tuple(sorted({*sites})),
        "deadline": deadline,
        "secure": secure,
        **{name: fields[name] for name in ("method", "mode", "least_others") if name in fields},
    }
    for name, value in asked.items():
        if getattr(terms, name) != value:
            raise PoolAnswerError(
                f"round {round_.round_id} has another {name}: asked for {value}, found "
                f"{getattr(terms, name)}"
            )
    for name, value in options.items():
        if name not in terms.options or not _equal(terms.options[name], value):
            raise PoolAnswerError(
                f"round {round_.round_id} has another option {name}: asked for {value}, found "
                f"{terms.options.get(name)}"
            )
    return sign_terms(pool, round_) or round_


def sign_terms(pool: "PoolClient", round_: RoundResponse) -> RoundResponse | None:
    """Sign the terms of a new round as the pool shows them; return None without a key.

    If the round was started on a page of the pool, its starter must compare them first.
    """
    terms = RoundTerms.of(round_)
    keys = [pool.signatures.signing_key(terms.started_by)]
    keys.append(load_key(profiles.secure_folder(), terms.started_by))
    own_keys = {key.key.seed: key.key for key in keys if key is not None}
    if not own_keys:
        return None
    return pool.rounds.sign(round_.round_id, seal(TERMS_TYPE, terms.to_bytes(), *own_keys.values()))


def check_terms(pool: "PoolClient", round_: RoundResponse) -> RoundTerms:
    """Return the terms of a round after verifying that its starter signed them where required.

    Raises `ConflictError`, naming the first term that differs from the signed ones, and
    `SignatureError` if the signature is missing, or is not that of a key known as the starter's.
    """
    first = find_first(pool, round_)
    shown = RoundTerms.of(round_, first)
    if round_.terms is None:
        _require_unknown_starter(pool, round_, shown)
        return shown
    try:
        signed = RoundTerms.from_envelope(round_.terms)
    except ValueError as error:
        raise SignatureError(f"round {round_.round_id}: its signed terms: {error}") from error
    for name in RoundTerms.model_fields:
        was, now = getattr(signed, name), getattr(shown, name)
        if name == "options" and round_.number > 1:
            was, now = _lasting(was), _lasting(now)
        # The starter may end a round early; it then accepts no further contributions.
        agrees = now <= was if name == "deadline" else now == was
        if not agrees:
            raise ConflictError(
                f"round {round_.round_id} is not as {signed.started_by} signed it: {name} was "
                f"{_in_words(was)}, and is {_in_words(now)} now",
                hint="nothing was sent; ask the site that started the round, and do not trust this "
                "pool before you know why",
                code="round_changed",
            )
    if pool.signatures.policy != "ignore":
        _require_signature(pool, round_, signed)
    return signed


def find_first(pool: "PoolClient", round_: RoundResponse) -> RoundResponse:
    """Return the first round of a series; each must begin with the result of the one before."""
    while round_.predecessor is not None:
        before = pool.rounds.get(round_.predecessor)
        require_same(before.result_digest, round_.base_digest)
        round_ = before
    return round_


def pin_terms(round_: RoundResponse, terms: RoundTerms, place: Path) -> None:
    """Pin the terms of a round as this site first saw them, and refuse others afterwards.

    Otherwise the pool could show a secure round to a site that tries it by --dry-run, and take
    plain contributions to the same round later, where nobody has signed the terms.

    Raises `ConflictError`, naming the first term that differs.
    """
    content = terms.model_dump(mode="json", exclude={"deadline"})
    content["this_base"] = round_.base_digest
    content["signed"] = round_.terms is not None
    known = json.loads(place.read_bytes()) if place.is_file() else content
    for name, value in content.items():
        if known.get(name) != value and (name != "signed" or known.get(name)):
            raise ConflictError(
                f"round {round_.round_id} has other terms than when this site saw it first: {name} "
                f"was {_in_words(known.get(name))}, and is {_in_words(value)} now",
                hint="nothing was sent; ask the site that started the round, and do not trust this "
                "pool before you know why",
                code="round_changed",
            )
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, content)


def _require_signature(pool: "PoolClient", round_: RoundResponse, signed: RoundTerms) -> None:
    """Raise `SignatureError` unless a key that this site knows as the starter's has signed."""
    assert round_.terms is not None
    site = signed.started_by
    known = _keys_of_charters(site) + _trusted_keys(pool, site)
    offered = [] if known else pool.signatures.keys(site)
    offered = [item for item in offered if item.revoked_at is None and not item.origin]
    try:
        keys = known or [PublicKey.from_text(item.public_key) for item in offered]
        signer = round_.terms.signed_by(keys)
    except ValueError as error:
        raise SignatureError(f"round {round_.round_id}: its signature: {error}") from error
    if signer is not None:
        if not known:
            trust.trust_keys(profiles.host_of(pool.endpoint), site, offered, "first use")
        return
    if keys or round_.secure is not None or pool.signatures.policy == "require":
        raise SignatureError(
            f"round {round_.round_id}: its terms are signed with a key that is not a known key of "
            f"{site}",
            hint=f"ask {site} for the fingerprint of its key; if it has a new one: "
            f"poolctl keys trust {site} KEY",
            code="key_not_trusted",
        )


def _require_unknown_starter(pool: "PoolClient", round_: RoundResponse, shown: RoundTerms) -> None:
    """Raise `SignatureError` if the terms should have been signed but are not."""
    if pool.signatures.policy == "ignore":
        return
    site, reason = shown.started_by, ""
    if pool.signatures.policy == "require":
        reason = "POOL_SIGNATURES asks for signatures"
    elif round_.secure is not None:
        reason = "the pool could show each lab another secure round"
    elif _keys_of_charters(site) or _trusted_keys(pool, site):
        reason = f"{site} has a key, so the pool may show another round than {site} started"
    if reason:
        raise SignatureError(
            f"round {round_.round_id}: its terms are not signed: {reason}",
            hint=f"nothing was sent; where {site} has its key: poolctl rounds sign "
            f"{round_.round_id}",
            code="signature_missing",
        )


def _keys_of_charters(site: str) -> list[PublicKey]:
    """Return a site's keys as a lab in accepted charters."""
    folder = profiles.secure_folder()
    files = sorted((folder / "charters").glob("*.toml"))
    charters = [require_accepted(folder, file.stem) for file in files]
    return [charter.labs[site] for charter in charters if site in charter.labs]


def _trusted_keys(pool: "PoolClient", site: str) -> list[PublicKey]:
    keys = trust.trusted_keys(profiles.host_of(pool.endpoint), site)
    return [item.public for item in keys.values() if not item.origin]


def _lasting(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != _CHANGES_LATER}


def _equal(option: Any, asked: Any) -> bool:
    """Compare an option with the requested value, which may be its text."""
    try:
        return option == asked or float(option) == float(asked)
    except (TypeError, ValueError):
        return str(option) == str(asked)


def _in_words(value: Any) -> str:
    if isinstance(value, SecureTerms):
        value = value.model_dump(mode="json")
    return json.dumps(value, default=str)
