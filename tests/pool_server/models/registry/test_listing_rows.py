"""A page tells of every version what is told of it alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, insert, select, update
from sqlalchemy.orm import Session

from pool_server.database.engine import Database, open_engine
from pool_server.database.records import (
    AliasRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    RecipeRecord,
    SiteKeyRecord,
    StatementRecord,
    SuccessorRecord,
    TermRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
    now_utc,
)
from pool_server.database.schema import upgrade_database
from pool_server.http.identity import Caller
from pool_server.models.registry.describing import describe_version
from pool_server.models.registry.filters import ModelQuery
from pool_server.models.registry.listing import describe_versions
from pool_server.models.registry.repository import get_version
from pool_server.models.registry.service import list_models
from pool_server.models.registry.sharing import visible_to
from pool_server.models.registry.states import listed_for
from pool_server.settings import PoolSettings
from tests.benchmarks.large_pool import fill_pool

VERSIONS = 120
# Of which less than 17 digits would tell others.
AWKWARD_NUMBERS = (0.1 + 0.2, 5e-324, 1.7976931348623157e308, -2 / 3, 1e22, 123456789.123456789)
ADMIN = Caller("t", "test", 1, "admin", "admin", None, pool_wide=True)
STRANGER = Caller("t", "test", 30, "site-29", "viewer", None)
MEMBER = Caller("t", "test", 2, "site-01", "viewer", None)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    settings = PoolSettings(data_folder=tmp_path_factory.mktemp("rows"))
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        settings = PoolSettings(database_url=server.make_pool_database())
    else:
        upgrade_database(settings)
    opened = Database(open_engine(settings.engine_url))
    with opened.writing_engine.begin() as connection:
        fill_pool(connection, VERSIONS)
    with opened.write() as session:
        add_all_else(session)
    yield opened
    opened.close()


def add_all_else(session: Session) -> None:
    """Give some versions what a large pool's do not have."""
    rows = session.execute(
        select(ModelVersionRecord.id, ModelVersionRecord.model_id, ModelVersionRecord.digest)
    ).all()
    for number, (version_id, model_id, digest) in enumerate(rows):
        if number % 3 == 0:
            session.execute(
                insert(TermRecord),
                [
                    {"version_id": version_id, "code": code, "detail": "", "inherited": inherited}
                    for code, inherited in (("DUO:0000042", True), ("DUO:0000007", False))
                ],
            )
        if number % 5 == 0:
            session.execute(
                insert(MetricRecord),
                [
                    {"version_id": version_id, "name": f"exact_{place}", "value": value}
                    for place, value in enumerate(AWKWARD_NUMBERS)
                ],
            )
        if number % 4 == 0:
            session.add(AliasRecord(model_id=model_id, name=f"a{number}", version_id=version_id))
        if number % 5 == 0:
            session.add(RecipeRecord(version_id=version_id, method="mwma", document={"a": 1}))
        if number % 6 == 0:
            site_id = session.get_one(ModelRecord, model_id).site_id
            key = SiteKeyRecord(
                site_id=site_id, id=f"{number:064x}", name=f"key-{number}", public_key="...",
                created_by="a/b", revocation="compromised" if number % 12 else "",
                revoked_at=now_utc() if number % 12 else None,
            )  # fmt: skip
            session.add(key)
            session.flush()
            session.add(
                StatementRecord(
                    version_id=version_id, site_id=site_id, key_id=key.id, envelope={},
                    origin="https://pool.example" if number % 18 else "",
                )
            )  # fmt: skip
        if number % 11 == 0:
            withdrawal = WithdrawalRecord(
                version_id=version_id, digest=digest, reason="consent-withdrawn", effect="refuse",
                created_by="a/b", token_id=f"{1:032x}",
            )  # fmt: skip
            session.add(withdrawal)
            session.flush()
            session.add(WithdrawalFlagRecord(version_id=rows[5][0], withdrawal_id=withdrawal.id))
            session.add(
                SuccessorRecord(version_id=version_id, successor_id=rows[7][0], created_by="a/b")
            )


@pytest.mark.parametrize("caller", [ADMIN, MEMBER], ids=["admin", "member"])
def test_a_page_and_a_version_say_the_same(database: Database, caller: Caller) -> None:
    with database.read() as session:
        items = list_models(session, caller, ModelQuery(state="any", limit=VERSIONS)).items
        assert len(items) > VERSIONS / 4
        for item in items:
            version = session.scalars(
                select(ModelVersionRecord.id)
                .join(ModelVersionRecord.model)
                .join(ModelRecord.site)
                .where(
                    ModelVersionRecord.digest == item.digest,
                    visible_to(caller),
                    listed_for(caller, "any"),
                )
            ).one()
            assert item == describe_version(get_version(session, version))
    told = {field for each in items for field in each.model_dump(exclude_defaults=True)}
    assert told >= {"labels", "metrics", "terms", "aliases", "signed_by", "parent_digests"}
    if caller is ADMIN:
        assert told >= {"withdrawal", "flags", "successors"}


def test_what_a_caller_is_not_shown_is_not_described(database: Database) -> None:
    """Even if it were found: what is described does not depend on the search alone."""
    with database.read() as session:
        versions = range(1, VERSIONS + 1)
        seen = {
            caller: {each.digest for each in describe_versions(session, caller, versions, None)}
            for caller in (ADMIN, MEMBER)
        }
        hidden = session.scalars(
            select(ModelVersionRecord.digest)
            .join(ModelVersionRecord.model)
            .where(ModelRecord.visibility == "private", ModelRecord.site_id != MEMBER.site_id)
        ).all()
    assert seen[ADMIN] & set(hidden)
    assert seen[MEMBER]
    assert not seen[MEMBER] & set(hidden)


STATES = [None, "available", "draft", "quarantined", "withdrawn", "any", "deleted"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("caller", [ADMIN, MEMBER, STRANGER], ids=["admin", "member", "stranger"])
def test_what_is_described_is_what_the_conditions_say(
    database: Database, caller: Caller, state: Any
) -> None:
    with database.look() as session:
        told = describe_versions(session, caller, range(1, VERSIONS + 1), state)
        expected = session.scalars(
            select(ModelVersionRecord.digest)
            .join(ModelVersionRecord.model)
            .where(visible_to(caller), listed_for(caller, state))
            .order_by(ModelVersionRecord.id)
        ).all()
    assert [each.digest for each in told] == list(expected)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_what_is_changed_between_two_queries_is_not_shown(database: Database) -> None:
    """A flagged version of another site is put into quarantine while it is being described."""
    with database.look() as session:
        marked = next(
            each
            for each in describe_versions(session, MEMBER, range(1, VERSIONS + 1), "available")
            if each.flags and each.site != MEMBER.site
        )
    changed = False

    def change(state: str) -> None:
        with database.write() as session:
            session.execute(
                update(ModelVersionRecord)
                .where(ModelVersionRecord.digest == marked.digest)
                .values(state=state)
            )

    def interfere(_c: Any, _cur: Any, statement: str, *_rest: Any) -> None:
        nonlocal changed
        is_second = "FROM model_versions" in statement and "json_agg" not in statement
        if not changed and is_second:
            changed = True
            change("quarantined")

    event.listen(database.engine, "before_cursor_execute", interfere)
    try:
        with database.look() as session:
            told = describe_versions(session, MEMBER, range(1, VERSIONS + 1), None)
    finally:
        event.remove(database.engine, "before_cursor_execute", interfere)
        change("available")
    assert changed
    assert marked.digest not in {each.digest for each in told}
