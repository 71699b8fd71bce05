"""A look, now and then, outside the app: new and moved videos, waiting rounds, withdrawals."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pool_server.wire.rounds import RoundResponse
from site_agent.app.recordings import Studies, videos_in
from site_agent.errors import SiteAgentError
from site_agent.pool import profiles
from site_agent.pool.client import PoolClient
from site_agent.pool.restrictions import cached_files, check_files
from site_agent.pool.sent import sent_by

_INTERVAL_S = 30.0
_POOL_INTERVAL_S = 600.0
_log = logging.getLogger(__name__)


def waits_for(round_: RoundResponse, site: str) -> bool:
    """Return whether a round is open and waits for this site."""
    return round_.state == "open" and site in round_.sites("waiting")


def _attempt(look: Callable[[], None]) -> None:
    """Look once; an error of one turn does not end the turns after it."""
    try:
        look()
    except (SiteAgentError, OSError):
        pass  # a disk or a pool that is away, and may be back at the next turn
    except Exception:
        _log.exception("poolctl could not look at the world outside; it tries again")


class Watch:
    """The state outside, as it was half a minute ago; pages read it without a wait for a disk."""

    def __init__(self, studies: Studies) -> None:
        self.fresh: dict[Path, int] = {}
        """Added folders, each with the number of its videos outside the study."""
        self.lost: frozenset[str] = frozenset()
        """Recordings with a video that is no longer in its place."""
        self.rounds = 0
        """Rounds that wait for the lab."""
        self.withdrawn: dict[str, str] = {}
        """Digests of downloaded models that were withdrawn or hold such a one, with the reason."""
        self._studies, self._sizes = studies, dict[Path, int]()

    @property
    def news(self) -> str:
        """A text that changes with the state."""
        return repr((self.fresh, self.lost, self.rounds, self.withdrawn))

    def run(self, ended: threading.Event) -> None:
        """Look again and again."""
        asked_s = 0.0
        while True:
            _attempt(self.look)
            if not asked_s or time.monotonic() - asked_s > _POOL_INTERVAL_S:
                asked_s = time.monotonic()
                _attempt(self.ask_pool)
            if ended.wait(_INTERVAL_S):
                return

    def look(self) -> None:
        """Look at the videos of the current study, and at its folders."""
        study = self._studies.current()
        folders = [Path(folder) for folder in study.added]
        self._studies.follow_moved(study, folders)
        rows = study.recordings()
        # A drawn video of a first look is still to be drawn.
        gone = [row for row in rows if study.added and not Path(row.video).exists()]
        self.lost = frozenset(row.recording for row in gone)
        known = {Path(row.video) for row in (*rows, *self._studies.binned(study))}
        sizes: dict[Path, int] = {}
        for folder in folders:
            with suppress(OSError):
                sizes |= {path: path.stat().st_size for path in videos_in(folder)[0]}
        # Cameras copy slowly: a video counts once its size was equal twice.
        whole = [path for path, size in sizes.items() if self._sizes.get(path) == size]
        self._sizes = sizes
        counts = dict.fromkeys(folders, 0)
        for path in whole:
            counts[path.parent] += path not in known
        self.fresh = {folder: count for folder, count in counts.items() if count}

    def ask_pool(self) -> None:
        """Count waiting rounds, and ask for withdrawals, where the lab has joined a pool.

        Only the digests of files that came from a pool are sent.
        """
        if profiles.load_profile().token:
            with sent_by("app"), PoolClient(timeout_s=10.0, attempts=1) as pool:
                site = pool.whoami().site
                self.rounds = sum(waits_for(round_, site) for round_ in pool.rounds.list())
                withdrawn = check_files(pool.withdrawals, cached_files())
                self.withdrawn = {file.digest: file.words for file in withdrawn}
