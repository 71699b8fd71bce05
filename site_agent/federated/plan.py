"""The plan of a federation, on which all sites and engines agree, and combining a round by it.

Contributions are combined as files (`combine_files`) or in memory (`combine`): the same bytes.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from aggregators.errors import first_problem
from aggregators.formats import decode_model, encode_model
from aggregators.methods.merging import Merged, merge
from aggregators.methods.round_options import LocalTraining, RoundOptions, split_options
from aggregators.models import MergeInput, NetworkContribution, OptimiserState, StateDict
from site_agent.errors import InvalidInputError


class FederationPlan(BaseModel):
    """A method with its options, and the numbers of rounds and sites.

    It is plain data: ``model_dump()`` gives JSON values, and `read_plan` reads that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: str
    """A method for networks, such as ``fedavg``."""
    options: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    """The method's own options and those of `LocalTraining`, together and in full."""
    rounds: int = Field(ge=1, le=100_000)
    cohort: float = Field(default=1.0, gt=0, le=1)
    """Share of the sites that train in each round, above 0 and at most 1."""

    @model_validator(mode="after")
    def _cover_all_rounds(self) -> "FederationPlan":
        options = split_options(self.method, self.options).over(self.rounds).together()
        object.__setattr__(self, "options", options)
        return self

    @field_validator("options")
    @classmethod
    def _in_full(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return split_options(info.data.get("method", ""), options).together()

    @cached_property
    def split(self) -> RoundOptions:
        """The options of the method and of the sites' training, apart."""
        return split_options(self.method, self.options)

    @property
    def digest(self) -> str:
        """SHA-256 by which sites name the plan; seed and cohort decide which sites train when."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return sha256(content.encode()).hexdigest()

    @property
    def method_options(self) -> dict[str, Any]:
        """The method's own options, as `aggregators.merge` takes them."""
        return self.split.merging.model_dump(mode="json")

    @property
    def training(self) -> LocalTraining:
        """How each site trains; its seed is the seed of the whole federation."""
        return self.split.training

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


def seed_of(seed: int, site: str, round_number: int) -> int:
    """Return the seed of a site's training in a round, from SHA-256."""
    text = f"poolctl-round/1|{seed}|{round_number}|{site}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def digest_run(plan: FederationPlan, first_base: str) -> str:
    """Return the SHA-256 that identifies the rounds of a plan from a first base (its SHA-256)."""
    facts = {"plan": plan.model_dump(mode="json"), "base": first_base}
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def make_plan(
    method: str, options: Mapping[str, Any], *, rounds: int, cohort: float = 1.0
) -> FederationPlan:
    """Return a plan with checked and complete options.

    Raises `UnknownMethodError`, `OptionError` if the method is not for networks, or an option is
    unknown or invalid, and `InvalidInputError` if a number is out of its range.
    """
    return read_plan(
        {"method": method, "options": dict(options), "rounds": rounds, "cohort": cohort}
    )


def read_plan(data: Mapping[str, Any]) -> FederationPlan:
    """Return the plan that ``model_dump()`` has made plain; raises as `make_plan`."""
    try:
        return FederationPlan.model_validate(dict(data))
    except ValidationError as error:
        raise InvalidInputError(f"plan of a federation: {first_problem(error)}") from error


@dataclass(frozen=True, eq=False)
class RoundModel:
    """A network between two rounds."""

    network: StateDict
    digest: str
    """SHA-256 of the network's file."""
    state: OptimiserState | None = None
    """The method's state for the next round."""


@dataclass(frozen=True, eq=False)
class CombinedRound:
    """The result of one round."""

    model: RoundModel
    update_digests: Mapping[str, str]
    """SHA-256 of each contribution's file, by site."""
    warnings: tuple[str, ...]

    @property
    def state(self) -> OptimiserState | None:
        """The method's state after the round."""
        return self.model.state


@dataclass(frozen=True, eq=False)
class CombinedFiles:
    """The result of one round as files."""

    digest: str
    """SHA-256 of the network."""
    state: OptimiserState | None
    state_digest: str | None
    """SHA-256 of the state's file."""
    update_digests: Mapping[str, str]
    """SHA-256 of each contribution's file, by site."""
    warnings: tuple[str, ...]


def first_model(network: StateDict) -> RoundModel:
    """Return the base of the first round."""
    return RoundModel(network, sha256(encode_model(network)).hexdigest())


def combine_files(
    plan: FederationPlan,
    base: Path,
    state: Path | None,
    contributions: Mapping[str, Path],
    output: Path,
) -> CombinedFiles:
    """Write the network that a round makes to `output`, with its recipe and its state next to it.

    `state`: The state that was written next to the base; None in the first round, and for methods
    without one. `contributions`: By site.
    """
    sites = sorted(contributions)
    files = [contributions[site] for site in sites]
    inputs = [base, *([] if state is None else [state]), *files]
    merged = merge(plan.method, inputs, options=plan.method_options, output=output)
    assert merged.digest is not None, "it was written"
    recorded = merged.recipe.output
    return CombinedFiles(
        merged.digest,
        merged.state,
        None if recorded is None else recorded.state,
        _digests_of(merged, sites),
        merged.warnings,
    )


def combine(
    plan: FederationPlan, base: RoundModel, contributions: Mapping[str, NetworkContribution]
) -> CombinedRound:
    """Return the network that a round makes: the same bytes as by `combine_files`."""
    sites = sorted(contributions)
    models: list[MergeInput] = [base.network, *([] if base.state is None else [base.state])]
    names = ["the base", "the state"][: len(models)]
    inputs = [*models, *(contributions[site] for site in sites)]
    merged = merge(plan.method, inputs, options=plan.method_options, addresses=[*names, *sites])
    # The entries are computed from the inputs each time they are read, until they are bytes.
    content = encode_model(merged.model)
    network = cast("StateDict", decode_model(content))
    model = RoundModel(network, sha256(content).hexdigest(), merged.state)
    return CombinedRound(model, _digests_of(merged, sites), merged.warnings)


def _digests_of(merged: Merged, sites: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of the contributions, which are the last inputs of a merge."""
    entries = merged.recipe.inputs[-len(sites) :]
    return {site: entry.digest for site, entry in zip(sites, entries, strict=True)}
