"""What rounds can be held: a new kind is one line in the table.

A method says what it asks of the base and the options, and which program looks at contributions.
All methods combine by `aggregators.merge`, base first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pool_server.database.records import ModelVersionRecord
from pool_server.errors import RoundRefusedError

ONE_SHOT, LEVEL_BY_LEVEL = "one-shot", "level-by-level"


@dataclass(frozen=True)
class RoundMethod:
    """One method that combines contributions with a base.

    Attributes
    ----------
    name : str
        As `aggregators.methods` has it.
    modes : tuple of str
        Ways to hold a round of it through a pool.
    check_settings : callable
        Returns the full options from those that were given; raises `RoundRefusedError`.
    """

    name: str
    modes: tuple[str, ...]
    check_settings: Callable[[str, Mapping[str, Any]], dict[str, Any]]

    @property
    def version(self) -> int:
        # Loads numpy; a pool without rounds does without.
        from aggregators.methods.registry import find_method

        return find_method(self.name).version

    def options_of_next(self, options: Mapping[str, Any], levels: int) -> dict[str, Any]:
        """Return the options of the round that goes on with a result.

        The first round has thinned the model; its result has no trees to spare. A round of one
        level is followed by one of the next, and the last level by the first.

        Parameters
        ----------
        levels : int
            Of the base.
        """
        following = {**options, "thin": None} if "thin" in options else dict(options)
        if options.get("level") is not None:
            following["level"] = options["level"] % levels + 1
        return following

    def rounds_to_hold(self, mode: str, rounds: int, levels: int) -> int:
        """Return how many rounds in the pool those that were asked for make.

        Level by level, sites meet once for each level of the base.
        """
        return rounds * levels if mode == LEVEL_BY_LEVEL else rounds

    def check_options(self, mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options in full, as all sites are to use them."""
        if mode not in self.modes:
            raise RoundRefusedError(
                f"a round of {self.name} cannot be held {mode}; through a pool it can be: "
                f"{', '.join(self.modes)}",
            )
        return self.check_settings(mode, options)

    def require_base(self, base: ModelVersionRecord) -> None:
        """Raise `RoundRefusedError` unless this model can be refined."""
        members = base.fingerprint.get("members", 1)
        if base.kind != "ert" or members != 1:
            found = f"a WBA ensemble of {members}" if base.kind == "ert" else f"of kind {base.kind}"
            raise RoundRefusedError(
                f"{self.name} refines one landmark model; the base is {found}",
                hint="Merge the sub-models with wba-cascade first.",
            )


def check_refit_settings(mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from aggregators.methods.refitting import RefitSettings

    if "seed" in options:
        raise RoundRefusedError(
            "option seed: every site draws its own starting shapes, so it stays at the site"
        )
    if "level" in options:
        raise RoundRefusedError(
            "option level: the pool counts the levels itself, from the first",
            hint="Leave it out; --mode level-by-level holds one round for each level.",
        )
    first = {"level": 1} if mode == LEVEL_BY_LEVEL else {}
    try:
        return RefitSettings.model_validate({**options, **first, "mode": mode}).shared()
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(step) for step in problem["loc"])
        known = ", ".join(sorted(set(RefitSettings.model_fields) - {"seed", "mode", "level"}))
        raise RoundRefusedError(
            f"option {name}: {problem['msg']}; the options are {known}"
        ) from error


ROUND_METHODS: Mapping[str, RoundMethod] = {
    method.name: method
    for method in (RoundMethod("leaf-refit", (ONE_SHOT, LEVEL_BY_LEVEL), check_refit_settings),)
}


def find_round_method(name: str) -> RoundMethod:
    """Return the method of this name."""
    if name not in ROUND_METHODS:
        raise RoundRefusedError(
            f"no round can be held with method {name!r}; there is {', '.join(ROUND_METHODS)}"
        )
    return ROUND_METHODS[name]
