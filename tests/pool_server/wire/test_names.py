"""Addresses of models, taken apart."""

import pytest

from pool_server.wire.names import ModelAddress


@pytest.mark.parametrize("reference", ["", "@2", "@best", f"@sha256:{'0' * 64}"])
def test_an_address_ends_where_it_ends(reference: str) -> None:
    address = f"pool://site-a/face-68{reference}"
    assert str(ModelAddress.parse(address)) == address
    with pytest.raises(ValueError, match="is not a model address"):
        ModelAddress.parse(f"{address}\n")
