"""A site's part in a round of leaf refinement: it fits the base's leaves to its faces."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from site_agent.errors import ContributionWithheldError
from site_agent.rounds.contract import DataChoice, DataKind, Made, SitePart
from site_agent.runs.progress import Progress, part_of

if TYPE_CHECKING:
    from aggregators.methods.refitting import RefitSettings
    from pool_server.wire.rounds import RoundResponse
    from site_agent.datasets import FaceDataset
    from site_agent.pool.client import PoolClient
    from site_agent.rounds.contract import SiteData
    from site_agent.rounds.rules import ContributionRules

_READING = 0.1
"""Share of the progress up to which images are read."""


@dataclass(frozen=True, eq=False)
class LeafRefitPart(SitePart):
    """The changes of leaves, and the numbers of samples that they rest on."""

    data: ClassVar[DataKind] = "faces"
    shows_origin: ClassVar[bool] = True

    found: RoundResponse
    faces: FaceDataset
    settings: RefitSettings
    choice: DataChoice

    @classmethod
    def prepare(
        cls, pool: PoolClient, found: RoundResponse, _site: str, data: SiteData, choice: DataChoice
    ) -> LeafRefitPart:
        from aggregators.methods.refitting import refit_settings
        from site_agent.datasets import read_faces

        faces = read_faces(data) if isinstance(data, Path) else cast("FaceDataset", data)
        seed = choice.seed + _times_through(pool, found)
        return cls(found, faces, refit_settings(**{**found.options, "seed": seed}), choice)

    @staticmethod
    def same_origin(base: Path, result: Path) -> bool:
        """Return whether a refined landmark model has the trees of its (thinned) base."""
        import numpy as np

        from aggregators.methods.refitting import thinned_base
        from site_agent.refinement.one_machine import read_base

        refined = read_base(result)
        forest = thinned_base(read_base(base), int(refined.trees_per_level.max()))
        return refined.leaves.shape == forest.leaves.shape and all(
            np.array_equal(getattr(forest, item.name), getattr(refined, item.name))
            for item in fields(forest)
            if item.name != "leaves"
        )

    def inputs(self, rules: ContributionRules) -> list[Any]:
        from site_agent.datasets import dataset_digest

        settings = self.settings.model_dump(mode="json")
        # Another floor may refuse what this one lets through.
        floor = rules.faces_per_leaf
        return [dataset_digest(self.faces), settings, list(self.choice.parts), floor]

    def objections(self, rules: ContributionRules) -> list[str]:
        return rules.objections_to_options(self.settings)

    def compute(
        self, base: Path, output: Path, rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        from aggregators.methods.refitting import contribute as fit_contribution
        from aggregators.methods.refitting import find_untrained_features, write_contribution
        from site_agent.refinement import load_site, read_base
        from site_agent.refinement.site_faces import CROP_MARGIN

        model = read_base(base)
        if oddities := find_untrained_features(model):
            reasons = [f"the base is not as training makes models: {each}" for each in oddities]
            raise ContributionWithheldError(self.found.round_id, reasons)
        site = load_site(
            self.faces,
            model.part_count,
            parts=self.choice.parts,
            initial_shape=model.initial_shape,
            margin=CROP_MARGIN + self.settings.jitter,
            progress=part_of(progress, 0.0, _READING),
        )
        contribution = fit_contribution(
            model,
            site.faces,
            self.settings,
            threads=self.choice.threads,
            progress=part_of(progress, _READING, 1.0),
        )
        if objections := rules.objections_to_sums(contribution, model, site.faces.face_count):
            raise ContributionWithheldError(self.found.round_id, objections)
        write_contribution(contribution, output)
        return site.left_out

    def describe(self, path: Path) -> Made:
        from aggregators.methods.refitting import read_contribution

        counts = read_contribution(path).counts
        sent = counts[counts > 0]
        if not len(sent):
            words = f"of {len(counts)} leaves none is reached by enough of your faces"
            return Made(words, leaves=len(counts))
        words = (
            f"changes of {len(sent)} of {len(counts)} leaves, each a sum over at least "
            f"{self.found.options['min_faces']} faces"
        )
        return Made(words, len(counts), len(sent), int(sent.min()))


def _times_through(pool: PoolClient, found: RoundResponse) -> int:
    """Return how often the series of a round has been through all levels before it.

    Sites that go level by level draw their samples once for all levels.
    """
    if found.options.get("level") is None:
        return found.number - 1
    levels = int(pool.version(found.base).fingerprint["levels"])
    return (found.number - 1) // levels
