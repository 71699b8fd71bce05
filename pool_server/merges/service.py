"""Merges on the pool: request, show and cancel them (`merges.running` carries them out)."""

import json
import secrets
from collections.abc import Sequence
from functools import cache
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import ValidationError
from sqlalchemy import Select
from sqlalchemy.orm import Session, undefer

from aggregators.errors import AggregatorError, first_problem
from aggregators.methods import Recipe
from aggregators.methods.registry import find_method, merge_keys
from pool_server.database.engine import wait_for_turn
from pool_server.database.records import (
    MergeJobRecord,
    ModelVersionRecord,
    RoundParticipantRecord,
    RoundRecord,
    SiteRecord,
)
from pool_server.errors import ConflictError, MergeRefusedError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, describe, find_page
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.lineage.family import find_round_files
from pool_server.lineage.flags import require_good_standing
from pool_server.lineage.repository import find_refusal
from pool_server.merges import repository
from pool_server.people.sites import get_site
from pool_server.registry import repository as registry
from pool_server.registry.access import AVAILABLE, DRAFT, may, readable_by
from pool_server.registry.query import read_address
from pool_server.registry.repository import bare_versions
from pool_server.registry.responses import describe_versions
from pool_server.registry.service import resolve_versions
from pool_server.registry.terms import require_terms
from pool_server.settings import PoolSettings
from pool_server.transfers.publishing import require_target
from pool_server.transfers.versions import require_wording
from pool_server.wire import merges, models, rounds
from pool_server.wire.merges import MOST_COMPARED, FitResponse

fit_router = APIRouter(prefix="/merges", tags=["merges"], dependencies=[needs("models:read")])


@fit_router.get("/fit", summary="Ask whether models fit together")
def show_fit(
    caller: SignedIn,
    session: ReadingSession,
    model: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=MOST_COMPARED,
            description="Addresses; repeat it for each model.",
        ),
    ],
) -> FitResponse:
    """Return the methods that can merge all of these models, or the differences between them."""
    addresses = [read_address(address) for address in model]
    versions = resolve_versions(session, caller, addresses, versions=_with_fingerprints)
    fit = describe_fit(versions)
    fit.versions = describe_versions(session, caller, [version.id for version in versions])
    return fit


@cache
def _with_fingerprints() -> Select[ModelVersionRecord]:
    return bare_versions().options(undefer(ModelVersionRecord.fingerprint_lists))


def describe_fit(versions: Sequence[ModelVersionRecord]) -> FitResponse:
    """Return the methods that fit the versions, or else the first version that does not fit."""
    keys = [merge_keys(_describe_file(version)) for version in versions]
    methods = [
        name for name, key in keys[0].items() if all(fitting.get(name) == key for fitting in keys)
    ]
    if methods:
        # One ordinary file is worth more than a list of files.
        return FitResponse(methods=sorted(methods, key=lambda name: name != "wba-cascade"))
    if not keys[0]:
        return FitResponse(methods=[], problem=f"no method merges {versions[0].address}")
    try:
        require_fitting(next(iter(keys[0])), versions)
    except MergeRefusedError as error:
        return FitResponse(methods=[], problem=error.message.partition(": ")[2] or error.message)
    return FitResponse(methods=[], problem="no method merges all of them")


def require_fitting(method_name: str, versions: Sequence[ModelVersionRecord]) -> None:
    """Raise `MergeRefusedError` if the method cannot merge the versions; name the differences."""
    method = find_method(method_name)
    first, *others = versions
    expected = _describe_file(first)
    key = method.merge_key(expected)
    for other in others:
        actual = _describe_file(other)
        if method.merge_key(actual) == key:
            continue
        # A field matters if the model with the other's value of it no longer fits.
        fields = [
            field
            for field in sorted(expected.keys() & actual.keys())
            if expected[field] != actual[field]
            and (field == "kind" or method.merge_key({**expected, field: actual[field]}) != key)
        ]
        differences = "; ".join(
            _difference_words(field, expected[field], actual[field]) for field in fields
        )
        names = f"{first.address} and {other.address}"
        raise MergeRefusedError(
            f"{method.name} cannot merge {names}: {differences or 'they are built differently'}",
            hint="`poolctl models ls --mergeable-with MODEL` lists models that fit one.",
        )


def _describe_file(version: ModelVersionRecord) -> dict[str, object]:
    return {**version.fingerprint, **version.fingerprint_lists}


def _difference_words(field: str, first: object, other: object) -> str:
    if isinstance(first, list) and isinstance(other, list):
        for one, two in zip(first, other, strict=False):
            if one != two:
                return f"{field} {_short(one)} and {_short(two)}"
        return f"{len(first)} and {len(other)} {field}"
    return f"{field} {_short(first)} and {_short(other)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def add_job(
    session: Session,
    caller: Caller,
    site: SiteRecord,
    recipe: Recipe,
    request: merges.MergeRequest | rounds.FinishRequest,
    *,
    finishes: RoundRecord | None = None,
) -> MergeJobRecord:
    """Write down a merge for the background; it may be the one that finishes a round."""
    job = MergeJobRecord(
        key=secrets.token_hex(8),
        site_id=site.id,
        site=site,
        token_id=caller.token_id,
        created_by=caller.name,
        round_id=None if finishes is None else finishes.id,
        round=finishes,
        model_name=request.name,
        request={**request.model_dump(mode="json"), "recipe": json.loads(recipe.to_json())},
        state=repository.QUEUED,
        version=None,
    )
    session.add(job)
    session.flush()
    record_act(
        session,
        caller,
        "merge.request",
        f"{site.name}/{request.name}",
        merge_id=job.key,
        method=recipe.method.name,
        inputs=list(recipe.input_digests),
    )
    return job


def read_request(request: merges.MergeRequest) -> Recipe:
    """Return the recipe of a request, checked as far as it can be without the files."""
    try:
        recipe = Recipe.model_validate(request.recipe)
    except ValidationError as error:
        raise MergeRefusedError(
            f"the recipe cannot be read: {first_problem(error)}",
            hint="Send a recipe file, as `poolctl merge` writes it.",
        ) from error
    try:
        method = find_method(recipe.method.name)
        method.options_type.model_validate(recipe.options)
    except (AggregatorError, ValidationError) as error:
        raise MergeRefusedError(f"the recipe cannot be carried out: {error}") from error
    if method.version != recipe.method.version:
        raise MergeRefusedError(
            f"the recipe is one of {method.name} version {recipe.method.version}, this pool has "
            f"version {method.version} and would make other bytes",
            hint="Merge at home with the poolctl that wrote the recipe.",
        )
    format_ = request.format or (recipe.output.format if recipe.output else None)
    if format_ is not None and format_ not in method.output_formats:
        raise MergeRefusedError(
            f"{method.name} does not make {format_!r}; it makes {', '.join(method.output_formats)}"
        )
    return recipe


def require_size_of_inputs(settings: PoolSettings, size_bytes: int) -> None:
    if size_bytes > settings.merge_input_bytes:
        raise MergeRefusedError(
            f"the inputs have {size_bytes:,} bytes together, the pool merges at most "
            f"{settings.merge_input_bytes:,}",
            hint="Merge at home with `poolctl merge`.",
        )


def get_job(session: Session, caller: Caller, key: str) -> MergeJobRecord:
    """Return a merge of the caller's site, or of a round that it takes part in; admins get any."""
    job = repository.find_job(session, key)
    if job is None or not (
        caller.is_admin
        or job.site_id == caller.site_id
        or (
            job.round_id is not None
            and session.get(RoundParticipantRecord, (job.round_id, caller.site_id)) is not None
        )
    ):
        raise MissingError(
            f"the pool has no merge {key}",
            code="merge_not_found",
            hint="`poolctl merges` lists yours.",
        )
    return job


def describe_job(job: MergeJobRecord) -> merges.MergeJobResponse:
    return describe(
        merges.MergeJobResponse,
        job,
        merge_id=job.key,
        site=job.site.name,
        name=job.model_name,
        round_id=None if job.round is None else job.round.key,
        recipe=job.request["recipe"],
        version=None if job.version is None else job.version.address,
        digest=None if job.version is None else job.version.digest,
    )


def find_inputs(session: Session, caller: Caller, recipe: Recipe) -> dict[str, ModelVersionRecord]:
    """Return a version for each distinct input of a recipe, by digest."""
    refusal = find_refusal(session, recipe.input_digests)
    if refusal is not None:
        raise MergeRefusedError(
            f"input {refusal.digest} was withdrawn ({refusal.reason}) and cannot be merged, "
            "under any name",
            hint="Make the recipe without it: `poolctl merge --replay RECIPE --without DIGEST`.",
        )
    seen = repository.versions_of_digests(session, recipe.input_digests, readable_by(caller))
    inputs: dict[str, ModelVersionRecord] = {}
    for entry in recipe.inputs:
        versions = seen.get(entry.digest, [])
        known_as = f"{entry.digest}" + (f" ({entry.address})" if entry.address else "")
        if not versions and (round_files := find_round_files(session, [entry.digest])):
            what = models.ROUND_FILES[round_files[entry.digest]]
            raise MergeRefusedError(
                f"input {known_as} is {what}, which only rounds combine",
                hint="Download the result of the round instead.",
            )
        if not versions:
            raise MergeRefusedError(
                f"input {known_as} is not in the pool",
                hint="Upload it first, or merge at home with `poolctl merge`.",
            )
        whole = [version for version in versions if _is_whole(caller, version)]
        if not whole:
            raise MergeRefusedError(
                f"input {known_as} is {versions[0].state} and cannot be merged",
                hint=f"`poolctl models info {versions[0].model.site.name}/"
                f"{versions[0].model.name}@{versions[0].number}` shows why.",
            )
        allowed = [version for version in whole if may(caller, version.model, "merge")]
        if not allowed:
            raise MergeRefusedError(
                f"{versions[0].model.site.name} does not let your site merge {known_as}",
                hint=f"Ask {versions[0].model.site.name} for the right to merge it.",
            )
        inputs[entry.digest] = allowed[0]
    return inputs


def _is_whole(caller: Caller, version: ModelVersionRecord) -> bool:
    """Return whether a version's state lets it be merged; only its own site merges a draft."""
    own_draft = version.state == DRAFT and version.model.site_id == caller.site_id
    return own_draft or version.state == AVAILABLE


# Addresses of merges that the pool makes.
router = APIRouter(prefix="/merges", tags=["merges"], dependencies=[needs("merges")])

MergeId = Annotated[
    str, Path(pattern=merges.MERGE_KEY_PATTERN, description="Identifier of the merge.")
]


@router.post("", status_code=202, summary="Have the pool merge models")
def start(caller: Uploader, parts: Parts, request: merges.MergeRequest) -> merges.MergeJobResponse:
    """Carry a recipe out in the background and publish the result, with its lineage.

    The result equals that of `poolctl merge` with the same recipe, byte for byte. The pool cannot
    sign it for the site: where signatures are demanded, or the site has registered a key, it is a
    draft, which only its site and curators see, until the site has signed it (`PUT
    .../statement`) and published it.
    """
    settings = parts.settings
    caller.require_upload_to(request.site)
    if not settings.central_merges:
        raise MergeRefusedError(
            "this pool leaves merging to the sites", hint="Merge at home with `poolctl merge`."
        )
    recipe = read_request(request)
    require_wording(request)
    with parts.database.write() as session:
        site = get_site(session, request.site)
        wait_for_turn(session, f"merges of site {site.id}")
        waiting = repository.count_open(session, site.id)
        if waiting >= settings.max_open_merges_per_site:
            raise ConflictError(
                f"{site.name} has {waiting} merges under way, as many as the pool allows",
                code="too_many_merges",
                hint="Wait for one to end, or cancel one: `poolctl merges` lists them.",
            )
        model = registry.find_model(session, site.name, request.name)
        require_target(model, visibility=request.visibility)
        inputs = find_inputs(session, caller, recipe)
        size_bytes = sum(version.size_bytes for version in inputs.values())
        require_fitting(recipe.method.name, [inputs[digest] for digest in recipe.input_digests])
        require_good_standing(
            session, recipe.input_digests, despite_withdrawal=request.despite_withdrawal
        )
        require_size_of_inputs(settings, size_bytes)
        parents = {input_.digest: input_.address or input_.digest[:12] for input_ in recipe.inputs}
        require_terms(session, request.terms, parents, site=site)
        described = describe_job(add_job(session, caller, site, recipe, request))
    parts.merge_wanted.set()
    return described


@router.get("", summary="List merges")
def list_merges(
    caller: SignedIn,
    session: ReadingSession,
    state: Annotated[merges.MergeJobState | None, Query(description="Only in this state.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> merges.MergeJobPage:
    """Return the merges that one's own site asked for, newest first; admins see all."""
    query = repository.whole_jobs()
    if not caller.is_admin:
        query = query.where(MergeJobRecord.site_id == caller.site_id)
    if state is not None:
        query = query.where(MergeJobRecord.state == state)
    page, next_cursor = find_page(session, query, MergeJobRecord.id, cursor, limit)
    return merges.MergeJobPage(items=[describe_job(job) for job in page], next_cursor=next_cursor)


@router.get("/{merge_id}", summary="Show the progress of a merge")
def show(caller: SignedIn, session: ReadingSession, merge_id: MergeId) -> merges.MergeJobResponse:
    """Return a merge: its state, its progress, its result or the reason of its failure."""
    return describe_job(get_job(session, caller, merge_id))


@router.post("/{merge_id}/cancel", summary="Cancel a merge")
def cancel(caller: Uploader, session: WritingSession, merge_id: MergeId) -> merges.MergeJobResponse:
    """End a merge; one that runs ends within seconds, one that is over stays as it is."""
    job = get_job(session, caller, merge_id)
    caller.require_upload_to(job.site.name)
    if repository.request_cancel(session, job.id):
        record_act(
            session, caller, "merge.cancel", f"{job.site.name}/{job.model_name}", merge_id=job.key
        )
    session.refresh(job)
    return describe_job(job)
