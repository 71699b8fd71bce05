"""Messages of live rounds: the start of a run, and the reports of its rounds."""

import json
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from site_agent.federated.plan import FederationPlan, digest_run, read_plan

MOST_NETWORK_BYTES = 512 * 1024**2
"""Several times the size of today's networks."""

BASE, REPORT = "base.safetensors", "rounds.json"

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


def write_reports(reports: list[RoundReport]) -> str:
    """Return the text of `REPORT`."""
    return json.dumps([asdict(report) for report in reports], indent=2) + "\n"


def read_reports(content: str | bytes) -> tuple[RoundReport, ...]:
    """Read the text of `REPORT`; raises `ValueError`."""
    return _REPORTS.validate_json(content)


def model_name(number: int) -> str:
    """Return the file name of the network that a round makes; 0 is the first base."""
    return f"round-{number:04d}.safetensors" if number else BASE
