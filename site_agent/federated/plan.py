"""The plan of a federation: what all sites and all engines of rounds have to agree in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from aggregators.methods.networks.round_options import LocalTraining, RoundOptions, split_options
from site_agent.errors import InvalidInputError


class FederationPlan(BaseModel):
    """A method with its options, and how many rounds are held with how many sites.

    It is plain data: ``model_dump()`` gives what JSON can hold, and `read_plan` reads that.

    Attributes
    ----------
    method : str
        A method for networks, such as ``fedavg``.
    options : dict
        The method's own options and those of `LocalTraining`, together and in full.
    rounds : int
    cohort : float
        Share of the sites that train in each round, above 0 and at most 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: str
    options: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    rounds: int = Field(ge=1, le=100_000)
    cohort: float = Field(default=1.0, gt=0, le=1)

    @field_validator("options")
    @classmethod
    def _in_full(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return split_options(info.data.get("method", ""), options).together()

    @cached_property
    def _split(self) -> RoundOptions:
        return split_options(self.method, self.options)

    @property
    def method_options(self) -> dict[str, Any]:
        """The method's own options, as `aggregators.merge` takes them."""
        return self._split.own.model_dump(mode="json")

    @property
    def training(self) -> LocalTraining:
        """How each site trains; its seed is the seed of the whole federation."""
        return self._split.training

    def sites_in(self, round_number: int, sites: Iterable[str]) -> tuple[str, ...]:
        """Return the sites that train in a round, in the order of their names.

        They are drawn by SHA-256 of seed, round and name; their number is the share rounded up.
        """

        def drawn(site: str) -> bytes:
            text = f"poolctl-cohort/1|{self.training.seed}|{round_number}|{site}"
            return hashlib.sha256(text.encode()).digest()

        ordered = sorted(sites, key=drawn)
        # 0.8 * 15 is a little more than 12.
        return tuple(sorted(ordered[: math.ceil(self.cohort * len(ordered) - 1e-9)]))


def make_plan(
    method: str, options: Mapping[str, Any], *, rounds: int, cohort: float = 1.0
) -> FederationPlan:
    """Return a plan whose options are checked and in full.

    Raises
    ------
    UnknownMethodError, OptionError
        The method is not for networks, or an option is unknown or invalid.
    InvalidInputError
        A number is out of its range.
    """
    return read_plan(
        {"method": method, "options": dict(options), "rounds": rounds, "cohort": cohort}
    )


def read_plan(data: Mapping[str, Any]) -> FederationPlan:
    """Return the plan that ``model_dump()`` has made plain; raises as `make_plan`."""
    try:
        return FederationPlan.model_validate(dict(data))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(step) for step in problem["loc"])
        raise InvalidInputError(f"plan of a federation: {name}: {problem['msg']}") from error
