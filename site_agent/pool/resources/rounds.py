"""Merges on the pool and evaluations; rounds in which sites train a model together."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from aggregators.whole_file import sync_folder
from pool_server.wire import rounds
from pool_server.wire.merges import MergeJobPage, MergeJobResponse, MergeRequest
from pool_server.wire.names import DIGEST_PATTERN, NAME_PATTERN, ModelAddress
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.uploads import OpenUpload, OpenUploadList
from site_agent.errors import DigestMismatchError, PoolRefusedRequestError
from site_agent.pool import connection, receiving, requests, sending
from site_agent.pool.sent import note_gone
from site_agent.work import Progress, no_progress

_MERGES = "/api/v1/merges"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 2.0


class Merges(connection.Resource):
    """Merges made by the pool."""

    def request(
        self, address: ModelAddress, recipe: Mapping[str, Any], **fields: Any
    ) -> MergeJobResponse:
        """Have the pool carry out a recipe and publish the result as a version of `address`.

        All fields are those of a `MergeRequest`. The pool cannot sign the result: where signatures
        are required it stays a draft until it is signed and published.
        """
        request = requests.build_request(
            MergeRequest, site=address.site, name=address.name, recipe=dict(recipe), **fields
        )
        return self._pool.post(_MERGES, MergeJobResponse, request)

    def list(self, state: str = "") -> Iterator[MergeJobResponse]:
        """Yield the merges that the site asked for, newest first."""
        return self._pool.pages(_MERGES, MergeJobPage, {"state": state})

    def get(self, merge_id: str) -> MergeJobResponse:
        """Return one merge."""
        return self._pool.get(f"{_MERGES}/{merge_id}", MergeJobResponse)

    def cancel(self, merge_id: str) -> MergeJobResponse:
        """Cancel a merge; one that is over stays as it is."""
        return self._pool.post(f"{_MERGES}/{merge_id}/cancel", MergeJobResponse, repeatable=True)

    def wait(self, merge_id: str, *, progress: Progress | None = None) -> MergeJobResponse:
        """Wait until a merge is over and return it."""
        wait_s = _FIRST_WAIT_S
        while True:
            job = self.get(merge_id)
            if progress is not None:
                progress(job.progress, job.activity or job.state)
            if job.ended_at is not None:
                return job
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _LONGEST_WAIT_S)


_UPLOADS = "/api/v1/uploads"


class Uploads(connection.Resource):
    """Uploads that are not complete."""

    def list(self, site: str = "") -> Iterator[OpenUpload]:
        """Yield the open uploads to the site, newest first; to all sites for admins of the pool."""
        return iter(self._pool.get(_UPLOADS, OpenUploadList, {"site": site or None}).items)

    def abort(self, upload_id: str) -> None:
        """Abort an upload; the parts that arrived are deleted."""
        self._pool.send("DELETE", f"{_UPLOADS}/{upload_id}")


class Rounds(connection.Resource):
    """Requests about rounds; `site_agent.rounds` does a site's part in one."""

    def list(self, state: str = "") -> Iterator[rounds.RoundResponse]:
        """Yield the rounds that the site takes part in, newest first; of one state if given."""
        return self._pool.pages("/api/v1/rounds", rounds.RoundPage, {"state": state})

    def get(self, round_id: str) -> rounds.RoundResponse:
        """Return one round."""
        return self._pool.get(_round_path(round_id), rounds.RoundResponse)

    def start(
        self, base: str | ModelAddress, sites: Sequence[str], deadline: datetime, **fields: Any
    ) -> rounds.RoundResponse:
        """Ask sites, the own one among them, to train a model of the pool together.

        Contributions after the `deadline` (with its time zone) are refused. Further fields are
        those of a `RoundRequest`, such as method, mode, options and rounds.
        """
        request = requests.build_request(
            rounds.RoundRequest, base=str(base), sites=[*sites], deadline=deadline, **fields
        )
        return self._pool.post("/api/v1/rounds", rounds.RoundResponse, request)

    def sign(self, round_id: str, terms: Envelope) -> rounds.RoundResponse:
        """Store the signed terms of a new round (only by its starter)."""
        return self._pool.write(
            "PUT", f"{_round_path(round_id)}/terms", rounds.RoundResponse, terms
        )

    def close(self, round_id: str) -> rounds.RoundResponse:
        """Stop waiting for missing contributions (only by the starter and admins)."""
        path = f"{_round_path(round_id)}/close"
        return self._pool.post(path, rounds.RoundResponse, repeatable=True)

    def cancel(self, round_id: str) -> rounds.RoundResponse:
        """Cancel a round (only by its starter and admins)."""
        path = f"{_round_path(round_id)}/cancel"
        return self._pool.post(path, rounds.RoundResponse, repeatable=True)

    def send_contribution(
        self,
        round_id: str,
        path: Path,
        site: str,
        *,
        least_others: int = rounds.DEFAULT_LEAST_OTHERS,
        despite_withdrawal: bool = False,
        progress: Progress = no_progress,
    ) -> int:
        """Send a contribution file, going on where an earlier call stopped; return the bytes sent.

        `least_others`: with how many other sites' contributions it may be combined at least. Raises
        `ConflictError` when it is too late or the site has contributed something else, and
        `PoolRefusedFileError` when it does not fit the round.
        """
        _, sent_bytes = sending.send_file(
            self._pool, path, f"{_round_path(round_id)}/contributions", rounds.ContributionRequest,
            progress, site=site, file_name=path.name, least_others=least_others,
            despite_withdrawal=despite_withdrawal,
        )  # fmt: skip
        return sent_bytes

    def reply(self, round_id: str) -> bytes:
        """Return a finished round's reply to one's own site, if its method makes any."""
        return bytes(self._pool.send("GET", f"{_round_path(round_id)}/reply").content)

    def take_back(self, round_id: str, site: str) -> rounds.RoundResponse:
        """Take the contribution of a site back; the pool deletes it."""
        if not re.fullmatch(NAME_PATTERN, site):
            raise PoolRefusedRequestError(f"{site!r} is not a site name")
        path = f"{_round_path(round_id)}/contributions"
        response = self._pool.send("DELETE", f"{path}/{site}")
        note_gone(self._pool.endpoint, path, "taken back")
        return self._pool.read(response, rounds.RoundResponse)

    def finish(
        self, round_id: str, address: ModelAddress, *, despite_withdrawal: bool = False
    ) -> MergeJobResponse:
        """Have the pool combine the contributions and publish the result at `address`.

        Return the merge in the background (`Merges.wait`). A repeated call, during the merge or
        after it, returns the same one.
        """
        request = requests.build_request(
            rounds.FinishRequest,
            site=address.site,
            name=address.name,
            despite_withdrawal=despite_withdrawal,
        )
        path = f"{_round_path(round_id)}/finish"
        return self._pool.post(path, MergeJobResponse, request, repeatable=True)


def _round_path(round_id: str) -> str:
    if not re.fullmatch(rounds.ROUND_KEY_PATTERN, round_id):
        raise PoolRefusedRequestError(
            f"{round_id!r} is not a round: expected 16 hexadecimal digits, such as "
            "4f1d2c3b4a596877",
            hint="poolctl rounds ls lists your rounds",
        )
    return f"/api/v1/rounds/{round_id}"


_SESSIONS = "/api/v1/secure/sessions"


class SecureSessions(connection.Resource):
    """Requests about secure sums; `site_agent.secure` does the part of labs and servers."""

    def open(
        self, descriptor: str, sites: Sequence[str], ends_at: datetime, round_id: str | None = None
    ) -> rounds.SecureSessionResponse:
        """Open a session, or return the one with this descriptor."""
        request = requests.build_request(
            rounds.SecureSessionRequest,
            descriptor=descriptor,
            sites=[*sites],
            ends_at=ends_at,
            round_id=round_id,
        )
        return self._pool.post(_SESSIONS, rounds.SecureSessionResponse, request, repeatable=True)

    def list(self, round_id: str = "") -> Iterator[rounds.SecureSessionSummary]:
        """Yield the sessions that the site takes part in, newest first; of one round if given."""
        return self._pool.pages(_SESSIONS, rounds.SecureSessionPage, {"round": round_id})

    def get(self, session: str) -> rounds.SecureSessionResponse:
        """Return one session."""
        return self._pool.get(_session_path(session), rounds.SecureSessionResponse)

    def post(
        self, session: str, phase: str, sender: str, envelope: str
    ) -> rounds.SecurePostResponse:
        """Post a message; the same one again is no error."""
        request = requests.build_request(
            rounds.SecurePostRequest, sender=sender, phase=phase, envelope=envelope
        )
        return self._pool.post(
            f"{_session_path(session)}/posts", rounds.SecurePostResponse, request, repeatable=True
        )

    def posts(self, session: str, after: int = 0) -> Iterator[rounds.SecurePostResponse]:
        """Yield the messages after a number, in the order of their arrival."""
        while True:
            page = self._pool.get(
                f"{_session_path(session)}/posts", rounds.SecurePostList, {"after": after}
            )
            yield from page.items
            if not page.more or not page.items:
                return
            after = page.items[-1].number

    def send_file(
        self, session: str, sender: str, path: Path, progress: Progress = no_progress
    ) -> str:
        """Send a file, going on where an earlier call stopped; return its SHA-256."""
        folder = f"{_session_path(session)}/files"
        digest, _ = sending.send_file(
            self._pool, path, folder, rounds.SecureFileRequest, progress, site=sender
        )
        return digest

    def receive_file(
        self,
        session: str,
        digest: str,
        target: Path,
        most_bytes: int,
        progress: Progress = no_progress,
    ) -> None:
        """Write a file to `target`, whole or not at all; an interrupted download is resumed.

        A file of more than `most_bytes` cannot be the requested one, and is not fetched.
        """
        url = f"{_session_path(session)}/files/{_require_digest(digest)}"
        asked = self._pool.send("HEAD", url)
        remote = receiving.RemoteFile(
            f"file {digest[:16]}", url, digest, int(asked.headers.get("Content-Length", "0"))
        )
        if remote.size_bytes > most_bytes:
            raise DigestMismatchError(
                f"{remote.label} has {remote.size_bytes} bytes, expected at most {most_bytes}"
            )
        part = target.with_name(f"{target.name}.{digest[:16]}.part")
        with part.open("a+b") as file:
            receiving.receive_file(self._pool, remote, part, file, progress)
        part.replace(target)
        sync_folder(target.parent)


def _session_path(session: str) -> str:
    return f"{_SESSIONS}/{_require_digest(session)}"


def _require_digest(text: str) -> str:
    if not re.fullmatch(DIGEST_PATTERN, text):
        raise PoolRefusedRequestError(
            f"{text!r} is not a SHA-256", hint="poolctl secure status lists your sessions"
        )
    return text
