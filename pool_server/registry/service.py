"""Models and versions: look them up, list them, count what they have in common."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Depends
from sqlalchemy.orm import Session

from pool_server.database.records import ModelRecord, ModelVersionRecord
from pool_server.errors import MissingError, QueryError
from pool_server.http.identity import Caller, SignedIn
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry import query as queries
from pool_server.registry import repository
from pool_server.registry.finder import Finder
from pool_server.registry.responses import describe_versions
from pool_server.registry.search import plan_search, text_of, text_term
from pool_server.wire.labels import CORE_LABELS
from pool_server.wire.models import ALIAS_PATTERN, LATEST, FacetCount, FacetsResponse, ModelPage

_NUMBER = re.compile(r"^[0-9]{1,9}$")
_ALIAS = re.compile(ALIAS_PATTERN)
MOST_COUNTED = 1000
MOST_VALUES = 20
_FACET_KEYS = [each.key for each in CORE_LABELS if each.type in {"choice", "text"}]
_LABEL_STARTS = tuple(text_term("l", f"{key}=") for key in _FACET_KEYS)


def get_model(session: Session, caller: Caller, site: str, name: str) -> ModelRecord:
    """Return a model that the caller may see, with its site and grants."""
    model = repository.find_visible_model(session, caller, site, name)
    if model is None:
        raise _no_model(site, name)
    return model


def _no_model(site: str, name: str) -> MissingError:
    return MissingError(
        f"the pool has no model {site}/{name}",
        code="model_not_found",
        hint="`poolctl models ls` lists what is there.",
    )


def resolve_version(
    session: Session,
    caller: Caller,
    site: str,
    name: str,
    reference: str,
    *,
    versions: repository.Versions = repository.whole_versions,
) -> ModelVersionRecord:
    """Return the version that a reference means.

    A number, ``latest`` or nothing (the newest that is available), ``sha256:DIGEST``, or an
    alias. What is deleted, or not for the caller to see, is answered for as if it were not there.
    """
    conditions = []
    if reference.startswith("sha256:"):
        digest = queries.read_digest(reference.removeprefix("sha256:"))
        conditions = [ModelVersionRecord.digest == digest]
    elif _NUMBER.fullmatch(reference):
        conditions = [ModelVersionRecord.number == int(reference)]
    elif reference not in {"", LATEST}:
        if not _ALIAS.fullmatch(reference):
            raise QueryError(
                f"{reference[:80]!r} is not a version; expected a number, `latest`, an alias, or "
                "sha256:DIGEST"
            )
        conditions = [repository.has_alias(reference)]
    version = repository.find_version(session, caller, site, name, *conditions, versions=versions)
    if version is None:
        if repository.find_visible_id(session, caller, site, name) is None:
            raise _no_model(site, name)
        raise MissingError(
            f"{site}/{name} has no version {reference or LATEST}",
            code="version_not_found",
            hint=f"`poolctl models ls --name {name}` lists the versions there are.",
        )
    return version


def version_to_read(
    caller: SignedIn, session: ReadingSession, site: SiteName, name: ModelName, reference: Reference
) -> ModelVersionRecord:
    return resolve_version(session, caller, site, name, reference)


def version_to_name(
    caller: SignedIn, session: ReadingSession, site: SiteName, name: ModelName, reference: Reference
) -> ModelVersionRecord:
    bare = repository.bare_versions
    return resolve_version(session, caller, site, name, reference, versions=bare)


def version_to_change(
    caller: SignedIn, session: WritingSession, site: SiteName, name: ModelName, reference: Reference
) -> ModelVersionRecord:
    return resolve_version(session, caller, site, name, reference)


VersionToRead = Annotated[ModelVersionRecord, Depends(version_to_read)]
VersionToName = Annotated[ModelVersionRecord, Depends(version_to_name)]
VersionToChange = Annotated[ModelVersionRecord, Depends(version_to_change)]
"""The version that the address of a request names, loaded by the session of the request."""


def list_models(session: Session, caller: Caller, query: queries.ModelQuery) -> ModelPage:
    """Return one page of the versions that pass every filter of `query`, in its order.

    Only versions of models that the caller may see.
    """
    groups, other_than = _merge_groups(session, caller, query)
    if any(not group for group in groups):
        return ModelPage(items=[])
    # One more than the page holds, to see whether another page follows.
    plan = plan_search(caller, query, groups, other_than=other_than, limit=query.limit + 1)
    found = Finder(session).find(plan)
    page = found[: query.limit]
    return ModelPage(
        items=describe_versions(session, caller, [each.version_id for each in page], groups),
        next_cursor=plan.order.write_cursor(queries.Position(page[-1].key, page[-1].version_id))
        if len(found) > len(page)
        else None,
    )


def list_facets(session: Session, caller: Caller, query: queries.ModelFilters) -> FacetsResponse:
    """Count what the versions that pass every filter of `query` have in common.

    Only the newest versions are counted, up to a limit, so that it takes no longer than that.
    """
    groups, other_than = _merge_groups(session, caller, query)
    if any(not group for group in groups):
        return FacetsResponse(counted=0, complete=True, kinds=[], sites=[], states=[], labels={})
    plan = plan_search(
        caller,
        query,
        groups,
        other_than=other_than,
        limit=MOST_COUNTED + 1,  # one more, to see whether those are all
        with_facets=True,
    )
    found = Finder(session).find(plan)
    counted = found[:MOST_COUNTED]
    facets = _by_facet(Counter(" ".join(each.facets for each in counted).split()))
    return FacetsResponse(
        counted=len(counted),
        complete=len(found) <= MOST_COUNTED,
        kinds=_most_frequent(facets["k"]),
        sites=_most_frequent(facets["s"]),
        states=_most_frequent(facets["x"]),
        labels={key: _most_frequent(facets[key]) for key in _FACET_KEYS if key in facets},
    )


def _by_facet(terms: Counter[str]) -> defaultdict[str, dict[str, int]]:
    """Return the values of each facet, which is called by its letter, or by the label's key."""
    facets = defaultdict[str, dict[str, int]](dict)
    for term, count in terms.items():
        letter = term[0]
        if letter == "x":
            facets[letter][term[1:]] = count
        elif letter != "l":
            facets[letter][text_of(term)] = count
        elif term.startswith(_LABEL_STARTS):
            key, _, value = text_of(term).partition("=")
            facets[key][value] = count
    return facets


def _most_frequent(values: Mapping[str, int]) -> list[FacetCount]:
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return [FacetCount(value=value, count=count) for value, count in ordered[:MOST_VALUES]]


def _merge_groups(
    session: Session, caller: Caller, query: queries.ModelFilters
) -> tuple[list[Sequence[queries.MergeKey]], str | None]:
    """Return the keys of which a version must have one of each group, and a digest to leave out."""
    groups: list[Sequence[queries.MergeKey]] = []
    partner: ModelVersionRecord | None = None
    if query.mergeable_with is not None:
        partner = find_named(
            session,
            caller,
            query.mergeable_with,
            hint="For a file that is not in the pool, send its keys as `mergeable_key`.",
            versions=repository.brief_versions,
        )
        groups.append([queries.MergeKey(each.method, each.key) for each in partner.merge_keys])
    if keys := query.merge_keys():
        groups.append(keys)
    # Nobody looks for a model to merge with itself.
    return groups, None if partner is None else partner.digest


def list_versions_of(session: Session, caller: Caller, query: queries.ModelQuery) -> ModelPage:
    """Return one page of the versions of the one model that a query names."""
    site, name = query.site or "", query.name or ""
    found = list_models(session, caller, query)
    if not found.items and repository.find_visible_id(session, caller, site, name) is None:
        raise _no_model(site, name)
    return found


def find_named(
    session: Session,
    caller: Caller,
    text: str,
    *,
    hint: str,
    versions: repository.Versions = repository.whole_versions,
) -> ModelVersionRecord:
    """Return the version at an address, or the oldest of a file, by ``sha256:DIGEST``."""
    if not text.startswith("sha256:"):
        address = queries.read_address(text)
        return resolve_version(
            session, caller, address.site, address.name, address.reference, versions=versions
        )
    digest = queries.read_digest(text.removeprefix("sha256:"))
    version = repository.find_anywhere(session, caller, digest, versions)
    if version is None:
        raise MissingError(
            f"the pool has no model with digest {digest}", code="version_not_found", hint=hint
        )
    return version
