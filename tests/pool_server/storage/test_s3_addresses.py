"""Buckets that are part of the host's name, and of the path."""

from pathlib import Path
from typing import Any

import pytest

from pool_server.settings import PoolSettings
from pool_server.storage import open_storage


@pytest.mark.parametrize(
    ("style", "endpoint_url", "expected"),
    [
        ("virtual", "https://s3.example.org", "https://face-pool.s3.example.org/"),
        ("path", "https://s3.example.org", "https://s3.example.org/face-pool/"),
        ("virtual", "", "https://face-pool.s3.eu-central-1.amazonaws.com/"),
        ("auto", "", "https://face-pool.s3.eu-central-1.amazonaws.com/"),
        ("path", "", "https://s3.eu-central-1.amazonaws.com/face-pool/"),
        # An address of numbers has no names below it.
        ("auto", "http://127.0.0.1:9000", "http://127.0.0.1:9000/face-pool/"),
        ("virtual", "http://127.0.0.1:9000", "http://127.0.0.1:9000/face-pool/"),
    ],
)
def test_forms_of_addresses(style: str, endpoint_url: str, expected: str, tmp_path: Path) -> None:
    storage: Any = open_storage(
        PoolSettings(
            data_folder=tmp_path,
            storage="s3",
            s3_bucket="face-pool",
            s3_region="eu-central-1",
            s3_endpoint_url=endpoint_url,
            s3_addressing_style=style,
            s3_access_key_id="key",
            s3_secret_access_key="secret",
        )
    )
    url = storage.bucket.sign_url("get_object", storage._lifetime, "blobs/01/0123")
    assert url.startswith(f"{expected}blobs/01/0123?")
