"""A round at a site, from its announcement to the result.

1. **A site starts the round** and signs its terms (`poolctl rounds start`, `terms`; the pool:
   `pool_server.rounds.service`). The other sites learn of it from `poolctl rounds ls` or their
   agent (`site_agent.agent.invitations`).
2. **Each site contributes** (`prepare_contribution`, here). It fetches the round; checks the
   terms and keeps them (`terms`); reads its data and the round's options (`kinds`); asks its own
   rules about options and base (`contract`, `provenance`); computes (`kinds`); of a secure round,
   takes part in the sums (`secure`); sends the file with the least number of other sites, which
   the pool checks against the base; and records the pool's receipt.
3. **One site finishes the round** (`finishing`): the pool combines the contributions with the base
   (`aggregators.merge`, by the round's method), publishes the result, and opens the next round.

A contribution takes minutes to compute. It is written to the workspace before anything is sent
and stays there until the pool has taken it, so that a killed process goes on with the upload::

    <cache>/rounds/<pool>/<round>/<site>-<inputs>.contribution   not taken yet
    <cache>/rounds/<pool>/<round>/<site>-<inputs>.sum            of a secure round: the file sent
    <cache>/rounds/<pool>/<round>/terms.json                     the terms, as they were seen first
    <cache>/rounds/<pool>/<round>/<site>-<inputs>.taken          the digest of the file taken

<inputs> stands for the data, the settings and the rules that it was made with.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.whole_file import write_whole
from pool_server.wire.rounds import ContributionRequest, RoundResponse, RoundTerms
from site_agent.errors import ConflictError, StalePreviewError
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import secure_folder
from site_agent.pool.requests import require_field, require_same
from site_agent.rounds import contract, kinds, provenance
from site_agent.rounds.contract import SiteData
from site_agent.rounds.secure import require_own_result, round_folder, visit_sums
from site_agent.rounds.terms import check_terms, find_first, pin_terms
from site_agent.secure.charter import require_accepted
from site_agent.secure.lab import RosterPolicy
from site_agent.training_record import remember_learned
from site_agent.work import Progress, no_progress, part_of

_FETCHED, _SUMMED = 0.1, 0.5
"""Shares of a progress bar: the base is fetched; of sending, the contribution is summed."""


@dataclass(frozen=True)
class Contributed:
    """A site's contribution to a round, after a call."""

    round: RoundResponse
    site: str
    digest: str
    size_bytes: int
    sent_bytes: int
    """By this call; 0 if the pool already had the file, or nothing had to be sent."""
    computed: bool
    """False if an earlier call computed it."""
    summary: str = ""
    """As the next four, of `site_agent.rounds.contract.ContributionFacts`; empty and 0 if the pool
    already had the contribution."""
    leaves: int = 0
    leaves_sent: int = 0
    fewest_samples: int = 0
    samples: int = 0
    left_out: tuple[tuple[int, str], ...] = ()
    """Faces that lack landmarks, by their lines in the annotation file."""
    session: str = ""
    """As the next two, of `site_agent.rounds.secure.SumVisit`, in secure rounds."""
    phase: str = ""
    """Until it is ``complete`` the site has not contributed: repeat the call."""
    waiting: tuple[str, ...] = ()
    announcement: str = ""
    """The JSON that is sent before the file, and names its digest; empty in secure rounds."""

    @property
    def preview(self) -> str:
        """The digest of all that is sent: of the announcement, or of the changes to be summed."""
        content = self.announcement.encode()
        return hashlib.sha256(content).hexdigest() if content else self.digest


@dataclass(frozen=True)
class _Files:
    """Files of a contribution; `sent` is the one that the pool gets: of a secure round, the sum."""

    contribution: Path
    sent: Path
    receipt: Path


@dataclass(frozen=True)
class PreparedContribution:
    """A contribution that waits in the workspace; nothing has left this machine."""

    pool: PoolClient
    part: contract.SitePart
    files: _Files
    rules: contract.ContributionRules
    """The site's, with the numbers of other sites that terms and ledger ask for."""
    terms: RoundTerms
    contributed: Contributed
    despite_withdrawal: bool = False
    is_taken: bool = False
    """True if the pool has it already."""
    record: Callable[[], None] = lambda: None
    """Note the base in the site's ledgers, or raise `ContributionWithheldError`."""

    def require(self, preview: str) -> None:
        """Raise `StalePreviewError` unless `Contributed.preview` is this one."""
        if self.contributed.preview != preview:
            raise StalePreviewError("the contribution is another one than its preview showed")

    def send(self, *, wait: bool = False, progress: Progress | None = None) -> Contributed:
        """Send the contribution, or take the next step in a secure sum.

        A repeated call resumes, and sends nothing twice.

        Parameters
        ----------
        wait : bool
            In a secure round, go on until the sum is there.

        Raises
        ------
        ContributionWithheldError
            The site's ledger speaks against the contribution; nothing was sent.
        PoolClientError
            After `PoolUnreachableError` the same call goes on.
        """
        report = progress or no_progress
        if self.is_taken:
            return _restore(self.pool, self.files, self.contributed, self.rules)
        self.record()
        contributed = self.contributed
        base = _fetch_base(self.pool, contributed.round, part_of(report, 0.0, _FETCHED))
        if contributed.round.secure is not None:
            contributed = self._sum(base, wait=wait, progress=part_of(report, _FETCHED, _SUMMED))
            if contributed.phase != "complete":
                return contributed
        # `evaluate` knows them by this in the round's result.
        round_id = contributed.round.round_id
        name = f"your contribution to round {round_id}"
        remember_learned(contributed.digest, {"name": name, **self.part.learned(base)})
        sent_bytes = self.pool.rounds.send_contribution(
            round_id,
            self.files.sent,
            contributed.site,
            least_others=self.rules.least_others,
            despite_withdrawal=self.despite_withdrawal,
            progress=part_of(report, _SUMMED, 1.0),
        )
        write_whole(self.files.receipt, contributed.digest)
        return replace(contributed, round=self.pool.rounds.get(round_id), sent_bytes=sent_bytes)

    def _sum(self, base: Path, *, wait: bool, progress: Progress) -> Contributed:
        """Take part in the secure sums of a round; this site then sends the last sum."""
        contributed, files, rules = self.contributed, self.files, self.rules
        visit = visit_sums(
            self.pool,
            contributed.round,
            contributed.site,
            lambda sums: self.part.take_part(sums, files.contribution, base, files.sent),
            policy=RosterPolicy(rules.least_others, frozenset(rules.insists_on)),
            mode="full" if rules.full else "servers",
            terms=self.terms,
            wait=wait,
            progress=progress,
        )
        contributed = replace(
            contributed, session=visit.session, phase=visit.phase, waiting=visit.waiting
        )
        if visit.total is None:
            return contributed
        size_bytes = visit.total.stat().st_size
        return replace(contributed, digest=file_digest(visit.total), size_bytes=size_bytes)


def prepare_contribution(
    pool: PoolClient,
    round_id: str,
    data: SiteData,
    choice: contract.DataChoice | None = None,
    *,
    site: str = "",
    despite_withdrawal: bool = False,
    rules: contract.ContributionRules | None = None,
    progress: Progress | None = None,
) -> PreparedContribution:
    """Compute one site's contribution to a round from its data; `send` sends it.

    Of leaf refinement only the changes of leaves and the numbers of samples they rest on leave
    the site; of networks, the differences after training, the number of samples and the facts of
    `NetworkPart.describe`. First the site's own reply from an earlier round of the series is
    fetched, or from this round if it has ended (`take_reply`). A repeated call recomputes nothing,
    and returns a contribution that the pool has taken as it is.

    Parameters
    ----------
    data : FaceDataset, GazeDataset or Path
        The data for the round's method, or their path, in any known format.
    choice : DataChoice, optional
        Which of the data are used.
    site : str
        One's own where empty.
    despite_withdrawal : bool
        Go on although the base was withdrawn, or holds something that was.
    rules : ContributionRules, optional
        The site's rules; by default it trusts its own models alone.

    Raises
    ------
    ContributionWithheldError
        The rules of the site speak against it.
    ConflictError
        The round is closed, or the site has contributed something else.
    TrainingDataError, AnnotationFileError, ImageFileError
        The data cannot be used.
    PoolClientError
        After `PoolUnreachableError` the same call goes on.
    """
    report = progress or no_progress
    round_ = pool.rounds.get(round_id)
    site = site or pool.whoami().site
    if site not in round_.contributions() and round_.state in {"finished", "cancelled"}:
        _require_open(round_, site)
    if round_.secure is not None:
        # Check the charter before keys and data: nothing works without it.
        require_accepted(secure_folder(), round_.secure.charter)
    terms = check_terms(pool, round_)
    pin_terms(round_, terms, round_folder(pool, round_.round_id) / "terms.json")
    rules = (rules or contract.ContributionRules()).including(site)
    rules = replace(rules, least_others=max(rules.least_others, terms.least_others))
    part = kinds.find_site_part(round_.method).prepare(
        pool, round_, site, data, choice or contract.DataChoice()
    )
    files = _name_files(pool, round_, site, part.inputs(rules))
    if (earlier := _find_taken(round_, site, files)) is not None:
        return PreparedContribution(pool, part, files, rules, terms, earlier, is_taken=True)
    is_new = not files.contribution.is_file()
    if is_new:
        _require_open(round_, site)
        contract.require_sound_base(round_, despite_withdrawal=despite_withdrawal)
    # Also of what an earlier call has computed: the trust in a site may have ended since then.
    accepted = provenance.require_allowed(pool, round_, part, rules, report)
    _require_verified_base(pool, round_, site, rules)
    base = _fetch_base(pool, round_, part_of(report, 0.0, _FETCHED))
    admit = partial(
        part.admit,
        base,
        terms,
        lambda: _fetch_base(pool, find_first(pool, round_), no_progress),
        approved=rules.approved == round_.base_digest,
    )

    def record() -> None:
        if accepted:
            provenance.keep_accepted(accepted)
        admit(record=True)

    rules = replace(rules, least_others=max(rules.least_others, admit(record=False)))
    left_out: tuple[tuple[int, str], ...] = ()
    if is_new:
        files.contribution.parent.mkdir(parents=True, exist_ok=True)
        computing = part_of(report, _FETCHED, 1.0)
        left_out = part.compute(base, files.contribution, rules, computing)
    facts = part.describe(files.contribution, accounted=not accepted)
    contributed = Contributed(
        round_, site, file_digest(files.contribution), files.contribution.stat().st_size,
        sent_bytes=0, computed=is_new, left_out=left_out, **vars(facts),
    )  # fmt: skip
    if round_.secure is None:
        request = ContributionRequest(
            site=site, size_bytes=contributed.size_bytes, digest=contributed.digest,
            file_name=files.sent.name, least_others=rules.least_others,
            despite_withdrawal=despite_withdrawal,
        )  # fmt: skip
        contributed = replace(contributed, announcement=request.model_dump_json())
    return PreparedContribution(
        pool, part, files, rules, terms, contributed, despite_withdrawal, record=record
    )


def _name_files(
    pool: PoolClient, round_: RoundResponse, site: str, inputs: Sequence[Any]
) -> _Files:
    content = json.dumps([round_.base_digest, *inputs], sort_keys=True)
    name = f"{site}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    folder = round_folder(pool, round_.round_id)
    contribution = folder / f"{name}.contribution"
    sent = contribution if round_.secure is None else folder / f"{name}.sum"
    return _Files(contribution, sent, folder / f"{name}.taken")


def _find_taken(round_: RoundResponse, site: str, files: _Files) -> Contributed | None:
    """Return the contribution of the same data and settings that the pool has taken already."""
    there = round_.contributions().get(site)
    if there is None:
        return None
    known = files.receipt.read_text(encoding="ascii") if files.receipt.is_file() else ""
    if not known and files.sent.is_file():
        # Killed between the pool's answer and the note of it.
        known = file_digest(files.sent)
    if known != there.digest:
        again = f"to send another, take it back: poolctl rounds take-back {round_.round_id}"
        raise ConflictError(
            f"site {site!r} has contributed to round {round_.round_id} on "
            f"{there.created_at:%Y-%m-%d %H:%M} UTC (by {there.created_by}), not from these data "
            "and settings" + (f"; the round is {round_.state}" if round_.state != "open" else ""),
            hint=again if round_.state == "open" else "",
            code="contribution_exists",
        )
    return Contributed(round_, site, there.digest, there.size_bytes, 0, computed=False)


def _restore(
    pool: PoolClient, files: _Files, contributed: Contributed, rules: contract.ContributionRules
) -> Contributed:
    """Send a contribution that the pool has taken again; its storage may have lost it since."""
    if not files.sent.is_file():
        return contributed
    if contributed.round.state in {"finished", "cancelled"}:
        files.contribution.unlink(missing_ok=True)
        files.sent.unlink(missing_ok=True)
        return contributed
    sent_bytes = pool.rounds.send_contribution(
        contributed.round.round_id, files.sent, contributed.site, least_others=rules.least_others
    )
    return replace(contributed, sent_bytes=sent_bytes)


def _require_open(round_: RoundResponse, site: str) -> None:
    """Refuse a closed round before minutes of computing."""
    if site not in [participant.site for participant in round_.participants]:
        raise ConflictError(
            f"site {site!r} was not asked to take part in round {round_.round_id}",
            hint="poolctl rounds ls lists your rounds",
        )
    if round_.state in {"finished", "cancelled"}:
        following = f"poolctl rounds contribute {round_.successor}" if round_.successor else ""
        raise ConflictError(
            f"round {round_.round_id} is {round_.state}, and no longer takes contributions",
            hint=f"the next round of the series is open: {following}" if following else "",
            code="round_closed",
        )
    if round_.state != "open":
        raise ConflictError(
            f"round {round_.round_id} no longer takes contributions: its deadline "
            f"{round_.deadline:%Y-%m-%d %H:%M} UTC has passed",
            code="round_closed",
        )


def _require_verified_base(
    pool: PoolClient, round_: RoundResponse, site: str, rules: contract.ContributionRules
) -> None:
    """Refuse the result of a secure round as a base, unless this lab's sum makes it."""
    if round_.secure is None or round_.predecessor is None or rules.approved == round_.base_digest:
        return
    before = pool.rounds.get(round_.predecessor)
    require_same(before.result_digest, round_.base_digest)
    require_own_result(pool, before, site)


def _fetch_base(pool: PoolClient, round_: RoundResponse, progress: Progress) -> Path:
    # A pool could answer with another version; what is trained must be what was announced.
    base = pool.version(round_.base)
    require_field(base, "digest", round_.base_digest)
    # The starter signs results that other sites have published for it, but perhaps later. Of all
    # rounds but the first, the pool is believed in the base anyway, signed or not.
    is_result = round_.predecessor is not None
    return pool.fetch(base, may_be_unsigned=is_result, progress=progress).path
