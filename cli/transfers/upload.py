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
            "Read the files beside the model: its recipe (FILE.recipe.json), labels and "
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
        found = "a folder" if file.is_dir() else "no such file"
        raise InputMissingError(f"{file}: {found}; expected a model file")
    said = version.read()
    given = _Description(said["labels"], version_options.read_metrics(metric), terms=said["terms"])
    given.card = "" if card is None else version_options.read_card_file(card)
    from aggregators.formats import file_digest, recognise
    from site_agent.pool.client import refuse_site_only

    model_format = recognise(file)
    refuse_site_only(file)
    digest = file_digest(file)
    if sidecars_read:
        _add_sidecars(given, file, digest)
    inputs = [] if given.recipe is None else [each["digest"] for each in given.recipe["inputs"]]
    privacy = (
        None if receipt is None else version_options.read_receipt_file(receipt, [digest, *inputs])
    )
    for note in given.notes:
        invocation.note(note)
    with invocation.pool() as pool:
        address = version_options.model_address(pool, name)
        if sidecars_read:
            _add_shared_labels(invocation, pool, given, file.parent)
        _require_vocabulary(invocation, pool, given)
        if dry_run:
            size = size_words(file.stat().st_size)
            data = {"address": address, "uploaded": False, "format": model_format.name}
            data |= {"labels": given.labels, "metrics": given.metrics, "recipe": given.recipe}
            data |= {"terms": given.terms, "card": given.card, "draft": version.draft}
            data["visibility"] = version.visibility
            return Reply(data, f"would upload {file} ({model_format.name}, {size}) as {address}")
        with goes_on_when_repeated(), invocation.progress(f"upload {file.name}") as report:
            done = pool.upload(
                file,
                address,
                **said | {"labels": given.labels, "terms": given.terms},
                metrics=given.metrics,
                recipe=given.recipe,
                card=given.card,
                sign=sign,
                digest=digest,
                progress=report,
            )
            if privacy is not None:
                pool.models.write_receipt(done.version.address, privacy)
    warn_of_standing(invocation, done.version)
    _warn_of_differences(invocation, given, version.description, done.version)
    return _reply(file, done, privacy)


def _reply(file: Path, done: "Uploaded", privacy: "PrivacyReceipt | None") -> Reply:
    version = done.version
    sent = f"{size_words(done.sent_bytes)} sent" if done.sent_bytes else "the pool had it already"
    if 0 < done.sent_bytes < version.size_bytes:
        sent = f"{size_words(version.size_bytes)}, the last {sent} now"
    data = {"uploaded": True, "sent_bytes": done.sent_bytes, "version": version}
    signed = ", signed" if version.signed_by is not None else ""
    state = "" if version.state == "available" else f", {version.state}"
    state += "" if version.visibility == "consortium" else f", {version.visibility}"
    text = f"{file} is {version.address} ({sent}{signed}{state})"
    inherited = [each for each in version.terms if each.inherited]
    lines = [text, *(f"inherited: {version_options.term_words(each)}" for each in inherited)]
    if privacy is not None:
        lines += [f"Leak: {privacy.level}. {privacy.verdict}", privacy.protection]
    if version.state == "draft":
        lines.append(
            f"only your site and curators see it until: poolctl models publish "
            f"{version.site}/{version.name}@{version.version}"
        )
    return Reply(data, lines, [version.address])


def _add_shared_labels(
    invocation: Invocation, pool: "PoolClient", given: _Description, folder: Path
) -> None:
    """Give a merged model the labels that all its inputs share."""
    from pool_server.wire.labels import shared_labels
    from site_agent.pool.rebuilding import RecipeSources

    sources = RecipeSources((), pool.models)
    known, unknown = [], []
    for entry in given.recipe["inputs"] if given.recipe is not None else ():
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
        words = f"the labels of {', '.join(unknown)} are unknown"
        invocation.note(f"{words}, so the merged model gets no labels from its inputs")
        return
    shared = shared_labels(known)
    if new := {key: value for key, value in shared.items() if key not in given.labels}:
        given.labels |= new
        words = " ".join(f"{key}={value}" for key, value in new.items())
        invocation.note(f"labels that all inputs share: {words}")


def _warn_of_differences(
    invocation: Invocation, given: _Description, description: str, version: "ModelVersionResponse"
) -> None:
    """Warn if the pool had the file, and keeps what was said of it then."""
    differences, words = [], []
    for what, wanted, kept in (
        ("label", given.labels, version.labels),
        ("metric", given.metrics, version.metrics),
    ):
        for key, value in wanted.items():
            if kept.get(key) != value:
                differences.append(f"{key}={kept[key]}" if key in kept else f"no {key}")
                words.append(f"--{what} {shlex.quote(f'{key}={value}')}")
    if description not in {"", version.description}:
        differences.append("another description")
        words.append(f"--description {shlex.quote(description)}")
    if differences:
        invocation.warn(
            f"{version.address} was there before, and keeps {', '.join(differences)}; to change "
            f"that: poolctl models edit {version.address} {' '.join(words)}"
        )


def _require_vocabulary(invocation: Invocation, pool: "PoolClient", given: _Description) -> None:
    """Refuse here, before anything is sent, what the pool's vocabulary does not take."""
    vocabulary = pool.models.vocabulary()
    if problems := vocabulary.problems_of(given.labels):
        raise UsageError("; ".join(problems))
    version_options.question_label_keys(invocation, vocabulary, given.labels)
    known = {each.code for each in vocabulary.terms}
    for term in given.terms:
        if term.code not in known:
            raise UsageError(f"term {term.code}: unknown to this pool")


def _add_sidecars(given: _Description, file: Path, digest: str) -> None:
    """Add what lies beside the file; what the command line says goes before it."""
    from site_agent.training_record import beside

    found = versions.recipe_beside(file, digest)
    if found is not None:
        given.recipe = found[1]
        given.notes.append(f"taken from {found[0]}: the recipe")
    labels = versions.labels_beside(file, digest)
    if new := {key: value for key, value in labels.items() if key not in given.labels}:
        given.labels |= new
        words = " ".join(f"{key}={value}" for key, value in new.items())
        given.notes.append(f"taken from {beside(file, 'training')}: {words}")
    if not given.terms and (terms_file := version_options.terms_file_beside(file)) is not None:
        given.terms = version_options.read_terms([], terms_file)
        given.notes.append(f"taken from {terms_file}: {len(given.terms)} terms")
    metrics = versions.metrics_beside(file, digest)
    if count := versions.flattered_beside(file, digest):
        given.notes.append(
            f"left out {beside(file, 'evaluation')}: the model was trained on {count} of "
            "its images, which flatters it; to send scores nevertheless, give --metric"
        )
    elif measured := {key: value for key, value in metrics.items() if key not in given.metrics}:
        given.metrics |= measured
        words = " ".join(f"{key}={value:.6g}" for key, value in measured.items())
        given.notes.append(f"taken from {beside(file, 'evaluation')}: {words}")


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
    for each in abort:
        if not _UPLOAD_ID.fullmatch(each):
            raise UsageError(f"--abort {each!r}: is not an upload; see 'poolctl uploads'")
    with invocation.pool() as pool:
        for each in abort:
            pool.uploads.abort(each)
        if abort:
            text = [f"cancelled upload {each}" for each in abort]
            return Reply({"aborted": abort}, text, abort)
        found = invocation.first_of(pool.uploads.list(site), limit)
    return listing(
        found,
        ["upload", "to", "file", "size", "state", "begun", "by", "deleted on"],
        _row,
        keep=("to", "state", "deleted on", "file", "size"),
        empty="no uploads under way",
    )


def _row(found: "OpenUpload") -> list[str]:
    to = f"{found.site}/{found.name}" if found.purpose == "version" else f"round {found.name}"
    return [
        found.upload_id,
        to,
        found.file_name,
        size_words(found.size_bytes),
        found.state,
        f"{found.created_at:%Y-%m-%d %H:%M}",
        found.created_by,
        f"{found.expires_at:%Y-%m-%d %H:%M}",
    ]
