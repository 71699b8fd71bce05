"""The contract of aggregation methods.

A method is a class in one file of this folder and an entry in `aggregators.methods.registry`.
Merges, simulations, rounds through a pool, live rounds and studies all find it there: the needs
of a round are declared with its method, and pool and sites have one implementation
for each `ContributionKind`. ``tests/conformance/aggregation_methods.py`` tests the laws.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aggregators.errors import ContributionError, OptionError
from aggregators.methods.sub_models import SubModels
from aggregators.models import Model, ModelKind, OptimiserState

ContributionKind = Literal["leaf-changes", "network-update"]
"""Contents of the files that sites send in a round (`LeafContribution`, `NetworkContribution`)."""

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 to 1) and a description of the current step."""


def no_progress(fraction: float, what: str) -> None:
    """Ignore a report."""


class MethodOptions(BaseModel):
    """Base of the methods' options; unknown names are refused."""

    # NaN and infinities have no JSON, so no recipe could hold them.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def over(self, rounds: int) -> Self:  # noqa: ARG002
        """Return the options for a series of rounds: some defaults depend on their number."""
        return self


class CappedOptions(MethodOptions):
    """For methods that weigh sites by the samples that they state."""

    weight_cap: float = Field(
        default=3.0,
        ge=1,
        description="Cap a site's weight at this multiple of the median number of samples.",
    )


class NoOptions(MethodOptions):
    """For methods without options."""


OptionsT = TypeVar("OptionsT", bound=MethodOptions)


def check_options(
    options_type: type[OptionsT], options: Mapping[str, Any], method: str
) -> OptionsT:
    """Return a method's options, checked.

    Raises `OptionError`: names the first option that is unknown or invalid.
    """
    try:
        return options_type.model_validate(dict(options))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(step) for step in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(options_type.model_fields) or "none"
            raise OptionError(f"{method} has no option {name!r}; its options: {known}") from error
        raise OptionError(
            f"option {name!r} of {method} is {problem['input']!r}: {problem['msg']}"
        ) from error


def require_made_for(
    base: tuple[str, str], settings: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> None:
    """Raise `ContributionError` unless a contribution was made from its round's base, as asked.

    `base` and `settings` are pairs: the expected and the actual ones.
    """
    if base[0] != base[1]:
        raise ContributionError(
            f"was made from another base: found {base[1][:16]}..., expected {base[0][:16]}..."
        )
    for field, expected in settings[0].items():
        if (actual := settings[1].get(field)) != expected:
            raise ContributionError(
                f"was made with {field} {actual}, the round asks for {expected}"
            )


@dataclass(frozen=True, eq=False)
class Combined:
    """The result of a method: one model, warnings for the user, and a server optimiser's state."""

    model: Model
    warnings: tuple[str, ...] = ()
    state: OptimiserState | None = None


class AggregationMethod(ABC, Generic[OptionsT]):
    """A pure function that makes one model out of several.

    Laws
    ----
    1. One input is returned unchanged (with options that ask for no change).
    2. Equal inputs give that input with any weights.
    3. The order of the inputs does not change the result, to the last bit. A part that cannot be
       averaged (a detector's scanner and overlap tester) comes from the first given input, with
       a warning if the inputs differ in it.
    4. Only the ratios of the weights matter; an input given twice has twice the weight (in WBA's
       mean initial shape, which is not weighted, it counts twice). The robust methods count
       sites: weights change nothing, and an input given twice has two votes.
    5. Two models with equal `merge_key` can be merged; if the keys differ,
       `IncompatibleModelsError` names the first differing field.
    6. The same inputs, weights, options and `version` give the same bytes; a change of the bytes
       needs a new version.

    `SubModels` joins and sorts the inputs, which gives laws 2 to 4. ``leaf-refit`` and the
    FedOpt methods take a base and the contributions of sites; their laws are about these.

    Attributes
    ----------
    name : str
    version : int
        Stored in recipes.
    summary : str
        One line for lists.
    kind : str
        Kind of the inputs and the result.
    options_type : type
    output_formats : tuple of str
        Formats that can hold every result; the first is the default.
    format_hint : str
        Advice on other formats; may be empty.
    contribution : ContributionKind or None
        The kind that sites send in rounds of this method; None if it has no rounds.
    needs_each : bool
        It compares the contributions with one another, so it cannot work from their secure sum.
    replies : bool
        Sites send statistics of their classes, and the state has a reply to each contribution,
        which its site alone may read (`aggregators.methods.networks.replies`).
    same_parts : bool
        Of personal methods: all sites keep the same numbers, so these do not differ from the base
        and the mean needs no masks.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    summary: ClassVar[str]
    kind: ClassVar[ModelKind]
    options_type: type[OptionsT]
    output_formats: ClassVar[tuple[str, ...]]
    format_hint: ClassVar[str] = ""
    contribution: ClassVar[ContributionKind | None] = None
    personal: ClassVar[bool] = False
    trains_plainly: ClassVar[bool] = True
    needs_each: ClassVar[bool] = False
    replies: ClassVar[bool] = False
    same_parts: ClassVar[bool] = False

    @property
    def reason_not_summable(self) -> str:
        """Return why the method cannot work from a secure sum; empty if it can."""
        if self.needs_each:
            return (
                "compares the contributions with one another, and a secure sum shows none of them"
            )
        if self.personal and not self.same_parts:
            return (
                "divides each number by how many sites share it: where that is one, the sum would "
                "be that site's own number"
            )
        return ""

    def take_own(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return those options of a round that the method takes; the others are for its sites."""
        return {name: options[name] for name in self.options_type.model_fields if name in options}

    @abstractmethod
    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        """Return a key that is equal for models that can be merged, from their fingerprint.

        None if the method cannot merge such a model.
        """

    def require_sites(self, sites: int, options: OptionsT) -> None:
        """Raise `OptionError` if these options need more sites."""

    @abstractmethod
    def combine(
        self, sub_models: SubModels[Any], options: OptionsT, progress: Progress, /
    ) -> Combined:
        """Return the merged model.

        Raises `IncompatibleModelsError` if the models cannot be merged; names the first differing
        field, and `OptionError` if an option is invalid for these models.
        """
