"""The standing of a version: withdrawn, flagged because of what it holds, replaced.

========================  ======================================================================
standing                  what becomes of its downloads
========================  ======================================================================
withdrawn, ``refuse``     none any more; nor of the same bytes under other names
                          (always of what was in quarantine)
withdrawn, ``warn``       they work, with a warning
flagged                   they work, with a warning: the version holds, directly or through
                          other merges, something that was withdrawn
========================  ======================================================================

All of it is read from what `pool_server.registry.repository.whole_versions` has loaded.
"""

from typing import Any

from sqlalchemy.orm import joinedload, selectinload

from pool_server.database import records
from pool_server.errors import VersionWithdrawnError
from pool_server.http.parameters import describe
from pool_server.registry.access import AVAILABLE, CONSORTIUM, PUBLIC, rights_of_site
from pool_server.wire.names import ModelAddress
from pool_server.wire.withdrawals import Withdrawal, WithdrawalFlag


def standing_options() -> tuple[Any, ...]:
    """Return what a query of versions has to load; costs nothing for versions in good standing."""
    flag = records.ModelVersionRecord.flags
    return (
        selectinload(records.ModelVersionRecord.withdrawal),
        selectinload(flag)
        .joinedload(records.WithdrawalFlagRecord.withdrawal)
        .joinedload(records.WithdrawalRecord.version)
        .joinedload(records.ModelVersionRecord.model)
        .options(joinedload(records.ModelRecord.site), selectinload(records.ModelRecord.grants)),
        *successor_options(),
    )


def successor_options() -> tuple[Any, ...]:
    """Return what a query of versions has to load for `successors_of`."""
    return (
        selectinload(records.ModelVersionRecord.successors)
        .joinedload(records.SuccessorRecord.successor)
        .options(
            joinedload(records.ModelVersionRecord.model).joinedload(records.ModelRecord.site),
            selectinload(records.ModelVersionRecord.flags),
        ),
    )


def address_of(version: records.ModelVersionRecord) -> str:
    return str(ModelAddress(version.model.site.name, version.model.name, str(version.number)))


def subject_of(version: records.ModelVersionRecord) -> str:
    """Return what the audit calls a version."""
    return address_of(version).removeprefix("pool://")


def name_for_site(site_id: int, version: records.ModelVersionRecord) -> str:
    """Return the name of a version for a site: its address, or a digest if it may not see it.

    Who names a file by its digest need not know whose it is. The version's model was loaded with
    its site and grants.
    """
    is_own = version.model.site_id == site_id
    is_shown = version.state in PUBLIC and "see" in rights_of_site(site_id, version.model)
    return address_of(version) if is_own or is_shown else f"sha256:{version.digest}"


def withdrawal_of(version: records.ModelVersionRecord) -> Withdrawal | None:
    """Return how a version was withdrawn; None if it was not."""
    if version.withdrawal is None:
        return None
    return describe_withdrawal(version.withdrawal, version)


def describe_withdrawal(
    record: records.WithdrawalRecord, version: records.ModelVersionRecord
) -> Withdrawal:
    """Return a withdrawal as clients see it; `version` is the withdrawn one, with its standing."""
    return describe(
        Withdrawal,
        record,
        address=address_of(version),
        withdrawn_at=record.created_at,
        withdrawn_by=record.created_by,
        successors=successors_of(version),
    )


def hide_name(withdrawal: Withdrawal) -> Withdrawal:
    """Return a withdrawal for who has the file and may not see what it is called in the pool."""
    hidden = {"explanation": "", "withdrawn_by": "", "successors": []}
    return withdrawal.model_copy(update={"address": f"sha256:{withdrawal.digest}", **hidden})


def hide_flag_name(flag: WithdrawalFlag) -> WithdrawalFlag:
    """Return a flag for who has the file and may not see what it is called in the pool."""
    return flag.model_copy(update={"address": f"sha256:{flag.digest}"})


def flags_of(version: records.ModelVersionRecord, viewer: int | None) -> list[WithdrawalFlag]:
    """Return what was withdrawn of the things that a version holds.

    What the site `viewer` may not see is named by its digest; None sees all.
    """
    return [_describe_flag(flag, viewer) for flag in version.flags]


def _describe_flag(flag: records.WithdrawalFlagRecord, viewer: int | None) -> WithdrawalFlag:
    withdrawn = flag.withdrawal.version
    address = address_of(withdrawn) if viewer is None else name_for_site(viewer, withdrawn)
    return describe(WithdrawalFlag, flag.withdrawal, address=address, flagged_at=flag.created_at)


def successors_of(version: records.ModelVersionRecord) -> list[str]:
    """Return the addresses of what replaces a version, newest first.

    Only successors that are themselves in good standing, and that everybody who sees the version
    sees, too: those of the same model, and those shared with the whole consortium.
    """
    return [
        address_of(link.successor)
        for link in reversed(version.successors)
        if link.successor.state == AVAILABLE
        and not link.successor.flags
        and (
            link.successor.model_id == version.model_id
            or link.successor.model.visibility == CONSORTIUM
        )
    ]


def refusal_of(version: records.ModelVersionRecord) -> records.WithdrawalRecord | None:
    """Return the withdrawal because of which the version's bytes are not given out, if any.

    The same bytes may have been withdrawn under another name; they are refused here, too.
    """
    own = [] if version.withdrawal is None else [version.withdrawal]
    same_bytes = [each.withdrawal for each in version.flags]
    for withdrawal in [*own, *same_bytes]:
        if withdrawal.effect == "refuse" and withdrawal.digest == version.digest:
            return withdrawal
    return None


def require_not_withdrawn(version: records.ModelVersionRecord) -> None:
    """Raise if the version's bytes are not given out any more."""
    withdrawal = refusal_of(version)
    if withdrawal is None:
        return
    address, successors = address_of(version), successors_of(version)
    explanation = f": {withdrawal.explanation}" if withdrawal.explanation else ""
    hint = "Delete the copies that you have; `poolctl models check FILES` finds what holds it."
    if successors:
        hint = f"Use {successors[0]} instead, and delete the copies that you have."
    raise VersionWithdrawnError(
        f"{address} was withdrawn ({withdrawal.reason}) and cannot be used any more{explanation}",
        hint=hint,
        details={
            "address": address,
            "digest": version.digest,
            "reason": withdrawal.reason,
            "explanation": withdrawal.explanation,
            "successors": successors,
        },
    )


def warning_of(version: records.ModelVersionRecord) -> tuple[str, str]:
    """Return ``withdrawn`` or ``flagged``, and the reasons with commas between them.

    Both are empty for a version in good standing.
    """
    if version.withdrawal is not None:
        return "withdrawn", version.withdrawal.reason
    reasons = sorted({flag.withdrawal.reason for flag in version.flags})
    return ("flagged", ",".join(reasons)) if reasons else ("", "")
