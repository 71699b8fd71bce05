"""The server's own metrics."""

import json
import re
import shutil
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import PROJECT_ROOT
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    pool_in_process,
    send_parts,
    upload,
)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_their_route(embedded_pool: PoolDriver) -> None:
    pool = embedded_pool
    member = pool.member("metrics-site")
    upload(member, "metrics-site/secret-name")
    announce(member, "metrics-site/half", b"x" * 100)
    assert member.get("/api/v1/models/metrics-site/nothing").status_code == 404
    assert member.get("/no/such/page").status_code == 404
    answer = pool.admin.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    counts = samples(answer.text)
    shown = [
        ("method", "GET"), ("route", "/api/v1/models/{site}/{name}"), ("status", "404"),
    ]  # fmt: skip
    assert counts["pool_requests_total", tuple(shown)] >= 1
    lost = [("method", "GET"), ("route", "unknown"), ("status", "404")]
    assert counts["pool_requests_total", tuple(lost)] >= 1
    assert counts["pool_received_bytes_total", ()] > 0
    assert counts["pool_database_up", ()] == 1
    assert counts["pool_uploads", (("state", "receiving"),)] >= 1
    count = (
        "pool_request_duration_seconds_count",
        (("method", "POST"), ("route", "/api/v1/uploads")),
    )
    assert counts[count] >= 2
    for name in ("metrics-site", "secret-name", pool.admin_secret):
        assert name not in answer.text


def test_stored_models_and_refusals_are_counted(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:

        def now(name: str, **labels: str) -> float:
            counts = samples(pool.admin.get("/metrics").text)
            return counts.get((name, tuple(sorted(labels.items()))), 0)

        member, content = pool.member("kept"), network_bytes()
        for name in ("once", "twice"):
            upload(member, f"kept/{name}", content)
        assert now("pool_stored_bytes") == len(content)
        broken = announce(member, "kept/broken", b"x" * 100).json()
        send_parts(member, broken, b"x" * 100)
        assert complete(member, broken).status_code == 422
        assert now("pool_uploads_refused_total", code="format_refused") == 1
        assert now("pool_storage_up") == 1
        shutil.rmtree(tmp_path / "storage" / "uploads")
        assert (now("pool_storage_up"), now("pool_database_up")) == (0, 1)


NAMES = {
    "pool_database_connections_in_use",
    "pool_database_up",
    "pool_merges",
    "pool_merges_ended",
    "pool_received_bytes",
    "pool_request_duration_seconds",
    "pool_requests",
    "pool_sent_bytes",
    "pool_storage_up",
    "pool_stored_bytes",
    "pool_uploads",
    "pool_uploads_refused",
}
"""Boards and alarms of operators depend on them."""


def test_the_board_asks_for_metrics_of_the_fixed_set_of_names(embedded_pool: PoolDriver) -> None:
    families = list(text_string_to_metric_families(embedded_pool.admin.get("/metrics").text))
    names = {family.name.removesuffix("_created") for family in families}
    assert {name for name in names if name.startswith("pool_")} == NAMES
    board = json.loads((PROJECT_ROOT / "pool_server" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    metrics = re.findall(r"\b(?:pool|process)_[a-z_]+", " ".join(asked))
    shown = {re.sub(r"_(total|bucket)$", "", name) for name in metrics}
    assert shown >= NAMES, "the board shows every metric of the pool"
    assert shown <= names, "and no other than those that there are"
