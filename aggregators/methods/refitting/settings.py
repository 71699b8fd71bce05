"""How leaves are fitted again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, no_progress
from aggregators.methods.side_by_side import join_cascades
from aggregators.models import ShapePredictor

_CORRECTIONS_PER_LEVEL = 50.0
_LARGEST_AUTOMATIC_NU = 0.3


class RefitSettings(MethodOptions):
    """What a site is told about a round of leaf refinement."""

    mode: Literal["one-shot", "level-by-level"] = Field(
        default="one-shot",
        description="every site fits all levels by itself, or all sites keep in step",
    )
    level: int | None = Field(
        default=None,
        ge=1,
        description="level-by-level: the one level that a contribution fits, counted from 1; the "
        "levels before it are as the base has them",
    )
    starts: int = Field(default=20, ge=1, le=10_000, description="starting shapes for each face")
    nu: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="part of the mean residual by which each tree corrects its leaves; by the "
        "number of trees when absent (0.1 for 500 trees a level, less for more)",
    )
    min_count: int | None = Field(
        default=None,
        ge=1,
        description="leaves with fewer samples of a site send nothing; one more than `starts` when "
        "absent, so that no leaf speaks of a single face",
    )
    thin: int | None = Field(
        default=None, ge=1, description="first reduce each level to this many trees"
    )
    jitter: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="largest random shift of the box for each start but the first, in box sizes",
    )
    own_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="one-shot: part of its own change by which a site moves its samples on",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="of the starting shapes")

    def resolved(self, forest: ShapePredictor) -> RefitSettings:
        """Return the same with what was left open chosen for a (thinned) forest.

        On photographs, 0.1 was good for 504 trees a level, 0.05 for 1002 and 0.02 for 3000: about
        50 whole corrections spread over the trees of a level.
        """
        chosen: dict[str, float] = {}
        if self.nu is None:
            most_trees = max(1, int(forest.trees_per_level.max()))
            nu = min(_LARGEST_AUTOMATIC_NU, _CORRECTIONS_PER_LEVEL / most_trees)
            chosen["nu"] = max(1e-4, round(nu, 4))
        if self.min_count is None:
            chosen["min_count"] = self.starts + 1
        return self.model_copy(update=chosen)

    def shared(self) -> dict[str, Any]:
        """Return what a contribution says of its settings: all but the seed."""
        return self.model_dump(mode="json", exclude={"seed"})


def refit_settings(**values: Any) -> RefitSettings:
    """Check settings by name.

    Raises
    ------
    OptionError
        Names the one that there is not, or whose value is out of its range.
    """
    try:
        return RefitSettings.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(step) for step in problem["loc"])
        raise OptionError(
            f"setting {name!r} of leaf-refit is {problem['input']!r}: {problem['msg']}"
        ) from error


def thinned_base(base: ShapePredictor, thin: int | None) -> ShapePredictor:
    """Return the forest whose leaves are fitted: the base, or fewer of its trees.

    Trees are chosen over each level's whole length, and so over the sub-models that stand side by
    side in it; see `aggregators.methods.thinning`.
    """
    if thin is None or thin >= int(base.trees_per_level.max()):
        return base
    return join_cascades([base], [1.0], step=1.0, kept_trees_per_level=thin, progress=no_progress)
