"""Importing a bundle into a pool: nothing is sent before all of it was checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aggregators.errors import RecipeError
from aggregators.methods import parse_recipe
from pool_server.wire.bundles import PortableEvaluation, PortableStatement, PortableVersion
from pool_server.wire.data_use import Term
from pool_server.wire.evaluations import EvaluationResponse
from pool_server.wire.merges import recipe_digest
from pool_server.wire.models import ModelVersionResponse, Visibility
from pool_server.wire.signatures import ForeignKey, SignedStatement
from pool_server.wire.signatures.keys import PublicKey, readable_fingerprint
from pool_server.wire.signatures.statements import differences, open_statement, text_digest
from pool_server.wire.uploads import UploadRequest
from site_agent.bundles import Bundle, open_bundle
from site_agent.errors import BundleRefusedError, ForbiddenError, NotFoundError, SignatureError
from site_agent.pool import trust
from site_agent.pool.requests import build_request
from site_agent.pool.signing import facts_of_version
from site_agent.pool.verification import SignaturePolicy
from site_agent.work import Progress, no_progress, part_of

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient


Trust = Literal["", "trusted", "changed", "unknown"]


@dataclass(frozen=True)
class InspectedVersion:
    """One version of a bundle; its record, file and signature agree."""

    address: str
    site: str
    name: str
    version: int
    digest: str
    size_bytes: int
    kind: str
    key_id: str
    origin: str
    """Key and ``SITE@POOL`` of the signer; empty where nobody signed."""
    trust: Trust
    """``trusted`` where this machine knows the key as one of the site that signed, ``changed``
    where it knows others of that site, ``unknown`` where it knows none."""
    revoked_as: str
    parents: tuple[str, ...]
    """Digests."""
    parents_here: int
    evaluations: int


@dataclass(frozen=True)
class BundleReport:
    """The content of a bundle; `identifier` is the SHA-256 of its manifest.

    `versions` has parents before their children.
    """

    path: Path
    identifier: str
    size_bytes: int
    versions: tuple[InspectedVersion, ...]


def inspect_bundle(path: Path, *, progress: Progress | None = None) -> BundleReport:
    """Check a bundle as a whole: structure, digests, signatures, recipes."""
    bundle = open_bundle(path)
    bundle.verify_content(progress or no_progress)
    versions = []
    addresses: set[str] = set()
    used: set[str] = set()
    for span in bundle.records:
        record = bundle.read_record(span)
        if record.address in addresses:
            raise BundleRefusedError(f"{path}: {record.address} is there twice")
        addresses.add(record.address)
        used.add(record.digest)
        key = check_record(bundle, record)
        versions.append(_describe(bundle, record, key))
    # Bytes that no signature covers could be anything, even a program.
    if unused := sorted(set(bundle.blobs) - used):
        raise BundleRefusedError(f"{path}: no record speaks of the file {unused[0]}")
    return BundleReport(path, bundle.identifier, path.stat().st_size, tuple(versions))


def check_record(bundle: Bundle, record: PortableVersion) -> PublicKey | None:
    """Compare a record with its file, its recipe and its signature; return the key that signed."""
    blob = bundle.blobs.get(record.digest)
    if blob is None or blob.member.size_bytes != record.size_bytes:
        raise _wrong(bundle, record, f"its file {record.digest} is missing, or of another size")
    _check_recipe(bundle, record)
    signed = record.statement
    if signed is None:
        return None
    try:
        key = PublicKey.from_text(signed.public_key)
        statement = open_statement(signed.envelope, key)
    except ValueError as error:
        raise _wrong(bundle, record, f"its signature does not hold: {error}") from error
    if signed.origin is None:
        raise _wrong(bundle, record, "it does not name the site and pool that signed it")
    # Nobody can see from here whether the pool that exported it had imported it before.
    facts = facts_of_version(
        record,
        card_digest=text_digest(record.card),
        recipe_digest=None if record.recipe is None else recipe_digest(record.recipe),
    )
    if problems := differences(statement, facts):
        raise _wrong(
            bundle, record, f"its signature is about something else: {'; '.join(problems)}"
        )
    return key


def _check_recipe(bundle: Bundle, record: PortableVersion) -> None:
    if record.recipe is None:
        if record.parents:
            raise _wrong(bundle, record, "it has parents, and no recipe that names them")
        return

    try:
        recipe = parse_recipe(json.dumps(record.recipe))
    except RecipeError as error:
        raise _wrong(bundle, record, str(error)) from error
    made = recipe.output.digest if recipe.output is not None else None
    if made != record.digest:
        raise _wrong(bundle, record, f"its recipe makes {made}")
    inputs = [digest for digest in recipe.input_digests if digest != record.digest]
    if inputs != record.parents:
        raise _wrong(bundle, record, "its parents are not the inputs of its recipe")


def _describe(bundle: Bundle, record: PortableVersion, key: PublicKey | None) -> InspectedVersion:
    signed = record.statement
    names = ("address", "site", "name", "version", "digest", "size_bytes", "kind")
    return InspectedVersion(
        **{name: getattr(record, name) for name in names},
        key_id="" if key is None else key.key_id,
        origin=(signed.origin or "") if signed is not None else "",
        trust=_trust(key, signed),
        revoked_as=(signed.revoked_as or "") if signed is not None else "",
        parents=tuple(record.parents),
        parents_here=sum(parent in bundle.blobs for parent in record.parents),
        evaluations=len(record.evaluations),
    )


def _trust(key: PublicKey | None, signed: PortableStatement | None) -> Trust:
    if key is None or signed is None:
        return ""
    site, _, pool = (signed.origin or "").partition("@")
    known = trust.trusted_keys(pool, site)
    if not known:
        return "unknown"
    return "trusted" if key.key_id in known else "changed"


def _wrong(bundle: Bundle, record: PortableVersion, why: str) -> BundleRefusedError:
    return BundleRefusedError(
        f"{bundle.path}: {record.address}: {why}", hint="nothing of this bundle should be used"
    )


# Checking reads all of it from the disk, sending goes over the line.
_CHECKING_SHARE = 0.2


@dataclass(frozen=True)
class ImportedVersion:
    """One version of a bundle, after the import: its address in the pool it comes from, and now.

    `address` has no number where it was not sent (`dry_run`). `was_there`: the pool had it already.
    """

    source: str
    address: str
    digest: str
    was_there: bool
    sent_bytes: int
    signed: bool
    evaluations: int


@dataclass(frozen=True)
class ImportOutcome:
    """A bundle after the import; `evaluations_left_out` counts by site.

    These are evaluations of sites that the pool does not have or that one may not speak for.
    """

    report: BundleReport
    versions: tuple[ImportedVersion, ...]
    evaluations_left_out: Mapping[str, int] = field(default_factory=dict)


def import_bundle(
    pool: "PoolClient",
    path: Path,
    *,
    site_map: Mapping[str, str] | None = None,
    visibility: Visibility | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportOutcome:
    """Import models under their names, with all that came with them.

    Parents come before their children. Versions that the pool has stay as they are, so an
    interrupted or repeated import continues where it stopped. The pool numbers the versions again:
    they keep their numbers only if it had no version of that name.

    `site_map` names, by site of the bundle, the site of this pool that gets its models; a site that
    is not listed keeps its name. The sites must exist. `visibility` is as this pool's settings say
    when None.

    Raises, before anything is sent, `BundleRefusedError`: the file is wrong. `SignatureError`: a
    model is not signed, and ``POOL_SIGNATURES`` requires it. `ForbiddenError`: a site is missing
    here, or the user may not upload to it.
    """
    report_progress = progress or no_progress
    report = inspect_bundle(path, progress=part_of(report_progress, 0.0, _CHECKING_SHARE))
    bundle = open_bundle(path)
    # The file is opened twice, and its path may lead elsewhere by now.
    if bundle.identifier != report.identifier:
        raise BundleRefusedError(f"{path}: was changed while it was read")
    _require_trustworthy(report, pool.signatures.policy)
    sites = _require_targets(pool, report, dict(site_map or {}))
    if dry_run:
        return ImportOutcome(report, tuple(_plan(record, sites) for record in report.versions))
    intake = _Intake(pool, bundle, sites, visibility, report_progress)
    versions = tuple(intake.take(bundle.read_record(span)) for span in bundle.records)
    return ImportOutcome(report, versions, intake.left_out)


class _Intake:
    def __init__(
        self,
        pool: "PoolClient",
        bundle: Bundle,
        sites: Mapping[str, str],
        visibility: Visibility | None,
        progress: Progress,
    ) -> None:
        self._pool = pool
        self._bundle = bundle
        self._sites = sites
        self._visibility = visibility
        self._progress = progress
        self._total_bytes = sum(span.member.size_bytes for span in bundle.blobs.values())
        self._done_bytes = 0
        who = pool.whoami()
        self._own_site, self._speaks_for_all = who.site, who.pool_wide
        self._sites_here = {site.name for site in pool.sites.list()}
        self.left_out: dict[str, int] = {}

    def take(self, record: PortableVersion) -> ImportedVersion:
        """Send one version, unless the pool has it, and its evaluations."""
        site = self._sites[record.site]
        blob = self._bundle.blobs[record.digest]
        was_there = self._find(f"{site}/{record.name}@sha256:{record.digest}") is not None
        uploaded = self._pool.bundles.upload_part(
            self._bundle.path, blob.offset, self._request(record, site), self._progress_of(record)
        )
        self._done_bytes += record.size_bytes
        version = uploaded.version
        return ImportedVersion(
            source=record.address,
            address=version.address,
            digest=version.digest,
            was_there=was_there,
            sent_bytes=uploaded.sent_bytes,
            signed=version.signed_by is not None,
            evaluations=self._repeat_evaluations(version, record.evaluations),
        )

    def _find(self, address: str) -> ModelVersionResponse | None:
        try:
            return self._pool.version(address)
        except NotFoundError:
            return None

    def _request(self, record: PortableVersion, site: str) -> UploadRequest:
        # Inherited terms come with the parents; without those, the version brings them itself.
        has_parents = all(parent in self._bundle.blobs for parent in record.parents)
        terms = [
            Term(code=term.code, detail=term.detail)
            for term in record.terms
            if not (term.inherited and has_parents)
        ]
        signed = record.statement
        statement = None
        if signed is not None and signed.origin is not None:
            statement = SignedStatement(
                envelope=signed.envelope,
                foreign_key=ForeignKey(
                    origin=signed.origin, name=signed.key_name, public_key=signed.public_key
                ),
            )
        names = set(UploadRequest.model_fields) & set(PortableVersion.model_fields)
        kept = record.model_dump(include=names - {"site", "terms", "statement"})
        return build_request(
            UploadRequest,
            **kept,
            site=site,
            terms=terms,
            statement=statement,
            visibility=self._visibility,
            # Versions made from withdrawn ones arrive flagged.
            despite_withdrawal=True,
        )

    def _progress_of(self, record: PortableVersion) -> Progress:
        sending = part_of(self._progress, _CHECKING_SHARE, 1.0)
        begun = self._done_bytes / self._total_bytes
        end = (self._done_bytes + record.size_bytes) / self._total_bytes
        return part_of(sending, begun, min(1.0, end))

    def _repeat_evaluations(
        self, version: ModelVersionResponse, evaluations: Sequence[PortableEvaluation]
    ) -> int:
        if not evaluations:
            return 0
        known = {
            _measurement(evaluation) for evaluation in self._pool.evaluations.list(version.address)
        }
        posted = 0
        # They come newest first, and a newer one replaces those before it.
        for evaluation in reversed(evaluations):
            site = self._sites.get(evaluation.site, evaluation.site)
            may_speak = self._speaks_for_all or site == self._own_site
            if site not in self._sites_here or not may_speak:
                self.left_out[evaluation.site] = self.left_out.get(evaluation.site, 0) + 1
            elif _measurement(evaluation.model_copy(update={"site": site})) not in known:
                self._pool.bundles.repeat_evaluation(version.address, site, evaluation)
                posted += 1
        return posted


def _measurement(evaluation: PortableEvaluation | EvaluationResponse) -> str:
    """Return the identity of a measurement: site, data, protocol and result."""
    return evaluation.model_dump_json(
        include={"site", "dataset_digest", "split", "protocol", "scores"}
    )


def _require_trustworthy(report: BundleReport, policy: SignaturePolicy) -> None:
    for version in report.versions:
        if policy == "require" and not version.key_id:
            raise SignatureError(
                f"{report.path}: {version.address}: is not signed",
                hint="have it signed and exported again; to import it unsigned: "
                "POOL_SIGNATURES=check",
                code="signature_missing",
            )
        if version.revoked_as == "compromised":
            raise BundleRefusedError(
                f"{report.path}: {version.address}: signed with key {version.key_id[:16]}..., "
                f"which {version.origin} declared compromised",
                hint="have it signed with another key and exported again",
            )
        if version.trust == "changed":
            site, _, pool = version.origin.partition("@")
            raise SignatureError(
                f"{report.path}: {version.address}: signed with key "
                f"{readable_fingerprint(version.key_id)}, which is not one that this "
                f"machine trusts for {version.origin}",
                hint=f"ask {site} for the fingerprint of its key; if it is this one, forget the "
                f"old one with the login of {pool}: poolctl keys trust {site} --remove",
                code="key_not_trusted",
            )


def _require_targets(
    pool: "PoolClient", report: BundleReport, site_map: dict[str, str]
) -> dict[str, str]:
    """Return the site here for each site of the bundle."""
    sources = {record.site for record in report.versions}
    if unknown := sorted(set(site_map) - sources):
        raise ForbiddenError(
            f"the bundle has no models of site {unknown[0]!r}; it has some of "
            f"{', '.join(sorted(sources))}"
        )
    sites = {source: site_map.get(source, source) for source in sources}
    missing = sorted(set(sites.values()) - {site.name for site in pool.sites.list()})
    if missing:
        raise ForbiddenError(
            f"{pool.endpoint} has no site {', '.join(missing)}",
            hint=f"an admin creates it (poolctl admin sites create {missing[0]}), or put its "
            f"models under another: --site-map {missing[0]}=SITE",
        )
    who = pool.whoami()
    foreign = sorted(set(sites.values()) - {who.site})
    if who.role == "viewer" or (foreign and not who.pool_wide):
        raise ForbiddenError(
            f"{who.site}/{who.token_name} ({who.role}) may not upload to "
            f"{', '.join(foreign or [who.site])}",
            hint="import as an admin of the pool, or put all models under your own site: "
            f"--site-map {sorted(sources)[0]}={who.site}",
        )
    _require_apart(report, sites)
    return sites


def _require_apart(report: BundleReport, sites: Mapping[str, str]) -> None:
    becomes: dict[tuple[str, str], str] = {}
    for version in report.versions:
        place = (sites[version.site], version.name)
        if becomes.setdefault(place, version.site) != version.site:
            raise ForbiddenError(
                f"{becomes[place]}/{version.name} and {version.site}/{version.name} would both "
                f"become {place[0]}/{place[1]}",
                hint="put them under different sites",
            )


def _plan(version: InspectedVersion, sites: Mapping[str, str]) -> ImportedVersion:
    return ImportedVersion(
        source=version.address,
        address=f"pool://{sites[version.site]}/{version.name}",
        digest=version.digest,
        was_there=False,
        sent_bytes=0,
        signed=bool(version.key_id),
        evaluations=0,
    )
