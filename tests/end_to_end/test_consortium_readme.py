"""The commands of pool_server/README.md, run on real servers.

Only values of the machine are replaced: the address of database and bucket, by free ports, and by
folders of the test. Commands of cron run as cron runs them: with nothing in the environment.
"""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT_ROOT
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import open_client, upload
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.swift_server import S3Server
from tests.ports import free_port
from tests.waiting import answers, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.s3]

README = PROJECT_ROOT / "pool_server" / "README.md"
SECTION = "## Running a pool for a consortium\n"
CONFIG, BACKUPS = "/etc/poolctl.toml", "/var/backups/poolctl"
PROGRAMS = "/opt/poolctl/bin/"


def blocks(language: str) -> list[str]:
    section = README.read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, flags=re.M | re.S)


def make_database(postgres: PostgresServer) -> str:
    """Create the database of the README's SQL under a free name, and return its address."""
    name = postgres.free_name()
    [statements] = blocks("sql")
    with closing(postgres.connect("postgres")) as connection:
        for statement in statements.replace("poolctl", name).splitlines():
            connection.execute(statement.encode())
    return f"postgresql://{name}:PASSWORD@/{name}?host={postgres.folder}"


class Machine:
    """A machine on which the README's commands are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"8710": str(free_port()), "8711": str(free_port())}
        programs = folder / "bin"
        programs.mkdir(parents=True)
        poolctl = programs / "poolctl"
        poolctl.write_text(
            f'#!/bin/sh\nPYTHONPATH="{PROJECT_ROOT}" exec "{sys.executable}" -m cli "$@"\n'
        )
        poolctl.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if "POOL" not in name}
        self.environment = kept | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "POOL_HOME": str(folder / "home"),
            "POOL_SERVER_CONFIG": self.here(CONFIG),
        }

    def here(self, text: str) -> str:
        """Return a command with this machine's values."""
        text = text.replace(CONFIG, str(self.folder / "poolctl.toml"))
        text = text.replace(BACKUPS, str(self.folder.parent / "backups"))
        text = text.replace(PROGRAMS, f"{self.folder / 'bin'}/")
        for port, free in self.ports.items():
            text = text.replace(port, free)
        # A person is asked for the token; here it comes in by the other way that there is.
        return re.sub(r"(poolctl auth login \S+)", r"\1 --token-stdin", text)

    def configure(self, database_url: str, s3: dict[str, Any]) -> None:
        """Write the README's settings, with another database and bucket in them."""
        [text] = blocks("toml")
        assert "postgresql://poolctl:PASSWORD@" in text
        values = {
            "data_folder": str(self.folder / "data"),
            "database_url": database_url,
            **{name: value for name, value in s3.items() if name != "storage"},
        }
        lines = [line for line in text.splitlines() if line.split(" = ")[0] not in values]
        lines += [
            f"{name} = {value}" if isinstance(value, int) else f"{name} = '{value}'"
            for name, value in values.items()
        ]
        assert set(tomllib.loads(text)) <= set(tomllib.loads("\n".join(lines)))
        config = self.folder / "poolctl.toml"
        config.write_text("\n".join(lines))
        config.chmod(0o600)

    def type(self, commands: str, answer: str = "") -> str:
        """Run commands as one types them; the first that fails ends the test."""
        process = subprocess.run(
            ["bash", "-e", "-c", self.here(commands)],
            cwd=self.folder,
            env=self.environment,
            input=answer,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert process.returncode == 0, f"{commands}\n{process.stdout}\n{process.stderr}"
        return process.stdout

    def run_as_cron(self, line: str) -> str:
        """Run a line of a crontab as cron does."""
        home = self.folder / "home-of-poolctl"
        home.mkdir(exist_ok=True)
        process = subprocess.run(
            ["/bin/sh", "-c", self.here(line.split(maxsplit=5)[5])],
            cwd=home,
            env={"HOME": str(home), "LOGNAME": "poolctl", "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert process.returncode == 0, f"{line}\n{process.stdout}\n{process.stderr}"
        return process.stdout

    @contextmanager
    def serving(self, commands: str) -> Iterator[str]:
        """Run commands that leave servers in the background; give the first one's address."""
        url = f"http://127.0.0.1:{self.ports['8710']}"
        with (
            (self.folder / "log").open("wb") as log,
            subprocess.Popen(
                ["bash", "-e", "-c", f"{self.here(commands)}\nwait"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as shell,
        ):
            try:
                for port in self.ports.values():
                    address = f"http://127.0.0.1:{port}"
                    wait_until(lambda at=address: shell.poll() is not None or answers(at))
                    assert shell.poll() is None, (self.folder / "log").read_text()
                yield url
            finally:
                os.killpg(shell.pid, signal.SIGTERM)
                shell.wait(540)


@pytest.mark.slow
def test_the_commands_of_the_readme(
    postgres: PostgresServer, swift: S3Server, tmp_path: Path
) -> None:
    setting_up, letting_in, restoring = blocks("bash")
    [table] = blocks("cron")
    preparing, serving = setting_up.split("poolctl serve", 1)
    machine = Machine(tmp_path / "machine")
    machine.configure(make_database(postgres), swift.pool_settings(swift.make_bucket("readme")))
    printed = machine.type(preparing)
    assert not re.search(r"pool_[A-Za-z0-9_-]{43}", printed), "no secret where no terminal is"
    token = machine.type("poolctl admin recover -q").strip()
    content = network_bytes(5000)
    with machine.serving(f"poolctl serve{serving}") as url:
        said = machine.type(letting_in, answer=f"{token}\n")
        assert "invite_" in said
        [monitor] = re.findall(r"pool_[A-Za-z0-9_-]{43}", said)
        with open_client(url, monitor) as prometheus:
            assert "pool_requests_total" in prometheus.get("/metrics").text
        with open_client(url, token) as admin:
            upload(admin, "site-a/gaze", content)
        backup, *checks = [machine.run_as_cron(line) for line in table.splitlines()]
        assert "1 file, 1 of them copied" in backup
        assert len(checks) == 2
    log = (machine.folder / "log").read_text()
    assert token not in log
    assert "X-Amz-Signature" not in log

    other = Machine(tmp_path / "other")
    other.configure(make_database(postgres), swift.pool_settings(swift.make_bucket("restored")))
    other.type(restoring)
    with other.serving(f"poolctl serve{serving}") as url, open_client(url, token) as admin:
        got = admin.get("/api/v1/models/site-a/gaze/versions/1/content")
        assert got.content == content


def test_the_service_and_the_proxy_name_what_there_is() -> None:
    [unit], [proxy] = blocks("ini"), blocks("nginx")
    assert "ExecStart=/opt/poolctl/bin/poolctl serve --port %i" in unit
    assert proxy.count("{") == proxy.count("}")
    assert "127.0.0.1:8710" in proxy
    machine, start = blocks("console")
    for place in (PROGRAMS, "/var/lib/poolctl", CONFIG, f"install -d -o poolctl -m 700 {BACKUPS}"):
        assert place.rstrip("/") in machine
    assert "User=poolctl" in unit
    assert "poolctl.toml" in unit
    # As one types it: what is enabled is there by then, and the typing is root's.
    assert [line[:2] for line in start.splitlines()] == ["# "]
    assert "systemctl enable --now poolctl@8710 poolctl@8711" in start
    section = README.read_text(encoding="utf-8").split(SECTION)[1]
    assert section.index("/etc/systemd/system/poolctl@.service") < section.index("systemctl enable")
