"""Options of merges, on this machine and on the pool."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cli.frame.errors import UsageError
from cli.frame.options import ForceOption, FormatOption, Option
from cli.frame.values import key_value_pairs, numbers

MethodOption = Annotated[
    Sequence[str], Option("An option of the method, such as step=1.1; repeatable.", "KEY=VALUE")
]


@dataclass(frozen=True)
class MergeOptions:
    """The options of a merge, here or on the pool: by a method, or as another merge was."""

    weight: Annotated[
        str,
        Option(
            "A number for each input: 1.5,1,1; or a label such as images. Default: equal.",
            "NUMBERS",
        ),
    ] = ""
    option: MethodOption = ()
    replay: Annotated[
        str,
        Option("Repeat a merge from this recipe file, or that of this model.", "RECIPE|ADDRESS"),
    ] = ""
    without: Annotated[
        Sequence[str],
        Option("With --replay: leave this out, also from inputs that hold it.", "DIGEST|ADDRESS"),
    ] = ()

    def require_consistent(self) -> None:
        """Refuse options that the recipe of ``--replay`` already gives."""
        if self.replay and (self.weight or self.options()):
            raise UsageError("--replay takes method, weights and options from the recipe")
        if self.without and not self.replay:
            raise UsageError("--without goes with --replay RECIPE")

    @property
    def weighs_by_label(self) -> bool:
        """The weights are the values of a label."""
        return self.weight[:1].isalpha()

    def weights(self) -> list[float] | None:
        """Return the weights of the inputs; None where they weigh the same."""
        return numbers(self.weight, "--weight") if self.weight else None

    def options(self) -> dict[str, Any]:
        """Return the options of the method."""
        return method_options(self.option)


@dataclass(frozen=True)
class MergeHere:
    """The options of a merge on this machine."""

    output: Annotated[Path | None, Option("The file to write. Default: merged.SUFFIX.")] = None
    output_format: FormatOption = ""
    force: ForceOption = False


@dataclass(frozen=True)
class PoolMergeOptions:
    """The options of a merge on the pool."""

    name: Annotated[
        str,
        Option(
            "Merge on the pool's machine, in the background, and publish the result by this name.",
            "[SITE/]NAME",
        ),
    ] = ""
    wait: Annotated[bool, Option("With --name: wait for the result.")] = False


def method_options(entries: Sequence[str]) -> dict[str, Any]:
    """Return a method's options; values are JSON where they can be (numbers, true, null)."""
    options: dict[str, Any] = {}
    for key, text in key_value_pairs(entries, "--option").items():
        try:
            options[key] = json.loads(text)
        except ValueError:
            options[key] = text
    return options
