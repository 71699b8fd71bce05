"""A pool of a quickstart ends with the quickstart, however that ends."""

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.waiting import wait_until

_PARENT = """
import sys, time
from pathlib import Path
from cli.frame.shell import pool_process
with pool_process(Path(sys.argv[1])) as (url, token):
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_the_pool_ends_when_its_parent_is_terminated(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "pool")], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert answers(url)
        parent.terminate()
    wait_until(lambda: not answers(url))


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=540):
            return True
    except OSError:  # refused, or reset where the pool is just being killed
        return False
