"""How a file is cut into parts."""

from __future__ import annotations

from dataclasses import dataclass

from pool_server.errors import PartMismatchError
from pool_server.settings import MIB

FEW_PARTS = 16
MOST_GROWTH = 4
MOST_PARTS = 1000


@dataclass(frozen=True)
class PartPlan:
    """Parts 1 to `count` of `part_bytes` each, the last one shorter.

    Examples
    --------
    >>> PartPlan(size_bytes=10, part_bytes=4).count
    3
    >>> PartPlan(size_bytes=10, part_bytes=4).size_of(3)
    2
    """

    size_bytes: int
    part_bytes: int

    @classmethod
    def choose(cls, size_bytes: int, part_bytes: int, most_parts: int = MOST_PARTS) -> PartPlan:
        """Cut a file into parts of `part_bytes`, or larger ones where they would be many.

        Each part costs a few requests, and when a transfer is interrupted some parts are sent
        again: so they grow with the file, up to `MOST_GROWTH` times, and beyond that only as far
        as `most_parts` demands.
        """
        wanted = -(-size_bytes // (FEW_PARTS * part_bytes)) * part_bytes
        part_bytes = max(part_bytes, min(wanted, MOST_GROWTH * part_bytes))
        least = -(-size_bytes // most_parts)
        if least > part_bytes:
            part_bytes = -(-least // MIB) * MIB
        return cls(size_bytes, part_bytes)

    @property
    def count(self) -> int:
        return -(-self.size_bytes // self.part_bytes)

    def offset_of(self, number: int) -> int:
        return (number - 1) * self.part_bytes

    def size_of(self, number: int) -> int:
        """Return the size of a part.

        Raises
        ------
        PartMismatchError
            The file has no such part.
        """
        if not 1 <= number <= self.count:
            raise PartMismatchError(
                f"the upload has parts 1 to {self.count}, not {number}",
                hint="`GET /api/v1/uploads/{id}` lists the parts that are wanted.",
            )
        return min(self.part_bytes, self.size_bytes - self.offset_of(number))
