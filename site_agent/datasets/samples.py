"""Arrays of samples, which are taken and joined together."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np


class Samples:
    """Base of records of arrays, each with a row for every sample."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, index: Any) -> Self:
        """Return the rows of a slice, a mask or an array of numbers."""
        return type(self)(*(values[index] for values in vars(self).values()))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, in their order; at least one part."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))
