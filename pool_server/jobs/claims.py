"""Which process is checking an upload: one at a time, and as long as it gives signs of life.

A claim lies in the database and is good for `check_claim_s`; who holds it keeps putting its end
off. When the process dies, the claim runs out, and the next to ask takes the upload over. Two
that both believe to hold it (one was asleep) do no harm: every step may be repeated, and the
first that writes what the file became decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from pool_server.database.records import now_utc
from pool_server.errors import TransactionError
from pool_server.http.session import ServerParts
from pool_server.logs import in_this_context
from pool_server.transfers import repository
from pool_server.transfers.service import busy

log = logging.getLogger("pool_server.uploads")

# So many signs of life fit into the life of a claim: two may get lost.
SIGNS_PER_CLAIM = 3


@contextmanager
def claimed(parts: ServerParts, upload_id: str) -> Iterator[None]:
    """Hold an upload while it is checked, and give it back if the block fails.

    Raises
    ------
    UploadBusyError
        Another process holds it.
    """
    with parts.database.write() as session:
        if not repository.claim(session, upload_id, now_utc(), _claim_end(parts)):
            raise busy()
    ended = threading.Event()
    keep = in_this_context(_keep)
    keeper = threading.Thread(target=keep, args=(parts, upload_id, ended), name="claim")
    keeper.start()
    try:
        yield
    except BaseException:
        _give_back(parts, upload_id)
        raise
    finally:
        ended.set()
        keeper.join()


def _keep(parts: ServerParts, upload_id: str, ended: threading.Event) -> None:
    while not ended.wait(parts.settings.check_claim_s / SIGNS_PER_CLAIM):
        try:
            with parts.database.write() as session:
                repository.renew_claim(session, upload_id, _claim_end(parts))
        except TransactionError:
            log.exception("the claim of upload %s could not be renewed", upload_id)


def _give_back(parts: ServerParts, upload_id: str) -> None:
    try:
        with parts.database.write() as session:
            repository.release(session, upload_id)
    except TransactionError:
        log.exception("the claim of upload %s was left to run out", upload_id)


def _claim_end(parts: ServerParts) -> datetime:
    return now_utc() + timedelta(seconds=parts.settings.check_claim_s)
