"""What an aggregation method is, and the laws that every one obeys.

A method is one frozen dataclass in one file of this folder and one line of the table in
`aggregators.methods.registry`. ``tests/conformance/aggregation_methods.py`` holds the laws
as tests; a new method adds its sample models there and must pass all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from aggregators.methods.sub_models import SubModels
from aggregators.models import Model, ModelKind

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 to 1) and what is being done."""


def no_progress(fraction: float, what: str) -> None:
    """Tell nobody."""


class MethodOptions(BaseModel):
    """Base of every method's options: frozen, and unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoOptions(MethodOptions):
    """For methods that have nothing to choose."""


@dataclass(frozen=True, eq=False)
class Combined:
    """What a method makes: one model, and remarks that its user should read."""

    model: Model
    warnings: tuple[str, ...] = ()


OptionsT = TypeVar("OptionsT", bound=MethodOptions)


class AggregationMethod(Protocol[OptionsT]):
    """One way to make one model out of several: a pure function with a name and a version.

    Laws
    ----
    1. One input gives that input back (with options that ask for no change).
    2. Inputs that are all alike give that input back, whatever their weights.
    3. The order of the inputs does not change what is computed, to the last bit. What cannot
       be averaged (a detector's scanner and overlap tester) comes from the first given input,
       with a warning if the inputs differ in it.
    4. Only the ratios of the weights matter; an input given twice is an input of twice the
       weight (in WBA's mean initial shape, which is not weighted, it counts twice).
    5. Two models whose `merge_key` is equal can be merged, and two whose keys differ are
       refused with `IncompatibleModelsError`, which names the first differing field.
    6. The same inputs, weights and options give the same bytes under the same `version`;
       a change that alters them raises it.

    A method may also take what is no model but a site's contribution to changing one
    (``leaf-refit``): its laws are about contributions beside their base.

    Laws 2 to 4 are the work of `SubModels`, which joins and sorts the inputs before any
    method sees them.

    Attributes
    ----------
    name : str
        What the user types (``"mwma"``).
    version : int
        Goes into every recipe.
    summary : str
        One line for lists.
    kind : str
        What kind of models it takes and makes.
    options_type : type
        Pydantic model of the options.
    output_formats : tuple of str
        Formats that can hold every result; the first is written when nothing says otherwise.
    format_hint : str
        What to do when somebody wants another format; may be empty.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    summary: ClassVar[str]
    kind: ClassVar[ModelKind]
    output_formats: ClassVar[tuple[str, ...]]
    format_hint: ClassVar[str]

    @property
    def options_type(self) -> type[OptionsT]: ...

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        """Return a text that is equal for models this method can merge.

        Parameters
        ----------
        fingerprint : mapping
            As made by `aggregators.formats.fingerprint`.

        Returns
        -------
        str or None
            None when the method cannot merge such a model with anything.
        """
        ...

    def combine(
        self, sub_models: SubModels[Any], options: OptionsT, progress: Progress, /
    ) -> Combined:
        """Make one model.

        Inputs may be of any kind: `SubModels.narrowed` refuses those that the method cannot take.

        Raises
        ------
        IncompatibleModelsError
            The models cannot be merged; names the first differing field.
        OptionError
            An option that does not suit these models.
        """
        ...
