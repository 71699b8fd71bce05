"""A real S3 server for tests: OpenStack Swift with its s3api, which checks every signature.

    with swift_server(folder) as s3:
        bucket = s3.make_bucket("pool")

Proxy, account, container and object server run in one process on loopback ports that the system
chooses, each behind a ring of one device; a second later they answer. Nothing is replicated and
nothing outlives `folder`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pool_server.postgres_server import unique_name

ACCESS_KEY_ID = "pool:tester"
SECRET_ACCESS_KEY = "a-secret-for-tests-only"
REGION = "us-east-1"
DOMAIN = "localhost"
# S3's own least is 5 MiB; with less, files of a few kilobytes already come in parts.
LEAST_PART_BYTES = 1

_COMMON = """
[DEFAULT]
bind_ip = 127.0.0.1
workers = 0
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
disable_fallocate = true
log_level = WARNING
log_custom_handlers = tests.pool_server.swift_server.log_to_stderr
"""
# Larger pieces than Swift's own for hard disks of 2010: the test's time goes into the bytes. And
# more patience than half a second, after which objects would be missing from listings: what runs
# here shares its processors with the tests.
_STORE = """
[app:main]
use = egg:swift#{kind}
network_chunk_size = 1048576
conn_timeout = 60
node_timeout = 120
container_update_timeout = 60
disk_chunk_size = 1048576
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
object_chunk_size = 1048576
client_chunk_size = 1048576
conn_timeout = 60
node_timeout = 120
error_suppression_limit = 1000000
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {secret} .admin
[filter:s3api]
use = egg:swift#s3api
location = {region}
# A bucket may also be part of the host's name.
storage_domain = {domain}
min_segment_size = {least_part_bytes}
max_upload_part_num = 10000
[filter:cache]
paste.filter_factory = tests.pool_server.swift_server:memory_cache_factory
"""
_PLAIN_FILTERS = ("catch_errors", "gatekeeper", "listing_formats", "copy", "slo", "dlo")


@dataclass(frozen=True)
class S3Server:
    """Address and keys of an S3 server for tests.

    Attributes
    ----------
    process_id : int
        Of the server, for tests that kill it or look at its memory.
    settings : mapping
        Fields of `PoolSettings` that this server needs besides, such as the least part size.
    """

    endpoint_url: str
    access_key_id: str
    secret_access_key: str
    region: str
    process_id: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def client(self, **config: Any) -> Any:
        """Return a boto3 client."""
        # Not atop: the server that this module also is needs neither.
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}, **config),
        )

    def make_bucket(self, name: str) -> str:
        """Make an empty bucket and return its name, which begins with `name`."""
        name = f"{name}-{unique_name()}"
        self.client().create_bucket(Bucket=name)
        return name

    def pool_settings(self, bucket: str, **fields: Any) -> dict[str, Any]:
        """Return the fields of `PoolSettings` for a pool that keeps its files in `bucket`."""
        return {
            "storage": "s3",
            "s3_bucket": bucket,
            "s3_endpoint_url": self.endpoint_url,
            "s3_region": self.region,
            "s3_access_key_id": self.access_key_id,
            "s3_secret_access_key": self.secret_access_key,
            **self.settings,
            **fields,
        }

    def pool_environment(self, bucket: str, **fields: Any) -> dict[str, str]:
        """Return the same as environment variables, for a pool in a process of its own."""
        chosen = self.pool_settings(bucket, **fields)
        return {f"POOL_SERVER_{name.upper()}": str(value) for name, value in chosen.items()}


@contextmanager
def swift_server(folder: Path, *, least_part_bytes: int = LEAST_PART_BYTES) -> Iterator[S3Server]:
    """Run Swift in a process of its own, with all its files below `folder`."""
    server = start_swift(folder, least_part_bytes=least_part_bytes)
    try:
        yield server
    finally:
        os.kill(server.process_id, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(server.process_id, 0)


def start_swift(folder: Path, *, least_part_bytes: int = LEAST_PART_BYTES) -> S3Server:
    """Start Swift; the caller kills it."""
    folder.mkdir(parents=True, exist_ok=True)
    require_attributes(folder)
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(folder), str(least_part_bytes)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "TZ": "UTC"},
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.readline()
    assert said, f"Swift did not start: {(folder / 'log').read_text()[-2000:]}"
    # The process is known by its number only: it may outlive the one that started it.
    process.returncode = 0
    return S3Server(
        endpoint_url=json.loads(said),
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
        region=REGION,
        process_id=process.pid,
        settings={"s3_least_part_bytes": least_part_bytes},
    )


def require_attributes(folder: Path) -> None:
    """Raise if Swift cannot keep an object's attributes next to its bytes."""
    try:
        os.setxattr(folder, "user.poolctl", b"test")
    except OSError as error:
        raise AssertionError(
            f"{folder}: its file system has no extended attributes, which Swift needs; give "
            "pytest another one with --basetemp=FOLDER"
        ) from error


def main() -> None:
    """Serve from the folder that the first argument names until killed."""
    import eventlet

    eventlet.monkey_patch()
    import eventlet.wsgi
    from swift.common import utils
    from swift.common.wsgi import SwiftHttpProtocol, loadapp

    folder, least_part_bytes = Path(sys.argv[1]), int(sys.argv[2])
    kinds = ("account", "container", "object", "proxy")
    sockets = {kind: eventlet.listen(("127.0.0.1", 0), backlog=512) for kind in kinds}
    ports = {kind: sockets[kind].getsockname()[1] for kind in kinds}
    write_configuration(folder, ports, least_part_bytes)
    utils.set_swift_dir(str(folder))
    # Every request of a proxy becomes several to the stores: more threads than one may serve.
    threads = [
        eventlet.spawn(
            eventlet.wsgi.server,
            sockets[kind],
            loadapp(str(folder / f"{kind}.conf"), global_conf={"log_name": kind}),
            log_output=False,
            protocol=SwiftHttpProtocol,
            socket_timeout=60,
            # "ETag" and no "Etag", as S3's clients expect.
            capitalize_response_headers=False,
            url_length_limit=8192,
        )
        for kind in kinds
    ]
    print(json.dumps(f"http://127.0.0.1:{ports['proxy']}"), flush=True)
    threads[-1].wait()


def write_configuration(folder: Path, ports: Mapping[str, int], least_part_bytes: int) -> None:
    """Write Swift's files: the four servers' settings and three rings."""
    from swift.common.ring import RingBuilder

    (folder / "devices" / "disk").mkdir(parents=True, exist_ok=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = for-tests\n")
    account, user = ACCESS_KEY_ID.split(":")
    common = _COMMON.format(folder=folder)
    proxy = _PROXY.format(
        account=account,
        user=user,
        secret=SECRET_ACCESS_KEY,
        region=REGION,
        domain=DOMAIN,
        least_part_bytes=least_part_bytes,
    )
    for name in _PLAIN_FILTERS:
        proxy += f"[filter:{name}]\nuse = egg:swift#{name}\n"
    (folder / "proxy.conf").write_text(common + proxy)
    for kind in ("account", "container", "object"):
        (folder / f"{kind}.conf").write_text(common + _STORE.format(kind=kind))
        ring = RingBuilder(part_power=4, replicas=1, min_part_hours=0)
        ring.add_dev(
            {
                "region": 1,
                "zone": 1,
                "ip": "127.0.0.1",
                "port": ports[kind],
                "device": "disk",
                "weight": 1.0,
            }
        )
        ring.rebalance()
        ring.get_ring().save(str(folder / f"{kind}.ring.gz"))


class MemoryCache:
    """Swift's memcached as a dictionary: the owners of containers, for a minute."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, raise_on_error: bool = False) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any, **_: Any) -> None:
        # Through JSON, as in memcached: what is read may be changed without harm.
        self._values[key] = json.loads(json.dumps(value))

    def delete(self, key: str, **_: Any) -> None:
        self._values.pop(key, None)


def memory_cache_factory(_settings: Mapping[str, str], **_: str) -> Any:
    cache = MemoryCache()

    def add_cache(app: Any) -> Any:
        def respond(environ: dict[str, Any], start_response: Any) -> Any:
            environ["swift.cache"] = cache
            return app(environ, start_response)

        return respond

    return add_cache


def log_to_stderr(*arguments: Any) -> None:
    """Add a handler to one of Swift's loggers (its `log_custom_handlers`)."""
    import logging

    logger = arguments[5]
    logger.handlers = [logging.StreamHandler(sys.stderr)]


if __name__ == "__main__":
    main()
