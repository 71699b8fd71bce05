"""What rounds ask of the server for each kind of contribution.

`aggregators.methods.registry` lists the methods; `pool_server.rounds.methods` looks up the server's
side by the kind of contribution that a method declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pool_server.errors import RefusedError, RoundRefusedError

if TYPE_CHECKING:
    from aggregators.methods.contract import AggregationMethod

    # The helper process checks contributions without a database.
    from pool_server.database.records import ModelVersionRecord

ONE_SHOT = "one-shot"


@dataclass(frozen=True)
class RoundMethod:
    """The rounds of one aggregation method; subclasses serve one kind of contribution each.

    Attributes
    ----------
    aggregation : AggregationMethod
        Combines the contributions with the base, by `aggregators.merge`.
    modes : tuple of str
        Ways to hold a round of it through a pool.
    data : str
        The data that sites contribute with, in examples of commands.
    alone : str
        The command that does the same on one machine.
    """

    aggregation: AggregationMethod[Any]
    modes: ClassVar[tuple[str, ...]] = (ONE_SHOT,)
    data: ClassVar[str]
    alone: ClassVar[str]

    @property
    def name(self) -> str:
        return self.aggregation.name

    def check_options(self, mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options in full, as all sites are to use them."""
        if mode not in self.modes:
            raise RoundRefusedError(
                f"a round of {self.name} cannot be held {mode}; through a pool it can be: "
                f"{', '.join(self.modes)}",
            )
        return self.full_options(mode, options)

    def full_options(self, _mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options in full; raise `RoundRefusedError` for one that is unknown or bad."""
        raise NotImplementedError

    def merge_options(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Return those options of a round that `aggregators.merge` takes."""
        return {}

    def require_base(self, base: ModelVersionRecord) -> None:
        """Raise `RoundRefusedError` unless rounds can be held with this base."""
        raise NotImplementedError

    def rounds_to_hold(self, _mode: str, rounds: int, _base: ModelVersionRecord) -> int:
        """Return how many rounds in the pool those that were asked for make."""
        return rounds

    def options_of_next(
        self, options: Mapping[str, Any], _base: ModelVersionRecord
    ) -> dict[str, Any]:
        """Return the options of the round that goes on with a result."""
        return dict(options)

    def examine(
        self, path: Path, base: Path, base_digest: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Compare a contribution with its round, and return what participants are told of it.

        Raises
        ------
        RefusedError, AggregatorError
            The contribution does not fit.
        """
        raise NotImplementedError


def require_settings(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise `RefusedError` for the first setting of a contribution that the round has otherwise."""
    for field, wanted in expected.items():
        if found.get(field) != wanted:
            raise RefusedError(
                f"was made with {field} {found.get(field)}, the round asks for {wanted}"
            )


def require_same_base(expected: str, found: str) -> None:
    """Raise `RefusedError` for a contribution to another base."""
    if found != expected:
        raise RefusedError(
            f"was made from another base: found {found[:16]}..., expected {expected[:16]}..."
        )
