"""``poolctl models edit`` and ``vocabulary``: descriptions of versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame import options
from cli.frame.errors import UsageError
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.values import key_value_pairs
from cli.options.versions import question_label_keys, read_metrics
from pool_server.wire.labels import CoreLabel, VocabularyResponse
from pool_server.wire.models import ModelVersionResponse
from site_agent.pool.client import PoolClient
from site_agent.tasks.uploading import read_card_file

app = options.single()


@dataclass(frozen=True)
class DescriptionChanges:
    """Options that change labels, scores and the description of a version."""

    label: Annotated[
        Sequence[str], options.Option("Set a label; KEY= removes it.", "KEY=VALUE")
    ] = ()
    metric: Annotated[
        Sequence[str],
        options.Option("Set a score that you measured; KEY= removes it.", "KEY=NUMBER"),
    ] = ()
    description: Annotated[str | None, options.Option("The new description.")] = None

    @property
    def any(self) -> bool:
        """Return whether an option was given."""
        return self != DescriptionChanges()

    def apply(
        self, invocation: Invocation, pool: PoolClient, version: ModelVersionResponse
    ) -> ModelVersionResponse:
        """Change the version in the pool, and return it."""
        labels = key_value_pairs([word for word in self.label if not word.endswith("=")], "--label")
        vocabulary = pool.models.vocabulary()
        if problems := vocabulary.problems_of(labels):
            raise UsageError("; ".join(problems))
        question_label_keys(invocation, vocabulary.near_keys(labels))
        metrics = read_metrics([word for word in self.metric if not word.endswith("=")])
        update: dict[str, Any] = {
            "labels": _merged(version.labels, labels, self.label, "label"),
            "metrics": _merged(version.metrics, metrics, self.metric, "metric"),
        }
        if self.description is not None:
            update["description"] = self.description
        changed = version.model_copy(update=update)
        is_signed = version.signed_by is not None
        return pool.models.change(
            changed, pool.signatures.statement_of(changed) if is_signed else None
        )


def _merged(
    current: Mapping[str, Any], new: Mapping[str, Any], entries: Sequence[str], kind: str
) -> dict[str, Any]:
    removed = [entry.removesuffix("=") for entry in entries if entry.endswith("=")]
    for key in removed:
        if key not in current:
            has = ", ".join(sorted(current)) or "none"
            raise UsageError(f"--{kind} {key}=: the version has no such {kind}; it has {has}")
    return {key: value for key, value in {**current, **new}.items() if key not in removed}


@options.command(
    app,
    "edit",
    "models edit site-a/face-68@2 --label population=infant --label popluation=",
    "models edit site-a/face-68 --description 'Infants, air-puff hose in view' --card card.md",
)
def edit(
    invocation: Invocation,
    address: options.NewestArgument,
    *,
    changes: DescriptionChanges,
    card: Annotated[Path | None, options.Option("Replace the card by this Markdown file.")] = None,
) -> Reply:
    """Change the description or the card of a version of your own.

    The file stays as it is. The audit log keeps the changes, and sites that downloaded the version
    get an event. A signed version is signed again with your key.
    """
    if not (changes.any or card):
        raise UsageError("nothing to change: give --label, --metric, --description or --card")
    lines: list[str] = []
    with invocation.pool() as pool:
        version = pool.version(address)
        if changes.any:
            version = changes.apply(invocation, pool, version)
            lines += [
                f"{version.address} has now:",
                *(f"  {key}={value}" for key, value in sorted(version.labels.items())),
                *(f"  {key}={value:.6g}" for key, value in sorted(version.metrics.items())),
                *([f"  {version.description}"] if version.description else []),
            ]
        if card is not None:
            pool.write_card(version.address, read_card_file(card))
            lines.append(f"{version.address} has the card of {card}")
    return Reply(version, lines, [version.address])


@options.command(
    app, "vocabulary", "models vocabulary", "models vocabulary terms", "models vocabulary -q"
)
def show_vocabulary(
    invocation: Invocation,
    what: Annotated[Literal["labels", "terms"], options.Argument("What to list.")] = "labels",
) -> Reply:
    """List the labels with a common meaning at every site, and their values.

    You can also use other labels. Terms of use are codes of the Data Use Ontology (GA4GH DUO).
    """
    with invocation.pool() as pool:
        vocabulary = pool.models.vocabulary()
    if what == "terms":
        return Reply(vocabulary, _terms_table(vocabulary), [term.code for term in vocabulary.terms])
    table = TableText(
        ["label", "meaning", "values", "example"],
        [
            [label.key, label.description, _values(label), label.example]
            for label in vocabulary.labels
        ],
    )
    return Reply(vocabulary, table, [label.key for label in vocabulary.labels])


def _values(label: CoreLabel) -> str:
    return ", ".join(label.values) or label.expects()


def _terms_table(vocabulary: VocabularyResponse) -> TableText:
    return TableText(
        ["code", "term", "short", "behind =", "meaning"],
        [
            [term.code, term.label, term.shorthand, term.detail_means, term.description]
            for term in vocabulary.terms
        ],
    )
