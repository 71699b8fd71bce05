"""What has been simulated with one method: ``history.json``, written anew after each round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.federated.engines.simulator.scoring import PersonErrors
from site_agent.federated.plan import FederationPlan, read_plan

_SCHEMA = "poolctl-simulation/1"


@dataclass(frozen=True)
class Round:
    """One round that was held.

    Attributes
    ----------
    number : int
        From 1.
    base, result : str
        SHA-256 of the networks' files.
    state : str or None
        SHA-256 of the file of the method's state.
    updates : mapping of str to str
        SHA-256 of the sites' contributions, by site.
    errors_deg : mapping of str to float
        Of the result on the samples that were held out, by person; empty without such samples.
    """

    number: int
    base: str
    result: str
    state: str | None
    updates: Mapping[str, str]
    warnings: tuple[str, ...]
    errors_deg: Mapping[str, float]

    @property
    def errors(self) -> PersonErrors | None:
        """The errors, if samples were held out."""
        return PersonErrors(self.errors_deg) if self.errors_deg else None


@dataclass(frozen=True)
class History:
    """The rounds of one plan, in their order."""

    plan: FederationPlan
    rounds: tuple[Round, ...] = ()

    def write(self, path: Path) -> None:
        """Write the history, whole or not at all."""
        content: dict[str, Any] = {
            "schema": _SCHEMA,
            "plan": self.plan.model_dump(),
            "rounds": [asdict(each) for each in self.rounds],
        }
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_history(path: Path, plan: FederationPlan) -> History:
    """Return what was held of a plan; no rounds if there is no file.

    The numbers of rounds may differ: a simulation can be made longer.

    Raises
    ------
    InvalidInputError
        The file is damaged, or of another plan.
    """
    if not path.exists():
        return History(plan)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = read_plan(content["plan"])
        rounds = tuple(
            Round(**{**each, "warnings": tuple(each["warnings"])}) for each in content["rounds"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path}: is not the history of a simulation: {error}") from error
    mine, theirs = _settings(plan), _settings(found)
    for name in mine:
        if mine[name] != theirs.get(name):
            raise InvalidInputError(
                f"{path}: was made with {name} {theirs.get(name)}, not {mine[name]}; "
                "choose another folder"
            )
    return History(plan, rounds[: plan.rounds])


def _settings(plan: FederationPlan) -> dict[str, Any]:
    return {"method": plan.method, "cohort": plan.cohort, **plan.options}
