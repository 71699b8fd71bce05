"""What studies on eyes have in common: drawn persons, and a method with its persons and seed."""

from dataclasses import dataclass

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings


class DrawnSettings(Settings, error=InvalidInputError):
    """The persons whose eyes are drawn, where no data are given."""

    drawn_persons: int = 15
    """Persons whose eyes are drawn."""
    frames: int = 1000
    """Mean over the persons."""
    amount: float = 20.0
    """Ratio of the largest to the smallest amount of data of a person."""


@dataclass(frozen=True)
class MethodRun:
    """One method with one seed: what it trains on `train` is tested on the persons `test`."""

    method: str
    seed: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    name: str = ""
    """Of the run where a method has several with one seed."""

    @property
    def key(self) -> str:
        """The name of its result's file, without the ending."""
        return "_".join(filter(None, (self.method, self.name, f"seed{self.seed}")))
