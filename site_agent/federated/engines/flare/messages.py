"""Messages of server, sites and submitter besides those of FLARE itself."""

import json
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

TRAIN, PRESENT = "train", "poolctl.present"
"""The task of a round, and the question whether a site is still there."""

BASE, ROUND = "base", "round"
"""A task's entries: bytes of the network's file, number from 1, ..."""

PLAN, FIRST_BASE = "plan", "first_base"
"""... the `FederationPlan` as JSON values, SHA-256 of the network with which its rounds began."""

CONTRIBUTION, REFUSAL = "contribution", "refusal"
"""An answer has one of these: bytes of the contribution's file, or the type of an error."""

REPLY = "poolctl.reply"
"""The message, and its entry, with the result of a round for one site; sent with `ROUND`, `PLAN`
and `FIRST_BASE`."""

LEAST_OTHERS = "least_others"
"""Sent with a contribution: smallest number of other sites' contributions to combine it with."""

RESULTS = "rounds"
"""Folder of a job's results: the networks with their states and recipes, and `REPORT`."""

REPORT = "rounds.json"

PROBLEM = "problem.txt"
"""Next to `REPORT` if a round made no network: the reason, for the submitter."""


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
    """Return the file name of the network that a round makes."""
    return f"round-{number:04d}.safetensors"
