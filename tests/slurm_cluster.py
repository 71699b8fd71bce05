"""A real SLURM on this machine, for tests: the daemons of Debian's ``slurm-wlm``."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
TIMEOUT_S = 540.0
_CONFIGURATION = """\
ClusterName=poolctl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def is_there() -> bool:
    """Return whether SLURM can be started here."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return is_root and all(shutil.which(name) for name in PROGRAMS)


class SlurmCluster:
    """A running cluster of one node."""

    def __init__(self, place: Path) -> None:
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}

    def submit(self, script: Path, folder: Path, **variables: str) -> str:
        """Submit a script from a folder and wait for all its jobs; return their output."""

        def ask(*command: str) -> str:
            return subprocess.run(
                command, cwd=folder, env={**self.environment, **variables}, check=True,
                timeout=TIMEOUT_S, capture_output=True, text=True,
            ).stdout.strip()  # fmt: skip

        number = ask("sbatch", "--parsable", "--output", "slurm-%A_%a.out", str(script))
        # ``sbatch --wait`` looks after 2, 10, 42, 74 and 106 seconds only.
        wait_until(lambda: not ask("squeue", "--noheader", "--jobs", number), interval_s=0.2)
        for job in ask("scontrol", "--oneliner", "show", "job", number).splitlines():
            assert "ExitCode=0:0" in job, job
        return "".join(path.read_text() for path in sorted(folder.glob("slurm-*.out")))


@contextmanager
def slurm_cluster(place: Path, processors: int = 2) -> Iterator[SlurmCluster]:
    """Start SLURM with files in a folder, and stop it at the end."""
    for name in ("state", "spool"):
        (place / name).mkdir(parents=True)
    place.chmod(0o755)
    (place / "munge.key").write_bytes(secrets.token_bytes(1024))
    (place / "munge.key").chmod(0o600)
    text = _CONFIGURATION.format(
        place=place, host=socket.gethostname(), ports=_free_ports(2), processors=processors
    )
    (place / "slurm.conf").write_text(text)
    cluster = SlurmCluster(place)
    munge = [f"--{part}-file={place}/munge.{part}" for part in ("key", "pid", "log", "seed")]
    programs = [
        ["munged", "--foreground", "--force", f"--socket={place}/munge.socket", *munge],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    running = []
    try:
        for command in programs:
            running.append(_start(command, cluster.environment, place))
        wait_until(lambda: _is_idle(cluster), interval_s=0.1)
        yield cluster
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(
    command: Sequence[str], environment: dict[str, str], place: Path
) -> "subprocess.Popen[bytes]":
    log = (place / f"{command[0]}.output").open("wb")
    with log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    if command[0] == "munged":
        wait_until((place / "munge.socket").exists)
    return process


def _is_idle(cluster: SlurmCluster) -> bool:
    shown = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"],
        env=cluster.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return shown.stdout.strip() == "idle"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports
