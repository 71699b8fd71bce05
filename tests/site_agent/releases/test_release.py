"""Models go to hubs, registries and folders, and come back as they were or not at all."""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import httpx
import pytest
import uvicorn
import yaml
from rocrate.rocrate import ROCrate

from aggregators.formats import file_digest
from pool_server.wire.data_use import Term
from pool_server.wire.signatures.statements import canonical_json
from site_agent import ModelCache, PoolClient
from site_agent.pool.sent import read_sent
from site_agent.pool.signing import create_key
from site_agent.releases import oci
from site_agent.releases.release import parse_record, record_bytes
from tests.cli.conftest import Outcome, run_here
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.releases.hub_stub import HubStub
from tests.site_agent.releases.made_releases import record_of, signed
from tests.site_agent.releases.registry_server import PASSWORD, registry_server

PARENT, CHILD = network_bytes(seed=1), network_bytes(seed=2)
DOI = "10.5281/zenodo.1234567"
HUB_TOKEN = "hf_a_token_for_tests_only"


pytestmark = pytest.mark.usefixtures("own_home")


@dataclass(frozen=True)
class Pools:
    here: PoolDriver
    there: PoolDriver

    def run(self, pool: PoolDriver, *arguments: object) -> Outcome:
        return run_here(*arguments, POOL_ENDPOINT=pool.url, POOL_TOKEN=pool.admin_secret)

    def export(self, *place: object) -> Outcome:
        return self.run(self.here, "models", "export", "site-a/child", *place, "--json")

    def take_in(self, *place: object) -> Outcome:
        return self.run(self.there, "models", "import", *place, "--json")


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pools]:
    """A pool with a signed model, merged by a recipe, and an empty one."""
    folder = tmp_path_factory.mktemp("pools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_HOME", str(folder / "home"))
        with pool_in_thread(folder / "here") as here, pool_in_thread(folder / "there") as there:
            secret = here.secret("site-a", "contributor")
            with PoolClient(here.url, secret, cache=ModelCache(folder / "cache")) as site:
                _upload_family(site, folder)
            with PoolClient(there.url, there.admin_secret) as admin:
                admin.sites.create("site-a")
            yield Pools(here, there)


def _upload_family(site: PoolClient, folder: Path) -> None:
    create_key(site.signatures.key_folder, "site-a")
    key = site.signatures.signing_key("site-a")
    assert key is not None
    site.signatures.register_key(key.key, "site-a", "desk")
    for name, content in (("parent", PARENT), ("child", CHILD)):
        (folder / f"{name}.safetensors").write_bytes(content)
    parent = Term(code="DUO:0000006")
    site.upload(folder / "parent.safetensors", "site-a/parent", terms=[parent])
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "fedavg", "version": 1},
        "options": {},
        "inputs": [{"digest": sha256(PARENT)}],
        "output": {"digest": sha256(CHILD), "format": "safetensors"},
    }
    site.upload(
        folder / "child.safetensors",
        "site-a/child",
        recipe=recipe,
        card="# A child\n",
        labels={"doi": DOI},
        terms=[Term(code="DUO:0000019")],
    )


def test_a_record_in_the_form_of_the_first_release_is_read(tmp_path: Path) -> None:
    record = signed(record_of(PARENT))
    fields = record.model_dump(mode="json") | {"evaluations": []}
    path = tmp_path / "poolctl.json"
    path.write_bytes(canonical_json(fields) + b"\n")
    assert parse_record(path) == record
    assert b'"evaluations":[]' in record_bytes(record)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("registry") / "server"
    with registry_server(folder) as host:
        yield host, folder


@pytest.fixture
def login(registry: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the file of `docker login`."""
    known = base64.b64encode(f"lab:{PASSWORD}".encode()).decode()
    content = json.dumps({"auths": {registry[0]: {"auth": known}}})
    (tmp_path / "config.json").write_text(content)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStub]:
    """Run a stub of the hub, and point the hub's own client at it."""
    from huggingface_hub import constants

    stub = HubStub(HUB_TOKEN)
    server = uvicorn.Server(uvicorn.Config(stub.app, port=0, log_level="error"))
    with server.config.bind_socket() as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)
        for name, value in (
            ("ENDPOINT", address),
            ("HF_HUB_DISABLE_XET", True),
            ("HF_HUB_DISABLE_PROGRESS_BARS", True),
            ("HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"),
        ):
            monkeypatch.setattr(constants, name, value)
        yield stub
        server.should_exit = True
        thread.join()


def require_whole(pools: Pools, outcome: Outcome) -> None:
    """Assert that the model is there with everything, and that its signature holds there."""
    [version] = outcome.data["items"]
    assert version["digest"] == sha256(CHILD)
    with PoolClient(pools.there.url, pools.there.admin_secret) as admin:
        imported = admin.version("site-a/child")
        check = admin.signatures.verify(imported, pin=False)
        assert check.status not in ("", "unsigned"), check.words
        assert admin.card("site-a/child").source == "# A child\n"
        recipe = admin.recipe("site-a/child")
        fetched = admin.fetch(imported).path
    assert recipe is not None
    assert recipe["inputs"][0]["digest"] == sha256(PARENT)
    assert file_digest(fetched) == sha256(CHILD)
    codes = {term.code for term in imported.terms}
    assert codes == {"DUO:0000006", "DUO:0000019"}, "its own, and what it inherited"


def test_a_folder_brings_the_model_back(pools: Pools, tmp_path: Path) -> None:
    first, second = (f"{tmp_path / name}/" for name in ("first", "second"))
    for folder in (first, second):
        assert pools.export(folder, "--to", "hf").code == 0
    files = {path.relative_to(first) for path in Path(first).rglob("*") if path.is_file()}
    for file in files:
        assert Path(first, file).read_bytes() == Path(second, file).read_bytes()
    require_whole(pools, pools.take_in(first, "--from", "hf"))
    assert pools.export(first, "--to", "hf").error["code"] == "file_exists"
    refused = pools.export(first, "--to", "oci").error["message"]
    assert "expected HOST/NAME[:TAG]" in refused, "a folder has no form of a registry"


@pytest.mark.usefixtures("login")
def test_a_registry_gives_the_model_back(pools: Pools, registry: tuple[str, Path]) -> None:
    host, stored = registry
    place = f"{host}/lab/child:1"
    sent = pools.export(place, "--to", "oci")
    digest = sent.data["digest"]
    assert pools.export(f"{host}/lab/child:again", "--to", "oci").data["digest"] == digest
    require_whole(pools, pools.take_in(place, "--from", "oci"))
    require_whole(pools, pools.take_in(f"{host}/lab/child@{digest}", "--from", "oci"))
    noted = [item.pool for item in read_sent() if item.path == "/release"]
    assert noted == [f"{host}/lab/child:again", place]

    [blob] = stored.rglob(f"{sha256(CHILD)}/data")
    blob.write_bytes(CHILD[:-1] + bytes([CHILD[-1] ^ 1]))
    refused = pools.take_in(place, "--from", "oci")
    blob.write_bytes(CHILD)
    assert refused.error["code"] == "release_refused", "the registry altered a layer"


@pytest.mark.usefixtures("login")
def test_skopeo_copies_the_model_between_a_registry_and_folders(
    pools: Pools, registry: tuple[str, Path], tmp_path: Path
) -> None:
    """Another program reads and writes the artifact, and it stays the same to the byte."""
    program = shutil.which("skopeo")
    if program is None:
        pytest.skip("skopeo is not installed (apt-get install skopeo)")
    place, folder = f"{registry[0]}/lab/copied", tmp_path / "copy"
    digest = pools.export(f"{place}:1", "--to", "oci").data["digest"]
    logged_in = ["--authfile", str(tmp_path / "config.json")]
    for source, target in (
        (f"docker://{place}:1", f"oci:{folder}:1"),
        (f"oci:{folder}:1", f"docker://{place}:2"),
    ):
        plain = ["--src-tls-verify=false", "--dest-tls-verify=false"]
        subprocess.run(
            [program, "copy", "--insecure-policy", *logged_in, *plain, source, target], check=True
        )
    require_whole(pools, pools.take_in(f"{place}@{digest}", "--from", "oci"))
    require_whole(pools, pools.take_in(f"{place}:2", "--from", "oci"))


def test_a_registry_without_login_names_the_way_in(
    pools: Pools, registry: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    refused = pools.export(f"{registry[0]}/lab/other:1", "--to", "oci")
    assert (refused.code, refused.error["code"]) == (3, "forbidden")
    assert "docker login" in refused.error["hint"]


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning:httpx2")
def test_a_hub_gives_the_model_back_to_its_own_client(pools: Pools, hub: HubStub) -> None:
    for _ in range(2):
        sent = pools.export("lab/child", "--to", "hf")
    assert sent.data["digest"] == hub.commit_of("lab/child")
    assert hub.private == {"lab/child": True}
    stored = hub.files["lab/child"]
    assert set(stored) == set(sent.data["files"])
    assert stored["child.safetensors"] == CHILD
    require_whole(pools, pools.take_in("lab/child", "--from", "hf"))

    stored["child.safetensors"] = CHILD[:-1] + b"?"
    refused = pools.take_in("lab/child", "--from", "hf")
    assert refused.error["code"] == "release_refused"
    assert pools.take_in("lab/nothing", "--from", "hf").error["code"] == "not_found"


def test_every_altered_file_is_refused(pools: Pools, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    names = list(pools.export(f"{whole}/", "--to", "hf").data["files"])
    assert len(names) == 7
    for name in names:
        altered = tmp_path / "altered"
        shutil.copytree(whole, altered)
        content = bytearray((altered / name).read_bytes())
        content[len(content) // 2] ^= 1
        (altered / name).write_bytes(content)
        assert pools.take_in(altered, "--from", "hf").error["code"] == "release_refused", name
        (altered / name).unlink()
        assert pools.take_in(altered, "--from", "hf").error["code"] == "release_refused", name
        shutil.rmtree(altered)


def test_a_record_that_was_rewritten_with_all_that_follows_from_it_breaks_its_signature(
    pools: Pools, tmp_path: Path
) -> None:
    from site_agent.releases import release

    folder = tmp_path / "forged"
    assert pools.export(f"{folder}/", "--to", "hf").code == 0
    record = release.read_release(folder).record
    forged = record.model_copy(update={"terms": []})
    card = (folder / release.CARD).read_bytes()
    for name, content in release._derived_files(forged, card).items():
        (folder / name).write_bytes(content)
    refused = pools.take_in(folder, "--from", "hf")
    assert refused.error["code"] == "release_refused"
    assert "term" in refused.error["message"]


def test_a_crate_names_lineage_terms_and_files(pools: Pools, tmp_path: Path) -> None:
    folder = tmp_path / "crate"
    files = pools.export(f"{folder}/", "--to", "hf").data["files"]
    crate = ROCrate(folder)
    assert crate.root_dataset["identifier"] == f"https://doi.org/{DOI}"
    assert crate.root_dataset["license"]["text"].count("DUO:") == 2
    assert {entity.id for entity in crate.data_entities} == set(files) - {"ro-crate-metadata.json"}
    model = crate.mainEntity
    assert model["sha256"] == sha256(CHILD)
    merge = crate.dereference("#merge")
    assert [source["identifier"] for source in merge["object"]] == [f"sha256:{sha256(PARENT)}"]
    assert merge["result"] == model
    citation = yaml.safe_load((folder / "CITATION.cff").read_text())
    assert citation["identifiers"][0] == {"type": "doi", "value": DOI}


def test_a_token_for_one_scope_is_asked_for_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers.get("Authorization", "")))
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": "for-lab"})
        if request.headers.get("Authorization") == "Bearer for-lab":
            return httpx.Response(200)
        challenge = (
            'Bearer realm="https://auth.example.org/token",service="r",scope="repository:lab"'
        )
        return httpx.Response(401, headers={"WWW-Authenticate": challenge})

    monkeypatch.setattr(oci, "_stored_login", lambda _host: "bGFiOmE=")
    login = oci._Login("registry.example.org")
    with httpx.Client(transport=httpx.MockTransport(answer), auth=login) as client:
        for _ in range(2):
            assert client.get("https://registry.example.org/v2/").is_success
    assert asked[1] == (
        "https://auth.example.org/token?service=r&scope=repository%3Alab",
        "Basic bGFiOmE=",
    )
    assert len(asked) == 4, "the token is kept"
