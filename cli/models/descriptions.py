"""``poolctl models change|alias|card|vocabulary``: what versions are called, and said of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame import options
from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.output import Invocation, Reply, TableText
from cli.options.versions import MetricOption, question_label_keys, read_card_file, read_metrics

if TYPE_CHECKING:
    from pool_server.wire.labels import CoreLabel, VocabularyResponse


app = options.single()


@options.command(
    app,
    "alias",
    "models alias site-a/face-68@3 best",
    "models alias site-a/face-68 stable",
    "models alias site-a/face-68 best --remove",
)
def alias(
    invocation: Invocation,
    address: options.NewestArgument,
    name: Annotated[str, options.Argument("The alias; it begins with a letter.", "ALIAS")],
    *,
    remove: Annotated[bool, options.Option("Remove the alias.")] = False,
) -> Reply:
    """Name a version SITE/NAME@ALIAS; an existing alias moves to it."""
    from site_agent.pool.client import parse_address

    where = parse_address(address)
    full = f"pool://{where.site}/{where.name}@{name}"
    with invocation.pool() as pool:
        if remove:
            pool.models.remove_alias(where, name)
            return Reply({"alias": full, "version": None}, f"{full} means nothing any more", [full])
        version = pool.models.set_alias(where, name)
    data = {"alias": full, "version": version}
    return Reply(data, f"{full} is {version.address}", [version.address])


@options.command(
    app,
    "change",
    "models change site-a/face-68@2 --label population=infant --remove-label popluation",
    "models change site-a/face-68 --description 'Infants, air-puff hose in view'",
)
def change(
    invocation: Invocation,
    address: options.NewestArgument,
    *,
    label: options.LabelOption = (),
    remove_label: Annotated[Sequence[str], options.Option("Remove this label.", "KEY")] = (),
    metric: MetricOption = (),
    remove_metric: Annotated[Sequence[str], options.Option("Remove this score.", "KEY")] = (),
    description: Annotated[str | None, options.Option("The new description.")] = None,
) -> Reply:
    """Correct labels, scores or the description of a version of your own.

    The file stays as it is. The audit log keeps what was changed, and sites that downloaded the
    version get an event. If the version is signed, it is signed again with your key.
    """
    labels, metrics = options.key_value_pairs(label, "--label"), read_metrics(metric)
    if description is None and not (labels or metrics or remove_label or remove_metric):
        raise UsageError("say what to change: --label, --remove-label, --metric, --description")
    with invocation.pool() as pool:
        vocabulary = pool.models.vocabulary()
        if problems := vocabulary.problems_of(labels):
            raise UsageError("; ".join(problems))
        question_label_keys(invocation, vocabulary, labels)
        before = pool.version(address)
        changes: dict[str, Any] = {
            "labels": _changed(before.labels, labels, remove_label, "label"),
            "metrics": _changed(before.metrics, metrics, remove_metric, "metric"),
        }
        if description is not None:
            changes["description"] = description
        wanted = before.model_copy(update=changes)
        signed = before.signed_by is not None
        statement = pool.signatures.statement_of(wanted) if signed else None
        after = pool.models.change(wanted, statement)
    lines = [f"{after.address} has now:"]
    lines += [f"  {key}={value}" for key, value in sorted(after.labels.items())]
    lines += [f"  {key}={value:.6g}" for key, value in sorted(after.metrics.items())]
    lines += [f"  {after.description}"] if after.description else []
    return Reply(after, lines, [after.address])


def _changed(
    known: Mapping[str, Any], given: Mapping[str, Any], removed: Sequence[str], what: str
) -> dict[str, Any]:
    for key in removed:
        if key not in known:
            has = ", ".join(sorted(known)) or "none"
            raise UsageError(f"--remove-{what} {key}: the version has no such {what}; it has {has}")
    return {key: value for key, value in {**known, **given}.items() if key not in removed}


@options.command(
    app,
    "card",
    "models card site-a/face-68",
    "models card site-a/face-68@3 -o card.md",
    "models card site-a/face-68@3 --edit card.md",
)
def card(
    invocation: Invocation,
    address: Annotated[str, options.Argument("[SITE/]NAME[@VERSION].", "ADDRESS")],
    *,
    edit: Annotated[Path | None, options.Option("Replace the card by this file.")] = None,
    output: options.OutputFileOption = None,
    force: options.ForceOption = False,
) -> Reply:
    """Show the card of a version: Markdown with YAML front matter.

    If nobody wrote a card, the pool makes one from labels, metrics, terms, lineage and evaluations.
    The YAML follows Hugging Face model cards. The card of a signed version is verified, and
    --edit signs it again with your key.
    """
    if edit is not None and output is not None:
        raise UsageError("--edit writes the pool's card, --output a file; give one of them")
    if output is not None:
        require_free(output, force=force)
    with invocation.pool() as pool:
        found = (
            pool.card(address) if edit is None else pool.write_card(address, read_card_file(edit))
        )
    if edit is not None:
        return Reply(found, f"{found.address} has the card of {edit}", [found.address])
    if output is None:
        return Reply(found, found.text.rstrip("\n"), [found.address])
    output.write_text(found.text, encoding="utf-8")
    return Reply(found, f"written {output}", [str(output)])


@options.command(
    app, "vocabulary", "models vocabulary", "models vocabulary --terms", "models vocabulary -q"
)
def vocabulary(
    invocation: Invocation,
    *,
    terms: Annotated[bool, options.Option("List the terms of use instead of the labels.")] = False,
) -> Reply:
    """List the labels with a common meaning at every site, and their values.

    You can also use other labels. Terms of use are codes of the Data Use Ontology (GA4GH DUO).
    """
    with invocation.pool() as pool:
        known = pool.models.vocabulary()
    if terms:
        return Reply(known, _terms_table(known), [each.code for each in known.terms])
    table = TableText(
        ["label", "values", "meaning", "example"],
        [[each.key, _values(each), each.description, each.example] for each in known.labels],
        keep=("meaning", "values"),
    )
    return Reply(known, table, [each.key for each in known.labels])


def _values(label: "CoreLabel") -> str:
    return ", ".join(label.values) or label.expects()


def _terms_table(known: "VocabularyResponse") -> TableText:
    return TableText(
        ["code", "short", "term", "behind =", "meaning"],
        [
            [each.code, each.shorthand, each.label, each.detail_means, each.description]
            for each in known.terms
        ],
        keep=("term", "short", "behind ="),
    )
