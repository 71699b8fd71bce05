"""A site's part in a round: its data, its rules, and the duties of each kind of contribution.

`site_agent.rounds.kinds` implements `SitePart` for each kind of contribution.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.rounds import DEFAULT_LEAST_OTHERS, RoundResponse, RoundTerms
from site_agent.datasets.network_data import NetworkData
from site_agent.datasets.records import FaceDataset
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.pool import profiles
from site_agent.pool.trust import trusted_sites
from site_agent.settings import Settings, naming, with_values
from site_agent.work import Progress

if TYPE_CHECKING:
    from aggregators.methods.refitting import RefitSettings
    from aggregators.models import LeafContribution, ShapePredictor
    from site_agent.pool.client import PoolClient
    from site_agent.rounds.secure import RoundSums
    from site_agent.secure.sums import SumVisit

SiteData = FaceDataset | NetworkData | Path
"""A data set, or where it is."""

DataKind = Literal["faces", "gaze"]


@dataclass(frozen=True)
class DataChoice:
    """The choice of a site's data for a round, and how they are used."""

    parts: tuple[str, ...] = ()
    """Of faces: the model's landmarks, if the faces have more: names, ranges (36-47) and groups
    (eyes). A group is recognised by the model's mean shape, too."""
    persons: tuple[str, ...] = ()
    """Of gaze data; all if empty."""
    seed: int = 0
    """For the starting shapes of leaf refinement. Each round of a series adds its number."""
    threads: int = 0
    """For leaf refinement. 0: one for each processor."""
    despite_findings: bool = False
    """Go on despite findings in the data that must be mended."""


@dataclass(frozen=True)
class ContributionFacts:
    """Facts about a contribution file for its sender."""

    summary: str
    """The file's contents, in one line."""
    leaves: int = 0
    """Leaves of the base."""
    leaves_sent: int = 0
    """Leaves with a change that is sent."""
    fewest_samples: int = 0
    """Samples in the smallest sum of a leaf that is sent."""
    samples: int = 0
    """Training samples of a network."""


class ContributionRules(Settings, error=InvalidInputError):
    """The rules of the contributing site; the starter of a round cannot change them."""

    trusted: frozenset[str] = frozenset()
    """Sites to trust, besides the site itself: the base may contain models trained by them."""
    approved: str = ""
    """Address (SITE/NAME@NUMBER) or SHA-256 of a base to accept from any origin."""
    min_starts: int = Field(default=5, ge=1)
    """Fewest starting shapes for each face. A face's first sample starts at the mean landmarks,
    which determine the pixels that a level reads; the others start at secret landmarks."""
    min_faces: int = Field(default=5, ge=1)
    """Fewest faces in a sum that is sent, and in the part that a tree keeps back."""
    faces_per_leaf: float = Field(default=2.0, ge=0)
    """Fewest faces of the site for each leaf that an average tree sends. Below 1 a tree would send
    more sums than there are faces, and the sums could be solved for single faces."""
    secure_only: bool = False
    """Contribute to secure rounds alone, in which nobody reads a single contribution."""
    least_others: int = Field(default=DEFAULT_LEAST_OTHERS, ge=1, le=199)
    """Fewest other sites that this site's contribution may be combined with. All others together
    can subtract theirs: with one other site, that site alone can."""
    max_hours: float = 4.0
    """Longest training of a network."""
    insists_on: tuple[str, ...] = ()
    """Labs that must be in a secure sum, because this site knows that they are honest."""
    full: bool = False
    """Add a secure sum up again here instead of trusting the servers' signatures."""
    clip_norm: Annotated[float, Field(ge=1e-9)] | None = None
    """Largest Euclidean norm of a network's update; a longer one is shortened to it."""
    most_epsilon: float | None = None
    """Budget of differential privacy for the persons' data in all rounds together."""

    def including(self, site: str) -> "ContributionRules":
        """Return the rules of a site, which trusts itself."""
        return replace(self, trusted=self.trusted | {site})

    def approves(self, base: ModelVersionResponse) -> bool:
        """Return whether the base was approved by name; raise if another one was."""
        address = base.address.removeprefix("pool://")
        approved = self.approved.removeprefix("pool://").removeprefix("sha256:")
        if approved and approved not in {address, base.digest}:
            raise InvalidInputError(
                f"approved was {self.approved}, but the base of the round is {address} "
                f"(sha256 {base.digest})"
            )
        return bool(approved)

    def objections_to_options(self, settings: "RefitSettings") -> list[str]:
        """Return why the site refuses the options of a round of ``leaf-refit``."""
        objections = []
        if settings.starts < self.min_starts:
            objections.append(
                f"the round asks for {settings.starts} starting shapes for each face, and this "
                f"site for at least {self.min_starts} (min_starts)"
            )
        if settings.min_faces < self.min_faces:
            objections.append(
                f"the round sends sums over {settings.min_faces} faces and more, and this site "
                f"over at least {self.min_faces} (min_faces)"
            )
        return objections

    def objections_to_sums(
        self, contribution: "LeafContribution", base: "ShapePredictor", faces: int
    ) -> list[str]:
        """Return why the site refuses to send a contribution that was fitted to `faces` faces."""
        thin = contribution.settings["thin"]
        fitted = sum(min(int(trees), thin or int(trees)) for trees in base.trees_per_level)
        ratio = faces * fitted / max(1, int((contribution.counts > 0).sum()))
        if ratio >= self.faces_per_leaf:
            return []
        return [
            f"{faces} faces are {ratio:.2f} for each leaf that an average tree sends, and this "
            f"site asks for at least {self.faces_per_leaf:g} (faces_per_leaf): use more faces, "
            "or a base with trees of less depth"
        ]


_RULES_OF_SITE = ("min_faces", "min_starts", "least_others", "secure_only")
"""Rules that a site keeps in ``config.toml``, for commands and the app alike."""


def site_rules(endpoint: str, least_others: int | None = None) -> ContributionRules:
    """Return the rules of this site for a pool: ``[rounds]`` of ``config.toml``, and trust.

    `least_others`: Of one contribution; the stricter of it and the kept rule holds.
    """
    kept = profiles.table(profiles.read_toml(profiles.config_file()), "rounds")
    rules = ContributionRules(trusted=trusted_sites(profiles.host_of(endpoint)))
    with naming(str(profiles.config_file())):
        rules = with_values(rules, {name: kept[name] for name in _RULES_OF_SITE if name in kept})
    if least_others is None:
        return rules
    least = max(least_others, rules.least_others) if "least_others" in kept else least_others
    return replace(rules, least_others=least)


def keep_rules(**rules: str) -> ContributionRules:
    """Keep rules as ``[rounds]`` of ``config.toml``, where the values are permitted."""
    checked = with_values(ContributionRules(), rules)
    config = profiles.read_toml(profiles.config_file())
    changed = {name: getattr(checked, name) for name in rules if name in _RULES_OF_SITE}
    config["rounds"] = profiles.table(config, "rounds") | changed
    profiles.write_private_toml(config, profiles.config_file())
    return checked


def require_sound_base(round_: RoundResponse, *, despite_withdrawal: bool) -> None:
    """Raise `ConflictError` if the base was withdrawn, or holds something that was."""
    if round_.base_warning and not despite_withdrawal:
        raise ConflictError(
            f"the base {round_.base} of round {round_.round_id} is {round_.base_warning}",
            hint="--despite-withdrawal goes on; the result is then flagged",
            code="base_withdrawn",
        )


class SitePart(ABC):
    """A site's part in one round, for one kind of contribution.

    `data`: The data that it is computed from. `shows_origin`: Whether `same_origin` can compare a
    result with its base. If so, the result of a round is accounted for as its base is; otherwise
    the pool's results within a series are trusted.
    """

    data: ClassVar[DataKind]
    shows_origin: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def danger(round_: RoundResponse) -> str:
        """Return the harm that a round's base can do, as users are asked to accept it."""

    @classmethod
    @abstractmethod
    def prepare(
        cls,
        pool: "PoolClient",
        round_: RoundResponse,
        site: str,
        data: SiteData,
        choice: DataChoice,
    ) -> "SitePart":
        """Read the data and the options of the round.

        Raises `SiteAgentError`, `AggregatorError` if the data cannot be used, or this program does
        not know the options.
        """

    @staticmethod
    def same_origin(base: Path, result: Path) -> bool:
        """Return whether a file can be the result of a round with this base."""
        raise NotImplementedError

    @abstractmethod
    def inputs(self, rules: ContributionRules) -> list[Any]:
        """Return the inputs of the contribution besides the base, as JSON values."""

    def objections(self, _rules: ContributionRules) -> list[str]:
        """Return why the site refuses the round's options."""
        return []

    def admit(
        self,
        _base: Path,
        _terms: "RoundTerms",
        _first: "Callable[[], Path]",
        *,
        approved: bool,  # noqa: ARG002
        record: bool,  # noqa: ARG002
    ) -> int:
        """Return how many other sites must contribute, by the site's ledger of all rounds.

        `_first`: Fetches the base of the first round. `approved`: The user accepts this very base.
        `record`: Note in the ledger that the base is contributed to.

        Raises `ContributionWithheldError` if the ledger speaks against a contribution.
        """
        return 0

    @abstractmethod
    def compute(
        self, base: Path, output: Path, rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        """Write the contribution to a base; return faces that were left out, as (line, text).

        Raises `ContributionWithheldError` if the rules forbid the contribution; nothing was
        written.
        """

    @abstractmethod
    def learned(self, base: Path) -> dict[str, Any]:
        """Return ``data`` and ``details`` of its data as `base` sees it, for `remember_learned`."""

    @abstractmethod
    def describe(self, path: Path, *, accounted: bool = True) -> ContributionFacts:
        """Return the facts about a contribution that was written.

        `accounted`: Whether the site knows how the base was made, as verified rounds ask.
        """

    @staticmethod
    @abstractmethod
    def take_part(sums: "RoundSums", contribution: Path, base: Path, target: Path) -> "SumVisit":
        """Take the possible steps in the secure sums of a round; write the last sum to `target`."""
