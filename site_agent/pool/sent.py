"""The ledger of everything that was sent to pools: ``POOL_HOME/sent.jsonl``, for this user alone.

Each request with content is noted before it leaves, by the app, the command line and the agent
alike; each file is announced by such a request, and the number of its bytes that left is noted
after it. A request that cannot be noted is not sent.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aggregators.whole_file import private_opener
from site_agent import own_folders
from site_agent.errors import writing_to
from site_agent.wording import count_words, size_words

_MOST_SHOWN_BYTES = 64_000
_SENDER: ContextVar[str] = ContextVar("sender", default="command line")
LIVE = "/live"
_RELEASE = "/release"
_TITLES = (
    # The end of the path, and a title; the first that fits.
    ("/api/v1/uploads", "Model"),
    ("/contributions", "Contribution to a round"),
    ("/receipts", "Privacy receipt"),
    ("/card", "Model card"),
    ("/evaluations", "Scores of a test"),
    ("/withdraw", "Withdrawal"),
    ("/files", "File of a secure sum"),
    ("/posts", "Message of a secure sum"),
    ("/invitations/accept", "User name, to join a pool"),
    (LIVE, "Messages of a live training"),
    (_RELEASE, "Model for a hub or registry"),
)
_HOLDS_SECRET = ("/invitations/accept",)
_NOT_NOTED = ("/parts",)
"""Numbers and checksums of the parts of a file that was announced."""


@dataclass
class SentItem:
    """One request that left with content, and the file that it announced."""

    at: str
    by: str
    pool: str
    path: str
    size_bytes: int
    digest: str
    content: str
    """The content itself; empty where it is long, or held a secret."""
    file_bytes: int = 0
    """Bytes of the announced file that have left so far."""
    gone: str = ""
    """``withdrawn`` or ``taken back`` once it is."""

    @property
    def title(self) -> str:
        for ending, title in _TITLES:
            if self.path.endswith(ending):
                return title
        return "Question or setting"

    @property
    def is_item(self) -> bool:
        """True if it holds something of the lab, and not a question alone."""
        return self.title != "Question or setting"

    @property
    def facts(self) -> dict[str, Any]:
        """The content as an object."""
        try:
            facts = json.loads(self.content)
        except ValueError:
            return {}
        return facts if isinstance(facts, dict) else {}


@contextmanager
def sent_by(name: str) -> Iterator[None]:
    """Note a name as the sender of all that the block sends."""
    token = _SENDER.set(name)
    try:
        yield
    finally:
        _SENDER.reset(token)


def sent_file() -> Path:
    """Return the path of the ledger."""
    return own_folders.config_folder() / "sent.jsonl"


def note_request(pool: str, path: str, content: bytes) -> None:
    """Note a request before it leaves."""
    if not content or path.endswith(_NOT_NOTED):
        return
    is_shown = len(content) <= _MOST_SHOWN_BYTES and not path.endswith(_HOLDS_SECRET)
    _append(
        {
            "by": _SENDER.get(),
            "pool": pool,
            "path": path,
            "size_bytes": len(content),
            "digest": hashlib.sha256(content).hexdigest(),
            "content": content.decode("utf-8", "replace") if is_shown else "",
        }
    )


def note_release(place: str, digest: str, files: Mapping[str, Any]) -> None:
    """Note the files of a model before they leave for a hub or a registry, bytes and all."""
    listed = {name: {"sha256": file.digest} for name, file in files.items()}
    content = json.dumps({"digest": digest, "files": listed}, ensure_ascii=False)
    note_request(place, _RELEASE, content.encode())
    note_file(place, digest, sum(file.size_bytes for file in files.values()))


def note_file(pool: str, digest: str, sent_bytes: int) -> None:
    """Note how many bytes of an announced file have left, also if the transfer broke off."""
    if sent_bytes:
        _append({"pool": pool, "file": digest, "file_bytes": sent_bytes})


def note_gone(pool: str, of: str, gone: str) -> None:
    """Note that a pool gave up a file, by its digest, or all of one path."""
    _append({"pool": pool, "of": of, "gone": gone})


def read_sent() -> list[SentItem]:
    """Return everything that was sent, newest first; a repeated request counts once."""
    try:
        lines = sent_file().read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    items: dict[tuple[str, str, str], SentItem] = {}
    of_file: dict[tuple[str, str], SentItem] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # a last line without its end
        if "file" in entry:
            if (announced := of_file.get((entry["pool"], entry["file"]))) is not None:
                announced.file_bytes += entry["file_bytes"]
            continue
        if "gone" in entry:
            for item in items.values():
                if item.pool == entry["pool"] and entry["of"] in (
                    item.path,
                    item.facts.get("digest"),
                ):
                    item.gone = entry["gone"]
            continue
        item = SentItem(**entry)
        item = items.setdefault((item.pool, item.path, item.digest), item)
        item.gone = ""
        if announces := item.facts.get("digest"):
            of_file[item.pool, str(announces)] = item
    return list(reversed(items.values()))


def _append(entry: dict[str, Any]) -> None:
    path = sent_file()
    at = {} if "file" in entry else {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    with writing_to(path.parent):
        own_folders.make_private(path.parent)
        with open(path, "a", encoding="utf-8", opener=private_opener) as file:
            file.write(json.dumps({**at, **entry}) + "\n")


def sent_verdict(items: list[SentItem]) -> str:
    """Return one sentence on the items that left this machine this month."""
    month = datetime.now(UTC).strftime("%Y-%m")
    recent = [item for item in items if item.at.startswith(month)]
    if not recent:
        return "Nothing of the lab has left this machine this month."
    size = size_words(sum(item.file_bytes + item.size_bytes for item in recent))
    pools = Counter(item.pool for item in recent)
    things = count_words(len(recent), "thing")
    return f"{things} left this machine this month: {size}, to {' and '.join(pools)}."
