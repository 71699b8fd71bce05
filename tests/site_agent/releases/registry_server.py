"""A registry of OCI artifacts for tests: Debian's `docker-registry`."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

PASSWORD = "a-password-for-tests-only"
USERS = "lab:$2b$04$abcdefghijklmnopqrstuunNDpqXrLHPEcdH6BXFhPhQdl2jzdFHe\n"
_CONFIG = """
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {folder}/content}}}}
http: {{addr: 127.0.0.1:0}}
auth: {{htpasswd: {{realm: tests, path: {folder}/users}}}}
"""


@contextmanager
def registry_server(folder: Path) -> Iterator[str]:
    """Run a registry for the user `lab` and yield HOST:PORT."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (apt-get install docker-registry)")
    folder.mkdir()
    (folder / "users").write_text(USERS)
    (folder / "config.yml").write_text(_CONFIG.format(folder=folder))
    with subprocess.Popen(
        [program, "serve", str(folder / "config.yml")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if address := re.search(r"listening on (127\.0\.0\.1:\d+)", line):
                    break
            else:
                pytest.fail("docker-registry did not start")
            # It logs every request, and would wait for a reader.
            Thread(target=process.stderr.read, daemon=True).start()
            yield address[1]
        finally:
            process.kill()
