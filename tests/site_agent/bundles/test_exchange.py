"""Models move from one pool to another with their facts, and unfit bundles are refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_server.wire.data_use import Term
from pool_server.wire.signatures import KeyResponse
from pool_server.wire.signatures.keys import PrivateKey
from site_agent import ModelCache, PoolClient
from site_agent.bundles.exporting import export_bundle
from site_agent.bundles.importing import import_bundle, inspect_bundle
from site_agent.errors import BundleRefusedError, ForbiddenError, SignatureError
from site_agent.pool import profiles, trust
from site_agent.pool.signing import create_key
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.pool_server.signatures.signers import register
from tests.site_agent.bundles.made_bundles import MOMENT, record_of, signed, write_bundle


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("here")) as pool:
        yield pool


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
        for site in {"site-a", "site-b"} - {site.name for site in client.sites.list()}:
            client.sites.create(site)
        yield client


def client_of(pool: PoolDriver, site: str, folder: Path) -> PoolClient:
    return PoolClient(pool.url, pool.secret(site, "contributor"), cache=ModelCache(folder))


def test_terms_cards_and_scores_come_along(
    here: PoolDriver, there: PoolDriver, admin: PoolClient, tmp_path: Path
) -> None:
    with (
        client_of(here, "site-a", tmp_path / "a") as a,
        client_of(here, "site-b", tmp_path / "b") as b,
    ):
        create_key(a.signatures.key_folder, "site-a")
        key = a.signatures.signing_key("site-a")
        assert key is not None
        a.signatures.register_key(key.key, "site-a", "desk")
        parent, child = network_bytes(), network_bytes()
        for name, content in (("parent", parent), ("child", child)):
            (tmp_path / f"{name}.safetensors").write_bytes(content)
        health = Term(code="DUO:0000006")
        a.upload(tmp_path / "parent.safetensors", "site-a/parent", terms=[health])
        recipe = {
            "schema": "poolctl-recipe/1",
            "method": {"name": "fedavg", "version": 1},
            "options": {},
            "inputs": [{"digest": sha256(parent)}],
            "output": {"digest": sha256(child), "format": "safetensors"},
        }
        a.upload(
            tmp_path / "child.safetensors",
            "site-a/child",
            recipe=recipe,
            card="# A child\n",
            terms=[Term(code="DUO:0000019")],
        )
        for poster, site in ((a, "site-a"), (b, "site-b")):
            poster._connection.send(
                "POST",
                "/api/v1/evaluations",
                content=(
                    b'{"model": "sha256:%s", "site": "%s", "dataset": "ward", '
                    b'"dataset_digest": "%s", "scores": {"recall": {"value": 0.5}}}'
                    % (sha256(child).encode(), site.encode(), b"ab" * 32)
                ),
                headers={"Content-Type": "application/json"},
            )
        # The child alone: what it inherited must not get lost on the way.
        alone, family = tmp_path / "alone.bundle", tmp_path / "family.bundle"
        export_bundle(a, ["site-a/child"], alone, evaluations=True)
        export_bundle(a, ["site-a/child"], family, evaluations=True, with_parents=True)

    outcome = import_bundle(admin, alone)
    [version] = outcome.versions
    assert (version.evaluations, outcome.evaluations_left_out) == (2, {})
    imported = admin.version("site-a/child")
    assert {(term.code, term.inherited) for term in imported.terms} == {
        ("DUO:0000006", False),
        ("DUO:0000019", False),
    }
    assert imported.has_card
    scores = list(admin.evaluations.list("site-a/child"))
    assert sorted(score.site for score in scores) == ["site-a", "site-b"]

    again = import_bundle(admin, family)
    assert [(record.was_there, record.evaluations) for record in again.versions] == [
        (False, 0),
        (True, 0),
    ], "what is there is not said twice"
    assert len(list(admin.evaluations.list("site-a/child", history=True))) == 2
    rights = ["download", "merge", "redistribute"]
    for name in ("parent", "child"):
        admin.models.share(f"site-a/{name}", "consortium", rights=rights)
    # A token for one site brings only the scores of that site.
    with client_of(there, "site-c", tmp_path / "c") as c:
        mine = import_bundle(c, family, site_map={"site-a": "site-c"}, visibility="private")
        assert mine.evaluations_left_out == {"site-b": 1}
        child_there = c.version("site-c/child")
        assert child_there.visibility == "private"
        assert {(term.code, term.inherited) for term in child_there.terms} == {
            ("DUO:0000006", True),
            ("DUO:0000019", False),
        }
        origin = f"site-a@{profiles.host_of(here.url)}"
        assert c.signatures.verify(child_there).origin == origin
        # And what was taken in can be handed on: it still says who signed it, and where.
        onward = tmp_path / "onward.bundle"
        export_bundle(c, ["site-c/child"], onward)
        assert inspect_bundle(onward).versions[0].origin == origin


def test_who_may_not_upload_is_told_before_anything_is_sent(
    there: PoolDriver, admin: PoolClient, tmp_path: Path
) -> None:
    contents = [network_bytes(), network_bytes()]
    path = tmp_path / "x.bundle"
    records = [record_of(contents[0], "same"), record_of(contents[1], "same", site="site-b")]
    write_bundle(path, records, contents)
    with client_of(there, "site-a", tmp_path / "a") as a:
        with pytest.raises(ForbiddenError, match="may not upload to site-b"):
            import_bundle(a, path)
        with pytest.raises(ForbiddenError, match="would both become site-a/same"):
            import_bundle(a, path, site_map={"site-b": "site-a"})
    with pytest.raises(ForbiddenError, match="no models of site 'site-z'"):
        import_bundle(admin, path, site_map={"site-z": "site-a"})
    with pytest.raises(ForbiddenError, match="has no site lab-9"):
        import_bundle(admin, path, site_map={"site-a": "lab-9"})
    viewer = PoolClient(there.url, there.secret("site-a", "viewer"))
    with viewer, pytest.raises(ForbiddenError, match="may not upload"):
        import_bundle(viewer, path, site_map={"site-b": "site-a"})
    assert [model.name for model in admin.models.find() if model.name == "same"] == []


def test_who_requires_signatures_takes_in_nothing_without(
    there: PoolDriver, admin: PoolClient, tmp_path: Path
) -> None:
    """On its way a bundle may lose its signatures: nothing else in it would be wrong then."""
    content, path = network_bytes(), tmp_path / "x.bundle"
    record = record_of(content, "stripped")
    write_bundle(path, [record], [content])
    with PoolClient(there.url, there.admin_secret, signatures="require") as strict:
        with pytest.raises(SignatureError, match="is not signed"):
            import_bundle(strict, path)
        assert [model for model in admin.models.find() if model.name == "stripped"] == []
        write_bundle(path, [signed(record)], [content])
        assert import_bundle(strict, path).versions[0].signed


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
    content, path = network_bytes(), tmp_path / "x.bundle"
    write_bundle(path, [signed(record_of(content, "brought"))], [content])
    with client_of(there, "reader", tmp_path / "reader") as reader:
        reader.download("known/own")
        import_bundle(admin, path, site_map={"site-a": "known"})
        with pytest.raises(SignatureError, match=r"imported from site-a@pool\.example\.org"):
            reader.download("known/brought")
