"""The options of rounds of networks: the method's own, and how sites train, given together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, check_options
from aggregators.methods.networks.local_training import LocalTraining
from aggregators.methods.registry import METHODS, find_method


@dataclass(frozen=True)
class RoundOptions:
    """The options of a round, taken apart.

    Attributes
    ----------
    own : MethodOptions
        What `aggregators.merge` takes.
    training : LocalTraining
        What every site takes.
    """

    own: MethodOptions
    training: LocalTraining

    def together(self) -> dict[str, Any]:
        """Return all options in full; `split_options` takes them apart again."""
        return {**self.own.model_dump(mode="json"), **self.training.model_dump(mode="json")}


def split_options(method: str, options: Mapping[str, Any]) -> RoundOptions:
    """Take the options of a round apart, and add the defaults.

    Raises
    ------
    UnknownMethodError
    OptionError
        The method is not for networks, or an option is unknown or invalid.
    """
    chosen = find_method(method)
    if chosen.kind != "network":
        known = ", ".join(each.name for each in METHODS.values() if each.kind == "network")
        raise OptionError(f"{method} does not combine networks; expected one of {known}")
    own, training = chosen.options_type.model_fields, LocalTraining.model_fields
    if unknown := [name for name in options if name not in own and name not in training]:
        raise OptionError(
            f"rounds of {method} have no option {unknown[0]!r}; the options of the method: "
            f"{', '.join(own) or 'none'}; of the sites' training: {', '.join(training)}"
        )
    return RoundOptions(
        check_options(
            chosen.options_type, {name: options[name] for name in options if name in own}, method
        ),
        check_options(
            LocalTraining,
            {name: options[name] for name in options if name in training},
            "the sites' training",
        ),
    )
