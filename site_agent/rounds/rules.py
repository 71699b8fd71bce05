"""What a site asks of a round before it contributes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pool_server.wire.models.models import ModelVersionResponse
from site_agent.errors import InvalidInputError

if TYPE_CHECKING:
    from aggregators.methods.refitting import RefitSettings
    from aggregators.models import LeafContribution, ShapePredictor


@dataclass(frozen=True)
class ContributionRules:
    """The rules of the contributing site; who starts a round cannot change them.

    Attributes
    ----------
    trusted : frozenset of str
        Sites whose trained models may be in the base, besides the site itself.
    approved : str
        Address (SITE/NAME@NUMBER) or SHA-256 of a base that is accepted wherever it comes from.
    min_starts : int
        Fewest starting shapes for each face. A face's first sample starts at the mean landmarks,
        from which the pixels that a level reads follow; the others start at landmarks that
        nobody else knows.
    min_faces : int
        Fewest faces in a sum that is sent, and in what a tree keeps back.
    faces_per_leaf : float
        Fewest faces of the site for each leaf that an average tree sends. Below 1 a tree would
        send more sums than there are faces, which could be solved for single ones.
    """

    trusted: frozenset[str] = frozenset()
    approved: str = ""
    min_starts: int = 5
    min_faces: int = 5
    faces_per_leaf: float = 2.0

    def including(self, site: str) -> ContributionRules:
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

    def objections_to_options(self, settings: RefitSettings) -> list[str]:
        """Return what speaks against the options of a round of ``leaf-refit``."""
        found = []
        if settings.starts < self.min_starts:
            found.append(
                f"the round asks for {settings.starts} starting shapes for each face, and this "
                f"site for at least {self.min_starts} (--min-starts)"
            )
        if settings.min_faces < self.min_faces:
            found.append(
                f"the round sends sums over {settings.min_faces} faces and more, and this site "
                f"over at least {self.min_faces} (--min-faces)"
            )
        return found

    def objections_to_sums(
        self, contribution: LeafContribution, base: ShapePredictor, faces: int
    ) -> list[str]:
        """Return what speaks against sending a contribution that was fitted to `faces` faces."""
        settings = contribution.settings
        trees = base.trees_per_level
        if settings["level"] is not None:
            trees = trees[settings["level"] - 1 : settings["level"]]
        fitted = sum(min(int(each), settings["thin"] or int(each)) for each in trees)
        ratio = faces * fitted / max(1, int((contribution.counts > 0).sum()))
        if ratio >= self.faces_per_leaf:
            return []
        return [
            f"{faces} faces are {ratio:.2f} for each leaf that an average tree sends, and this "
            f"site asks for at least {self.faces_per_leaf:g} (--faces-per-leaf): use more faces, "
            "or a base with trees of less depth"
        ]
