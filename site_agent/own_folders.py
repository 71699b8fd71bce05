"""Folders of this program, also for users without a home folder."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path

_APPLICATION = "poolctl"
_log = logging.getLogger(__name__)


def config_folder() -> Path:
    """Return the folder of logins, keys and records."""
    if home := os.environ.get("POOL_HOME"):
        return Path(home).expanduser()
    return _with_home(user_config_path)


def data_folder() -> Path:
    """Return the folder in which ``poolctl serve`` keeps a pool by default."""
    if home := os.environ.get("POOL_HOME"):
        return Path(home).expanduser() / "pool"
    return _with_home(user_data_path) / "pool"


def cache_folder() -> Path:
    """Return the folder of downloaded models."""
    if cache_ := os.environ.get("POOL_CACHE"):
        return Path(cache_).expanduser()
    if home := os.environ.get("POOL_HOME"):
        return Path(home).expanduser() / "cache"
    return _with_home(user_cache_path)


def make_private(folder: Path) -> None:
    """Make a folder of `config_folder`, and that folder itself, for this user alone."""
    # A parent that `mkdir` makes along the way has no mode: others could exchange what lies in it.
    for place in (folder.parent, folder):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)


def _with_home(user_path: Callable[..., Path]) -> Path:
    """Return a user's folder; without a home, one that is deleted with this process."""
    # Containers run with numbers of users that no list of users has.
    try:
        folder = user_path(_APPLICATION, appauthor=False)
    except RuntimeError:
        return _passing_folder()
    # Earlier versions of the library leave "~" as it is.
    return folder if folder.is_absolute() else _passing_folder()


@cache
def _passing_folder() -> Path:
    _log.warning(
        "there is no home directory, so logins, keys and records last as long as this command; "
        "name a folder for them with POOL_HOME"
    )
    folder = tempfile.mkdtemp(prefix=f"{_APPLICATION}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
