"""Taking part in a round: what a site computes at home, and what it sends.

Before anything is computed the site's own rules are asked (`site_agent.refinement.rules`), and
where the base comes from (`site_agent.refinement.accounting`).

A contribution takes minutes to compute. It is written to the workspace before anything is sent
and stays there until the pool has taken it, so that a killed process goes on with the upload::

    <cache>/rounds/<pool>/<round>/<site>-<inputs>.contribution   not taken yet
    <cache>/rounds/<pool>/<round>/<site>-<inputs>.taken          the digest of what was taken

<inputs> stands for the faces, the settings and the rules that it was made with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregators.formats import file_digest
from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import RoundResponse
from site_agent.errors import ConflictError, ContributionWithheldError, PoolAnswerError
from site_agent.pool import profiles
from site_agent.runs.progress import Progress, part_of

if TYPE_CHECKING:
    from aggregators.methods.refitting import RefitSettings
    from site_agent.datasets import FaceDataset
    from site_agent.pool.client import PoolClient
    from site_agent.refinement.rules import ContributionRules

_READING, _FITTING = 0.1, 0.8
"""Shares of a progress bar up to which images are read, and leaves are fitted."""


@dataclass(frozen=True)
class Contributed:
    """What a site gave.

    Attributes
    ----------
    leaves, leaves_sent, fewest_samples : int
        Of the base, those of which a change is sent, and the fewest samples that one rests on.
    sent_bytes : int
        What this call sent; 0 where the pool had it, or nothing was to be sent.
    computed : bool
        False where an earlier call had computed it.
    left_out : tuple of (line, text)
        Faces that lack landmarks, by their lines in the annotation file.
    """

    round: RoundResponse
    site: str
    digest: str
    size_bytes: int
    sent_bytes: int
    computed: bool
    leaves: int = 0
    leaves_sent: int = 0
    fewest_samples: int = 0
    left_out: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class FinishedRound:
    """How a round ended.

    Attributes
    ----------
    left_out : tuple of str
        Sites that did not contribute in time.
    ended_here : bool
        False where somebody else had ended the round.
    """

    round: RoundResponse
    version: ModelVersionResponse
    left_out: tuple[str, ...]
    ended_here: bool


@dataclass(frozen=True)
class _Kept:
    contribution: Path
    taken: Path


def contribute_to_round(
    pool: PoolClient,
    round_id: str,
    dataset: FaceDataset | Path,
    *,
    site: str = "",
    parts: Sequence[str] = (),
    seed: int = 0,
    threads: int = 0,
    despite_withdrawal: bool = False,
    rules: ContributionRules | None = None,
    send: bool = True,
    progress: Progress | None = None,
) -> Contributed:
    """Fit a round's base to the faces of one site, and send the changes.

    Only the changes of leaves and the numbers of samples they rest on leave the site. The same
    call again goes on where it was killed: what was computed is not computed again, what was sent
    is not sent again, and a contribution that was taken is told as such.

    Parameters
    ----------
    dataset : FaceDataset or Path
        Annotated faces, or where they are, in any format that `site_agent.datasets` knows.
    site : str
        One's own where empty.
    parts : sequence of str
        The model's landmarks, where the faces have more: names, ranges (36-47) and groups
        (eyes). A group is known by the model's mean shape, too.
    seed : int
        Of the starting shapes; each round of a series adds its number; level by
        level, each time through all levels.
    threads : int
        0: as many as the machine has processors.
    despite_withdrawal : bool
        Go on although the base was withdrawn, or holds something that was.
    rules : ContributionRules, optional
        What the site asks of the round; by default it trusts models of its own alone.
    send : bool
        Compute the contribution, and send it.

    Raises
    ------
    ContributionWithheldError
        The rules of the site speak against it; nothing was sent.
    ConflictError
        The round takes nothing any more, or the site has contributed something else.
    TrainingDataError, AnnotationFileError, ImageFileError
        The faces cannot be used.
    PoolClientError
        After `PoolUnreachableError` the same call goes on.
    """
    from aggregators.methods.refitting import refit_settings
    from site_agent.datasets import FaceDataset, dataset_digest, read_faces
    from site_agent.refinement.accounting import require_allowed
    from site_agent.refinement.rules import ContributionRules

    tell = progress or (lambda _fraction, _text: None)
    found = pool.rounds.get(round_id)
    site = site or pool.whoami().site
    faces = dataset if isinstance(dataset, FaceDataset) else read_faces(dataset)
    settings = refit_settings(**{**found.options, "seed": seed + _times_through(pool, found)})
    rules = (rules or ContributionRules()).including(site)
    inputs: list[Any] = [dataset_digest(faces), settings.model_dump(mode="json"), list(parts)]
    # Another floor may refuse what this one lets through.
    inputs.append(rules.faces_per_leaf)
    kept = _kept_files(pool, found, site, inputs)
    if (done := _find_taken(found, site, kept)) is not None:
        return _brought_back(pool, kept, done)
    computed = not kept.contribution.is_file()
    left_out: tuple[tuple[int, str], ...] = ()
    if computed:
        _require_open(found, site)
        _require_base(found, despite_withdrawal=despite_withdrawal)
    require_allowed(pool, found, settings, rules, tell)
    if computed:
        left_out = _compute(
            pool, found, faces, settings, kept.contribution,
            rules=rules, parts=parts, threads=threads, progress=tell,
        )  # fmt: skip
    done = _described(found, site, kept.contribution, computed=computed, left_out=left_out)
    if not send:
        return done
    sent_bytes = pool.rounds.send_contribution(
        round_id,
        kept.contribution,
        site,
        despite_withdrawal=despite_withdrawal,
        progress=part_of(tell, _FITTING, 1.0),
    )
    kept.taken.write_text(done.digest, encoding="ascii")
    return replace(done, round=pool.rounds.get(round_id), sent_bytes=sent_bytes)


def finish_round(
    pool: PoolClient,
    round_id: str,
    *,
    upload_to: str | ModelAddress = "",
    early: bool = False,
    despite_withdrawal: bool = False,
) -> FinishedRound:
    """Have the pool combine what was contributed to a round, and publish the result.

    Where this profile has a key of the site, the result is signed with it. The signature says
    that the pool gave this result to the site, which cannot combine the contributions itself.

    Parameters
    ----------
    upload_to : str or ModelAddress
        Where the result goes; one's own site and the base's name where empty.
    early : bool
        Do not wait for sites that have not contributed; for who started the round, and admins.
    despite_withdrawal : bool
        Go on although the base was withdrawn, or holds something that was.

    Raises
    ------
    ConflictError
        Sites are waited for, the round expired or was cancelled, or the base was withdrawn.
    """
    from site_agent.pool.client import parse_address

    found = pool.rounds.get(round_id)
    address = parse_address(str(upload_to)) if upload_to else None
    ended_here = found.state != "finished"
    if ended_here:
        _require_base(found, despite_withdrawal=despite_withdrawal)
        if early and found.state == "open" and not found.ready:
            found = pool.rounds.close(round_id)
        _require_ready(found)
        who = pool.whoami()
        address = address or ModelAddress(who.site, parse_address(found.base).name)
        found = pool.rounds.finish(round_id, address, despite_withdrawal=despite_withdrawal)
        ended_here = found.ended_by == f"{who.site}/{who.token_name}"
    if found.result is None:
        raise PoolAnswerError(f"round {round_id} has no result, though it is {found.state}")
    version = pool.version(found.result)
    if ended_here and version.signed_by is None and pool.signatures.signing_key(version.site):
        pool.signatures.sign(version.address)
        version = pool.version(found.result)
    left_out = tuple(found.sites("late", "missing", "waiting"))
    return FinishedRound(found, version, left_out, ended_here)


def _times_through(pool: PoolClient, found: RoundResponse) -> int:
    """Return how often the series of a round has been through all levels before it.

    Sites that go level by level draw their samples once for all levels.
    """
    if found.options.get("level") is None:
        return found.number - 1
    levels = int(pool.version(found.base).fingerprint["levels"])
    return (found.number - 1) // levels


def _described(
    found: RoundResponse,
    site: str,
    path: Path,
    *,
    computed: bool,
    left_out: tuple[tuple[int, str], ...],
) -> Contributed:
    from aggregators.methods.refitting import read_contribution

    counts = read_contribution(path).counts
    sent = counts[counts > 0]
    return Contributed(
        found,
        site,
        file_digest(path),
        path.stat().st_size,
        sent_bytes=0,
        computed=computed,
        leaves=len(counts),
        leaves_sent=len(sent),
        fewest_samples=int(sent.min()) if len(sent) else 0,
        left_out=left_out,
    )


def _compute(
    pool: PoolClient,
    found: RoundResponse,
    dataset: FaceDataset,
    settings: RefitSettings,
    output: Path,
    *,
    rules: ContributionRules,
    parts: Sequence[str],
    threads: int,
    progress: Progress,
) -> tuple[tuple[int, str], ...]:
    """Fit the leaves and write the contribution; return the faces that were left out."""
    from aggregators.methods.refitting import contribute as fit_contribution
    from aggregators.methods.refitting import find_untrained_features, write_contribution
    from site_agent.refinement import load_site, read_base
    from site_agent.refinement.site_faces import CROP_MARGIN

    base = read_base(_fetch_base(pool, found, progress))
    if oddities := find_untrained_features(base):
        reasons = [f"the base is not as training makes models: {each}" for each in oddities]
        raise ContributionWithheldError(found.round_id, reasons)
    site = load_site(
        dataset,
        base.part_count,
        parts=parts,
        initial_shape=base.initial_shape,
        margin=CROP_MARGIN + settings.jitter,
        progress=part_of(progress, 0.0, _READING),
    )
    contribution = fit_contribution(
        base,
        site.faces,
        settings,
        threads=threads,
        progress=part_of(progress, _READING, _FITTING),
    )
    if objections := rules.objections_to_sums(contribution, base, site.faces.face_count):
        raise ContributionWithheldError(found.round_id, objections)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_contribution(contribution, output)
    return site.left_out


def _fetch_base(pool: PoolClient, found: RoundResponse, progress: Progress) -> Path:
    from site_agent.pool.answers import require_field

    base = pool.version(found.base)
    require_field(base, "digest", found.base_digest)
    return pool.fetch(base, progress=part_of(progress, 0.0, _READING)).path


def _kept_files(pool: PoolClient, found: RoundResponse, site: str, inputs: Sequence[Any]) -> _Kept:
    words = json.dumps([found.base_digest, *inputs], sort_keys=True)
    name = f"{site}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    folder = pool.cache.folder / "rounds" / profiles.host_of(pool.endpoint) / found.round_id
    return _Kept(folder / f"{name}.contribution", folder / f"{name}.taken")


def _find_taken(found: RoundResponse, site: str, kept: _Kept) -> Contributed | None:
    """Return the contribution of the same faces and settings that the pool has taken already."""
    there = found.contributions().get(site)
    if there is None:
        return None
    known = kept.taken.read_text(encoding="ascii") if kept.taken.is_file() else ""
    if not known and kept.contribution.is_file():
        # Killed between the pool's answer and the note of it.
        known = file_digest(kept.contribution)
    if known != there.digest:
        raise ConflictError(
            f"site {site!r} has contributed to round {found.round_id} on "
            f"{there.created_at:%Y-%m-%d %H:%M} UTC (by {there.created_by}), not from these faces "
            "and settings",
            hint=f"to send another, take it back: poolctl rounds take-back {found.round_id}",
            code="contribution_exists",
        )
    return Contributed(found, site, there.digest, there.size_bytes, 0, computed=False)


def _brought_back(pool: PoolClient, kept: _Kept, done: Contributed) -> Contributed:
    """Send what the pool has taken again, as long as its storage may have lost it since."""
    if not kept.contribution.is_file():
        return done
    if done.round.state in {"finished", "cancelled"}:
        kept.contribution.unlink(missing_ok=True)
        return done
    sent_bytes = pool.rounds.send_contribution(done.round.round_id, kept.contribution, done.site)
    return replace(done, sent_bytes=sent_bytes)


def _require_open(found: RoundResponse, site: str) -> None:
    """Refuse before minutes of computing what the pool would refuse afterwards."""
    if site not in [each.site for each in found.participants]:
        raise ConflictError(
            f"site {site!r} was not asked to take part in round {found.round_id}",
            hint="poolctl rounds ls lists your rounds",
        )
    if found.state in {"finished", "cancelled"}:
        following = f"; the next one is {found.successor}" if found.successor else ""
        raise ConflictError(f"round {found.round_id} is {found.state}{following}")
    if found.state != "open":
        raise ConflictError(
            f"round {found.round_id} takes no contributions any more: its deadline "
            f"{found.deadline:%Y-%m-%d %H:%M} UTC has passed",
            code="round_closed",
        )


def _require_base(found: RoundResponse, *, despite_withdrawal: bool) -> None:
    if found.base_warning and not despite_withdrawal:
        raise ConflictError(
            f"the base {found.base} of round {found.round_id} is {found.base_warning}",
            hint="--despite-withdrawal goes on; the result is then flagged",
            code="base_withdrawn",
        )


def _require_ready(found: RoundResponse) -> None:
    if found.ready:
        return
    if found.state in {"expired", "cancelled"}:
        raise ConflictError(f"round {found.round_id} is {found.state}; it has no result")
    waiting = ", ".join(found.sites("waiting"))
    raise ConflictError(
        f"round {found.round_id} waits for {waiting} until {found.deadline:%Y-%m-%d %H:%M} UTC",
        hint=f"who started it may go on without them: "
        f"poolctl rounds finish {found.round_id} --early",
        code="round_open",
    )
