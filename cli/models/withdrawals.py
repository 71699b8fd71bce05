"""``poolctl models withdraw|check``: withdrawn models and their copies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cli.frame import errors, options
from cli.frame.output import Invocation, Reply, TableText
from pool_server.wire.withdrawals import WithdrawalImpact, WithdrawalReason
from site_agent.errors import writing_to
from site_agent.plain_json import json_bytes
from site_agent.pool.cache import ModelCache
from site_agent.pool.rebuilding import RecipeSources
from site_agent.pool.restrictions import LocalFile, WithdrawnFile, cached_files, check_files
from site_agent.pool.sending import hash_file
from site_agent.wording import count_words, first_lines

app = options.single()

_MOST_SHOWN = 20


@options.command(
    app,
    "withdraw",
    "models withdraw site-a/face-68@2 --reason consent-withdrawn "
    "--explanation 'One family has withdrawn its consent'",
    "models withdraw site-a/face-68@2 --reason quality --dry-run",
    "models withdraw site-a/face-68@2 --reason data-error -y --replaced-by site-a/face-68@3",
)
def withdraw(
    invocation: Invocation,
    address: options.VersionArgument,
    *,
    reason: Annotated[
        WithdrawalReason,
        options.Option(
            "The first three stop all downloads of the file; the others add a warning. A "
            "version in quarantine is never given out."
        ),
    ],
    explanation: Annotated[str, options.Option("An explanation for everyone who used it.")] = "",
    replaced_by: Annotated[str, options.Option("The version to use instead.", "ADDRESS")] = "",
    yes: options.YesOption = False,
    dry_run: options.DryRunOption = False,
) -> Reply:
    """Withdraw a version permanently, and flag everything that was merged from it.

    Owners of flagged models, and sites that downloaded any of them, get an event. 'poolctl merge
    --replay RECIPE --without ADDRESS' makes a merged model again without it. --dry-run lists
    the affected models and sites.
    """
    with invocation.pool() as pool:
        foreseen = pool.withdrawals.preview(address)
        if dry_run:
            return Reply(foreseen, _affected_text("would flag", foreseen), _addresses(foreseen))
        invocation.confirm(
            f"Withdraw {foreseen.address}, and flag "
            f"{count_words(foreseen.versions_total, 'model')} made from it? "
            f"{count_words(len(foreseen.sites), 'site hears', 'sites hear')} of it. "
            "It cannot be undone.",
            assume_yes=yes,
        )
        response = pool.withdrawals.withdraw(
            address, reason, explanation=explanation, successor=replaced_by or None
        )
    withdrawal = response.withdrawal
    assert withdrawal is not None, "only a preview has none"
    meaning = "is no longer given out" if withdrawal.effect == "refuse" else "comes with a warning"
    text = [f"{withdrawal.address} is withdrawn ({withdrawal.reason}) and {meaning}"]
    return Reply(response, [*text, *_affected_text("flagged", response)], _addresses(response))


@options.command(
    app,
    "check",
    "models check /data/models/*.dat",
    "models check detector.svm landmarks.dat --report withdrawn.json --quiet",
    "models check",
)
def check(
    invocation: Invocation,
    files: Annotated[
        list[Path] | None,
        options.Argument("Model files; by default those in the cache.", "FILE..."),
    ] = None,
    *,
    report_file: options.ReportOption = None,
) -> Reply:
    """Check whether model files on this machine, or their inputs, were withdrawn.

    The pool knows the inputs of its models; for other merges, a recipe next to the file is used.
    Only digests are sent. Exit code 3 if any file is affected, so that cron can report it.
    """
    local_files = _named_files(invocation, files) if files else cached_files()
    if not local_files:
        return Reply({"checked": 0, "items": []}, "the cache is empty")
    return _check_reply(invocation, local_files, report_file, named=bool(files))


def _named_files(invocation: Invocation, files: Sequence[Path]) -> list[LocalFile]:
    for path in files:
        if not path.is_file():
            raise errors.InputMissingError(f"{path}: no such file; expected a model file")
    with invocation.progress("digests") as report:
        digests = [hash_file(path, report) for path in files]
    # Only recipes next to the files: the pool knows the lineage of its own models.
    sources = RecipeSources(path.parent for path in files)
    return [
        LocalFile(path, digest, sources.holdings(digest))
        for path, digest in zip(files, digests, strict=True)
    ]


def _check_reply(
    invocation: Invocation, files: Sequence[LocalFile], report_file: Path | None, *, named: bool
) -> Reply:
    """Ask about files, named or cached ones, and print that none is affected."""
    with invocation.pool() as pool:
        withdrawn = check_files(pool.withdrawals, files)
    items = [_item(file) for file in withdrawn]
    if report_file is not None:
        with writing_to(report_file):
            report_file.write_bytes(json_bytes({"items": items}))
    if withdrawn:
        cached = {} if named else {entry.digest: entry for entry in ModelCache().entries()}
        lines, names = [], []
        for file in withdrawn:
            known = cached[file.digest].addresses if file.digest in cached else ()
            names.append(known[0] if known else file.digest[:12])
            place = f"{names[-1]} ({file.digest})" if known else file.path
            lines.append(f"{place}: {file.words}")
        lines = first_lines(lines, _MOST_SHOWN)
        removal = f"poolctl cache rm {' '.join(names)}" if cached else "delete these copies"
        hint = (
            "use their replacements, or make them again: "
            "poolctl merge --replay RECIPE --without ADDRESS"
        )
        raise errors.CliError(
            f"withdrawn, or containing a withdrawn model: {len(withdrawn)} of "
            f"{count_words(len(files), 'file')}:\n"
            + "\n".join([*lines, f"to remove them: {removal}"]),
            errors.Outcome(errors.ExitCode.NOT_ALLOWED, "withdrawn", hint),
        )
    data = {"checked": len(files), "items": items}
    return Reply(
        data, f"{count_words(len(files), 'file')}: none is withdrawn or contains a withdrawn model"
    )


def _item(standing: WithdrawnFile) -> dict[str, Any]:
    return {
        "path": str(standing.path),
        "digest": standing.digest,
        "withdrawn": [withdrawal.model_dump(mode="json") for withdrawal in standing.withdrawn],
        "holds": list(standing.holds),
        "successors": list(standing.successors),
    }


def _affected_text(verb: str, affected: WithdrawalImpact) -> list[str | TableText]:
    versions = TableText(
        ["address", "because", "replaced by"],
        [
            [
                version.address,
                "the same file" if version.same_bytes else "merged from it",
                ", ".join(version.successors),
            ]
            for version in affected.versions
        ],
        title=f"{verb} {count_words(affected.versions_total, 'model')}",
        empty=f"{verb} {count_words(affected.versions_total, 'model')}",
    )
    sites = TableText(
        ["site", "flagged models", "fetched"],
        [[site.site, str(site.versions), str(site.downloaded)] for site in affected.sites],
        title=f"{count_words(len(affected.sites), 'site hears', 'sites hear')} of it",
        empty="no other site hears of it",
    )
    return [versions, sites]


def _addresses(affected: WithdrawalImpact) -> list[str]:
    return [version.address for version in affected.versions]
