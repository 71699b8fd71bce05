"""Check the origin of a round's base: was it made from models that this site trusts?

The base determines which sums over a site's faces are sent. A site therefore contributes only to a
base that it can account for:

- a model that was trained by the site itself or by one that it trusts, or
- a new network that this site makes again from its seed, byte for byte (`federated init`), or
- a merge of such models: signed by a trusted site, or made again here from its recipe, byte for
  byte (an unpublished merge of a trusted site counts as its own model), or
- the result of an earlier round. Other sites may not read its contributions, so it cannot be made
  again. After leaf refinement, its trees must be those of that round's base, which must be
  accounted for. A network offers no such check: if the first base of the series is accounted for,
  the pool's combination is believed. A result of another series counts as a merge by the site that
  published it.

Signatures prove that a model comes from a site, as far as ``POOL_SIGNATURES`` requires them.
Any other base must be accepted by its digest, once (`BaseNotAcceptedError`).
"""

import tempfile
from collections.abc import Collection
from itertools import chain
from pathlib import Path

from aggregators.errors import AggregatorError
from aggregators.methods import Recipe, RecipeInput, replay
from aggregators.methods.registry import list_round_methods
from aggregators.whole_file import write_whole
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.rounds import RoundResponse
from site_agent import errors
from site_agent.networks.files import read_network
from site_agent.pool import profiles
from site_agent.pool.client import PoolClient
from site_agent.pool.rebuilding import RecipeSources
from site_agent.pool.requests import parse_address, require_field, require_same
from site_agent.rounds.contract import ContributionRules, SitePart
from site_agent.rounds.kinds import find_site_part
from site_agent.rounds.terms import find_first
from site_agent.wording import count_words
from site_agent.work import Progress, no_progress
from site_agent.work.ledger import Ledger

_UNAVAILABLE = (errors.NotFoundError, errors.ForbiddenError, errors.WithdrawnError)


def require_allowed(
    pool: PoolClient,
    round_: RoundResponse,
    part: SitePart,
    rules: ContributionRules,
    progress: Progress = no_progress,
) -> str:
    """Return the digest of a base that the user has accepted; empty if it is accounted for.

    Raises `ContributionWithheldError` if this site's rules forbid the round's options or base;
    `BaseNotAcceptedError` where only the base is in the way.
    """
    first = round_ if part.shows_origin else find_first(pool, round_)
    version = pool.version(first.base)
    require_field(version, "digest", first.base_digest)
    reasons, problems, hint = part.objections(rules), list[str](), ""
    if rules.secure_only and round_.secure is None:
        reasons.append("the round is not summed securely, and this site sends nothing else")
    others = len(round_.participants) - 1
    if others < rules.least_others:
        reasons.append(
            f"the round has {count_words(others, 'other site')}, and this site asks for at least "
            f"{rules.least_others} (--least-others): with one other, that site can compute your "
            "contribution from the result"
        )
    is_accepted = rules.approves(version) or _is_kept(version.digest)
    if not is_accepted:
        problems, hint = find_base_problems(pool, version, rules, progress)
        problems = [f"the base cannot be accounted for: {problem}" for problem in problems]
        hint += f"if you know how the base was made, approve it: --accept {version.digest}"
    if problems and not reasons:
        problems.append(f"if you accept it: {part.danger(round_)}")
        raise errors.BaseNotAcceptedError(
            round_.round_id, problems, digest=version.digest, hint=hint
        )
    if reasons:
        raise errors.ContributionWithheldError(round_.round_id, [*reasons, *problems], hint=hint)
    return version.digest if is_accepted else ""


def _accepted_bases() -> Ledger:
    """Return the bases that a user of this machine accepts without knowing how they were made."""
    return Ledger(profiles.rounds_folder() / "accepted.jsonl")


def _is_kept(digest: str) -> bool:
    with (ledger := _accepted_bases()).at_work():
        return bool(ledger.find("base", digest=digest))


def keep_accepted(digest: str) -> None:
    """Accept a base in later rounds, too."""
    with (ledger := _accepted_bases()).at_work():
        if not ledger.find("base", digest=digest):
            ledger.append({"kind": "base", "digest": digest})


def find_base_problems(
    pool: PoolClient,
    base: ModelVersionResponse,
    rules: ContributionRules,
    progress: Progress = no_progress,
) -> tuple[list[str], str]:
    """Return why a base cannot be accounted for, and the start of a hint, which may be empty."""
    provenance = Provenance(pool, rules.trusted, progress)
    problems = provenance.problems_of(base)
    if not provenance.distrusted:
        return problems, ""
    sites = " ".join(provenance.distrusted)
    return problems, f"if you trust what they train: poolctl rounds trust {sites}; "


def _shows_origin(recipe: Recipe) -> bool:
    method = recipe.method.name
    return method in list_round_methods() and find_site_part(method).shows_origin


class Provenance:
    """Finds out where a base comes from, and which sites would have to be trusted for it.

    `distrusted`: Sites that the user may want to trust.
    """

    def __init__(
        self, pool: PoolClient, trusted: Collection[str], progress: Progress = no_progress
    ) -> None:
        self._pool, self._trusted, self._progress = pool, frozenset(trusted), progress
        self._sources = RecipeSources((), pool.models)
        self._found: dict[str, list[str]] = {}
        self.distrusted: list[str] = []

    def problems_of(self, base: ModelVersionResponse) -> list[str]:
        """Return why a base cannot be accounted for; empty if it can."""
        problems = self._problems(base.digest, base.address.removeprefix("pool://"))
        if self._sources.silence:
            raise errors.PoolUnreachableError(self._sources.silence)
        return problems

    def _problems(self, digest: str, name: str) -> list[str]:
        if digest not in self._found:
            # Asked for again meanwhile, by a recipe that leads back to it, the model stays
            # unaccounted.
            self._found[digest] = [f"the recipe of {name} leads back to itself"]
            self._found[digest] = self._check(digest, name)
        return self._found[digest]

    def _check(self, digest: str, name: str) -> list[str]:
        recipe = self._sources.recipe_of(digest)
        addresses = self._sources.addresses_of(digest)
        vouching = [
            address for address in addresses if parse_address(address).site in self._trusted
        ]
        signed = bool(vouching) and self._is_signed(vouching[0], digest, recipe)
        if recipe is None:
            return [] if vouching else self._check_new(digest, name, addresses)
        known = [
            entry
            for entry in recipe.inputs
            if self._sources.recipe_of(entry.digest) or self._sources.addresses_of(entry.digest)
        ]
        problems_by_input = [self._problems(entry.digest, self._name_of(entry)) for entry in known]
        if problems := list(dict.fromkeys(chain.from_iterable(problems_by_input))):
            return problems
        of_round = bool(known) and _shows_origin(recipe)
        complete = len(known) == len(recipe.inputs)
        # A trusted site's signature covers the merge. Without one, its merge of models that are not
        # shown is taken as its own training; one whose inputs are known is made again.
        if not of_round and (signed or (vouching and not complete)):
            return []
        if not of_round and not complete:
            return [f"{name} was merged from models that the pool does not have or does not show"]
        return self._examine(digest, name, recipe, known, of_round=of_round)

    def _check_new(self, digest: str, name: str, addresses: Collection[str]) -> list[str]:
        """Return the problems of a model without a recipe, unless it is a network of a seed."""
        problem = ""
        if addresses and self._version(next(iter(addresses)), digest).kind == "network":
            from site_agent.networks.modules import problem_of_new

            self._progress(None, f"making {name} again from its seed")
            # Equal bytes need no signature.
            path = self._fetch(digest, is_result=True)
            if not (problem := problem_of_new(read_network(path), digest)):
                return []
        return [self._distrust(name, addresses), *([problem] if problem else [])]

    def _is_signed(self, address: str, digest: str, recipe: Recipe | None) -> bool:
        version = self._version(address, digest)
        # The site signed the recipe of its version; this one, of the same file, may be another's.
        inputs = set() if recipe is None else set(recipe.input_digests)
        require_same(set(version.parent_digests), inputs - {digest})
        # Of a result, which another site may have published for it, the trees are compared.
        is_result = recipe is not None and _shows_origin(recipe)
        signature = self._pool.signatures.verify(version, may_be_unsigned=is_result)
        return signature.status == "verified"

    def _examine(
        self,
        digest: str,
        name: str,
        recipe: Recipe,
        known: Collection[RecipeInput],
        *,
        of_round: bool,
    ) -> list[str]:
        """Compare a round's result with its base, or make a merge again, unless that was done."""
        # Findings stay true; only the trust in the inputs may change.
        note = self._pool.cache.folder / "rounds" / "accounted" / digest
        facts = recipe.to_json() + "".join(item.digest for item in known).encode()
        if note.is_file() and note.read_bytes() == facts:
            return []
        note.parent.mkdir(parents=True, exist_ok=True)
        check = self._compare if of_round else self._make_again
        if not (problems := check(digest, name, recipe, known)):
            write_whole(note, facts)
        return problems

    def _name_of(self, entry: RecipeInput) -> str:
        addresses = self._sources.addresses_of(entry.digest)
        name = next(iter(addresses), None) or entry.address or entry.file_name
        return name.removeprefix("pool://") if name else f"sha256:{entry.digest[:12]}..."

    def _distrust(self, name: str, addresses: Collection[str]) -> str:
        sites = list(dict.fromkeys(parse_address(address).site for address in addresses))
        self.distrusted += [site for site in sites[:1] if site not in self.distrusted]
        if not sites:
            return f"nothing is known of {name}"
        return f"{name} has no recipe, and its site {sites[0]} is not one that you trust"

    def _make_again(
        self, digest: str, name: str, recipe: Recipe, _known: Collection[RecipeInput]
    ) -> list[str]:
        self._progress(None, f"making {name} again from its recipe")
        with tempfile.TemporaryDirectory(dir=self._pool.cache.folder / "rounds") as folder:
            try:
                made = replay(recipe, self._fetch, Path(folder) / "again")
            except (AggregatorError, *_UNAVAILABLE) as error:
                return [f"{name} cannot be made again from its recipe: {error}"]
        if made.digest != digest:
            return [f"the recipe of {name} makes another model"]
        return []

    def _compare(
        self, digest: str, name: str, recipe: Recipe, known: Collection[RecipeInput]
    ) -> list[str]:
        if len(known) != 1:
            return [f"the base of the round that made {name} is not known"]
        [base] = known
        try:
            paths = self._fetch(base.digest, is_result=True), self._fetch(digest, is_result=True)
        except _UNAVAILABLE as error:
            return [f"{name} cannot be compared with the base of its round: {error}"]
        if find_site_part(recipe.method.name).same_origin(*paths):
            return []
        return [f"{name} has other trees than {self._name_of(base)}, the base of its round"]

    def _fetch(self, digest: str, *, is_result: bool = False) -> Path:
        addresses = self._sources.addresses_of(digest)
        if not addresses:
            raise errors.NotFoundError(f"the pool does not show sha256 {digest}")
        version = self._version(addresses[0], digest)
        return self._pool.fetch(version, may_be_unsigned=is_result).path

    def _version(self, address: str, digest: str) -> ModelVersionResponse:
        version = self._pool.version(address)
        require_field(version, "digest", digest)
        return version
