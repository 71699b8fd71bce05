"""A large pool, made at once: the same sites, models, labels and lineage in every run.

Rows go into the tables directly; through the interface it would take hours. They look like those
of a real consortium: a few sites have most models, few words are frequent and most are rare, a part
is private or shared with some sites, and some versions are drafts, quarantined or withdrawn.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Connection, insert, literal, text

from pool_server.database.records import (
    GrantRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    Record,
    SiteRecord,
    TokenRecord,
)
from pool_server.http.identity import hash_secret

SITES = 60
VERSIONS_OF_A_MODEL = 5
ANCESTORS = 1000
ROWS_AT_A_TIME = 5000
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)

POPULATIONS = ("adult", "adult", "adult", "infant", "infant", "child", "older-adult")
DATA_SETS = ("laboratory", "laboratory", "laboratory", "home", "clinic", "synthetic")
ORIENTATIONS = ("frontal", "frontal", "left", "right")
KINDS = ("ert",) * 6 + ("hog-svm",) * 3 + ("network",)
VISIBILITIES = ("consortium",) * 12 + ("private",) * 5 + ("sites",) * 3
STATES = ("available",) * 92 + ("draft",) * 3 + ("quarantined",) * 2 + ("withdrawn",) * 3
FORMATS = {"ert": "dlib-shape-predictor", "hog-svm": "dlib-fhog", "network": "safetensors"}
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so")


@dataclass
class LargePool:
    """A filled pool, as far as benchmarks need it.

    Attributes
    ----------
    secrets : dict
        Token secrets by site name; ``admin`` has the whole pool's.
    youngest : str
        Address of the version that has `ancestors` ancestors.
    """

    versions: int
    secrets: dict[str, str] = field(default_factory=dict)
    youngest: str = ""
    ancestors: int = 0


def fill_pool(connection: Connection, versions: int, seed: int = 7) -> LargePool:
    """Fill an empty database of the newest schema with that many versions."""
    chance = random.Random(seed)
    pool = LargePool(versions)
    sites = _add_sites(connection, pool)
    models = _add_models(connection, chance, versions, sites)
    _add_versions(connection, chance, pool, models, sites)
    _count_on(connection)
    return pool


def secret_of(name: str) -> str:
    """Return the token secret of a site of the benchmark; a real one is random."""
    return "pool_" + hashlib.sha256(name.encode()).hexdigest()[:43]


def _add_sites(connection: Connection, pool: LargePool) -> list[str]:
    names = ["admin", *(f"site-{number:02d}" for number in range(1, SITES + 1))]
    connection.execute(
        insert(SiteRecord),
        [{"name": name, "display_name": f"Laboratory {name}", "contact": ""} for name in names],
    )
    pool.secrets = {name: secret_of(name) for name in names}
    connection.execute(
        insert(TokenRecord),
        [
            {
                "id": f"{number:032x}",
                "site_id": number,
                "name": "benchmark",
                "role": "admin" if name == "admin" else "contributor",
                "pool_wide": name == "admin",
                "secret_hash": hash_secret(pool.secrets[name]),
            }
            for number, name in enumerate(names, 1)
        ],
    )
    return names


def _add_models(
    connection: Connection, chance: random.Random, versions: int, sites: list[str]
) -> list[dict[str, Any]]:
    # Zipf's law: the first site has sixty times as many as the last.
    weights = [1 / rank for rank in range(1, len(sites))]
    count = max(1, versions // VERSIONS_OF_A_MODEL)
    models: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        site = 2 + chance.choices(range(len(weights)), weights)[0]
        models.append(
            {
                "id": number,
                "site_id": site,
                "name": f"{_word(chance, 2)}-{number}",
                "kind": chance.choice(KINDS),
                "visibility": chance.choice(VISIBILITIES),
            }
        )
    _insert(connection, ModelRecord, models)
    grants = [
        {"model_id": model["id"], "site_id": site, "rights": ["download"]}
        for model in models
        if model["visibility"] == "sites"
        for site in chance.sample(range(2, len(sites) + 1), 3)
        if site != model["site_id"]
    ]
    _insert(connection, GrantRecord, grants)
    return models


def _add_versions(
    connection: Connection,
    chance: random.Random,
    pool: LargePool,
    models: list[dict[str, Any]],
    sites: list[str],
) -> None:
    vocabulary = [_word(chance, chance.randint(2, 4)) for _ in range(2000)]
    usual = [1 / rank for rank in range(1, len(vocabulary) + 1)]
    cameras = [f"camera {_word(chance, 3)} {number}" for number in range(300)]
    numbers = dict.fromkeys((model["id"] for model in models), 0)
    chosen = {table: [] for table in (ModelVersionRecord, LabelRecord, MetricRecord)}
    rows: dict[type[Record], list[dict[str, Any]]] = {**chosen, MergeKeyRecord: []}
    digests: list[str] = []
    for identifier in range(1, pool.versions + 1):
        model = models[chance.randrange(len(models))]
        numbers[model["id"]] += 1
        digests.append(hashlib.sha256(f"version {identifier}".encode()).hexdigest())
        description = [word.capitalize() for word in chance.choices(vocabulary, usual, k=9)]
        parts = chance.choice((68, 68, 68, 51, 98))
        rows[ModelVersionRecord].append(
            {
                "id": identifier,
                "model_id": model["id"],
                "number": numbers[model["id"]],
                "digest": digests[-1],
                "size_bytes": chance.randrange(10**5, 10**8),
                "kind": model["kind"],
                "format": FORMATS[model["kind"]],
                "file_name": f"{model['name']}.dat",
                "description": " ".join(description),
                "state": chance.choice(STATES),
                "fingerprint": {"kind": model["kind"], "parts": parts, "levels": 10, "trees": 5000},
                "created_at": BEGINNING + timedelta(minutes=5 * identifier),
                "created_by": f"{sites[model['site_id'] - 1]}/benchmark",
                "token_id": f"{model['site_id']:032x}",
            }
        )
        labels = {
            "population": chance.choice(POPULATIONS),
            "dataset_type": chance.choice(DATA_SETS),
            "images": str(int(chance.lognormvariate(6, 1)) + 1),
            "camera": cameras[min(int(chance.expovariate(0.02)), 299)],
        }
        rows[LabelRecord] += [
            {"version_id": identifier, "key": key, "value": value} for key, value in labels.items()
        ]
        metrics = {"mean_error": chance.lognormvariate(-2.6, 0.3), "time_ms": chance.uniform(1, 90)}
        rows[MetricRecord] += [
            {"version_id": identifier, "name": name, "value": value}
            for name, value in metrics.items()
        ]
        rows[MergeKeyRecord] += [
            {"version_id": identifier, "method": method, "key": key}
            for method, key in _merge_keys(model["kind"], parts, digests[-1]).items()
        ]
        if identifier == pool.versions:
            pool.youngest = f"{sites[model['site_id'] - 1]}/{model['name']}@{numbers[model['id']]}"
            # Available to every caller.
            rows[ModelVersionRecord][-1]["state"] = "available"
        if identifier % ROWS_AT_A_TIME == 0 or identifier == pool.versions:
            for table, some in rows.items():
                _insert(connection, table, some)
                some.clear()
    _add_lineage(connection, pool, digests)


def _add_lineage(connection: Connection, pool: LargePool, digests: list[str]) -> None:
    """Make the last version the root of a tree of merges of two, by number of its ancestors."""
    pool.ancestors = min(ANCESTORS, len(digests) - 1)
    family = [*reversed(digests[-pool.ancestors - 1 :])]
    first = len(digests)
    edges = [
        {
            "version_id": first - child,
            "position": position,
            "child_digest": family[child],
            "parent_digest": family[parent],
            "weight": 1.0,
            "method": "wba-cascade",
        }
        for child in range(len(family))
        for position, parent in enumerate((2 * child + 1, 2 * child + 2))
        if parent < len(family)
    ]
    _insert(connection, ParentRecord, edges)


def _merge_keys(kind: str, parts: int, digest: str) -> dict[str, str]:
    if kind == "ert":
        return {
            "wba-cascade": f"ert/{parts}/10",
            "wba-final": f"ert/{parts}",
            "leaf-refit": f"ert/{digest}",
        }
    if kind == "hog-svm":
        return {"mwma": f"hog/{parts}/8/80x80"}
    return {"fedavg": f"network/{digest[:2]}"}


def _word(chance: random.Random, syllables: int) -> str:
    return "".join(chance.choices(SYLLABLES, k=syllables))


def _insert(connection: Connection, table: type[Record], rows: Iterable[dict[str, Any]]) -> None:
    waiting: Iterator[dict[str, Any]] = iter(rows)
    # A statement that returns something takes many rows.
    statement = insert(table).returning(literal(1))
    while some := list(islice(waiting, ROWS_AT_A_TIME)):
        connection.execute(statement, some)


def _count_on(connection: Connection) -> None:
    """Let PostgreSQL give the next new row the next number."""
    if connection.dialect.name == "postgresql":
        for table in ("models", "model_versions"):
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
                )
            )
