"""Messages of live rounds: the start of a run, and the reports of its rounds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from site_agent.federated.plan import FederationPlan, digest_run, read_plan
from site_agent.plain_json import write_json

MOST_NETWORK_BYTES = 512 * 1024**2
"""Several times the size of today's networks."""

BASE, _REPORT = "base.safetensors", "rounds.json"

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_LONGEST_ROUND_S = 7 * 24 * 3600.0


class Run(BaseModel):
    """The rounds that a submitter asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    plan: dict[str, Any]
    """The JSON values of ``FederationPlan.model_dump()``."""
    sites: tuple[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")], ...] = Field(
        max_length=1000
    )
    """All sites of the federation."""
    first_base: _Digest
    """SHA-256 of the network with which the rounds of the plan began."""
    first_round: int = Field(ge=1, le=100_000)
    base: _Digest
    """SHA-256 of the network with which this round begins."""
    round_limit_s: float = Field(gt=0, le=_LONGEST_ROUND_S)

    def read_plan(self) -> FederationPlan:
        """Return the plan; raises as `site_agent.federated.plan.read_plan`."""
        return read_plan(self.plan)

    @property
    def digest(self) -> str:
        """SHA-256 by which all parties know the rounds."""
        return digest_run(self.read_plan(), self.first_base)


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


_REPORTS = TypeAdapter(tuple[RoundReport, ...])


def read_reports(content: str | bytes) -> tuple[RoundReport, ...]:
    """Read reports in JSON; raises `ValueError`."""
    return _REPORTS.validate_json(content)


class RoundFiles:
    """The networks of a run's rounds in a folder, and the reports of the rounds that have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def network(self, number: int) -> Path:
        """Return the file of the network that a round made; 0 is the first base."""
        return self.folder / (f"round-{number:04d}.safetensors" if number else BASE)

    def read_reports(self) -> tuple[RoundReport, ...]:
        """Return the reports of the rounds that have ended, in their order."""
        path = self.folder / _REPORT
        return read_reports(path.read_bytes()) if path.is_file() else ()

    def add_report(self, report: RoundReport) -> None:
        """Add the report of a round; its files must be there."""
        write_json(self.folder / _REPORT, [*self.read_reports(), report])
