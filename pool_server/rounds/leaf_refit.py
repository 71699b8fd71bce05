"""Rounds of leaf refinement: sites fit the leaves of a landmark model to their faces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pool_server.errors import RefusedError, RoundRefusedError
from pool_server.rounds.contract import (
    ONE_SHOT,
    RoundMethod,
    require_same_base,
    require_settings,
)

if TYPE_CHECKING:
    from pool_server.database.records import ModelVersionRecord

LEVEL_BY_LEVEL = "level-by-level"


@dataclass(frozen=True)
class LeafRefitRounds(RoundMethod):
    """Contributions are changes of leaves (`aggregators.methods.refitting`)."""

    modes: ClassVar[tuple[str, ...]] = (ONE_SHOT, LEVEL_BY_LEVEL)
    data: ClassVar[str] = "FACES.XML"
    alone: ClassVar[str] = "poolctl refine"

    def full_options(self, mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
        from aggregators.errors import OptionError
        from aggregators.methods.refitting import refit_settings

        if "seed" in options:
            raise RoundRefusedError(
                "option seed: every site draws its own starting shapes, so it stays at the site"
            )
        if "level" in options:
            raise RoundRefusedError(
                "option level: the pool counts the levels itself, from the first",
                hint="Leave it out; --mode level-by-level holds one round for each level.",
            )
        first = {"level": 1} if mode == LEVEL_BY_LEVEL else {}
        try:
            return refit_settings(**{**options, **first, "mode": mode}).shared()
        except OptionError as error:
            raise RoundRefusedError(str(error)) from error

    def require_base(self, base: ModelVersionRecord) -> None:
        members = base.fingerprint.get("members", 1)
        if base.kind != "ert" or members != 1:
            found = f"a WBA ensemble of {members}" if base.kind == "ert" else f"of kind {base.kind}"
            raise RoundRefusedError(
                f"{self.name} refines one landmark model; the base is {found}",
                hint="Merge the sub-models with wba-cascade first.",
            )

    def rounds_to_hold(self, mode: str, rounds: int, base: ModelVersionRecord) -> int:
        # Level by level, sites meet once for each level of the base.
        return rounds * _levels_of(base) if mode == LEVEL_BY_LEVEL else rounds

    def options_of_next(
        self, options: Mapping[str, Any], base: ModelVersionRecord
    ) -> dict[str, Any]:
        # The first round has thinned the model; its result has no trees to spare.
        following = {**options, "thin": None}
        if options["level"] is not None:
            following["level"] = options["level"] % _levels_of(base) + 1
        return following

    def examine(
        self, path: Path, base: Path, _base_digest: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        from aggregators.formats import read_model
        from aggregators.methods.refitting import (
            RefitSettings,
            forest_digest,
            read_contribution,
            thinned_base,
        )
        from aggregators.models import ShapePredictor

        contribution = read_contribution(path)
        model = read_model(base, max_bytes=base.stat().st_size)
        if not isinstance(model, ShapePredictor):
            raise RefusedError("the base is no single landmark model")
        require_same_base(forest_digest(model), contribution.base_digest)
        settings = RefitSettings.model_validate(dict(options))
        forest = thinned_base(model, settings.thin)
        require_settings(settings.resolved(forest).shared(), contribution.settings)
        if contribution.changes.shape != forest.leaves.shape:
            raise RefusedError(
                f"changes leaves of shape {contribution.changes.shape}, "
                f"the base has {forest.leaves.shape} (leaves, landmarks, 2)"
            )
        return {
            "leaves": int(contribution.changes.shape[0]),
            "parts": contribution.part_count,
            "leaves_changed": int((contribution.counts > 0).sum()),
            "settings": dict(contribution.settings),
        }


def _levels_of(base: ModelVersionRecord) -> int:
    return int(base.fingerprint.get("levels", 1))
