"""For any query, both databases find the same versions as a plain look at all of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session, selectinload

from pool_server.database.engine import Database, open_engine
from pool_server.database.records import ModelRecord, ModelVersionRecord
from pool_server.database.schema import upgrade_database
from pool_server.http.identity import Caller
from pool_server.registry.access import listed_for
from pool_server.registry.query import MergeKey, Order, Position, Range, read_conditions, read_words
from pool_server.registry.search import Hit, find_versions
from pool_server.settings import PoolSettings
from pool_server.wire.models import ModelQuery
from tests.benchmarks.large_pool import fill_pool

VERSIONS = 200
RELATIONS: dict[str, Any] = {"<": lt, "<=": le, ">": gt, ">=": ge}
CALLERS = [
    Caller("t", "test", 1, "admin", "admin", None, pool_wide=True),
    Caller("t", "test", 2, "site-01", "contributor", None),
    Caller("t", "test", 3, "site-02", "admin", None),
    Caller("t", "test", 30, "site-29", "viewer", None),
]


@dataclass(frozen=True)
class Plain:
    """A version as the oracle sees it."""

    version_id: int
    site: str
    name: str
    number: int
    kind: str
    state: str
    prose: str
    labels: dict[str, str]
    metrics: dict[str, float]
    merge_keys: frozenset[tuple[str, str]]


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    if request.param == "sqlite":
        settings = PoolSettings(data_folder=tmp_path_factory.mktemp("search"))
        upgrade_database(settings)
    else:
        server = request.getfixturevalue("postgres")
        settings = PoolSettings(database_url=server.make_pool_database())
    engine = open_engine(settings.engine_url)
    opened = Database(engine)
    with opened.writing_engine.begin() as connection:
        fill_pool(connection, VERSIONS)
        connection.execute(
            update(ModelVersionRecord)
            .where(ModelVersionRecord.state == "draft", ModelVersionRecord.id % 2 == 0)
            .values(state="quarantined")
        )
    yield opened
    opened.close()


def look_at_all(session: Session, caller: Caller, query: ModelQuery) -> list[Plain]:
    rows = session.scalars(
        select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            selectinload(ModelVersionRecord.model).selectinload(ModelRecord.site),
            selectinload(ModelVersionRecord.labels),
            selectinload(ModelVersionRecord.metrics),
            selectinload(ModelVersionRecord.merge_keys),
        )
        .where(listed_for(caller, query.state))
    )
    return [
        Plain(
            row.id,
            row.model.site.name,
            row.model.name,
            row.number,
            row.kind,
            row.state,
            "\n".join(
                [
                    row.model.name,
                    row.model.site.name,
                    row.model.site.display_name,
                    row.description,
                    *(f"{label.key}={label.value}" for label in row.labels),
                ]
            ).lower(),
            {label.key: label.value for label in row.labels},
            {metric.name: metric.value for metric in row.metrics},
            frozenset((key.method, key.key) for key in row.merge_keys),
        )
        for row in rows
    ]


def expected_ids(
    session: Session,
    caller: Caller,
    query: ModelQuery,
    groups: list[list[MergeKey]],
    known: dict[Any, list[Plain]] | None = None,
) -> list[int]:
    """Return the expected ids of a query, by checking every version.

    `known` caches the versions that a caller sees in a state.
    """
    order = Order.parse(query.sort)
    newest: dict[tuple[int, str], int] = {}
    for model_id, state, number in session.execute(
        select(ModelVersionRecord.model_id, ModelVersionRecord.state, ModelVersionRecord.number)
    ):
        newest[model_id, state] = max(newest.get((model_id, state), 0), number)
    rows = session.execute(select(ModelVersionRecord.id, ModelVersionRecord.model_id))
    model_ids = {version: model for version, model in rows}  # noqa: C416 - rows are no pairs

    def passes(version: Plain) -> bool:
        return all(
            [
                query.kind in {None, version.kind},
                query.site in {None, version.site},
                query.name in {None, version.name},
                all(_condition_holds(condition, version) for condition in read_conditions(query)),
                all(_word_holds(word, version) for word in read_words(query)),
                all(
                    {(merge_key.method, merge_key.key) for merge_key in group} & version.merge_keys
                    for group in groups
                ),
                not query.latest
                or newest[model_ids[version.version_id], version.state] == version.number,
                not query.latest or query.state or version.state == "available",
                order.by != "metric" or order.metric in version.metrics,
            ]
        )

    known = {} if known is None else known
    if (caller, query.state) not in known:
        known[caller, query.state] = look_at_all(session, caller, query)
    matches = [version for version in known[caller, query.state] if passes(version)]

    def key(version: Plain) -> tuple[Any, ...]:
        if order.by == "name":
            return version.name, version.site, version.number
        if order.by == "metric":
            return version.metrics[order.metric], version.version_id
        return (version.version_id,)

    matches.sort(key=key, reverse=order.descending)
    return [version.version_id for version in matches]


def _condition_holds(condition: str | Range, version: Plain) -> bool:
    if isinstance(condition, str):
        key, equals, text = condition.partition("=")
        label = version.labels.get(key)
        return label is not None and (not equals or label == text)
    if condition.table == "metrics":
        value = version.metrics.get(condition.name)
    else:
        label = version.labels.get(condition.name, "")
        value = float(label) if label.isdigit() else None
    return value is not None and bool(RELATIONS[condition.relation](value, condition.bound))


def _word_holds(word: str, version: Plain) -> bool:
    if len(word) > 2 or not word.isalnum():
        return word.lower() in version.prose
    separated = "".join(word if word.isalnum() else " " for word in version.prose)
    return word.lower() in separated.split()


def random_query(chance: random.Random) -> tuple[ModelQuery, list[list[MergeKey]]]:
    """Return random filters: some common, some rare, some contradictory."""

    def sometimes(one_in: int, *values: Any) -> Any:
        return chance.choice(values) if chance.randrange(one_in) == 0 else None

    labels = [
        sometimes(4, "population=adult", "population=infant", "population"),
        sometimes(4, "dataset_type=home", "population=child", "no-such-label"),
        sometimes(5, "images>=500", "images<200", "images>1e9", "population>1"),
    ]
    metrics = [
        sometimes(5, "mean_error<0.08", "mean_error>0.05", "mean_error<0.001"),
        sometimes(8, "time_ms<=20", "time_ms>80"),
    ]
    fields = [
        sometimes(
            4, "infant", "ADULT", "labor", "site-0", "zzz", "camera=cam", "Querzeiger", "-", "=+"
        ),
        sometimes(8, "01", "7", "ce", "zz", "ory"),
    ]
    groups = [
        [MergeKey("wba-final", "ert/68"), MergeKey("wba-cascade", "ert/68/10")],
        [MergeKey("mwma", "hog/98/8/80x80")],
    ]
    orders = ["-created", "created", "name", "-name", "metric.mean_error", "-metric.time_ms"]
    query = ModelQuery(
        kind=sometimes(4, "ert", "network", "none"),
        site=sometimes(6, "site-01", "site-02", "site-99"),
        label=[label for label in labels if label],
        metric=[metric for metric in metrics if metric],
        text=" ".join(word for word in fields if word),
        state=sometimes(3, "available", "draft", "quarantined", "withdrawn", "any"),
        latest=chance.random() < 0.2,
        sort=chance.choice([*orders, "-created", "metric.absent"]),
        limit=chance.choice([7, 40, 200]),
    )
    return query, [group for group in groups if sometimes(6, group)]


def go_on(query: ModelQuery, page: list[Hit]) -> ModelQuery:
    """Return the query for the next page, with a cursor as clients send it."""
    end = Position(page[-1].key, page[-1].version_id)
    return query.model_copy(update={"cursor": Order.parse(query.sort).write_cursor(end)})


def all_pages(
    session: Session, caller: Caller, query: ModelQuery, groups: list[list[MergeKey]]
) -> list[int]:
    """Return the items of all pages, following cursors as clients do."""
    version_ids: list[int] = []
    while True:
        page = find_versions(session, caller, query, groups, limit=query.limit)
        version_ids += [version.version_id for version in page]
        if len(page) < query.limit:
            return version_ids
        query = go_on(query, page)


@pytest.mark.parametrize("seed", range(3))
def test_random_queries_match_a_plain_search(database: Database, seed: int) -> None:
    chance = random.Random(seed)
    sizes = set()
    known: dict[Any, list[Plain]] = {}
    with database.read() as session:
        for _ in range(25):
            query, groups = random_query(chance)
            caller = chance.choice(CALLERS)
            expected = expected_ids(session, caller, query, groups, known)
            assert all_pages(session, caller, query, groups) == expected, (query, caller)
            sizes.add(len(expected))
    assert len(sizes) > 5


def _add_beside(session: Session, old: ModelVersionRecord, number: int, **fields: Any) -> None:
    """Add a version to the model of another one."""
    version = ModelVersionRecord(
        model_id=old.model_id,
        number=number,
        digest=f"{number:064x}",
        size_bytes=1,
        kind=old.kind,
        format=old.format,
        file_name="x",
        fingerprint={},
        created_by="x/y",
        token_id=old.token_id,
        **fields,
    )
    session.add(version)


def test_pages_have_no_gaps_while_versions_are_added(database: Database) -> None:
    for sort in ("-created", "name", "metric.mean_error"):
        query = ModelQuery(sort=sort, limit=20)
        with database.read() as session:
            before = expected_ids(session, CALLERS[0], query, [])
        seen: list[int] = []
        while True:
            with database.read() as session:
                page = find_versions(session, CALLERS[0], query, limit=query.limit)
            seen += [version.version_id for version in page]
            if len(page) < query.limit:
                break
            query = go_on(query, page)
            with database.write() as session:
                old = session.get_one(ModelVersionRecord, 2)
                _add_beside(session, old, len(seen) + len(sort) * 1000 + 5000)
        assert [version_id for version_id in seen if version_id in set(before)] == before
        assert len(seen) == len(set(seen))
