"""``poolctl bundle``: move models between pools without a network connection."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cli.frame import errors, existing_files, options
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.values import key_value_pairs
from pool_server.wire.signatures.keys import readable_fingerprint
from site_agent.bundles.exporting import export_bundle
from site_agent.bundles.importing import (
    BundleReport,
    ImportedVersion,
    ImportOutcome,
    import_bundle,
    inspect_bundle,
)
from site_agent.wording import size_words

app = options.group("Move models between pools in one file.")

FileArgument = Annotated[Path, options.Argument("A bundle.")]
SiteMapOption = Annotated[
    Sequence[str],
    options.Option(
        "The site here for a site there; repeatable. Default: the same name.", "THERE=HERE"
    ),
]


@options.command(
    app,
    "export",
    "bundle export site-d/merged-68 --with-parents -o merged.bundle",
    "bundle export site-a/face-68@2 site-b/face-68 --evaluations -o faces.bundle",
)
def export(
    invocation: Invocation,
    addresses: Annotated[list[str], options.Argument("[SITE/]NAME[@VERSION].", "ADDRESS")],
    *,
    output: Annotated[Path, options.Option("The file to write.")],
    with_parents: Annotated[
        bool, options.Option("Include everything that they were merged from.")
    ] = False,
    evaluations: Annotated[bool, options.Option("Include the evaluations of all sites.")] = False,
    force: options.ForceOption = False,
) -> Reply:
    """Write models to one file, with labels, terms, cards, recipes and signatures.

    The owners must have granted the right to redistribute the models, and the terms must allow it.
    The pool records the export and notifies the owners. Equal models give equal files.
    """
    existing_files.require_free(output, force=force)
    with invocation.pool() as pool, invocation.progress(f"export to {output}") as report:
        exported = export_bundle(
            pool,
            addresses,
            output,
            with_parents=with_parents,
            evaluations=evaluations,
            progress=report,
        )
    count = f"{len(exported.addresses)} {'model' if len(exported.addresses) == 1 else 'models'}"
    text = [
        *exported.addresses,
        f"{count}, {size_words(exported.size_bytes)}, in {output}",
        f"bundle {exported.identifier}",
    ]
    return Reply(exported, text, [str(output)])


def inspect(invocation: Invocation, file: Path) -> Reply:
    """Verify a bundle without a pool, and list its models."""
    with invocation.progress(f"check {file}") as progress:
        report = inspect_bundle(file, progress=progress)
    return Reply(report, _describe(report), [version.address for version in report.versions])


@options.command(
    app,
    "import",
    "bundle import merged.bundle --dry-run",
    "bundle import merged.bundle --site-map site-a=partner-a --site-map site-b=partner-b",
)
def import_file(
    invocation: Invocation,
    file: FileArgument,
    *,
    site_map: SiteMapOption = (),
    visibility: Annotated[
        Literal["private", "sites", "consortium"] | None,
        options.Option("Who sees new models. Default: the pool's setting."),
    ] = None,
    dry_run: options.DryRunOption = False,
) -> Reply:
    """Import the models of a bundle into the pool, with signatures and lineage.

    The whole file is checked first; a damaged or inconsistent one changes nothing. Models that the
    pool already has stay as they are, so an interrupted import can be run again. Keys of other
    pools are imported for verification only; a download treats them like any new key.
    """
    _require_file(file)
    sites = key_value_pairs(site_map, "--site-map")
    with invocation.pool() as pool, invocation.progress(f"import {file}") as progress:
        outcome = import_bundle(
            pool, file, site_map=sites, visibility=visibility, dry_run=dry_run, progress=progress
        )
    return import_reply(invocation, outcome, dry_run=dry_run)


def import_reply(invocation: Invocation, outcome: ImportOutcome, *, dry_run: bool) -> Reply:
    """Return the imported versions, and warn of omitted scores."""
    for site, count in sorted(outcome.evaluations_left_out.items()):
        invocation.warn(
            f"{count} evaluations of {site} were left out: the pool has no such site, or you may "
            "not speak for it"
        )
    rows = [
        [
            version.source,
            version.address,
            _state(version, dry_run=dry_run),
            "yes" if version.signed else "no",
        ]
        for version in outcome.versions
    ]
    table = TableText(["from", "here", "state", "signed"], rows, keep=("here", "state", "signed"))
    data = {
        "bundle": outcome.report.identifier,
        "imported": not dry_run,
        "items": outcome.versions,
        "evaluations_left_out": dict(outcome.evaluations_left_out),
    }
    renumbered = [
        f"{version.source} is version {_number(version.address)} here"
        for version in outcome.versions
        if not dry_run and _number(version.source) != _number(version.address)
    ]
    return Reply(data, [table, *renumbered], [version.address for version in outcome.versions])


def _state(version: ImportedVersion, *, dry_run: bool) -> str:
    if dry_run:
        return "would be sent"
    return "was there" if version.was_there else f"new, {size_words(version.sent_bytes)} sent"


def _number(address: str) -> str:
    return address.rpartition("@")[2]


def _describe(report: BundleReport) -> list[str | TableText]:
    trust_words = {
        "trusted": "trusted here",
        "changed": "NOT the key trusted here",
        "unknown": "not known here",
        "": "",
    }
    rows = [
        [
            version.address,
            version.kind,
            size_words(version.size_bytes),
            f"{version.parents_here} of {len(version.parents)}" if version.parents else "-",
            str(version.evaluations),
            f"{version.key_id[:16]} by {version.origin}" if version.key_id else "no",
            " ".join(part for part in (trust_words[version.trust], version.revoked_as) if part),
        ]
        for version in report.versions
    ]
    columns = ["model", "kind", "size", "parents here", "scores", "signed", "key"]
    keys = {version.key_id: version.origin for version in report.versions if version.key_id}
    return [
        TableText(columns, rows, keep=("key", "signed", "parents here")),
        f"bundle {report.identifier}, {size_words(report.size_bytes)}, whole and unchanged",
        *(f"key of {origin}: {readable_fingerprint(key)}" for key, origin in sorted(keys.items())),
    ]


def _require_file(file: Path) -> None:
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "no such file"
        raise errors.InputMissingError(f"{file}: {kind}; expected a bundle")
    if file.stat().st_size == 0:
        raise errors.UsageError(f"{file}: the file is empty")
