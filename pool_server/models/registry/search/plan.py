"""What a search asks the database for, in a form that both databases are asked alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pool_server.models.registry.filters import MetricRelation
from pool_server.models.registry.search.ordering import Order, Position
from pool_server.models.registry.search.terms import TermGroups


@dataclass(frozen=True)
class RangeFilter:
    """The metric, or the label as a number, called `name` stands in `relation` to `bound`."""

    of: Literal["metric", "label"]
    name: str
    relation: MetricRelation
    bound: float


@dataclass(frozen=True)
class SearchPlan:
    """One search: every condition holds for each version that is found.

    Attributes
    ----------
    groups : tuple of tuples of str
        Of each group, one of the terms.
    parts : tuple of str
        What the words contain, in upper or lower case.
    ranges : tuple of RangeFilter
    other_than : str, optional
        A digest that is left out.
    order : Order
    after : Position, optional
        Where the page before has ended.
    limit : int
        Most versions to return.
    """

    groups: TermGroups
    parts: tuple[str, ...]
    ranges: tuple[RangeFilter, ...]
    order: Order
    limit: int
    after: Position | None = None
    other_than: str | None = None


class Found(NamedTuple):
    """One version that was found; `key` is what it was ordered by."""

    version_id: int
    key: int | float | str


class Counted(NamedTuple):
    """Versions that were found, told together.

    Attributes
    ----------
    versions : int
        How many they are.
    facets : str
        The terms that are counted: a line for each version, in the order of the plan, with
        spaces between them.
    """

    versions: int
    facets: str


class Finder(Protocol):
    """Answers plans on one kind of database.

    Laws
    ----
    - Exactly those versions are found for which all conditions hold, each once.
    - They come in the plan's order, which is total: the key first, then the version's id.
    - At most four queries are made, whatever the number of versions.
    - What a page took follows from the plan and the database alone, not from how the finder
      went about it.
    """

    def find(self, plan: SearchPlan) -> list[Found]:
        """Return the first versions of the plan's order."""

    def count(self, plan: SearchPlan) -> Counted:
        """Return what those that `find` returns have in common."""
