"""Models come into a pool from another one, and unfit ones are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_server.wire.signatures import KeyResponse
from pool_server.wire.signatures.keys import PrivateKey
from site_agent import ModelCache, PoolClient
from site_agent.errors import ForbiddenError, ReleaseRefusedError, SignatureError
from site_agent.pool import trust
from site_agent.pool.signing import create_key
from site_agent.releases.importing import check_record, import_version
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.pool_server.signatures.signers import register
from tests.site_agent.releases.made_releases import KEY, MOMENT, record_of, signed

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("there")) as pool:
        yield pool


@pytest.fixture
def admin(there: PoolDriver, tmp_path: Path) -> Iterator[PoolClient]:
    """The admin of the pool that takes in, with the sites of these tests."""
    cache = ModelCache(tmp_path / "there-cache")
    with PoolClient(there.url, there.admin_secret, cache=cache) as client:
        for site in {"site-a", "site-b"} - {site.name for site in client.sites.list()}:
            client.sites.create(site)
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(network_bytes())
    return path


def client_of(pool: PoolDriver, site: str, folder: Path) -> PoolClient:
    return PoolClient(pool.url, pool.secret(site, "contributor"), cache=ModelCache(folder))


def test_who_may_not_upload_is_told_before_anything_is_sent(
    there: PoolDriver, admin: PoolClient, file: Path
) -> None:
    record = record_of(file.read_bytes(), "same", site="site-b")
    with (
        client_of(there, "site-a", file.parent / "a") as a,
        pytest.raises(ForbiddenError, match="may not upload to site-b"),
    ):
        import_version(a, record, file)
    with pytest.raises(ForbiddenError, match="no model of site 'site-z'"):
        import_version(admin, record, file, site_map={"site-z": "site-a"})
    with pytest.raises(ForbiddenError, match="has no site lab-9"):
        import_version(admin, record, file, site_map={"site-b": "lab-9"})
    viewer = PoolClient(there.url, there.secret("site-a", "viewer"))
    with viewer, pytest.raises(ForbiddenError, match="may not upload"):
        import_version(viewer, record, file, site_map={"site-b": "site-a"})
    assert [model.name for model in admin.models.find() if model.name == "same"] == []


def test_who_requires_signatures_takes_in_nothing_without(
    there: PoolDriver, admin: PoolClient, file: Path
) -> None:
    """On its way an export may lose its signature: nothing else in it would be wrong then."""
    record = record_of(file.read_bytes(), "stripped")
    with PoolClient(there.url, there.admin_secret, signatures="require") as strict:
        with pytest.raises(SignatureError, match="is not signed"):
            import_version(strict, record, file)
        assert [model for model in admin.models.find() if model.name == "stripped"] == []
        assert import_version(strict, signed(record), file).signed
        assert import_version(strict, signed(record), file).was_there


def test_a_release_of_a_stolen_or_another_key_is_not_taken_in(
    admin: PoolClient, file: Path
) -> None:
    good = signed(record_of(file.read_bytes(), "keyed"))
    assert good.statement is not None
    stolen = good.statement.model_copy(update={"revoked_as": "compromised"})
    with pytest.raises(ReleaseRefusedError, match="declared compromised"):
        import_version(admin, good.model_copy(update={"statement": stolen}), file)
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
    with pytest.raises(SignatureError, match="not one that this machine trusts"):
        import_version(admin, good, file)
    trust.forget_keys("pool.example.org", "site-a", [known.key_id])
    assert import_version(admin, good, file).signed


def test_a_record_that_contradicts_its_signature_is_refused(file: Path) -> None:
    content = file.read_bytes()
    good = signed(record_of(content))
    assert good.statement is not None
    foreign = good.statement.model_copy(update={"public_key": "A" * 43 + "="})
    unknown = good.statement.model_copy(update={"origin": None})
    cases = {
        "does not hold": good.model_copy(update={"statement": foreign}),
        "the site and pool": good.model_copy(update={"statement": unknown}),
        "labels": good.model_copy(update={"labels": {"population": "adult"}}),
        "metrics": good.model_copy(update={"metrics": {"mean_error": 0.01}}),
        "site": signed(record_of(content), site="site-b"),
        "recipe": signed(record_of(content), recipe_digest="0" * 64),
        "terms": signed(record_of(content), terms=[{"code": "DUO:0000006"}]),
        "does not have the digest": signed(record_of(content + b"more")),
    }
    assert check_record(good, file) == KEY.public
    for named, record in cases.items():
        with pytest.raises(ReleaseRefusedError, match=named):
            check_record(record, file)


def test_a_recipe_of_another_model_is_refused(file: Path) -> None:
    content = file.read_bytes()
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "fedavg", "version": 1},
        "options": {},
        "inputs": [{"digest": "1" * 64, "weight": 1.0, "address": None, "file_name": None}],
        "output": {"digest": record_of(content).digest, "format": "safetensors"},
    }
    good = record_of(content, recipe=recipe, parents=["1" * 64])
    check_record(good, file)
    other = recipe | {"output": {"digest": "3" * 64, "format": "safetensors"}}
    cases = {
        "no recipe": good.model_copy(update={"recipe": None}),
        "recipe makes": good.model_copy(update={"recipe": other}),
        "not the inputs": good.model_copy(update={"parents": ["2" * 64]}),
    }
    for named, record in cases.items():
        with pytest.raises(ReleaseRefusedError, match=named):
            check_record(record, file)


def test_an_imported_key_is_not_trusted_in_place_of_the_sites_own(
    there: PoolDriver, admin: PoolClient, file: Path, tmp_path: Path
) -> None:
    """An importer cannot pass a file off as signed by a site that readers know."""
    with client_of(there, "known", tmp_path / "known") as known:
        own_key = PrivateKey.generate()
        register(there.member("known"), "known", own_key)
        (tmp_path / "own.safetensors").write_bytes(network_bytes())
        create_key(known.signatures.key_folder, "known")
        key = known.signatures.signing_key("known")
        assert key is not None
        known.signatures.register_key(key.key, "known", "desk")
        known.upload(tmp_path / "own.safetensors", "known/own")
    with client_of(there, "reader", tmp_path / "reader") as reader:
        reader.download("known/own")
        record = signed(record_of(file.read_bytes(), "brought"))
        import_version(admin, record, file, site_map={"site-a": "known"})
        with pytest.raises(SignatureError, match=r"imported from site-a@pool\.example\.org"):
            reader.download("known/brought")
