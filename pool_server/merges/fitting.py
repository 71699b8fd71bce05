"""Whether models can be merged with each other: by which methods, or what differs."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Select
from sqlalchemy.orm import undefer

from aggregators.methods.registry import find_method, merge_keys
from pool_server.database.records import ModelVersionRecord
from pool_server.errors import MergeRefusedError
from pool_server.http.identity import SignedIn, needs
from pool_server.http.session import ReadingSession
from pool_server.registry.access import viewing_site
from pool_server.registry.query import read_address
from pool_server.registry.repository import bare_versions
from pool_server.registry.responses import describe_page
from pool_server.registry.service import resolve_versions
from pool_server.registry.withdrawal_status import address_of
from pool_server.wire.merges import MOST_COMPARED, FitResponse

router = APIRouter(prefix="/merges", tags=["merges"], dependencies=[needs("models:read")])


@router.get("/fit", summary="Ask whether models fit together")
def show_fit(
    caller: SignedIn,
    session: ReadingSession,
    model: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=MOST_COMPARED,
            description="Addresses; repeat it for each model.",
            examples=[["pool://site-a/face-68@2", "pool://site-b/face-68@1"]],
        ),
    ],
) -> FitResponse:
    """Return the methods that can merge all of these models, or what differs between them."""
    addresses = [read_address(each) for each in model]
    versions = resolve_versions(session, caller, addresses, versions=_with_fingerprints)
    fit = describe_fit(versions)
    fit.versions = describe_page(session, [each.id for each in versions], viewing_site(caller))
    return fit


def _with_fingerprints() -> Select[ModelVersionRecord]:
    return bare_versions().options(undefer(ModelVersionRecord.fingerprint_lists))


def describe_fit(versions: Sequence[ModelVersionRecord]) -> FitResponse:
    """Return what can merge the versions; the first that does not fit is named otherwise."""
    keys = [merge_keys(_describe_file(each)) for each in versions]
    methods = [name for name, key in keys[0].items() if all(each.get(name) == key for each in keys)]
    if methods:
        # One ordinary file is worth more than a list of files.
        return FitResponse(methods=sorted(methods, key=lambda name: name != "wba-cascade"))
    if not keys[0]:
        return FitResponse(methods=[], problem=f"no method merges {address_of(versions[0])}")
    try:
        require_fitting(next(iter(keys[0])), versions)
    except MergeRefusedError as error:
        return FitResponse(methods=[], problem=error.message.partition(": ")[2] or error.message)
    return FitResponse(methods=[], problem="no method merges all of them")


def require_fitting(method_name: str, versions: Sequence[ModelVersionRecord]) -> None:
    """Raise `MergeRefusedError` where the method cannot merge the versions; name what differs."""
    method = find_method(method_name)
    first, *others = versions
    wanted = _describe_file(first)
    key = method.merge_key(wanted)
    for other in others:
        found = _describe_file(other)
        if method.merge_key(found) == key:
            continue
        # A field matters if the model with the other's value of it does not fit any more.
        fields = [
            field
            for field in sorted(wanted.keys() & found.keys())
            if wanted[field] != found[field]
            and (field == "kind" or method.merge_key({**wanted, field: found[field]}) != key)
        ]
        words = "; ".join(_difference_words(each, wanted[each], found[each]) for each in fields)
        names = f"{address_of(first)} and {address_of(other)}"
        raise MergeRefusedError(
            f"{method.name} cannot merge {names}: {words or 'they are built differently'}",
            hint="`poolctl models ls --mergeable-with MODEL` lists what can be merged with one.",
            details={"fields": fields},
        )


def _describe_file(version: ModelVersionRecord) -> dict[str, Any]:
    return {**version.fingerprint, **version.fingerprint_lists}


def _difference_words(field: str, first: Any, other: Any) -> str:
    if isinstance(first, list) and isinstance(other, list):
        for one, two in zip(first, other, strict=False):
            if one != two:
                return f"{field} {_short(one)} and {_short(two)}"
        return f"{len(first)} and {len(other)} {field}"
    return f"{field} {_short(first)} and {_short(other)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
