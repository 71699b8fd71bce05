"""The standing of a version: withdrawn, flagged because of its inputs, replaced.

========================  ======================================================================
standing                  downloads
========================  ======================================================================
withdrawn, ``refuse``     refused; so are those of the same bytes under other names
                          (always for versions that were in quarantine)
withdrawn, ``warn``       allowed, with a warning
flagged                   allowed, with a warning: the version contains, directly or through
                          other merges, a withdrawn file
========================  ======================================================================

All of it is read from attributes that `pool_server.registry.repository.whole_versions` loads.
"""

from typing import Any

from sqlalchemy.orm import joinedload, selectinload

from pool_server.database import records
from pool_server.errors import VersionWithdrawnError
from pool_server.http.parameters import describe
from pool_server.registry.access import AVAILABLE, CONSORTIUM, PUBLIC, rights_of_site
from pool_server.wire.withdrawals import Withdrawal, WithdrawalFlag


def standing_options() -> tuple[Any, ...]:
    """Return the loader options for standings; they cost nothing for versions in good standing."""
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
    """Return the loader options for `successors_of`."""
    return (
        selectinload(records.ModelVersionRecord.successors)
        .joinedload(records.SuccessorRecord.successor)
        .options(
            joinedload(records.ModelVersionRecord.model).joinedload(records.ModelRecord.site),
            selectinload(records.ModelVersionRecord.flags),
        ),
    )


def name_for_site(site_id: int, version: records.ModelVersionRecord) -> str:
    """Return the name of a version for a site: its address, or a digest if it may not see it.

    A site that names a file by its digest need not know its owner. The version's model must be
    loaded with its site and grants.
    """
    is_own = version.model.site_id == site_id
    is_shown = version.state in PUBLIC and "see" in rights_of_site(site_id, version.model)
    return version.address if is_own or is_shown else f"sha256:{version.digest}"


def describe_withdrawal(
    record: records.WithdrawalRecord, version: records.ModelVersionRecord
) -> Withdrawal:
    """Return a withdrawal as clients see it; `version` is the withdrawn one, with its standing."""
    return describe(
        Withdrawal,
        record,
        address=version.address,
        withdrawn_at=record.created_at,
        withdrawn_by=record.created_by,
        successors=successors_of(version),
    )


def hide_name(withdrawal: Withdrawal) -> Withdrawal:
    """Return a withdrawal for callers with the file but without access to the model."""
    hidden = {"explanation": "", "withdrawn_by": "", "successors": []}
    return withdrawal.model_copy(update={"address": f"sha256:{withdrawal.digest}", **hidden})


def hide_flag_name(flag: WithdrawalFlag) -> WithdrawalFlag:
    """Return a flag for callers with the file but without access to the model."""
    return flag.model_copy(update={"address": f"sha256:{flag.digest}"})


def flags_of(version: records.ModelVersionRecord, viewer: int | None) -> list[WithdrawalFlag]:
    """Return the withdrawals of files that a version contains.

    A withdrawn version that the site `viewer` may not see is named by its digest; None sees all.
    """
    return [_describe_flag(flag, viewer) for flag in version.flags]


def _describe_flag(flag: records.WithdrawalFlagRecord, viewer: int | None) -> WithdrawalFlag:
    withdrawn = flag.withdrawal.version
    address = withdrawn.address if viewer is None else name_for_site(viewer, withdrawn)
    return describe(WithdrawalFlag, flag.withdrawal, address=address, flagged_at=flag.created_at)


def successors_of(version: records.ModelVersionRecord) -> list[str]:
    """Return the addresses of a version's successors, newest first.

    Only successors in good standing that every site with access to the version can see: those of
    the same model, and those shared with the whole consortium.
    """
    return [
        link.successor.address
        for link in reversed(version.successors)
        if link.successor.state == AVAILABLE
        and not link.successor.flags
        and (
            link.successor.model_id == version.model_id
            or link.successor.model.visibility == CONSORTIUM
        )
    ]


def refusal_of(version: records.ModelVersionRecord) -> records.WithdrawalRecord | None:
    """Return the withdrawal that forbids downloads of the version's bytes, if any.

    The same bytes may have been withdrawn under another name, which forbids them here, too.
    """
    withdrawals = [] if version.withdrawal is None else [version.withdrawal]
    same_bytes = [flag.withdrawal for flag in version.flags]
    for withdrawal in [*withdrawals, *same_bytes]:
        if withdrawal.effect == "refuse" and withdrawal.digest == version.digest:
            return withdrawal
    return None


def require_not_withdrawn(version: records.ModelVersionRecord) -> None:
    """Raise if a withdrawal forbids downloads of the version's bytes."""
    withdrawal = refusal_of(version)
    if withdrawal is None:
        return
    address, successors = version.address, successors_of(version)
    explanation = f": {withdrawal.explanation}" if withdrawal.explanation else ""
    hint = "Delete your copies; `poolctl models check FILES` lists your files that contain it."
    if successors:
        hint = f"Use {successors[0]} instead, and delete your copies."
    raise VersionWithdrawnError(
        f"{address} was withdrawn ({withdrawal.reason}) and can no longer be used{explanation}",
        hint=hint,
    )


def warning_of(version: records.ModelVersionRecord) -> tuple[str, str]:
    """Return ``withdrawn`` or ``flagged``, and the reasons separated by commas.

    Both are empty for a version in good standing.
    """
    if version.withdrawal is not None:
        return "withdrawn", version.withdrawal.reason
    reasons = sorted({flag.withdrawal.reason for flag in version.flags})
    return ("flagged", ",".join(reasons)) if reasons else ("", "")
