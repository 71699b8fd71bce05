"""Another real S3 server for tests: Ceph's radosgw, with a monitor and a store in memory.

    apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common radosgw

    with ceph_server(folder) as s3:
        bucket = s3.make_bucket("pool")

All daemons run on loopback ports that were free a moment ago, without authentication among
themselves, and hold nothing outside `folder`. Half a minute later the gateway answers.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.pool_server.swift_server import S3Server

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph", "monmaptool", "radosgw", "radosgw-admin")
INSTALL = "apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common radosgw"
ACCESS_KEY_ID = "TESTERSKEY0123456789"
SECRET_ACCESS_KEY = "a-secret-for-tests-only"
LEAST_PART_BYTES = 1
LIMIT_S = 180.0

_CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
# The gateway would have encrypted lines to the monitor, for which there is no key.
ms mon client mode = crc
run dir = {folder}
# The path of a socket has to be short, and that of a test's folder is not.
admin socket =
log file = {folder}/$name.log
keyring = {folder}/keyring
mon data = {folder}/mon
mon allow pool size one = true
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
rgw frontends = beast endpoint=127.0.0.1:{rgw_port}
rgw multipart min part size = {least_part_bytes}
rgw rados pool pg num min = 1
"""


def missing_programs() -> list[str]:
    """Return the programs that have to be installed first (`INSTALL`)."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def ceph_server(folder: Path) -> Iterator[S3Server]:
    """Run Ceph with all its files below `folder`, which is made."""
    folder.mkdir(parents=True)
    fsid, (mon_port, rgw_port) = str(uuid.uuid4()), free_ports(2)
    configuration = folder / "ceph.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            fsid=fsid,
            folder=folder,
            mon_port=mon_port,
            rgw_port=rgw_port,
            least_part_bytes=LEAST_PART_BYTES,
        )
    )
    (folder / "keyring").touch()
    (folder / "osd").mkdir()
    with ExitStack() as stack:

        def run(*command: str) -> None:
            finished = subprocess.run(
                [command[0], "-c", str(configuration), *command[1:]],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert finished.returncode == 0, f"{command}: {finished.stderr[-2000:]}"

        def start(*command: str) -> subprocess.Popen[bytes]:
            output = stack.enter_context((folder / f"{command[0]}.out").open("wb"))
            process = stack.enter_context(
                subprocess.Popen(
                    [command[0], "-c", str(configuration), "-f", *command[1:]],
                    stdout=output,
                    stderr=output,
                )
            )
            stack.callback(process.kill)
            return process

        address = f"[v2:127.0.0.1:{mon_port}/0]"
        monmap = str(folder / "monmap")
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap)
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        start("ceph-mon", "-i", "a")
        run("ceph", "osd", "new", (osd_id := str(uuid.uuid4())))
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
        start("ceph-osd", "-i", "0")
        run(
            "radosgw-admin", "user", "create", "--uid=tester", "--display-name=tester",
            f"--access-key={ACCESS_KEY_ID}", f"--secret-key={SECRET_ACCESS_KEY}",
        )  # fmt: skip
        gateway = start("radosgw", "-n", "client.rgw")
        endpoint_url = f"http://127.0.0.1:{rgw_port}"
        wait_for_answer(endpoint_url, gateway)
        yield S3Server(
            endpoint_url=endpoint_url,
            access_key_id=ACCESS_KEY_ID,
            secret_access_key=SECRET_ACCESS_KEY,
            region="us-east-1",
            process_id=gateway.pid,
            settings={"s3_least_part_bytes": LEAST_PART_BYTES},
        )


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at this moment."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [bound.getsockname()[1] for bound in sockets]


def wait_for_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while True:
        assert process.poll() is None, "radosgw has ended; see the logs"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            assert time.monotonic() < end, "radosgw does not answer"
            time.sleep(0.2)
