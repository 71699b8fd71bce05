"""The page of a version and the first page: advice that fits, curves, steps that are done."""

import re
from typing import Any

from pool_server.pages.matrix import build_matrix
from pool_server.pages.model import draw_scores
from pool_server.wire.evaluations import MatrixCell, MatrixRow
from tests.pool_server.merges.merge_driver import landmark_bytes, recipe_of
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pages.browser import member_browser
from tests.pool_server.pool_driver import PoolDriver, upload


def output_of(content: bytes) -> dict[str, Any]:
    return {"output": {"digest": sha256(content), "format": "dlib-shape-predictor"}}


def test_first_steps_are_ticked_until_the_first_merge(pool: PoolDriver) -> None:
    site = "steps"
    client, browser = pool.member(site), member_browser(pool, site)
    page = browser.get("/").text
    assert "First steps" in page
    assert ">done<" not in page
    versions = [upload(client, f"{site}/one", landmark_bytes(seed)) for seed in (7401, 7402)]
    assert browser.get("/").text.count(">done<") == 1
    merged = landmark_bytes(7403)
    recipe = recipe_of(versions) | output_of(merged)
    upload(client, f"{site}/merged", merged, recipe=recipe)
    assert "First steps" not in browser.get("/").text


def test_advice_fits_the_kind_and_ends_with_a_withdrawal(pool: PoolDriver) -> None:
    client, browser = pool.member("advice"), member_browser(pool, "advice")
    upload(client, "advice/gaze", network_bytes())
    upload(client, "advice/eyes", landmark_bytes(7410))
    gaze, eyes = (browser.get(f"/models/advice/{name}").text for name in ("gaze", "eyes"))
    assert "your faces" not in gaze
    assert "test.xml" not in gaze
    assert "poolctl predict DATA --network advice/gaze@1" in gaze
    assert "Measure it on your faces: <code>poolctl evaluate advice/eyes@1 test.xml" in eyes
    path = "/api/v1/models/advice/gaze/versions/1/withdraw"
    assert client.post(path, json={"reason": "other"}).status_code == 200
    gone = browser.get("/models/advice/gaze").text
    for advice in ("Compare …", "Find models that fit", "Measure it on", "poolctl privacy"):
        assert advice not in gone
        assert advice in eyes


def test_making_again_is_advised_until_a_newer_version_is_there(pool: PoolDriver) -> None:
    client, browser = pool.member("again"), member_browser(pool, "again")
    inputs = [upload(client, f"again/in{seed}", landmark_bytes(seed)) for seed in (7420, 7421)]
    content = landmark_bytes(7422)
    recipe = recipe_of(inputs) | output_of(content)
    upload(client, "again/heir", content, recipe=recipe)
    path = "/api/v1/models/again/in7420/versions/1/withdraw"
    assert client.post(path, json={"reason": "other"}).status_code == 200
    assert "Make it again" in browser.get("/").text
    assert "poolctl merge --replay" in browser.get("/models/again/heir@1").text
    upload(client, "again/heir", landmark_bytes(7423))
    assert "Make it again" not in browser.get("/").text
    page = browser.get("/models/again/heir@1").text
    assert "poolctl merge --replay" not in page
    assert re.search(r'<a href="/models/again/heir@2">again/heir@2</a> has replaced it', page)


def test_a_curve_has_one_point_for_each_measured_version(pool: PoolDriver) -> None:
    def row(number: int, values: dict[str, float]) -> MatrixRow:
        cells = [
            MatrixCell(
                site=site, dataset="ward", dataset_digest=site * 64, split="", protocol="",
                images=None, created_at="2026-01-01T00:00:00Z", value=value, low=None, high=None,
            )
            for site, value in values.items()
        ]  # fmt: skip
        address = f"pool://a/eyes@{number}"
        return MatrixRow(address=address, digest="0" * 64, kind="ert", own_site="a", cells=cells)

    rows = [row(10, {"a": 0.05}), row(2, {"a": 0.09, "b": 0.2}), row(1, {"a": 0.07})]
    drawing = draw_scores(build_matrix("mean_error", rows))
    assert drawing is not None
    [curve] = drawing.curves
    assert [point.text for point in curve.points] == ["@1: 0.0700", "@2: 0.0900", "@10: 0.0500"]
    first, highest, last = curve.points
    assert first.x < highest.x < last.x
    assert highest.y < first.y < last.y, "up is more"
    assert draw_scores(build_matrix("mean_error", rows[:1])) is None
