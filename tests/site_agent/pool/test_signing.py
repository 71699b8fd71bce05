"""Keys on this machine, and trust in signatures, against a real pool that may lie.

The tests play a compromised pool by writing into its database.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from aggregators.formats import write_model
from pool_server.database.engine import Database
from pool_server.database.records import (
    LabelRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteKeyRecord,
    SiteRecord,
    StatementRecord,
    now_utc,
)
from pool_server.wire.data_use import Term
from pool_server.wire.names import ModelAddress
from pool_server.wire.signatures.keys import PrivateKey
from site_agent.errors import (
    InvalidInputError,
    PoolRefusedFileError,
    PoolRefusedRequestError,
    SignatureError,
)
from site_agent.pool import profiles, trust
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.pool.signing import create_key, load_key
from site_agent.pool.verification import chosen_policy
from tests.aggregators.small_models import make_detector
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    # Every test is a site of its own and publishes the same file.
    rights = "download,merge,redistribute"
    with pool_in_thread(tmp_path_factory.mktemp("pool"), default_rights=rights) as pool:
        yield pool


class Lab:
    """A site at work: its home is one folder, its pool the given one."""

    def __init__(self, driver: PoolDriver, site: str, folder: Path) -> None:
        self.driver, self.site, self.folder = driver, site, folder
        self.client = PoolClient(
            driver.url, driver.secret(site, "contributor"), cache=ModelCache(folder / "cache")
        )

    def sign_up(self, *, replace: bool = False) -> PrivateKey:
        made = create_key(self.client.signatures.key_folder, self.site, replace=replace)
        self.client.signatures.register_key(made.key, self.site, "laptop")
        return made.key

    def publish(self, name: str, seed: int, **fields: Any) -> str:
        path = self.folder / f"{name}.svm"
        write_model(make_detector(seed), path)
        return self.client.upload(path, f"{self.site}/{name}", **fields).version.address


_counter = iter(range(1, 1000))


@pytest.fixture
def lab(driver: PoolDriver, tmp_path: Path) -> Iterator[Lab]:
    """A site of its own for each test, with a registered key."""
    made = Lab(driver, f"lab-{next(_counter)}", tmp_path)
    with made.client:
        made.sign_up()
        yield made


@pytest.fixture
def reader(
    driver: PoolDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PoolClient]:
    """Another user, on a machine without pinned keys."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "reader"))
    with PoolClient(driver.url, driver.secret("reader", "viewer")) as client:
        yield client


@contextmanager
def inside(driver: PoolDriver) -> Iterator[Session]:
    """Change the pool's database, as only an insider can."""
    database = Database.open(driver.settings)
    try:
        with database.write() as session:
            yield session
    finally:
        database.close()


def change(driver: PoolDriver, *statements: Any) -> None:
    with inside(driver) as session:
        for statement in statements:
            session.execute(statement)


def version_id(driver: PoolDriver, address: str) -> int:
    where = ModelAddress.parse(address)
    with inside(driver) as session:
        return session.scalars(
            select(ModelVersionRecord.id)
            .join(ModelVersionRecord.model)
            .join(ModelRecord.site)
            .where(
                SiteRecord.name == where.site,
                ModelRecord.name == where.name,
                ModelVersionRecord.number == int(where.reference),
            )
        ).one()


# -- keys ---------------------------------------------------------------------------------


def test_a_key_is_kept_from_others_and_never_lost(tmp_path: Path) -> None:
    folder = profiles.key_folder("", "https://pool.example.org")
    first = create_key(folder, "site-a")
    assert folder == tmp_path / "home" / "keys" / "pool.example.org"
    assert (first.path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(InvalidInputError, match="--force"):
        create_key(folder, "site-a")
    assert load_key(folder, "site-a") == first
    second = create_key(folder, "site-a", replace=True)
    assert second.key != first.key
    kept = folder / "replaced" / f"site-a.{first.key.public.key_id[:16]}.pem"
    assert PrivateKey.from_pem(kept.read_bytes()) == first.key
    create_key(folder, "site-b")
    assert load_key(folder, "site-c") is None
    with pytest.raises(InvalidInputError, match="not a site name"):
        load_key(folder, "../site-a")


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    made = create_key(tmp_path, "site-a")
    made.path.chmod(0o640)
    with pytest.raises(InvalidInputError, match="chmod 600"):
        load_key(tmp_path, "site-a")
    made.path.chmod(0o600)
    made.path.write_text("not a key")
    with pytest.raises(InvalidInputError, match="no private key"):
        load_key(tmp_path, "site-a")


@pytest.mark.parametrize("name", [".", "..", "../../etc", "a/b", ""])
def test_no_profile_leads_out_of_the_folder_of_keys(name: str) -> None:
    endpoint = "https://pool.example.org"
    profiles.store_profile(profiles.Profile(name, endpoint, "pool_x"))
    folder = profiles.key_folder(name, endpoint)
    assert folder.parent.name == "keys"
    assert folder.name not in {".", "..", ""}
    other = profiles.key_folder(name, "https://other.example.org")
    assert other.name == "other.example.org", "the profile is one of another pool"


# -- signing and verifying ----------------------------------------------------------------


def test_uploads_are_signed_and_downloads_verified(lab: Lab, reader: PoolClient) -> None:
    address = lab.publish("face", 1, labels={"population": "infant"}, metrics={"recall": 0.9})
    first = reader.download(address)
    assert first.signature.status == "verified"
    assert "met for the first time" in first.signature.note
    again = reader.download(address)
    assert (again.signature.status, again.signature.note) == ("verified", "")
    [(pool, site, key)] = trust.all_trusted_keys()
    assert (pool, site) == (profiles.host_of(lab.driver.url), lab.site)
    assert (key.how, key.key_id) == ("first use", first.signature.key_id)
    assert trust.trust_file().stat().st_mode & 0o077 == 0


def test_without_a_key_nothing_is_signed(driver: PoolDriver, tmp_path: Path) -> None:
    lab = Lab(driver, f"lab-{next(_counter)}", tmp_path)
    with lab.client:
        address = lab.publish("face", 2)
        assert lab.client.download(address).signature.status == "unsigned"
    strict = PoolClient(driver.url, driver.secret(lab.site, "viewer"), signatures="require")
    with strict, pytest.raises(SignatureError, match="is not signed"):
        strict.download(address)


def test_a_key_that_is_not_registered_signs_nothing(driver: PoolDriver, tmp_path: Path) -> None:
    lab = Lab(driver, f"lab-{next(_counter)}", tmp_path)
    create_key(lab.client.signatures.key_folder, lab.site)
    with lab.client:
        with pytest.raises(PoolRefusedFileError) as refused:
            lab.publish("face", 3)
        assert "poolctl keys create" in refused.value.hint
        assert lab.publish("face", 3, sign=False)


def tampered(driver: PoolDriver, address: str) -> dict[str, Any]:
    """Return an insider's possible changes to a version, by a word for each."""
    number = version_id(driver, address)
    forged = PrivateKey.generate()
    with inside(driver) as session:
        statement = session.get_one(StatementRecord, number)
        envelope: dict[str, Any] = json.loads(json.dumps(statement.envelope))
        key_id, site_id = statement.key_id, statement.site_id
    cut = {**envelope, "payload": envelope["payload"][:-8]}
    retyped = {**envelope, "payloadType": "application/json"}
    broken = json.loads(json.dumps(envelope))
    broken["signatures"][0]["sig"] = broken["signatures"][0]["sig"][::-1]
    of_version = ModelVersionRecord.id == number

    def store(content: dict[str, Any]) -> Any:
        return (
            update(StatementRecord)
            .where(StatementRecord.version_id == number)
            .values(envelope=content)
        )

    return {
        "label": update(LabelRecord).where(LabelRecord.version_id == number).values(value="adult"),
        "label removed": delete(LabelRecord).where(LabelRecord.version_id == number),
        "metric": update(MetricRecord).where(MetricRecord.version_id == number).values(value=0.99),
        "description": update(ModelVersionRecord).where(of_version).values(description="Best"),
        "file name": update(ModelVersionRecord).where(of_version).values(file_name="run.sh"),
        "kind": update(ModelVersionRecord).where(of_version).values(kind="ert"),
        "digest": update(ModelVersionRecord).where(of_version).values(digest="0" * 64),
        "size": update(ModelVersionRecord).where(of_version).values(size_bytes=1),
        "payload": store(cut),
        "payload type": store(retyped),
        "signature": store(broken),
        "public key": update(SiteKeyRecord)
        .where(SiteKeyRecord.site_id == site_id, SiteKeyRecord.id == key_id)
        .values(public_key=forged.public.text),
    }


WAYS = (
    "label", "label removed", "metric", "description", "file name", "kind", "digest", "size",
    "payload", "payload type", "signature", "public key",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_was_signed_can_be_changed(lab: Lab, reader: PoolClient, way: str) -> None:
    address = lab.publish(
        "face", 10, labels={"population": "infant"}, metrics={"recall": 0.9}, description="Infants"
    )
    version = reader.version(address)
    change(lab.driver, tampered(lab.driver, address)[way])
    with pytest.raises(SignatureError) as refused:
        reader.download(address)
    assert address in str(refused.value)
    assert reader.cache.find(version.digest) is None, "nothing was fetched"
    assert list(trust.all_trusted_keys()) == [], "and nobody trusted"


def test_another_file_cannot_take_a_name(lab: Lab, reader: PoolClient) -> None:
    """A statement of one version is worth nothing on another."""
    good, other = lab.publish("good", 20), lab.publish("other", 21)
    ids = {item: version_id(lab.driver, item) for item in (good, other)}
    with inside(lab.driver) as session:
        envelope = dict(session.get_one(StatementRecord, ids[good]).envelope)
    change(
        lab.driver,
        update(StatementRecord)
        .where(StatementRecord.version_id == ids[other])
        .values(envelope=envelope),
    )
    with pytest.raises(SignatureError, match="digest"):
        reader.download(other)
    # Not even under another name with the same bytes.
    change(
        lab.driver,
        update(ModelVersionRecord)
        .where(ModelVersionRecord.id == ids[other])
        .values(digest=reader.version(good).digest, size_bytes=reader.version(good).size_bytes),
    )
    with pytest.raises(SignatureError, match="name"):
        reader.download(other)


def test_a_changed_key_is_refused_until_it_is_trusted(lab: Lab, reader: PoolClient) -> None:
    reader.download(lab.publish("face", 30))
    lab_home = lab.client.signatures.key_folder
    successor = create_key(lab_home, lab.site, replace=True).key
    known = lab.client.signatures.register_key(successor, lab.site, "desk")
    address = lab.publish("face-2", 31)
    with pytest.raises(SignatureError) as refused:
        reader.download(address)
    assert f"poolctl keys trust {lab.site} {successor.public.key_id[:16]}" in refused.value.hint
    assert successor.public.key_id[:8] in str(refused.value)
    trust.trust_keys(profiles.host_of(lab.driver.url), lab.site, [known], "trusted")
    assert reader.download(address).signature.status == "verified"
    trust.forget_keys(
        profiles.host_of(lab.driver.url),
        lab.site,
        trust.trusted_keys(profiles.host_of(lab.driver.url), lab.site),
    )
    assert "met for the first time" in reader.download(address).signature.note


def test_a_site_with_two_keys_is_met_once(lab: Lab, reader: PoolClient) -> None:
    first = lab.publish("face", 32)
    create_key(lab.client.signatures.key_folder, lab.site, replace=True)
    key = lab.client.signatures.signing_key(lab.site)
    assert key is not None
    lab.client.signatures.register_key(key.key, lab.site, "desk")
    second = lab.publish("face-2", 33)
    assert reader.download(first).signature.note
    assert reader.download(second).signature.note == ""


def test_retired_and_stolen_keys(lab: Lab, reader: PoolClient) -> None:
    address = lab.publish("face", 40)
    old = lab.client.signatures.signing_key(lab.site)
    assert old is not None
    key_id = old.key.public.key_id
    lab.client.signatures.revoke_key(lab.site, key_id, "superseded")
    assert reader.download(address).signature.status == "verified", "signed while it was valid"
    # Somebody inside the pool uses the retired key's statement for something later.
    number = version_id(lab.driver, address)
    at = StatementRecord.version_id == number
    change(lab.driver, update(StatementRecord).where(at).values(created_at=now_utc()))
    with pytest.raises(SignatureError, match="was retired on"):
        reader.download(address)
    lab.client.signatures.revoke_key(lab.site, key_id, "compromised")
    with pytest.raises(SignatureError, match="compromised") as refused:
        reader.download(address)
    assert f"poolctl models sign {lab.site}/face@1" in refused.value.hint
    with pytest.raises(PoolRefusedFileError, match="was revoked"):
        lab.publish("face-2", 41)
    # A new key signs the old version again; sites that trust the old key must be told.
    lab.sign_up(replace=True)
    assert lab.client.signatures.sign(address).key.key_id != key_id
    with pytest.raises(SignatureError):
        reader.download(address)


def test_a_signature_that_is_gone_is_missed(lab: Lab, reader: PoolClient) -> None:
    first, second = lab.publish("face", 50), lab.publish("face-2", 51)
    reader.download(first)
    number = version_id(lab.driver, second)
    change(lab.driver, delete(StatementRecord).where(StatementRecord.version_id == number))
    with pytest.raises(SignatureError, match="although"):
        reader.download(second)
    with PoolClient(
        lab.driver.url, lab.driver.secret("reader", "viewer"), signatures="ignore"
    ) as it:
        assert it.download(second).signature.status == "unchecked"
    # From before the site signed: only a warning.
    long_ago = now_utc() - timedelta(days=9)
    at = ModelVersionRecord.id == number
    change(lab.driver, update(ModelVersionRecord).where(at).values(created_at=long_ago))
    signature = reader.download(second).signature
    assert signature.status == "unsigned"
    assert "from before" in signature.warning
    # The site signs it at last.
    assert lab.client.signatures.sign(second).digest == reader.version(second).digest
    assert reader.download(second).signature.status == "verified"


def test_a_merged_model_is_signed_with_its_recipe(lab: Lab, reader: PoolClient) -> None:
    from aggregators.methods import merge

    inputs = [lab.folder / f"{number}.svm" for number in (1, 2)]
    for number, path in enumerate(inputs):
        write_model(make_detector(60 + number), path)
    merged = merge("mwma", inputs, output=lab.folder / "merged.svm")
    recipe = merged.recipe.model_dump(mode="json", by_alias=True)
    uploaded = lab.client.upload(lab.folder / "merged.svm", f"{lab.site}/merged", recipe=recipe)
    assert reader.download(uploaded.version.address).signature.status == "verified"
    unsigned = lab.client.upload(
        lab.folder / "merged.svm", f"{lab.site}/merged-2", recipe=recipe, sign=False
    )
    assert unsigned.version.signed_by is None
    lab.client.signatures.sign(unsigned.version.address)
    assert reader.download(unsigned.version.address).signature.status == "verified"


def test_a_signed_card_is_signed_again_when_it_is_written(lab: Lab, reader: PoolClient) -> None:
    address = lab.publish("face", 62, card="# Infants\n", terms=[Term(code="DUO:0000042")])
    reader.download(address)
    assert lab.client.write_card(address, "# Infants, hose in view\n").written
    assert reader.download(address).signature.status == "verified"
    assert reader.card(address).source == "# Infants, hose in view\n"
    with pytest.raises(PoolRefusedRequestError, match="the signature covers"):
        lab.client.models.write_card(address, "# Adults\n")
    lab.client.write_card(address, "---\n---\n\n# Infants\n")
    assert "# Infants\n" in reader.card(address).text
    lab.client.write_card(address, "")
    assert not reader.card(address).written
    assert reader.download(address).signature.status == "verified"


def test_the_recipe_of_a_version_is_its_own(lab: Lab, reader: PoolClient) -> None:
    """Two sites may make the same file by different recipes; each signs its own."""
    from aggregators.methods import merge

    inputs = [lab.folder / f"{number}.svm" for number in (1, 2)]
    for number, path in enumerate(inputs):
        write_model(make_detector(64 + number), path)
    output = lab.folder / "merged.svm"
    recipe = merge("mwma", inputs, output=output).recipe.model_dump(mode="json", by_alias=True)
    doubled = json.loads(json.dumps(recipe))
    for entry in doubled["inputs"]:
        entry["weight"] = 2.0
    for name, document in (("first", recipe), ("second", doubled)):
        lab.client.upload(output, f"{lab.site}/{name}", recipe=document)
        address = f"{lab.site}/{name}@1"
        assert reader.download(address).signature.status == "verified"
        recipe_ = reader.recipe(address)
        assert recipe_ is not None
        assert recipe_["inputs"][0]["weight"] == document["inputs"][0]["weight"]


def test_what_was_verified_needs_no_pool(
    lab: Lab, reader: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = lab.publish("face", 70)
    reader.download(address)
    monkeypatch.setenv("POOL_OFFLINE", "1")
    assert reader.download(address).signature.status == "verified"
    for path in (reader.cache.folder / "verified").rglob("*.json"):
        path.unlink()
    signature = reader.download(address).signature
    assert (signature.status, bool(signature.warning)) == ("unchecked", True)


def test_the_policy_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_policy() == "check"
    monkeypatch.setenv("POOL_SIGNATURES", "Require")
    assert chosen_policy() == "require"
    monkeypatch.setenv("POOL_SIGNATURES", "maybe")
    with pytest.raises(InvalidInputError, match="maybe"):
        chosen_policy()
