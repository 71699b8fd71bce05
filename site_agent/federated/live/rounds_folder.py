"""The folder of live rounds: the plan, the network of each round, and a report of each."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from aggregators.formats import file_digest
from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.federated.plan import FederationPlan
from site_agent.plain_json import write_json

_BASE, _PLAN, _REPORTS = "base.safetensors", "plan.json", "rounds.json"


@dataclass(frozen=True)
class RoundReport:
    """The outcome of one round."""

    number: int
    """From 1."""
    updates: dict[str, str]
    """SHA-256 of each contribution, by site."""
    missing: tuple[str, ...]
    """Sites that were selected for training, and have no contribution in the network."""
    digest: str
    """SHA-256 of the resulting network."""
    seconds: float
    warnings: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons for leaving out sites that answered, by site."""


_READER = TypeAdapter(list[RoundReport])


class RoundsFolder:
    """The networks of the rounds of a plan, and the reports of those that have ended.

    `folder`: Made where absent; it keeps the plan and the base, and refuses others.
    """

    def __init__(self, folder: Path, plan: FederationPlan, base: Path) -> None:
        self.folder, self.plan, self.first_base = folder, plan, file_digest(base)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"plan": plan.model_dump(mode="json"), "base": self.first_base}
        content = f"{json.dumps(facts, indent=2, sort_keys=True)}\n"
        place = folder / _PLAN
        if place.is_file() and place.read_text(encoding="utf-8") != content:
            raise InvalidInputError(
                f"{folder} holds rounds of another plan or base: choose another folder"
            )
        if not place.is_file():
            shutil.copyfile(base, folder / _BASE)
            write_whole(place, content)
        reports = folder / _REPORTS
        self.reports = _READER.validate_json(reports.read_bytes()) if reports.is_file() else []

    def network(self, number: int) -> Path:
        """Return the file of the network that a round made; 0 is the first base."""
        return self.folder / (f"round-{number:04d}.safetensors" if number else _BASE)

    def add(self, report: RoundReport) -> None:
        """Add the report of a round; its files must be there."""
        write_json(self.folder / _REPORTS, [*self.reports, report])
        self.reports.append(report)
