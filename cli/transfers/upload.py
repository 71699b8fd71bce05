"""``poolctl upload`` and ``uploads``: share model files, and list or cancel unfinished uploads."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cli.frame.errors import UsageError
from cli.frame.options import Argument, DryRunOption, LimitOption, Option, command, single
from cli.frame.output import Invocation, Reply, listing
from cli.options import versions
from pool_server.wire.cards import PrivacyReceipt
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.uploads import OpenUpload
from site_agent.pool.client import Uploaded
from site_agent.tasks.model_files import whole_id
from site_agent.wording import size_words

if TYPE_CHECKING:
    from site_agent.pool.sidecars import ModelDescription
    from site_agent.tasks.uploading import PreparedUpload


app = single()


@command(
    app,
    "upload",
    "upload siteA.dat --name site-a/face-68 --label population=infant --label images=1111",
    "upload siteA.svm --name face --metric recall=0.88 --description 'Hose in view'",
    "upload merged.dat --name merged-68 --draft",
    "upload siteA.dat --name face-68 --term DUO:0000042 --term MOR=2027-01-31 --draft",
)
def upload(
    invocation: Invocation,
    file: Annotated[Path, Argument("The model file.")],
    *,
    name: Annotated[str, Option("The site. Default: your own.", "[SITE/]NAME")],
    version: versions.NewVersionOptions,
    metric: versions.MetricOption = (),
    card: Annotated[Path | None, Option("The model card: Markdown with YAML front matter.")] = None,
    receipt: Annotated[Path | None, Option("A receipt that 'poolctl privacy probe' wrote.")] = None,
    sign: Annotated[bool, Option("Sign the version if you have a key for the site.")] = True,
    dry_run: DryRunOption = False,
) -> Reply:
    """Upload a model file to the pool as the next version of a model.

    The pool checks digest and format before anyone sees the version. If the pool has the same file,
    its version is returned. To resume an interrupted upload, run the command again. Only the named
    file leaves this machine, with its description: options, and files next to it with its recipe
    (FILE.recipe.json), labels, scores and terms of use (FILE.terms, one a line); see --dry-run.
    """
    from site_agent.pool.sidecars import ModelDescription
    from site_agent.tasks.uploading import prepare_upload, read_card_file

    fields = version.read()
    labels, terms = fields.pop("labels"), fields.pop("terms")
    description = ModelDescription(
        labels, versions.read_metrics(metric), terms, "" if card is None else read_card_file(card)
    )
    with invocation.pool() as pool:
        prepared = prepare_upload(
            invocation, pool, file, name, description, fields=fields, receipt=receipt, sign=sign
        )
        versions.question_label_keys(invocation, prepared.doubtful_labels)
        if dry_run:
            return _describe(prepared)
        uploaded = prepared.send(invocation, pool)
    _warn_of_differences(invocation, description, version.description, uploaded.version)
    return _reply(file, uploaded, description.receipt)


def _describe(prepared: "PreparedUpload") -> Reply:
    request, address = prepared.request, prepared.address
    announced = request.model_dump(mode="json")
    data = {"uploaded": False, "address": address, "format": prepared.format, **announced}
    what = f"{prepared.file} ({prepared.format}, {size_words(request.size_bytes)})"
    return Reply(data, f"would upload {what} as {address}")


def _reply(file: Path, uploaded: Uploaded, privacy: PrivacyReceipt | None) -> Reply:
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
    lines = [text, *(f"inherited: {term.in_words()}" for term in inherited)]
    if privacy is not None:
        lines += [f"Leak: {privacy.level}. {privacy.verdict}", privacy.protection, privacy.advice]
    if version.state == "draft":
        lines.append(
            "only your site and curators see it "
            + versions.until_published(f"{version.site}/{version.name}@{version.version}")
        )
    return Reply(data, lines, [version.address])


def _warn_of_differences(
    invocation: Invocation,
    description: "ModelDescription",
    text: str,
    version: ModelVersionResponse,
) -> None:
    """Warn if the pool keeps an earlier description of this file."""
    differences = []
    for option, sent, kept in (
        ("--label", description.labels, version.labels),
        ("--metric", description.metrics, version.metrics),
    ):
        for key, value in sent.items():
            if kept.get(key) != value:
                earlier = f"{key}={kept[key]}" if key in kept else f"no {key}"
                differences.append((earlier, f"{option} {shlex.quote(f'{key}={value}')}"))
    if text not in {"", version.description}:
        differences.append(("another description", f"--description {shlex.quote(text)}"))
    if differences:
        earlier_values, options = zip(*differences, strict=True)
        invocation.warn(
            f"{version.address} was there before, and keeps {', '.join(earlier_values)}; to change "
            f"that: poolctl models edit {version.address} {' '.join(options)}"
        )


# ``poolctl uploads``: what is on its way into the pool.
uploads_app = single()


@command(
    uploads_app,
    "uploads",
    "uploads",
    "uploads --site site-a --json",
    f"uploads {'0123456789abcdef' * 2} --cancel",
)
def uploads(
    invocation: Invocation,
    upload_ids: Annotated[
        list[str] | None, Argument("With --cancel: as 'poolctl uploads' shows them.", "[UPLOAD...]")
    ] = None,
    *,
    cancel: Annotated[bool, Option("Cancel these uploads, and delete their parts.")] = False,
    site: Annotated[
        str, Option("Uploads of this site. Default: your site; for pool admins, all.", "SITE")
    ] = "",
    limit: LimitOption = 100,
) -> Reply:
    """List unfinished uploads of your site, newest first, or cancel some.

    To resume an upload, upload the same file to the same name again. Abandoned uploads are deleted
    at the time shown here. Finished uploads do not change.
    """
    chosen = upload_ids or []
    if cancel != bool(chosen):
        raise UsageError("expected --cancel UPLOAD..., or neither")
    with invocation.pool() as pool:
        known = [upload.upload_id for upload in pool.uploads.list(site)] if chosen else []
        chosen = [whole_id(word, known, "upload", "poolctl uploads") for word in chosen]
        for upload_id in chosen:
            pool.uploads.abort(upload_id)
        if chosen:
            text = [f"cancelled upload {upload_id}" for upload_id in chosen]
            return Reply({"cancelled": chosen}, text, chosen)
        open_uploads = invocation.first_of(pool.uploads.list(site), limit)
    return listing(
        open_uploads,
        ["upload", "to", "state", "deleted on", "file", "size", "begun", "by"],
        _row,
        empty="no uploads under way",
    )


def _row(open_upload: OpenUpload) -> list[str]:
    to = (
        f"{open_upload.site}/{open_upload.name}"
        if open_upload.purpose == "version"
        else f"round {open_upload.name}"
    )
    return [
        open_upload.upload_id,
        to,
        open_upload.state,
        f"{open_upload.expires_at:%Y-%m-%d %H:%M}",
        open_upload.file_name,
        size_words(open_upload.size_bytes),
        f"{open_upload.created_at:%Y-%m-%d %H:%M}",
        open_upload.created_by,
    ]
