"""Withdrawals, flags and successors in the database."""

from collections.abc import Collection, Sequence
from functools import cache

from sqlalchemy import Label, Row, Select, and_, bindparam, exists, func, literal, not_, or_, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from pool_server.database.records import (
    DownloadRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RoundRecord,
    SiteRecord,
    SuccessorRecord,
    TokenRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.http.identity import Caller
from pool_server.registry.access import DELETED, readable_by
from pool_server.registry.repository import (
    ancestors_of,
    bare_versions,
    descendants_of,
    granted_versions,
)
from pool_server.registry.withdrawal_status import standing_options, successor_options


def find_refusal(session: Session, digests: Collection[str]) -> WithdrawalRecord | None:
    """Return the first withdrawal of any of these files that forbids downloads everywhere."""
    return session.scalar(
        select(WithdrawalRecord)
        .where(
            WithdrawalRecord.digest.in_(digests),
            WithdrawalRecord.effect == "refuse",
            not_(WithdrawalRecord.own_only),
        )
        .order_by(WithdrawalRecord.id)
        .limit(1)
    )


def find_withdrawn_input(
    session: Session, digests: Collection[str]
) -> tuple[str, WithdrawalRecord] | None:
    """Return the digest and withdrawal of the first withdrawn or flagged file among these."""
    withdrawn = session.scalar(
        select(WithdrawalRecord)
        .where(WithdrawalRecord.digest.in_(digests), not_(WithdrawalRecord.own_only))
        .limit(1)
    )
    if withdrawn is not None:
        return withdrawn.digest, withdrawn
    flagged = session.execute(
        select(ModelVersionRecord.digest, WithdrawalRecord)
        .join(WithdrawalFlagRecord, WithdrawalFlagRecord.version_id == ModelVersionRecord.id)
        .join(WithdrawalRecord, WithdrawalRecord.id == WithdrawalFlagRecord.withdrawal_id)
        .where(ModelVersionRecord.digest.in_(digests))
        .order_by(ModelVersionRecord.id)
        .limit(1)
    ).first()
    return None if flagged is None else (flagged[0], flagged[1])


def limit_withdrawals(session: Session, site_id: int, digest: str, inputs: set[str]) -> None:
    """Limit withdrawals of a file by sites that own nothing in it to versions of those sites.

    For a file that the pool trusts `site_id` to have made from `inputs`. Withdrawals by curators
    affect every site.
    """
    rows = session.execute(
        select(WithdrawalRecord, ModelRecord.site_id)
        .join(WithdrawalRecord.version)
        .join(ModelVersionRecord.model)
        .join(TokenRecord, TokenRecord.id == WithdrawalRecord.token_id)
        .where(
            WithdrawalRecord.digest == digest,
            ModelRecord.site_id != site_id,
            not_(and_(TokenRecord.pool_wide, TokenRecord.role.in_(("curator", "admin")))),
        )
    ).all()
    for withdrawal, withdrawing_id in rows:
        if not owns_data_in(session, withdrawing_id, inputs):
            withdrawal.own_only = True
    session.flush()


def is_made_elsewhere(session: Session, version: ModelVersionRecord) -> bool:
    """Return whether another site made this file from models in which its site owns nothing.

    Merges are deterministic: every site that may merge the same models gets the same file.
    """
    inputs = set(
        session.scalars(
            select(ParentRecord.parent_digest)
            .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
            .join(ModelVersionRecord.model)
            .where(
                ParentRecord.child_digest == version.digest,
                ParentRecord.followed,
                ModelVersionRecord.state != DELETED,
                ModelRecord.site_id != version.model.site_id,
            )
        )
    )
    return bool(inputs) and not owns_data_in(session, version.model.site_id, inputs)


def owns_data_in(session: Session, site_id: int, digests: Collection[str]) -> bool:
    """Return whether a site first published a parentless file among these or their ancestors."""
    first = (
        select(func.min(ModelVersionRecord.id))
        .where(
            ModelVersionRecord.digest == bindparam("digest"),
            not_(
                exists().where(
                    ParentRecord.child_digest == ModelVersionRecord.digest, ParentRecord.followed
                )
            ),
        )
        .scalar_subquery()
    )
    owner = (
        select(ModelRecord.site_id)
        .join(ModelVersionRecord, ModelVersionRecord.model_id == ModelRecord.id)
        .where(ModelVersionRecord.id == first)
    )
    roots = {
        root
        for digest in digests
        for root in session.scalars(select(ancestors_of(literal(digest)).c.digest))
    }
    return any(session.scalar(owner, {"digest": root}) == site_id for root in roots)


def family_below(session: Session, digest: str) -> Sequence[ModelVersionRecord]:
    """Return every version of a file and its descendants, with successors.

    Versions of other models with the same bytes are included; deleted ones are not.
    """
    tree = descendants_of(literal(digest))
    return session.scalars(
        bare_versions()
        .options(*successor_options())
        .where(
            ModelVersionRecord.digest.in_(select(tree.c.digest)),
            ModelVersionRecord.state != DELETED,
        )
        .order_by(ModelVersionRecord.id)
    ).all()


def visible_ids(session: Session, caller: Caller, digest: str) -> set[int]:
    """Return the ids of those versions of `family_below` that the caller may see."""
    tree = descendants_of(literal(digest))
    return set(
        session.scalars(
            select(ModelVersionRecord.id)
            .join(ModelVersionRecord.model)
            .where(ModelVersionRecord.digest.in_(select(tree.c.digest)), readable_by(caller))
        )
    )


def downloads_of_family(session: Session, digest: str) -> Sequence[Row[int, int, str]]:
    """Return (version id, site id, site name) of downloads of a file or its descendants."""
    tree = descendants_of(literal(digest))
    return session.execute(
        select(DownloadRecord.version_id, SiteRecord.id, SiteRecord.name)
        .join(SiteRecord, SiteRecord.id == DownloadRecord.site_id)
        .join(ModelVersionRecord, ModelVersionRecord.id == DownloadRecord.version_id)
        .where(ModelVersionRecord.digest.in_(select(tree.c.digest)))
    ).all()


def withdrawals_above(session: Session, digest: str) -> Sequence[WithdrawalRecord]:
    """Return the withdrawals of a file and its ancestors, with their versions."""
    tree = ancestors_of(literal(digest))
    return session.scalars(
        select(WithdrawalRecord)
        .join(WithdrawalRecord.version)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            contains_eager(WithdrawalRecord.version)
            .contains_eager(ModelVersionRecord.model)
            .options(contains_eager(ModelRecord.site), selectinload(ModelRecord.grants))
        )
        .where(WithdrawalRecord.digest.in_(select(tree.c.digest)), not_(WithdrawalRecord.own_only))
        .order_by(WithdrawalRecord.id)
    ).all()


def flagged_pairs(session: Session, withdrawal_ids: Collection[int]) -> set[tuple[int, int]]:
    """Return (version id, withdrawal id) of the flags set by these withdrawals."""
    rows = session.execute(
        select(WithdrawalFlagRecord.version_id, WithdrawalFlagRecord.withdrawal_id).where(
            WithdrawalFlagRecord.withdrawal_id.in_(withdrawal_ids)
        )
    )
    return {(version_id, withdrawal_id) for version_id, withdrawal_id in rows}


def withdrawals_of(
    session: Session, caller: Caller, digests: Collection[str]
) -> Sequence[Row[WithdrawalRecord, bool]]:
    """Return the withdrawals of these files, each with whether the caller may see its version.

    Withdrawals of visible versions come first.
    """
    is_named = _named_to(caller)
    return session.execute(
        _with_versions()
        .add_columns(is_named)
        .where(WithdrawalRecord.digest.in_(digests), or_(not_(WithdrawalRecord.own_only), is_named))
        .order_by(is_named.desc(), WithdrawalRecord.id)
    ).all()


def flagged_versions(
    session: Session, caller: Caller, digests: Collection[str]
) -> Sequence[Row[ModelVersionRecord, bool]]:
    """Return the flagged versions of these files, each with whether the caller may see it.

    They are loaded with their standing; visible versions come first.
    """
    is_flagged = exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id)
    is_named = _named_to(caller)
    return session.execute(
        _standing_versions()
        .add_columns(is_named)
        .where(ModelVersionRecord.digest.in_(digests), is_flagged)
        .order_by(is_named.desc(), ModelVersionRecord.id)
    ).all()


def visible_versions_of(
    session: Session, caller: Caller, digest: str
) -> Sequence[ModelVersionRecord]:
    """Return the versions of a file that the caller may see, with their standing."""
    return session.scalars(
        _standing_versions()
        .where(ModelVersionRecord.digest == digest, readable_by(caller))
        .order_by(ModelVersionRecord.id)
    ).all()


def refined_from(session: Session, version: ModelVersionRecord) -> list[ModelVersionRecord]:
    """Return the flagged versions of the same site that a version was refined from in rounds."""
    bases: list[ModelVersionRecord] = []
    current: ModelVersionRecord | None = version
    while current is not None:
        current = session.scalar(
            _standing_versions()
            .join(RoundRecord, RoundRecord.base_version_id == ModelVersionRecord.id)
            .where(
                RoundRecord.result_version_id == current.id,
                ModelRecord.site_id == version.model.site_id,
                ModelVersionRecord.id.notin_([version.id, *(base.id for base in bases)]),
                exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id),
            )
        )
        bases += [] if current is None else [current]
    return bases


def replaced_through(session: Session, version_id: int, site_id: int) -> set[int]:
    """Return the versions of a site that `version_id` replaces, and so its successor, too."""
    return set(
        session.scalars(
            select(SuccessorRecord.version_id)
            .join(ModelVersionRecord, ModelVersionRecord.id == SuccessorRecord.version_id)
            .join(ModelVersionRecord.model)
            .where(SuccessorRecord.successor_id == version_id, ModelRecord.site_id == site_id)
        )
    )


def successor_pairs(session: Session, successor_id: int) -> set[int]:
    """Return the versions replaced by `successor_id`."""
    return set(
        session.scalars(
            select(SuccessorRecord.version_id).where(SuccessorRecord.successor_id == successor_id)
        )
    )


def downloaders_of(session: Session, version_id: int) -> set[int]:
    """Return the sites that have downloaded a version."""
    return set(
        session.scalars(
            select(DownloadRecord.site_id).where(DownloadRecord.version_id == version_id)
        )
    )


def _named_to(caller: Caller) -> Label[bool]:
    """Select whether the caller may know the name of a version."""
    return and_(readable_by(caller)).label("is_named")


@cache
def _standing_versions() -> Select[ModelVersionRecord]:
    return granted_versions().options(*standing_options())


@cache
def _with_versions() -> Select[WithdrawalRecord]:
    return (
        select(WithdrawalRecord)
        .join(WithdrawalRecord.version)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            contains_eager(WithdrawalRecord.version).options(
                contains_eager(ModelVersionRecord.model).contains_eager(ModelRecord.site),
                *standing_options(),
            )
        )
    )
