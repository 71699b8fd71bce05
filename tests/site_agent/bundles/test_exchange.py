"""What goes with models from one pool to another, and what a pool does not take in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.signatures.signatures import KeyResponse
from site_agent import ModelCache, PoolClient
from site_agent.bundles import import_bundle, inspect_bundle
from site_agent.errors import BundleRefusedError, SignatureError
from site_agent.pool import trust
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.pool_server.signatures.signers import register
from tests.site_agent.bundles.made_bundles import MOMENT, record_of, signed, write_bundle


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("there")) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("POOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))


@pytest.fixture
def admin(there: PoolDriver, tmp_path: Path) -> Iterator[PoolClient]:
    """The admin of the pool that takes in, with the sites of these tests."""
    cache = ModelCache(tmp_path / "there-cache")
    with PoolClient(there.url, there.admin_secret, cache=cache) as client:
        for site in {"site-a", "site-b"} - {each.name for each in client.sites.list()}:
            client.sites.create(site)
        yield client


def test_a_bundle_of_a_stolen_or_another_key_is_not_taken_in(
    admin: PoolClient, tmp_path: Path
) -> None:
    content, path = network_bytes(), tmp_path / "x.bundle"
    good = signed(record_of(content, "keyed"))
    assert good.statement is not None
    stolen = good.statement.model_copy(update={"revoked_as": "compromised"})
    write_bundle(path, [good.model_copy(update={"statement": stolen})], [content])
    with pytest.raises(BundleRefusedError, match="declared compromised"):
        import_bundle(admin, path)
    # This machine knows the site's key from the pool that it came from.
    known = PrivateKey.generate().public
    pinned = KeyResponse(
        site="site-a",
        key_id=known.key_id,
        name="desk",
        public_key=known.text,
        created_at=MOMENT,
        created_by="site-a/desk",
    )
    trust.trust_keys("pool.example.org", "site-a", [pinned], "trusted")
    write_bundle(path, [good], [content])
    assert inspect_bundle(path).versions[0].trust == "changed"
    with pytest.raises(SignatureError, match="not one that this machine trusts"):
        import_bundle(admin, path)
    trust.forget_keys("pool.example.org", "site-a", [known.key_id])
    assert import_bundle(admin, path).versions[0].signed


def test_an_imported_key_is_not_trusted_in_place_of_the_sites_own(
    there: PoolDriver, admin: PoolClient, tmp_path: Path
) -> None:
    """Who takes a file in cannot pass it off as signed by a site that readers know."""
    with client_of(there, "known", tmp_path / "known") as known:
        own = PrivateKey.generate()
        register(there.member("known"), "known", own)
        (tmp_path / "own.safetensors").write_bytes(network_bytes())
        create_key(known.signatures.key_folder, "known")
        key = known.signatures.signing_key("known")
        assert key is not None
        known.signatures.register_key(key.key, "known", "desk")
        known.upload(tmp_path / "own.safetensors", "known/own")
    content, path = network_bytes(), tmp_path / "x.bundle"
    write_bundle(path, [signed(record_of(content, "brought"))], [content])
    with client_of(there, "reader", tmp_path / "reader") as reader:
        reader.download("known/own")
        import_bundle(admin, path, site_map={"site-a": "known"})
        with pytest.raises(SignatureError, match=r"imported from site-a@pool\.example\.org"):
            reader.download("known/brought")
