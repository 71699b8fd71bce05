"""How a round stands, and what its participants are told of it."""

from __future__ import annotations

from typing import cast

from pool_server.database.records import (
    ModelVersionRecord,
    RoundContributionRecord,
    RoundParticipantRecord,
    RoundRecord,
    now_utc,
)
from pool_server.models.registry.standing import warning_of
from pool_server.rounds import repository
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import (
    ParticipantState,
    RoundContribution,
    RoundParticipant,
    RoundResponse,
    RoundState,
    SecureTerms,
)


def base_warning(base: ModelVersionRecord) -> str:
    """Return how a base stands, such as ``flagged (data-error)``; empty in good standing."""
    standing, _, reasons = warning_of(base).partition("; reason=")
    return f"{standing} ({reasons})" if standing else ""


def is_ready(found: RoundRecord) -> bool:
    """Tell whether nobody is waited for any more, and enough sites have contributed."""
    if found.state != repository.OPEN or not has_enough(found):
        return False
    return not missing_sites(found) or now_utc() >= found.deadline


def has_enough(found: RoundRecord) -> bool:
    return len(found.contributions) >= repository.FEWEST_CONTRIBUTIONS


def missing_sites(found: RoundRecord) -> set[str]:
    return {each.site.name for each in found.participants} - {
        each.site.name for each in found.contributions
    }


def state_of(found: RoundRecord) -> RoundState:
    """Return the state as clients see it, in which the deadline counts."""
    if found.state != repository.OPEN:
        return cast("RoundState", found.state)
    if now_utc() < found.deadline:
        return "open"
    return "closed" if has_enough(found) else "expired"


def describe_round(found: RoundRecord) -> RoundResponse:
    result = found.result_version
    return RoundResponse(
        round_id=found.key,
        state=state_of(found),
        ready=is_ready(found),
        base=address_of(found.base_version),
        base_digest=found.base_version.digest,
        base_size_bytes=found.base_version.size_bytes,
        base_warning=base_warning(found.base_version),
        method=found.method,
        method_version=found.method_version,
        mode=found.mode,
        options=found.options,
        description=found.description,
        number=found.number,
        rounds_total=found.rounds_total,
        predecessor=None if found.predecessor is None else found.predecessor.key,
        successor=None if found.successor is None else found.successor.key,
        created_at=found.created_at,
        created_by=found.created_by,
        deadline=found.deadline,
        participants=_describe_participants(found),
        ended_at=found.ended_at,
        ended_by=found.ended_by,
        result=None if result is None else address_of(result),
        result_digest=None if result is None else result.digest,
        state_digest=None if result is None else found.state_digest,
        secure=None if found.secure is None else SecureTerms.model_validate(found.secure),
    )


def _describe_participants(found: RoundRecord) -> list[RoundParticipant]:
    contributions = {each.site_id: each for each in found.contributions}
    is_open = state_of(found) == "open"

    def describe(participant: RoundParticipantRecord) -> RoundParticipant:
        contribution = contributions.get(participant.site_id)
        state: ParticipantState
        if contribution is not None:
            state = "contributed"
        elif is_open:
            state = "waiting"
        else:
            state = "missing" if participant.late_at is None else "late"
        return RoundParticipant(
            site=participant.site.name,
            state=state,
            contribution=None if contribution is None else describe_contribution(contribution),
        )

    return sorted(map(describe, found.participants), key=lambda each: each.site)


def files_to_combine(found: RoundRecord) -> list[RoundContributionRecord]:
    """Return the contributions to combine; of a secure round, the sum that all sites sent."""
    return found.contributions if found.secure is None else found.contributions[:1]


def describe_contribution(contribution: RoundContributionRecord) -> RoundContribution:
    return RoundContribution(
        digest=contribution.digest,
        size_bytes=contribution.size_bytes,
        file_name=contribution.file_name,
        summary=contribution.summary,
        created_at=contribution.created_at,
        created_by=contribution.created_by,
    )


def address_of(version: ModelVersionRecord) -> str:
    return str(ModelAddress(version.model.site.name, version.model.name, str(version.number)))
