"""``poolctl upload`` and ``uploads``: share model files, and list or cancel unfinished uploads."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame.addresses import size_words, warn_of_standing
from cli.frame.errors import InputMissingError, UsageError, goes_on_when_repeated
from cli.frame.options import Argument, DryRunOption, LimitOption, Option, command, single
from cli.frame.output import Invocation, Reply, listing
from cli.options import versions
from cli.options import versions as version_options

if TYPE_CHECKING:
    from pool_server.wire.cards import PrivacyReceipt
    from pool_server.wire.data_use import Term
    from pool_server.wire.models import ModelVersionResponse
    from pool_server.wire.uploads import OpenUpload
    from site_agent.pool.client import PoolClient, Uploaded


app = single()


@dataclass
class _Description:
    """The description of the file, and where it comes from."""

    labels: dict[str, str]
    metrics: dict[str, float]
    recipe: dict[str, Any] | None = None
    terms: "list[Term]" = field(default_factory=list)
    card: str = ""
    notes: list[str] = field(default_factory=list)


@command(
    app,
    "upload",
    "upload siteA.dat --name site-a/face-68 --label population=infant --label images=1111",
    "upload siteA.svm --name face --metric recall=0.88 --description 'Hose in view'",
    "upload merged.dat --name merged-68 --purpose research",
    "upload siteA.dat --name face-68 --term DUO:0000042 --term MOR=2027-01-31 --draft",
)
def upload(
    invocation: Invocation,
    file: Annotated[Path, Argument("The model file.")],
    *,
    name: Annotated[str, Option("The site. Default: your own.", "[SITE/]NAME")],
    version: version_options.NewVersionOptions,
    metric: version_options.MetricOption = (),
    card: Annotated[Path | None, Option("The model card: Markdown with YAML front matter.")] = None,
    receipt: Annotated[Path | None, Option("A receipt that 'poolctl privacy probe' wrote.")] = None,
    sidecars_read: Annotated[
        bool,
        Option(
            "Read the sidecar files of the model: its recipe (FILE.recipe.json), labels and "
            "scores, and terms of use (FILE.terms, one a line).",
            name="--sidecars/--no-sidecars",
        ),
    ] = True,
    sign: Annotated[bool, Option("Sign the version if you have a key for the site.")] = True,
    dry_run: DryRunOption = False,
) -> Reply:
    """Upload a model file to the pool as the next version of a model.

    The pool checks digest and format before anyone sees the version. If the pool has the same file,
    its version is returned. To resume an interrupted upload, run the command again. Only the named
    file leaves this machine.
    """
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "no such file"
        raise InputMissingError(f"{file}: {kind}; expected a model file")
    said = version.read()
    description = _Description(
        said["labels"], version_options.read_metrics(metric), terms=said["terms"]
    )
    description.card = "" if card is None else version_options.read_card_file(card)
    from aggregators.formats import file_digest, recognise
    from site_agent.pool.client import refuse_site_only

    model_format = recognise(file)
    refuse_site_only(file)
    digest = file_digest(file)
    if sidecars_read:
        _add_sidecars(description, file, digest)
    inputs = (
        []
        if description.recipe is None
        else [entry["digest"] for entry in description.recipe["inputs"]]
    )
    privacy = (
        None if receipt is None else version_options.read_receipt_file(receipt, [digest, *inputs])
    )
    for note in description.notes:
        invocation.note(note)
    with invocation.pool() as pool:
        address = version_options.model_address(pool, name)
        if sidecars_read:
            _add_shared_labels(invocation, pool, description, file.parent)
        _require_vocabulary(invocation, pool, description)
        if dry_run:
            size = size_words(file.stat().st_size)
            data = {"address": address, "uploaded": False, "format": model_format.name}
            data |= {
                "labels": description.labels,
                "metrics": description.metrics,
                "recipe": description.recipe,
            }
            data |= {"terms": description.terms, "card": description.card, "draft": version.draft}
            data["visibility"] = version.visibility
            return Reply(data, f"would upload {file} ({model_format.name}, {size}) as {address}")
        with goes_on_when_repeated(), invocation.progress(f"upload {file.name}") as report:
            uploaded = pool.upload(
                file,
                address,
                **said | {"labels": description.labels, "terms": description.terms},
                metrics=description.metrics,
                recipe=description.recipe,
                card=description.card,
                sign=sign,
                digest=digest,
                progress=report,
            )
            if privacy is not None:
                pool.models.write_receipt(uploaded.version.address, privacy)
    warn_of_standing(invocation, uploaded.version)
    _warn_of_differences(invocation, description, version.description, uploaded.version)
    return _reply(file, uploaded, privacy)


def _reply(file: Path, uploaded: "Uploaded", privacy: "PrivacyReceipt | None") -> Reply:
    version = uploaded.version
    sent = (
        f"{size_words(uploaded.sent_bytes)} sent"
        if uploaded.sent_bytes
        else "the pool had it already"
    )
    if 0 < uploaded.sent_bytes < version.size_bytes:
        sent = f"{size_words(version.size_bytes)}, the last {sent} now"
    data = {"uploaded": True, "sent_bytes": uploaded.sent_bytes, "version": version}
    signed = ", signed" if version.signed_by is not None else ""
    state = "" if version.state == "available" else f", {version.state}"
    state += "" if version.visibility == "consortium" else f", {version.visibility}"
    text = f"{file} is {version.address} ({sent}{signed}{state})"
    inherited = [term for term in version.terms if term.inherited]
    lines = [text, *(f"inherited: {version_options.term_words(term)}" for term in inherited)]
    if privacy is not None:
        lines += [f"Leak: {privacy.level}. {privacy.verdict}", privacy.protection]
    if version.state == "draft":
        lines.append(
            f"only your site and curators see it until: poolctl models publish "
            f"{version.site}/{version.name}@{version.version}"
        )
    return Reply(data, lines, [version.address])


def _add_shared_labels(
    invocation: Invocation, pool: "PoolClient", description: _Description, folder: Path
) -> None:
    """Give a merged model the labels that all its inputs share."""
    from pool_server.wire.labels import shared_labels
    from site_agent.pool.rebuilding import RecipeSources

    sources = RecipeSources((), pool.models)
    known, unknown = [], []
    for entry in description.recipe["inputs"] if description.recipe is not None else ():
        name, digest = Path(entry["file_name"] or "").name, entry["digest"]
        if name.endswith(".contribution") or sources.round_file(digest):
            continue
        labels = versions.labels_beside(folder / name, digest) if name else {}
        addresses = [] if labels else sources.addresses_of(digest)
        if labels or addresses:
            known.append(labels or pool.version(addresses[0]).labels)
        else:
            unknown.append(name or f"sha256:{digest[:12]}...")
    if unknown:
        text = f"the labels of {', '.join(unknown)} are unknown"
        invocation.note(f"{text}, so the merged model gets no labels from its inputs")
        return
    shared = shared_labels(known)
    if new := {key: value for key, value in shared.items() if key not in description.labels}:
        description.labels |= new
        text = " ".join(f"{key}={value}" for key, value in new.items())
        invocation.note(f"labels that all inputs share: {text}")


def _warn_of_differences(
    invocation: Invocation, sent: _Description, description: str, version: "ModelVersionResponse"
) -> None:
    """Warn if the pool keeps an earlier description of this file."""
    differences, options = [], []
    for what, values, kept in (
        ("label", sent.labels, version.labels),
        ("metric", sent.metrics, version.metrics),
    ):
        for key, value in values.items():
            if kept.get(key) != value:
                differences.append(f"{key}={kept[key]}" if key in kept else f"no {key}")
                options.append(f"--{what} {shlex.quote(f'{key}={value}')}")
    if description not in {"", version.description}:
        differences.append("another description")
        options.append(f"--description {shlex.quote(description)}")
    if differences:
        invocation.warn(
            f"{version.address} was there before, and keeps {', '.join(differences)}; to change "
            f"that: poolctl models edit {version.address} {' '.join(options)}"
        )


def _require_vocabulary(
    invocation: Invocation, pool: "PoolClient", description: _Description
) -> None:
    """Refuse labels and terms outside the pool's vocabulary before anything is sent."""
    vocabulary = pool.models.vocabulary()
    if problems := vocabulary.problems_of(description.labels):
        raise UsageError("; ".join(problems))
    version_options.question_label_keys(invocation, vocabulary, description.labels)
    known = {term.code for term in vocabulary.terms}
    for term in description.terms:
        if term.code not in known:
            raise UsageError(f"term {term.code}: unknown to this pool")


def _add_sidecars(description: _Description, file: Path, digest: str) -> None:
    """Add the sidecar files; options on the command line take precedence."""
    from site_agent.training_record import beside

    recipe = versions.recipe_beside(file, digest)
    if recipe is not None:
        description.recipe = recipe[1]
        description.notes.append(f"taken from {recipe[0]}: the recipe")
    labels = versions.labels_beside(file, digest)
    if new := {key: value for key, value in labels.items() if key not in description.labels}:
        description.labels |= new
        text = " ".join(f"{key}={value}" for key, value in new.items())
        description.notes.append(f"taken from {beside(file, 'training')}: {text}")
    if (
        not description.terms
        and (terms_file := version_options.terms_file_beside(file)) is not None
    ):
        description.terms = version_options.read_terms([], terms_file)
        description.notes.append(f"taken from {terms_file}: {len(description.terms)} terms")
    metrics = versions.metrics_beside(file, digest)
    if count := versions.flattered_beside(file, digest):
        description.notes.append(
            f"left out {beside(file, 'evaluation')}: the model was trained on {count} of "
            "its images, which flatters it; to send scores nevertheless, give --metric"
        )
    elif measured := {
        key: value for key, value in metrics.items() if key not in description.metrics
    }:
        description.metrics |= measured
        text = " ".join(f"{key}={value:.6g}" for key, value in measured.items())
        description.notes.append(f"taken from {beside(file, 'evaluation')}: {text}")


# ``poolctl uploads``: what is on its way into the pool.
uploads_app = single()
_UPLOAD_ID = re.compile(r"^[0-9a-f]{32}$")


@command(
    uploads_app,
    "uploads",
    "uploads",
    "uploads --site site-a --json",
    f"uploads --abort {'0123456789abcdef' * 2}",
)
def uploads(
    invocation: Invocation,
    *,
    site: Annotated[
        str, Option("Uploads of this site. Default: your site; for pool admins, all.", "SITE")
    ] = "",
    abort: Annotated[
        Sequence[str], Option("Cancel this upload, delete its parts; repeatable.", "UPLOAD")
    ] = (),
    limit: LimitOption = 100,
) -> Reply:
    """List unfinished uploads of your site, newest first, or cancel some.

    To resume an upload, upload the same file to the same name again. Abandoned uploads are deleted
    at the time shown here. Finished uploads do not change.
    """
    for upload_id in abort:
        if not _UPLOAD_ID.fullmatch(upload_id):
            raise UsageError(f"--abort {upload_id!r}: is not an upload; see 'poolctl uploads'")
    with invocation.pool() as pool:
        for upload_id in abort:
            pool.uploads.abort(upload_id)
        if abort:
            text = [f"cancelled upload {upload_id}" for upload_id in abort]
            return Reply({"aborted": abort}, text, abort)
        open_uploads = invocation.first_of(pool.uploads.list(site), limit)
    return listing(
        open_uploads,
        ["upload", "to", "file", "size", "state", "begun", "by", "deleted on"],
        _row,
        keep=("to", "state", "deleted on", "file", "size"),
        empty="no uploads under way",
    )


def _row(open_upload: "OpenUpload") -> list[str]:
    to = (
        f"{open_upload.site}/{open_upload.name}"
        if open_upload.purpose == "version"
        else f"round {open_upload.name}"
    )
    return [
        open_upload.upload_id,
        to,
        open_upload.file_name,
        size_words(open_upload.size_bytes),
        open_upload.state,
        f"{open_upload.created_at:%Y-%m-%d %H:%M}",
        open_upload.created_by,
        f"{open_upload.expires_at:%Y-%m-%d %H:%M}",
    ]
