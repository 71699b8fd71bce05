"""The recipes in .deploy: their names and settings fit the program, and the image serves a pool.

The image's test builds a Debian with debootstrap, and the image on it with buildah, which needs
packages from outside. Where containers cannot be isolated, as in many sandboxes, buildah's chroot
isolation still runs them, on this machine's network.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from pool_server.settings import PoolSettings
from tests.architecture.test_lock import LINE, read_lock
from tests.conftest import PROJECT_ROOT
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import open_client, upload
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.swift_server import S3Server
from tests.ports import free_port
from tests.waiting import answers, wait_until

FOLDER = PROJECT_ROOT / ".deploy"
BASE = "poolctl-tests-base"
HOST_FILES = ("/etc/pip.conf", "/etc/ssl/certs")
"""Settings of pip and certificates of this machine, for the build."""


def read_compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return read


def test_the_server_s_lock_repeats_lines_of_the_whole_one() -> None:
    locked = read_lock()
    lines = (FOLDER / "requirements.lock").read_text().splitlines()
    matches = [LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(matches)
    packages = {match[1].lower(): match[2] for match in matches if match}
    whole = {name.replace("-", "_"): version for name, version in locked.items()}
    assert {name: whole.get(name.replace("-", "_")) for name in packages} == packages
    assert {"fastapi", "sqlalchemy", "boto3", "psycopg"} <= set(packages)


def test_the_recipes_set_only_settings_that_the_server_has() -> None:
    services = read_compose()["services"]
    variables = [
        name.removeprefix("POOL_SERVER_").lower() for name in services["server-1"]["environment"]
    ]
    settings = tomllib.loads((FOLDER / "poolctl.toml").read_text())
    assert set(settings) | set(variables) <= set(PoolSettings.model_fields)
    assert settings["trusted_proxies"] == services["proxy"]["networks"]["pool"]["ipv4_address"]


def test_the_recipes_name_files_services_and_variables_that_are_there() -> None:
    compose = read_compose()
    services = compose["services"]
    for service in services.values():
        mounts = [mount.split(":")[0] for mount in service.get("volumes", [])]
        assert all(
            (FOLDER / mount).is_file() if mount.startswith("./") else mount in compose["volumes"]
            for mount in mounts
        )
        assert set(service.get("depends_on", {})) <= set(services)
    variables = set(re.findall(r"\$\{(\w+):\?\}", (FOLDER / "compose.yaml").read_text()))
    assert variables == set(re.findall(r"^(\w+)=", (FOLDER / "env.example").read_text(), re.M))
    proxied = set(re.findall(r"([a-z0-9-]+):\d+", (FOLDER / "Caddyfile").read_text()))
    assert proxied == {"server-1", "server-2", "s3"}


def test_containers_are_probed_where_the_server_answers_and_write_only_to_volumes() -> None:
    job, deployment, service = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    for resource in (job, deployment):
        pod = resource["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["securityContext"]["runAsNonRoot"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        assert mounts["scratch"] == "/var/lib/poolctl"
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert [probe["path"] for probe in probes] == ["/healthz", "/readyz"]
    port = PoolSettings.model_fields["port"].default
    assert (
        {probe["port"] for probe in probes} == {port} == {service["spec"]["ports"][0]["targetPort"]}
    )
    assert f'"--port", "{port}"' in (FOLDER / "Containerfile").read_text()


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.s3
@pytest.mark.timeout(1800)
def test_the_image_serves_a_pool_from_nothing_to_a_merged_model(
    postgres: PostgresServer, swift: S3Server, tmp_path: Path
) -> None:
    image = build_image(tmp_path)
    s3 = swift.pool_settings(swift.make_bucket("image"))
    config = tmp_path / "poolctl.toml"
    config.write_text('default_visibility = "consortium"\ndefault_rights = "download,merge"\n')
    settings = {
        "POOL_SERVER_DATABASE_URL": postgres.make_database(),
        **{f"POOL_SERVER_{name.upper()}": str(value) for name, value in s3.items()},
    }
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    os.chown(scratch, 10001, 10001)
    mounts = {
        str(config): "/etc/poolctl/poolctl.toml:ro",
        str(FOLDER / "setup.sh"): "/etc/poolctl/setup.sh:ro",
        str(scratch): "/var/lib/poolctl",
        str(postgres.folder): str(postgres.folder),
    }
    with container(image) as name:
        run_in(name, mounts, settings, "sh", "/etc/poolctl/setup.sh")
        packages = json.loads(run_in(name, mounts, settings, "cat", "/opt/poolctl/sbom.json"))
        assert "fastapi" in {component["name"] for component in packages["components"]}
        recovered = run_in(name, mounts, settings, "poolctl", "admin", "recover")
        [token] = re.findall(r"pool_[A-Za-z0-9_-]{43}", recovered)
        with serving(name, mounts, settings) as first, serving(name, mounts, settings) as second:
            with open_client(first, token) as client:
                client.post("/api/v1/sites", json={"name": "site-a"}).raise_for_status()
                for model in ("one", "two"):
                    upload(client, f"site-a/{model}", network_bytes(5000))
            merge_on_pool(second, token, tmp_path)
            with open_client(first, token) as client:
                version = client.get("/api/v1/models/site-a/merged/versions/1").json()
                assert version["size_bytes"] > 5000 * 4


def build_image(folder: Path) -> str:
    """Build the image on a Debian made here, and return its name."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None or os.geteuid() != 0:
            pytest.skip(f"needs {program} (apt-get install {program}), and root")
    known = subprocess.run(["buildah", "inspect", BASE], capture_output=True, check=False)
    if known.returncode:
        packages = "python3,python3-venv,ca-certificates"
        run(
            "debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", folder / "base"
        )
        (folder / "Base").write_text("FROM scratch\nADD base /\n")
        build("-f", folder / "Base", "-t", BASE, folder)
        shutil.rmtree(folder / "base")
    mounts = [f"--volume={path}:{path}:ro" for path in HOST_FILES if Path(path).exists()]
    ignore = f"--ignorefile={FOLDER / 'Containerfile.containerignore'}"
    options = ["--format=docker", ignore, f"--build-arg=BASE=localhost/{BASE}", *mounts]
    build(*options, "-f", FOLDER / "Containerfile", "-t", "poolctl-tests", PROJECT_ROOT)
    return "localhost/poolctl-tests"


def build(*arguments: str | Path) -> None:
    run("buildah", "bud", "--isolation=chroot", "--layers", *arguments)


def run(*arguments: str | Path) -> str:
    process = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=1500)
    assert process.returncode == 0, (
        f"{arguments}\n{process.stdout[-2000:]}\n{process.stderr[-4000:]}"
    )
    return process.stdout


@contextmanager
def container(image: str) -> Iterator[str]:
    name = run("buildah", "from", image).strip()
    try:
        yield name
    finally:
        run("buildah", "rm", name)


def command_in(
    name: str, mounts: Mapping[str, str], settings: Mapping[str, str], *arguments: str
) -> list[str]:
    options = [f"--volume={source}:{target}" for source, target in mounts.items()]
    options += [f"--env={variable}={value}" for variable, value in settings.items()]
    return ["buildah", "run", "--isolation=chroot", *options, name, "--", *arguments]


def run_in(
    name: str, mounts: Mapping[str, str], settings: Mapping[str, str], *arguments: str
) -> str:
    return run(*command_in(name, mounts, settings, *arguments))


@contextmanager
def serving(name: str, mounts: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server of the image, and return its address when it is ready."""
    port = str(free_port())
    arguments = command_in(name, mounts, settings, "poolctl", "serve", "--port", port)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: process.poll() is not None or answers(url))
            assert process.poll() is None, process.stdout and process.stdout.read().decode()
            yield url
        finally:
            process.terminate()
            process.wait(540)


def merge_on_pool(url: str, token: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "POOL_HOME": str(folder / "home"),
        "POOL_TOKEN": token,
        "POOL_ENDPOINT": url,
    }
    inputs = ("site-a/one", "site-a/two")
    arguments = [sys.executable, "-m", "cli", "merge", "fedavg", *inputs]
    process = subprocess.run(
        [*arguments, "--name", "site-a/merged", "--wait"],
        env=environment,
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
