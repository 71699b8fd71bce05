"""Pictures of models: the limits of a drawing."""

from typing import Any

import pytest

from pool_server.errors import FormatRefusedError
from pool_server.jobs.limited import run_limited
from pool_server.models import pictures
from tests.pool_server.model_files import detector_bytes, network_bytes
from tests.pool_server.pool_driver import PoolDriver, upload

PICTURES = "/api/v1/pictures"


@pytest.mark.parametrize("content", [network_bytes(7), detector_bytes()], ids=["net", "svm"])
def test_models_are_drawn_within_the_limits_of_drawings(
    embedded_pool: PoolDriver, content: bytes
) -> None:
    lab = embedded_pool.member("drawn")
    digest = upload(lab, f"drawn/of-{len(content)}", content)["digest"]
    for size in ("thumb", "large"):
        picture = lab.get(f"{PICTURES}/{digest}/{size}")
        assert picture.content != pictures.NO_PICTURE
        assert len(picture.content) <= pictures.MOST_BYTES
        assert "immutable" in picture.headers["cache-control"]


@pytest.mark.parametrize("is_large", [True, False])
def test_failed_drawings_are_not_repeated(
    embedded_pool: PoolDriver, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    tries = 0

    def draw(*arguments: Any, **options: Any) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        if is_large:
            return run_limited(*arguments, **options)
        raise FormatRefusedError("drawing took longer than the pool allows")

    monkeypatch.setattr(pictures, "run_limited", draw)
    monkeypatch.setattr(pictures, "MOST_BYTES", 100)
    lab = embedded_pool.member("undrawn")
    content = network_bytes(9) if is_large else network_bytes(8)
    digest = upload(lab, "undrawn/one", content)["digest"]
    for _ in range(3):
        picture = lab.get(f"{PICTURES}/{digest}/large")
        assert picture.content == pictures.NO_PICTURE
        assert "max-age=3600" in picture.headers["cache-control"]
    assert tries == 1
