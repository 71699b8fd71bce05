"""A board in a folder, for parties in one process or on one machine."""

import hashlib
import shutil
from pathlib import Path

from aggregators.whole_file import whole_file, write_whole
from site_agent.errors import ConflictError, DigestMismatchError
from site_agent.secure.messages import Post
from site_agent.work.locks import locked


class FolderBoard:
    """A board in a folder that all parties can write to, for one machine.

    ::

        <folder>/<session>/descriptor.json
        <folder>/<session>/posts/<number>.<phase>.<sender>.json
        <folder>/<session>/blobs/<digest>
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def open_session(self, descriptor: bytes) -> str:
        session = hashlib.sha256(descriptor).hexdigest()
        folder = self.folder / session
        for name in ("posts", "blobs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / "descriptor.json").exists():
            write_whole(folder / "descriptor.json", descriptor)
        return session

    def sessions(self) -> list[str]:
        opened = [
            (path.stat().st_mtime_ns, path.parent.name)
            for path in self.folder.glob("*/descriptor.json")
        ]
        return [session for _, session in sorted(opened)]

    def descriptor(self, session: str) -> bytes:
        return (self.folder / session / "descriptor.json").read_bytes()

    def post(self, session: str, phase: str, sender: str, envelope: bytes) -> None:
        folder = self.folder / session / "posts"
        with locked(folder / ".lock"):
            known = sorted(folder.glob("*.json"))
            for path in known:
                if path.name.split(".")[1:3] == [phase, sender]:
                    if path.read_bytes() == envelope:
                        return
                    raise ConflictError(
                        f"{sender} has posted something else as {phase} of session {session[:16]}",
                        code="post_exists",
                    )
            write_whole(folder / f"{len(known):06d}.{phase}.{sender}.json", envelope)

    def posts(self, session: str) -> list[Post]:
        posts = []
        for path in sorted((self.folder / session / "posts").glob("*.json")):
            _, phase, sender, _ = path.name.split(".")
            posts.append(Post(session, phase, sender, path.read_bytes()))
        return posts

    def put_blob(self, session: str, sender: str, path: Path) -> str:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        target = self.folder / session / "blobs" / digest
        if not target.exists():
            _copy_whole(path, target)
        return digest

    def get_blob(self, session: str, digest: str, target: Path, most_bytes: int) -> None:
        path = self.folder / session / "blobs" / digest
        if path.stat().st_size > most_bytes:
            raise DigestMismatchError(f"file {digest[:16]} is too large")
        _copy_whole(path, target)


def _copy_whole(source: Path, target: Path) -> None:
    with source.open("rb") as reading, whole_file(target) as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
