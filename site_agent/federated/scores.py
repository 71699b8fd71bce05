"""The scores of networks, person by person."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measure:
    """The measure by which networks of a kind are scored, person by person."""

    name: str
    unit: str
    """Empty for a share."""
    reference: str
    """The baseline reported with each network: an answer made without pictures."""
    larger_is_better: bool


@dataclass(frozen=True)
class PersonScores:
    """The score of each person; each counts the same in the mean."""

    by_person: Mapping[str, float]
    measure: Measure

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.by_person.values())))

    @property
    def worst(self) -> str:
        """The person with the worst score."""
        choose = min if self.measure.larger_is_better else max
        return choose(self.by_person, key=lambda person: self.by_person[person])

    @property
    def best_score(self) -> float:
        return (max if self.measure.larger_is_better else min)(self.by_person.values())
