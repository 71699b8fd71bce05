"""Routes that list, describe and download models, and the record of downloads."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.responses import Response

from pool_server.activity.events import write_event
from pool_server.database.records import DownloadRecord, LabelRecord, ModelVersionRecord, now_utc
from pool_server.errors import WriteConflictError
from pool_server.http.file_response import CONTENT_RESPONSES, send_content
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import Limit, ModelName, Reference, SiteName
from pool_server.http.session import Parts, ReadingSession, ServerParts
from pool_server.registry import access, repository, responses, service
from pool_server.registry.query import MergeKey, Order, Position, read_merge_keys
from pool_server.registry.search import Hit, find_versions
from pool_server.registry.withdrawal_status import require_not_withdrawn, warning_of
from pool_server.wire import labels, models, withdrawals

router = APIRouter(tags=["models"], dependencies=[needs("models:read")])

ListingCursor = Annotated[
    str | None, Query(max_length=400, description="`next_cursor` of the previous page.")
]
DOWNLOADED_EVENT = "version.downloaded"
# Limits writes: recording every download would turn every read into a write.
DOWNLOAD_RECORD_STEP = timedelta(days=1)
MOST_COUNTED = 1000
MOST_VALUES = 20
_FACET_KEYS = [label.key for label in labels.CORE_LABELS if label.type in {"choice", "text"}]
_LABEL_COUNTS = (
    select(LabelRecord.key, LabelRecord.value, func.count())
    .where(repository.among(LabelRecord.version_id, "versions"), LabelRecord.key.in_(_FACET_KEYS))
    .group_by(LabelRecord.key, LabelRecord.value)
)


@router.get("/models", summary="List model versions")
def list_models(
    caller: SignedIn, session: ReadingSession, query: Annotated[models.ModelQuery, Query()]
) -> models.ModelPage:
    """Return the versions that pass all filters, a page at a time.

    Mergeability is known before any download: with `mergeable_with` or `mergeable_key`,
    `mergeable_by` names the methods that can merge each version with the given model.
    """
    # One more than the page holds, to see whether another page follows.
    hits, groups = _find(session, caller, query, query.limit + 1)
    page = hits[: query.limit]
    return models.ModelPage(
        items=responses.describe_versions(
            session, caller, [hit.version_id for hit in page], groups
        ),
        next_cursor=Order.parse(query.sort).write_cursor(
            Position(page[-1].key, page[-1].version_id)
        )
        if len(hits) > len(page)
        else None,
    )


@router.get("/models/facets", summary="Count models by kind, site, state and label")
def list_facets(
    caller: SignedIn, session: ReadingSession, query: Annotated[models.ModelFilters, Query()]
) -> models.FacetsResponse:
    """Return kinds, sites, states and core labels of the versions that pass all filters.

    Only the newest versions of large listings are counted; `complete` is false then.
    """
    # One more, to detect further versions.
    hits, _ = _find(session, caller, query, MOST_COUNTED + 1)
    counted = hits[:MOST_COUNTED]
    return models.FacetsResponse(
        counted=len(counted),
        complete=len(hits) == len(counted),
        kinds=_most_frequent(Counter(hit.kind for hit in counted)),
        sites=_most_frequent(Counter(hit.site for hit in counted)),
        states=_most_frequent(Counter(hit.state for hit in counted)),
        labels=_count_labels(session, counted),
    )


@router.get("/models/{site}/{name}", summary="List the versions of a model")
def list_versions(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    limit: Limit = 50,
    cursor: ListingCursor = None,
) -> models.ModelPage:
    """Return the versions of one model, newest first, a page at a time."""
    query = models.ModelQuery(site=site, name=name, limit=limit, cursor=cursor)
    page = list_models(caller, session, query)
    if not page.items and repository.find_visible_model(session, caller, site, name) is None:
        raise service.no_model(site, name)
    return page


@router.get("/models/{site}/{name}/versions/{reference}", summary="Describe a version")
def describe_version(
    caller: SignedIn, session: ReadingSession, version: service.VersionToName
) -> models.ModelVersionResponse:
    """Return labels, metrics, fingerprint and all other data of a version."""
    return responses.describe_version(session, version.id, access.viewing_site(caller))


@router.head(
    "/models/{site}/{name}/versions/{reference}/content",
    summary="Get the headers of a model file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
@router.get(
    "/models/{site}/{name}/versions/{reference}/content",
    summary="Download a model file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
def download(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: SignedIn,
    parts: Parts,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> Response:
    """Return the file's bytes.

    `ETag` is the SHA-256 of the file. To resume an interrupted download, send `Range: bytes=N-`
    with `If-Range: "DIGEST"`. Withdrawn versions, and versions that contain one, are refused or
    carry the header `X-Pool-Warning`, depending on the reason.
    """
    version = find_downloadable(parts, caller, (site, name, reference))
    if request.method == "GET" and record_download(parts, caller, version):
        version = find_downloadable(parts, caller, (site, name, str(version.number)))
    standing, reasons = warning_of(version)
    return send_content(
        parts,
        version.digest,
        version.size_bytes,
        version.file_name,
        {withdrawals.WARNING_HEADER: f"{standing}; reason={reasons}"} if standing else None,
    )


def find_downloadable(
    parts: ServerParts, caller: Caller, address: tuple[str, str, str]
) -> ModelVersionRecord:
    """Return the version at site, name and reference if its file may be downloaded."""
    with parts.database.read() as session:
        version = service.resolve_version(session, caller, *address)
    access.require_right(caller, version.model, "download")
    require_not_withdrawn(version)
    return version


def record_download(parts: ServerParts, caller: Caller, version: ModelVersionRecord) -> bool:
    """Record that the caller's site downloads a version; notify the owner of the first download.

    Sites are notified about their own models anyway, so their own downloads are not recorded.
    Return True if something was written: a withdrawal committed before the write did not know of
    the site, so the caller must check the version again before sending it.
    """
    if caller.site_id == version.model.site_id:
        return False
    now = now_utc()
    key = (version.id, caller.site_id)
    with parts.database.read() as session:
        known = session.get(DownloadRecord, key)
    if known is not None and now - known.last_at < DOWNLOAD_RECORD_STEP:
        return False
    try:
        with parts.database.write() as session:
            repository.lock_families(session)
            download_ = session.get(DownloadRecord, key)
            if download_ is None:
                session.add(DownloadRecord(version_id=version.id, site_id=caller.site_id))
                session.flush()
                owner = version.model.site_id
                write_event(session, owner, DOWNLOADED_EVENT, version.address, by=caller.site)
            else:
                download_.last_at = now
    except WriteConflictError:
        # A concurrent request of the same site has written it.
        pass
    return True


def _count_labels(session: Session, hits: Sequence[Hit]) -> dict[str, list[models.FacetCount]]:
    """Return the values of core labels of the versions, by key."""
    counts = defaultdict[str, Counter[str]](Counter)
    versions = [hit.version_id for hit in hits]
    for key, value, count in session.execute(_LABEL_COUNTS, {"versions": versions}):
        counts[key][value] = count
    return {key: _most_frequent(counts[key]) for key in _FACET_KEYS if key in counts}


def _most_frequent(values: Counter[str]) -> list[models.FacetCount]:
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return [models.FacetCount(value=value, count=count) for value, count in ordered[:MOST_VALUES]]


def _find(
    session: Session, caller: Caller, query: models.ModelFilters, limit: int
) -> tuple[Sequence[Hit], list[Sequence[MergeKey]]]:
    """Return the versions that pass all filters, and the groups of merge keys that all match."""
    groups: list[Sequence[MergeKey]] = []
    other_than: str | None = None
    if query.mergeable_with is not None:
        partner = service.find_named(
            session,
            caller,
            query.mergeable_with,
            hint="For a file that is not in the pool, send its keys as `mergeable_key`.",
            versions=repository.brief_versions,
        )
        groups.append(
            [MergeKey(merge_key.method, merge_key.key) for merge_key in partner.merge_keys]
        )
        # A model is not its own merge partner.
        other_than = partner.digest
    if keys := read_merge_keys(query):
        groups.append(keys)
    if not all(groups):
        return [], groups
    hits = find_versions(session, caller, query, groups, other_than=other_than, limit=limit)
    return hits, groups
