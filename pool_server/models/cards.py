"""Model cards and privacy receipts of versions.

If nobody wrote a card, the pool generates one. Its front matter has the keys and the nesting that
Hugging Face's tools read (``modelcard.md`` in huggingface/hub-docs). The card of an evaluated model
has a ``model-index`` with one result for each evaluation; its data sets appear under their site's
names and their digests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord, RecipeRecord
from pool_server.errors import RefusedError
from pool_server.evaluations import read_evaluations
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry import repository as registry
from pool_server.registry.access import viewing_site
from pool_server.registry.responses import describe_version
from pool_server.registry.service import VersionToChange, VersionToName, lock_to_correct
from pool_server.signatures.statements import add_statement, require_resigned
from pool_server.wire import cards
from pool_server.wire.cards import PrivacyReceipt, receipt_lines
from pool_server.wire.data_use import TermResponse
from pool_server.wire.evaluations import EvaluationResponse
from pool_server.wire.exports import citation
from pool_server.wire.models import ModelVersionResponse

TASKS: dict[str, tuple[str, str]] = {
    "hog-svm": ("object-detection", "Face detection"),
    "ert": ("keypoint-detection", "Facial landmarks"),
}
"""Task of each kind of model, as the hub spells it, and for people."""

FACE_TAGS: dict[str, str] = {"hog-svm": "face-detection", "ert": "face-landmarks"}
OWN_KEY = "poolctl"


def receipt_section(receipts: Sequence[PrivacyReceipt]) -> str:
    """Return the section of a card that shows privacy receipts; empty without receipts."""
    if not receipts:
        return ""
    columns = ["attack", "found (95 % interval)", "chance", "positive control"]
    lines = ["", "## Privacy receipt", ""]
    for receipt in receipts:
        sentences, rows = receipt_lines(receipt)
        facts = (
            f"{receipt.persons} persons ({receipt.samples} samples), {receipt.held_out_persons} "
            f"held-out persons ({receipt.held_out_samples}); checked by nobody else; seed "
            f"{receipt.seed}, {receipt.seconds:.0f} s, {receipt.compute}."
        )
        lines += [f"### {receipt.mode}", ""]
        for text in (*sentences, receipt.what_left, facts, f"Attacker: {receipt.attacker}"):
            lines += [_escape(text), ""]
        lines += _table("", columns, rows)[2:]
    return "\n".join(lines)


def front_matter(
    version: ModelVersionResponse,
    parents: Mapping[str, str],
    evaluations: Sequence[EvaluationResponse],
    merge: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the front matter, without empty keys."""
    task, _ = TASKS.get(version.kind, ("", ""))
    names = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.scores))
    # The hub has no licence identifier for terms of data use.
    licence = {"license": "other", "license_name": "data-use-terms"}
    entries: dict[str, object] = {
        **(licence if version.terms else {"license": "unknown"}),
        "library_name": "dlib" if version.format.startswith("dlib") else "poolctl",
        "pipeline_tag": task,
        "tags": _tags(version),
        "base_model": [parents[digest] for digest in version.parent_digests],
        "base_model_relation": "merge" if version.parent_digests else "",
        "metrics": list(dict.fromkeys([*version.metrics, *names])),
        "model-index": _model_index(version, evaluations),
        OWN_KEY: _own_part(version) | ({"merge": dict(merge)} if merge else {}),
    }
    return {key: value for key, value in entries.items() if value}


def _tags(version: ModelVersionResponse) -> list[str]:
    tags = [OWN_KEY, FACE_TAGS.get(version.kind, ""), version.kind, version.format]
    tags += [f"{key}:{value}" for key, value in sorted(version.labels.items())]
    return [tag for tag in dict.fromkeys(tags) if tag]


def _model_index(
    version: ModelVersionResponse, evaluations: Sequence[EvaluationResponse]
) -> list[dict[str, object]]:
    if not evaluations:
        return []
    kind, title = TASKS.get(version.kind, ("other", "Other"))
    return [
        {
            "name": f"{version.site}/{version.name}",
            "results": [
                {
                    "task": {"type": kind, "name": title},
                    "dataset": _dataset(evaluation),
                    "metrics": [
                        {"type": name, "value": score.value, "name": name.replace("_", " ")}
                        for name, score in evaluation.scores.items()
                    ],
                    "source": {"name": f"site {evaluation.site}"},
                }
                for evaluation in evaluations
            ],
        }
    ]


def _dataset(evaluation: EvaluationResponse) -> dict[str, str]:
    dataset = {
        "type": f"private-{evaluation.dataset_digest[:12]}",
        "name": f"{evaluation.dataset} ({evaluation.site})",
    }
    return dataset | ({"split": evaluation.split} if evaluation.split else {})


def _own_part(version: ModelVersionResponse) -> dict[str, object]:
    entries: dict[str, object] = {
        "address": version.address,
        "sha256": version.digest,
        "size_bytes": version.size_bytes,
        "kind": version.kind,
        "format": version.format,
        "state": version.state,
        "uploaded": version.created_at.isoformat(timespec="seconds"),
        "labels": dict(sorted(version.labels.items())),
        "metrics": dict(sorted(version.metrics.items())),
        "terms": [
            {
                "code": term.code,
                "label": term.label,
                **({"detail": term.detail} if term.detail else {}),
                **({"inherited": True} if term.inherited else {}),
            }
            for term in version.terms
        ],
        "merges_by": version.mergeable_by,
    }
    return {key: value for key, value in entries.items() if value}


def _body(
    version: ModelVersionResponse,
    evaluations: Sequence[EvaluationResponse],
    merge: Mapping[str, Any] | None,
) -> str:
    _, title = TASKS.get(version.kind, ("", version.kind))
    lines = [f"# {version.site}/{version.name}, version {version.version}", ""]
    lines += [_escape(version.description), ""] if version.description else []
    lines += [
        f"{title}; format `{version.format}`, {version.size_bytes:,} bytes.",
        "",
        f"SHA-256 `{version.digest}`",
        "",
        f"Get it with `poolctl download {version.site}/{version.name}@{version.version}`.",
        "",
    ]
    lines += _table(
        "Trained on", ["label", "value"], [[key, value] for key, value in version.labels.items()]
    )
    lines += _table(
        "As its site says",
        ["metric", "value"],
        [[key, f"{value:.6g}"] for key, value in version.metrics.items()],
    )
    lines += _table(
        "Measured by the sites",
        ["site", "data", "images", "protocol", "scores"],
        [_evaluation_row(evaluation) for evaluation in evaluations],
    )
    if version.terms:
        lines += ["## Terms of use", "", *map(_term_line, version.terms), ""]
    if merge is not None:
        options = ", ".join(f"{key}={value}" for key, value in merge["options"].items())
        method = f"by {merge['method']}{f' ({options})' if options else ''}"
        rows = [[source["model"], f"{source['weight']:g}"] for source in merge["inputs"]]
        lines += _table(f"Merged {method} from", ["model", "weight"], rows)
    return "\n".join(lines)


def _evaluation_row(evaluation: EvaluationResponse) -> list[str]:
    scores = ", ".join(
        f"{name} {cards.score_text(score, '.4g')}" for name, score in evaluation.scores.items()
    )
    images = "" if evaluation.images is None else str(evaluation.images)
    return [evaluation.site, evaluation.dataset, images, evaluation.protocol, scores]


def _term_line(term: TermResponse) -> str:
    return f"- {_escape(term.in_words())}{' (inherited)' if term.inherited else ''}"


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_escape(cell) for cell in row) + " |" for row in rows]
    return [*lines, ""]


def _escape(text: str) -> str:
    """Escape text from other sites so that Markdown does not interpret it."""
    for sign in "\\`*_{}[]<>#|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


router = APIRouter(prefix="/models/{site}/{name}/versions/{reference}", tags=["models"])

MOST_EVALUATIONS = 100


@router.get("/card", summary="Read the card of a version", dependencies=[needs("models:read")])
def show_card(
    caller: SignedIn, session: ReadingSession, version: VersionToName
) -> cards.CardResponse:
    """Return the card of a version: Markdown with YAML front matter.

    If nobody wrote one, the pool generates it from labels, metrics, terms, lineage and evaluations.
    The front matter has the layout of Hugging Face model cards.
    """
    return describe_card(session, caller, version)


@router.put("/card", summary="Write the card of a version", dependencies=[needs("models:write")])
def replace_card(
    caller: Uploader, session: WritingSession, version: VersionToChange, request: cards.CardRequest
) -> cards.CardResponse:
    """Replace the card. An empty one restores the generated card.

    A signed version needs a new statement, because its signature covers the card.
    """
    caller.require_upload_to(version.model.site.name)
    require_card(request.text)
    lock_to_correct(session, version, "card")
    if request.text != version.card:
        require_resigned(version, request.statement)
        version.card = request.text
        session.flush()
        session.expire(version)
        version = registry.get_version(session, version.id)
        if request.statement is not None:
            add_statement(caller, session, version, request.statement)
        record_act(
            session,
            caller,
            "card.write",
            version.subject,
            digest=version.digest,
            characters=len(request.text),
        )
        session.flush()
        session.expire(version)
        version = registry.get_version(session, version.id)
    return describe_card(session, caller, version)


@router.get(
    "/receipts", summary="Show privacy receipts of a version", dependencies=[needs("models:read")]
)
def show_receipts(version: VersionToName) -> cards.ReceiptPage:
    """Return the results of attacks by the model's own site on its artifacts."""
    return cards.ReceiptPage(items=read_receipts(version))


@router.put("/receipts", summary="Store a privacy receipt", dependencies=[needs("models:write")])
def write_receipt(
    caller: Uploader,
    session: WritingSession,
    version: VersionToChange,
    receipt: cards.PrivacyReceipt,
) -> cards.ReceiptPage:
    """Store a receipt with a version, replacing that of the same mode.

    The pool shows it as measured by the site itself.
    """
    caller.require_upload_to(version.model.site.name)
    if receipt.mode == "sub-model" and receipt.artifact_digest != version.digest:
        raise RefusedError(
            f"the receipt is of the file sha256:{receipt.artifact_digest}, "
            f"the version has sha256:{version.digest}",
            code="receipt_refused",
        )
    kept = {kept_receipt.mode: kept_receipt for kept_receipt in read_receipts(version)} | {
        receipt.mode: receipt
    }
    version.receipts = {
        mode: kept_receipt.model_dump(mode="json") for mode, kept_receipt in kept.items()
    }
    subject = version.subject
    record_act(session, caller, "receipt.write", subject, digest=version.digest, mode=receipt.mode)
    session.flush()
    return cards.ReceiptPage(items=read_receipts(version))


def describe_card(
    session: Session, caller: Caller, version: ModelVersionRecord
) -> cards.CardResponse:
    """Return a version's card as it was written, or else a generated one.

    A card written without front matter gets the generated one, so that tools find the same keys in
    every card.
    """
    described = describe_version(session, version.id, viewing_site(caller))
    source = text = version.card
    addresses = registry.visible_addresses(session, caller, described.parent_digests)
    parents = {
        digest: addresses.get(digest, f"sha256:{digest}") for digest in described.parent_digests
    }
    recipe = session.get(RecipeRecord, version.id)
    merge = None if recipe is None else _describe_merge(recipe.document, parents)
    evaluations = read_evaluations(session, caller, version, limit=MOST_EVALUATIONS).items
    front = front_matter(described, parents, evaluations, merge)
    if not text:
        body = _body(described, evaluations, merge)
        cited = f"{body}\n## Citation\n\n```yaml\n{citation(described)}```\n"
        text = cards.write_card(front, cited)
    text += receipt_section(read_receipts(version))
    card = cards.read_card(text)
    if not card.front_matter:
        text = cards.write_card(front, f"\n{card.body.lstrip()}")
        card = cards.read_card(text)
    return cards.CardResponse(
        address=described.address,
        written=version.has_card,
        text=text,
        source=source,
        front_matter=dict(card.front_matter),
    )


def read_receipts(version: ModelVersionRecord) -> list[cards.PrivacyReceipt]:
    """Return the privacy receipts of a version, in the order of the modes."""
    kept = version.receipts or {}
    return [cards.PrivacyReceipt.model_validate(kept[mode]) for mode in cards.MODES if mode in kept]


def require_card(text: str) -> None:
    """Raise `RefusedError` if a card has front matter that cannot be parsed."""
    try:
        cards.read_card(text)
    except ValueError as error:
        raise RefusedError(str(error), code="card_refused") from error


def _describe_merge(recipe: Mapping[str, Any], parents: Mapping[str, str]) -> dict[str, Any]:
    """Return method, options and weighted inputs of a merge, with names the caller may know."""
    options = {key: value for key, value in recipe["options"].items() if value is not None}
    inputs = [
        {"model": parents[source["digest"]], "weight": source["weight"]}
        for source in recipe["inputs"]
        if source["digest"] in parents
    ]
    return {"method": recipe["method"]["name"], "options": options, "inputs": inputs}
