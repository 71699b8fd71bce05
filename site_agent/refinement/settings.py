"""Settings of a refinement, as people give them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aggregators.methods.refitting import RefitSettings


@dataclass(frozen=True)
class RefinementSettings:
    """How the leaves of a merged landmark model are fitted again.

    Attributes
    ----------
    mode : {'one-shot', 'level-by-level'}
        Level by level, all sites exchange their contributions after every level.
    starts : int
        Starting shapes for each face.
    nu : float or None
        Share of the error that each tree corrects, up to 1; by the number of trees if absent.
    thin : int or None
        First reduce each level to this number of trees.
    min_faces : int
        Leaves that fewer faces of a site reach are not sent.
    jitter : float
        Random shift of the boxes in box sizes; the default is what the analysis of blinks does.
    own_share : float
        One-shot: part of its own change by which a site moves its samples.
    """

    mode: Literal["one-shot", "level-by-level"] = "one-shot"
    starts: int = 20
    nu: float | None = None
    thin: int | None = None
    min_faces: int = 5
    jitter: float = 0.03
    own_share: float = 0.5

    def for_seed(self, seed: int) -> RefitSettings:
        """Return the settings of a fit.

        Raises
        ------
        OptionError
            A value is out of its range.
        """
        from aggregators.methods.refitting import refit_settings

        return refit_settings(**asdict(self), seed=seed)
