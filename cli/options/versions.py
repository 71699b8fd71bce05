"""Options that describe a version: labels, scores, terms of use, visibility, its card."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cli.frame.errors import UsageError
from cli.frame.options import DespiteWithdrawalOption, LabelOption, Option
from cli.frame.output import Invocation
from cli.frame.values import key_value_pairs
from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import today_utc
from pool_server.wire.models import Visibility

VisibilityOption = Annotated[
    Visibility | None, Option("Who sees it: your own site, listed sites, or all sites.")
]

MetricOption = Annotated[Sequence[str], Option("A score that you measured.", "KEY=NUMBER")]


@dataclass(frozen=True)
class NewVersionOptions:
    """The description of a version that is made by an upload, or by a merge on the pool."""

    label: LabelOption = ()
    description: Annotated[str, Option("A description.")] = ""
    term: Annotated[
        Sequence[str],
        Option(
            "A term of use, such as DUO:0000042 or MOR=2027-01-31; repeatable.", "CODE[=DETAIL]"
        ),
    ] = ()
    draft: Annotated[
        bool, Option("Show it only to your own site until 'poolctl models publish'.")
    ] = False
    visibility: VisibilityOption = None
    despite_withdrawal: DespiteWithdrawalOption = False

    def read(self) -> dict[str, Any]:
        """Return it as the pool takes it: labels and terms are parsed."""
        return {
            "labels": key_value_pairs(self.label, "--label"),
            "description": self.description,
            "terms": read_terms(self.term),
            "draft": self.draft,
            "visibility": self.visibility,
            "despite_withdrawal": self.despite_withdrawal,
        }


def read_terms(codes: Sequence[str]) -> list[Term]:
    """Return the terms of the command line, each once."""
    terms: dict[Term, None] = {}
    for word in codes:
        try:
            terms[Term.parse(word, today_utc())] = None
        except ValueError as error:
            raise UsageError(f"--term {word}: {error}") from error
    return list(terms)


def until_published(address: str) -> str:
    """Return the words on the end of a draft, with its command."""
    return (
        "until you, or where the pool is curated a curator of the pool, publish it: "
        f"poolctl models publish {address}"
    )


def question_label_keys(invocation: Invocation, doubtful: Mapping[str, str]) -> None:
    """Question keys that look like misspellings: in a terminal ask, elsewhere warn."""
    for key, near in doubtful.items():
        doubt = f"label {key}: nobody finds it who searches for {near}"
        if sys.stdin.isatty():
            invocation.confirm(f"{doubt}. Use {key} anyway?", assume_yes=False)
        else:
            invocation.warn(f"{doubt}; did you mean {near}?")


def read_metrics(entries: Sequence[str]) -> dict[str, float]:
    """Return metrics by name."""
    metrics = {}
    for key, text in key_value_pairs(entries, "--metric").items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"--metric {key}={text}: expected a finite number")
        metrics[key] = value
    return metrics
