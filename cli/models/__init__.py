"""``poolctl models``: the models of the pool."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

from aggregators.formats import fingerprint, read_model
from aggregators.methods import find_method, merge_keys
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Argument, LimitOption, Option, command, group
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.models import descriptions as models_words
from cli.models import exchange, records, sharing, withdrawals
from pool_server.wire.models import ModelVersionResponse, StateChoice
from site_agent.errors import SignatureError
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.pool.profiles import is_offline
from site_agent.pool.requests import build_request
from site_agent.pool.restrictions import withdrawal_summary
from site_agent.tasks.model_files import is_address
from site_agent.wording import age_words, count_words, size_words

app = group("Search, describe, share and withdraw models in the pool.")

MOST_EVALUATIONS = 100


@dataclass(frozen=True)
class ModelFilter:
    """The options that choose and order the models of a list."""

    kind: records.KindOption = None
    label: Annotated[
        Sequence[str],
        Option("Has this label, or one within a bound such as 'images>=500'.", "KEY[=VALUE]"),
    ] = ()
    metric: Annotated[
        Sequence[str],
        Option('Has a score within this bound, for example "mean_error<0.1".', "BOUND"),
    ] = ()
    site: Annotated[str, Option("Only models of this site.", "SITE")] = ""
    name: Annotated[str, Option("Only models with this name.", "NAME")] = ""
    mergeable_with: Annotated[
        str, Option("Only models that can be merged with this one.", "FILE|ADDRESS")
    ] = ""
    state: Annotated[
        StateChoice | None,
        Option(
            "State of the versions. Default: available ones, and your own drafts. waiting: "
            "those that wait for a curator."
        ),
    ] = None
    latest: Annotated[bool, Option("Only the newest version of each model.")] = False
    sort: Annotated[
        str,
        Option(
            "created, name or metric.NAME; - before it reverses. Default: newest first.", "ORDER"
        ),
    ] = ""

    def query(self, text: Sequence[str], address: str, keys: Sequence[str]) -> ModelQuery:
        """Return the filter as the pool takes it."""
        return build_request(
            ModelQuery,
            kind=self.kind,
            site=self.site or None,
            name=self.name or None,
            label=[*self.label],
            metric=[*self.metric],
            text=" ".join(text),
            mergeable_with=address or None,
            mergeable_key=[*keys],
            state=self.state,
            latest=self.latest,
            sort=self.sort or "-created",
        )


@command(
    app,
    "ls",
    "models ls --kind ert --label population=infant --latest",
    'models ls --metric "mean_error<0.1" --mergeable-with mine.dat',
    "models ls --label 'images>=500' --sort metric.mean_error",
    "models ls infant eyes --site site-a -q",
)
def ls(
    invocation: Invocation,
    text: Annotated[
        list[str] | None, Argument("Words in the name, site, description or labels.", "TEXT")
    ] = None,
    *,
    chosen: ModelFilter,
    limit: LimitOption = 50,
) -> Reply:
    """List models. Several filters are combined."""
    address, keys = _mergeable(invocation, chosen.mergeable_with)
    with invocation.pool() as pool:
        query = chosen.query(text or (), address, keys)
        listed = invocation.first_of(pool.models.find(query), limit)
        for doubt in [] if listed else _why_none(pool, chosen.label, chosen.kind or "", keys):
            invocation.warn(doubt)
    empty = "no models found"
    verdict = _verdict(listed, limit)
    # The state is shown where it says something, and the labels are what one filters by.
    states = ["state"] if any(_state(version) != "available" for version in listed) else []
    columns = ["address", "labels", *states, "kind", "age"]
    row = partial(_row, with_state=bool(states))
    return listing(listed, columns, row, empty=empty, verdict=verdict)


def _verdict(listed: Sequence[ModelVersionResponse], limit: int) -> str:
    """Return the answer in one sentence: the numbers of models, sites and kinds."""
    more = "The first " if len(listed) == limit else ""
    sites = count_words(len({version.site for version in listed}), "site")
    kinds = Counter(version.kind for version in listed)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{more}{count_words(len(listed), 'model')} of {sites}: {counts}."


def _why_none(pool: PoolClient, labels: Sequence[str], kind: str, keys: Sequence[str]) -> list[str]:
    """Return the criteria of a search that no model can meet."""
    exact = dict(word.split("=", 1) for word in labels if re.fullmatch(r"[\w.-]+=[^=]+", word))
    doubts = pool.models.vocabulary().problems_of(exact) if exact else []
    kinds = {find_method(key.partition(":")[0]).kind for key in keys}
    if kind and kinds and kind not in kinds:
        doubts.append(
            f"--mergeable-with names a model of the kind {' or '.join(sorted(kinds))}, which no "
            f"model of --kind {kind} can be merged with"
        )
    return doubts


def _mergeable(invocation: Invocation, word: str) -> tuple[str, tuple[str, ...]]:
    """Return an address or digest for the pool, or the merge keys of a local file."""
    if not word:
        return "", ()
    if word.startswith("sha256:"):
        return word, ()
    if is_address(word):
        return f"pool://{invocation.address(word).removeprefix('pool://')}", ()
    if not Path(word).is_file():
        raise InputMissingError(
            f"--mergeable-with {word}: no such file, and not an address [SITE/]NAME"
        )
    keys = merge_keys(fingerprint(read_model(Path(word))))
    if not keys:
        raise UsageError(f"--mergeable-with {word}: no method merges this kind of model")
    return "", tuple(f"{method}:{key}" for method, key in sorted(keys.items()))


def _row(version: ModelVersionResponse, *, with_state: bool) -> list[str]:
    states = [_state(version)] if with_state else []
    age = age_words(version.created_at)
    return [version.address, _label_words(version), *states, version.kind, age]


def _label_words(version: ModelVersionResponse) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(version.labels.items()))


def _rows_of(version: ModelVersionResponse, finding: str) -> list[list[str]]:
    """Return everything known about a version; `finding` is that on its signature."""
    return [
        ["address", version.address],
        ["signature", finding],
        ["kind", f"{version.kind} ({version.format})"],
        ["state", records.state_words(version)],
        *_standing_rows(version),
        ["visible to", version.visibility],
        ["digest", version.digest],
        ["size", f"{size_words(version.size_bytes)} ({version.size_bytes} bytes)"],
        ["uploaded", f"{version.created_at:%Y-%m-%d %H:%M} by {version.created_by}"],
        ["file", version.file_name],
        ["description", version.description or "none"],
        ["merges by", ", ".join(version.mergeable_by) or "no method"],
        [
            "merged from",
            count_words(len(version.parent_digests), "model") if version.has_recipe else "-",
        ],
        *[[f"label {key}", value] for key, value in sorted(version.labels.items())],
        *[[f"metric {key}", f"{value:.6g}"] for key, value in sorted(version.metrics.items())],
        *[
            ["inherited term" if term.inherited else "term", term.in_words()]
            for term in version.terms
        ],
        *[
            [key.replace("_", " "), "none" if value is None else _short(value)]
            for key, value in version.fingerprint.items()
            if key not in {"kind", "format"}
        ],
    ]


@command(app, "info", "models info site-a/face-68", "models info site-a/face-68@2 --card > card.md")
def info(
    invocation: Invocation,
    address: Annotated[str, Argument("[SITE/]NAME[@VERSION].", "ADDRESS")],
    *,
    card: Annotated[bool, Option("Print the card: Markdown with YAML front matter.")] = False,
) -> Reply:
    """Show everything that the pool knows about a version.

    If nobody wrote a card, the pool makes one from labels, metrics, terms, lineage and evaluations.
    The YAML follows Hugging Face model cards; the card of a signed version is verified. Uses
    of your models by other sites are events: 'poolctl log'.
    """
    with invocation.pool() as pool:
        if card:
            shown = pool.card(address)
            return Reply(shown, shown.text.rstrip("\n"), [shown.address])
        version = pool.version(address)
        signature, finding = _signature(pool, version)
        measured = (
            []
            if is_offline()
            else list(islice(pool.evaluations.list(version.address), MOST_EVALUATIONS))
        )
        receipts = [] if is_offline() else pool.models.receipts(version.address)
    data = {
        **version.model_dump(mode="json"),
        "signature": signature,
        "evaluations": [evaluation.model_dump(mode="json") for evaluation in measured],
        "receipts": [receipt.model_dump(mode="json") for receipt in receipts],
    }
    text: list[str | TableText] = [TableText(["what", "value"], _rows_of(version, finding))]
    if measured:
        text.append(records.evaluation_table(measured))
    text += records.receipt_tables(receipts)
    return Reply(data, text, [version.address])


def _signature(pool: PoolClient, version: ModelVersionResponse) -> tuple[str, str]:
    """Return how a version's signature is found, in one word and in a sentence; pin nothing."""
    try:
        check = pool.signatures.verify(version, pin=False)
    except SignatureError as error:
        return "refused", f"REFUSED: {error}"
    parts = (check.words, check.note, check.warning)
    return check.status, "; ".join(part for part in parts if part)


@command(
    app,
    "lineage",
    "models lineage site-d/merged-68",
    "models lineage site-d/merged-68@2 --long --json",
)
def lineage(
    invocation: Invocation,
    address: Annotated[str, Argument("[SITE/]NAME[@VERSION].", "ADDRESS")],
    *,
    long: Annotated[bool, Option("With --json: include the recipe of every model.")] = False,
) -> Reply:
    """Show the inputs of a merged model, and the models merged from it.

    Withdrawn models, and models that contain one, are marked.
    """
    with invocation.pool() as pool:
        answer = pool.models.lineage(address, recipes=long)
    digests = [node.digest for node in answer.nodes]
    return Reply(answer, list(records.family_lines(answer)), digests)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return count_words(len(value), "entry", "entries")
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _state(version: ModelVersionResponse) -> str:
    """Return a version's state, and whether it is flagged or replaced."""
    summary = withdrawal_summary(version)
    if not summary or version.withdrawal is not None:
        return summary or version.state
    return f"{version.state}, {summary}"


def _standing_rows(version: ModelVersionResponse) -> list[list[str]]:
    """Return rows on withdrawals of a version and its inputs, and on its successors."""
    rows = []
    if (withdrawal := version.withdrawal) is not None:
        meaning = "not given out" if withdrawal.effect == "refuse" else "given out with a warning"
        rows.append(["withdrawn", f"{withdrawal.reason}, {meaning} ({withdrawal.withdrawn_by})"])
    rows += [
        ["flagged", f"holds {flag.address}, withdrawn {flag.flagged_at:%Y-%m-%d} ({flag.reason})"]
        for flag in version.flags
    ]
    return rows + [["replaced by", address] for address in version.successors]


app.add_typer(sharing.app)
app.add_typer(withdrawals.app)
app.add_typer(models_words.app)
app.add_typer(records.app)
app.add_typer(exchange.app)
