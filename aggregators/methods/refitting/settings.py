"""Settings of leaf refinement."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aggregators.methods.contract import MethodOptions, check_options, no_progress
from aggregators.methods.side_by_side import join_cascades
from aggregators.models import ShapePredictor

_CORRECTIONS_PER_LEVEL = 50.0
_LARGEST_AUTOMATIC_NU = 0.3


class RefitSettings(MethodOptions):
    """Settings of one site's fit in a round of leaf refinement."""

    mode: Literal["one-shot", "level-by-level"] = Field(
        default="one-shot",
        description="each site fits all levels alone, or all sites fit level by level",
    )
    level: int | None = Field(
        default=None,
        ge=1,
        description="level-by-level: the level that a contribution fits, counted from 1",
    )
    starts: int = Field(default=20, ge=1, le=10_000, description="starting shapes for each face")
    nu: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="part of the mean residual by which each tree corrects its leaves; by default "
        "chosen by the number of trees (0.1 for 500 trees a level, less for more)",
    )
    min_faces: int = Field(
        default=5, ge=1, description="leaves that fewer faces of a site reach stay at the site"
    )
    thin: int | None = Field(
        default=None, ge=1, description="first reduce each level to this many trees"
    )
    jitter: float = Field(
        default=0.03,
        ge=0,
        le=1,
        description="largest random shift of the box for each start but the first, in box sizes; "
        "the default is how far the analysis of blinks shifts the boxes of its starts",
    )
    own_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="one-shot: part of its own change by which a site moves its samples",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of the starting shapes")

    def resolved(self, forest: ShapePredictor) -> RefitSettings:
        """Return the settings with `nu` chosen for a (thinned) forest.

        On photographs, a nu of 0.1 was good for 504 trees a level, 0.05 for 1002 and 0.02 for
        3000: about 50 full corrections distributed over the trees of a level.
        """
        if self.nu is not None:
            return self
        most_trees = max(1, int(forest.trees_per_level.max()))
        nu = min(_LARGEST_AUTOMATIC_NU, _CORRECTIONS_PER_LEVEL / most_trees)
        return self.model_copy(update={"nu": max(1e-4, round(nu, 4))})

    def shared(self) -> dict[str, Any]:
        """Return the settings for a contribution: all but the seed."""
        return self.model_dump(mode="json", exclude={"seed"})


def refit_settings(**values: Any) -> RefitSettings:
    """Return settings given by name, or raise `OptionError`."""
    return check_options(RefitSettings, values, "leaf-refit")


def thinned_base(base: ShapePredictor, thin: int | None) -> ShapePredictor:
    """Return the forest whose leaves are fitted: the base, thinned to `thin` trees a level."""
    if thin is None or thin >= int(base.trees_per_level.max()):
        return base
    return join_cascades([base], [1.0], step=1.0, kept_trees_per_level=thin, progress=no_progress)
