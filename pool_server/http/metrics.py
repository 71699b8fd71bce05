"""Counters and gauges of the server, in the form that Prometheus reads.

Each process counts for itself and answers for itself; shared state (uploads under way, waiting
merges) is the same from every process. Routes are counted by their template, never by the path
asked for, and methods that no route has as one: names of sites and models stay out, and nobody
can make an endless number of series.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from pool_server.database.engine import Database
from pool_server.database.records import OPEN_UPLOADS, MergeJobRecord, UploadRecord, kept_files
from pool_server.errors import PoolError
from pool_server.http.paths import API_PREFIX
from pool_server.storage import Storage

CONTENT_TYPE = CONTENT_TYPE_LATEST
OPEN_MERGES = ("queued", "running")
ENDED_MERGES = ("finished", "failed", "cancelled")
UNKNOWN_ROUTE = "unknown"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
# From a fast answer to the check of a large file.
DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


class PoolMetrics:
    """The counters of one server process."""

    def __init__(self, database: Database, storage: Storage) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "pool_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._durations = Histogram(
            "pool_request_duration_seconds",
            "Time from the request's head to the answer's end.",
            ["method", "route"],
            buckets=DURATIONS_S,
            registry=self._registry,
        )
        self._received = Counter(
            "pool_received_bytes", "Bytes of requests' bodies.", registry=self._registry
        )
        self._sent = Counter(
            "pool_sent_bytes", "Bytes of answers' bodies.", registry=self._registry
        )
        self._refused_uploads = Counter(
            "pool_uploads_refused",
            "Uploads that were whole and did not become a version, by the reason's code.",
            ["code"],
            registry=self._registry,
        )
        self._registry.register(_Shared(database))
        Gauge(
            "pool_storage_up", "Whether the storage answers.", registry=self._registry
        ).set_function(lambda: _answers(storage))
        Gauge(
            "pool_database_connections_in_use",
            "Of this process, at this moment.",
            registry=self._registry,
        ).set_function(getattr(database.engine.pool, "checkedout", lambda: 0))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def count(
        self, method: str, route: str, status: int, *, received: int, sent: int, duration_s: float
    ) -> None:
        """Count one request that was answered."""
        method = method if method in METHODS else OTHER_METHOD
        self._requests.labels(method, route, str(status)).inc()
        self._durations.labels(method, route).observe(duration_s)
        self._received.inc(received)
        self._sent.inc(sent)

    def count_refused_upload(self, code: str) -> None:
        """Count a file that was sent as a whole and refused, by the code of the error."""
        self._refused_uploads.labels(code).inc()

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self._registry)


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the full template of the route that handled a request, from a fixed set of labels.

    `scope["route"].path` lacks the prefix of the API's router, which is the only one.
    """
    template = getattr(scope.get("route"), "path", None)
    if template is None:
        return UNKNOWN_ROUTE
    prefix = API_PREFIX if scope["path"].startswith(f"{API_PREFIX}/") else ""
    return f"{prefix}{template}"


def _answers(storage: Storage) -> bool:
    try:
        storage.check()
    except PoolError:
        return False
    return True


class _Shared(Collector):
    """Gauges that are read from the database when Prometheus asks for them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Describe nothing beforehand: the database may not exist yet."""
        return []

    def collect(self) -> Iterable[Metric]:
        answers = GaugeMetricFamily("pool_database_up", "Whether the database answers.")
        try:
            families = list(self._read())
        except (PoolError, SQLAlchemyError):
            answers.add_metric([], 0)
            yield answers
            return
        answers.add_metric([], 1)
        yield answers
        yield from families

    def _read(self) -> Iterable[Metric]:
        with self._database.read() as session:
            uploads = dict(
                session.execute(
                    select(UploadRecord.state, func.count())
                    .where(UploadRecord.state.in_(OPEN_UPLOADS))
                    .group_by(UploadRecord.state)
                ).all()
            )
            merges = dict(
                session.execute(
                    select(MergeJobRecord.state, func.count()).group_by(MergeJobRecord.state)
                ).all()
            )
            stored_bytes = session.scalar(select(func.sum(kept_files().subquery().c.size_bytes)))
        for name, text, states, counts in (
            ("pool_uploads", "Uploads under way.", OPEN_UPLOADS, uploads),
            ("pool_merges", "Merges that wait or run.", OPEN_MERGES, merges),
        ):
            family = GaugeMetricFamily(name, text, labels=["state"])
            for state in states:
                family.add_metric([state], counts.get(state, 0))
            yield family
        # Jobs are kept for good, and so their number only grows.
        ended = CounterMetricFamily("pool_merges_ended", "Merges that are over.", labels=["state"])
        for state in ENDED_MERGES:
            ended.add_metric([state], merges.get(state, 0))
        yield ended
        stored = GaugeMetricFamily("pool_stored_bytes", "Bytes of all files, each counted once.")
        stored.add_metric([], int(stored_bytes or 0))
        yield stored
