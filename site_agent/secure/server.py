"""An aggregation server: one step of a session at a time, whenever its process looks.

Every step is decided from the board and the server's own ledger. A server that was killed goes on
where it was, and nothing that a board shows makes it open a sum twice.
"""

import base64
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from aggregators.formats import file_digest
from aggregators.secure_sum import sharing
from aggregators.whole_file import write_whole
from site_agent import errors
from site_agent.secure import messages, party, verification
from site_agent.secure.session import Fault, Session

_MOST_REASON = 2000
_POLL_INTERVAL_S = 1.0
_SEALING_BYTES = 1000
"""More than the encapsulated key and the tag of a sealed share take."""


class Server(party.Party):
    """An aggregation server on one machine; see `Party`."""

    role = "servers"

    def act(self, session: str) -> Session:
        """Take the possible steps in a session, and return its state.

        Raises `InvalidInputError` if the session is not under this charter.
        """
        with self.ledger.at_work():
            self.resume(self.review(session))
            while self._step(view := self.review(session)):
                pass
            return view

    def declare_void(self, session: str, reason: str) -> bool:
        """Abandon a session, unless this server opened it; return whether it is abandoned."""
        with self.ledger.at_work():
            return self._void(self.review(session), reason)

    def _step(self, view: Session) -> bool:
        """Take one step; return whether the board may now show something new."""
        # The ledger decides, not the board: it may hide what this server declared.
        if self.has_said(view.session, "void") or view.posted("result", self.name):
            self.forget_secrets(view.session)
            return False
        if not self.has_said(view.session, "opening") and (reason := self._objection(view)):
            self._void(view, reason)
            return True
        if view.faults or self.has_said(view.session, view.phase):
            return False
        steps: dict[str, Callable[[Session], bool]] = {
            "keys": self._give_key,
            "receipt": self._give_receipt,
            "commit": self._commit,
            "check": self._check,
            "blame": self._blame,
            "opening": self._open,
            "result": self._give_result,
        }
        return steps[view.phase](view) if view.phase in steps else False

    def _objection(self, view: Session) -> str:
        """Return the reason why the session can no longer be opened; empty while it can."""
        if view.voids:
            return f"{', '.join(sorted(view.voids))} declared it void"
        faults = view.faults or self._silence(view)
        if view.phase == "blame" and view.has("blame") and not faults:
            faults = verification.find_liars(view, self.clock())
        return "; ".join(str(fault) for fault in faults)[:_MOST_REASON]

    def _silence(self, view: Session) -> tuple[Fault, ...]:
        deadlines = view.descriptor.deadlines
        until = {
            "keys": deadlines.share, "receipt": deadlines.commit, "commit": deadlines.commit,
            "tag": deadlines.tag, "check": deadlines.open, "blame": deadlines.open,
            "opening": deadlines.open,
        }  # fmt: skip
        if not view.waiting or self.clock() <= until.get(view.phase, float("inf")):
            return ()
        if not (silent := tuple(name for name in view.waiting if name != self.name)):
            text = f"the board does not show what {self.name} posted, or it was late"
            return (Fault(view.phase, "refusal", (), text),)
        text = f"{', '.join(silent)} did not post in time"
        return (Fault(view.phase, "silence", silent, text),)

    def _void(self, view: Session, reason: str) -> bool:
        if self.has_said(view.session, "opening"):
            return False
        self.say(view, "void", messages.VoidBody(reason=reason))
        self.forget_secrets(view.session)
        return True

    def _give_key(self, view: Session) -> bool:
        private, public = party.create_session_key()
        write_whole(self.secrets(view.session) / "session.key", private, mode=0o600)
        self.say(view, "keys", messages.KeysBody(hpke=base64.b64encode(public).decode()))
        return True

    def _give_receipt(self, view: Session) -> bool:
        invited = view.descriptor.labs
        here = [lab for lab in invited if view.posted("share", lab)]
        # Labs that share in time are waited for: these receipts close the roster.
        if len(here) < len(invited) and self.clock() <= view.descriptor.deadlines.share:
            return False
        received, refused = {}, {}
        for lab in here:
            if lab not in view.shares:
                refused[lab] = "no single share message for the keys of this session"
                continue
            try:
                self._share(view, lab, view.shares[lab].body)
            except (ValueError, errors.NotFoundError, errors.DigestMismatchError) as error:
                refused[lab] = str(error)[:200]
            else:
                received[lab] = view.shares[lab].digest
        self.say(view, "receipt", messages.ReceiptBody(received=received, refused=refused))
        return True

    def _commit(self, view: Session) -> bool:
        roster = sorted(view.roster)
        # Sums over two rosters would show by their difference what one lab gave.
        for entry in self.ledger.find("post", phase="commit", subject=view.descriptor.subject):
            earlier = entry["session"]
            if not self.has_said(earlier, "void") and entry["facts"]["roster"] != roster:
                reason = (
                    f"session {earlier[:16]} of the same sum has another roster and is not void"
                )
                return self._void(view, reason)
        total = self._zeros(view)
        for lab in roster:
            sharing.add_to(total, self._share(view, lab, view.share_of(lab)))
        folder = self.secrets(view.session)
        opener = os.urandom(sharing.SEED_BYTES)
        write_whole(folder / "opener", opener, mode=0o600)
        write_whole(folder / "sum", sharing.to_bytes(total), mode=0o600)
        made = sharing.commitment(view.session, roster, self.name, opener, total)
        self.say(view, "commit", messages.CommitBody(commitment=made), roster=roster)
        return True

    def _check(self, view: Session) -> bool:
        values = sharing.check_values(self._sum(view), party.challenges_of(view))
        self.say(view, "check", messages.ValuesBody(values=values))
        return True

    def _blame(self, view: Session) -> bool:
        drawn = party.challenges_of(view)
        parts = {
            lab: sharing.check_values(self._share(view, lab, view.share_of(lab)), drawn)
            for lab in sorted(view.roster)
        }
        self.say(view, "blame", messages.PartsBody(parts=parts))
        return True

    def _open(self, view: Session) -> bool:
        folder = self.secrets(view.session)
        path = folder / "sum"
        digest = file_digest(path)
        opener = (folder / "opener").read_bytes().hex()
        self.say(view, "opening", messages.OpeningBody(blob=digest, opener=opener), blob=path)
        return True

    def _give_result(self, view: Session) -> bool:
        folder = self.secrets(view.session)
        try:
            total = verification.add_openings(view, self.board, folder)
            written = verification.write_result(view, total, folder / "result")
        except errors.SecureSumError:
            return False  # every verifier finds the same
        body = messages.ResultBody(
            sum=written.sum_digest,
            labs=tuple(sorted(view.roster)),
            weight=written.weight,
            file=written.file_digest,
        )
        self.say(view, "result", body, blob=folder / "result")
        return True

    def _share(self, view: Session, lab: str, body: Any) -> sharing.UInt64:
        """Return this server's share of a lab's vector; raise ValueError where it has none."""
        assert isinstance(body, messages.ShareBody)
        count = len(self._zeros(view))
        context = ("share", view.session, view.transcripts["share"], lab, self.name)
        private = (self.secrets(view.session) / "session.key").read_bytes()
        if body.server != self.name:
            sealed = base64.b64decode(body.seeds[self.name], validate=True)
            seed = party.open_share(sealed, private, *context)
            if len(seed) != sharing.SEED_BYTES:
                raise ValueError(f"a seed of {len(seed)} bytes, expected {sharing.SEED_BYTES}")
            return sharing.share_from_seed(seed, view.session, lab, self.name, count)
        path = self.secrets(view.session) / f"share.{lab}"
        if not path.exists():
            self.board.get_blob(
                view.session, body.blob, path, sharing.NUMBER_BYTES * count + _SEALING_BYTES
            )
        if file_digest(path) != body.blob:
            path.unlink()
            raise ValueError("the file of the share is not the one that the lab signed")
        return sharing.from_bytes(party.open_share(path.read_bytes(), private, *context), count)

    def _sum(self, view: Session) -> sharing.UInt64:
        content = (self.secrets(view.session) / "sum").read_bytes()
        return sharing.from_bytes(content, len(self._zeros(view)))

    def _zeros(self, view: Session) -> sharing.UInt64:
        count = view.descriptor.layout.size + self.charter.terms.challenges
        return np.zeros(count, dtype=np.uint64)


def serve(server: Server, *, report: Callable[[str], None]) -> None:
    """Look at a board again and again and act in all sessions of the server's charter.

    `report`: Gets every change, in one line.
    """
    last: dict[str, str] = {}
    ended: set[str] = set()

    def say(subject: str, state: str) -> None:
        if last.get(subject) != state:
            last[subject] = state
            report(f"{subject[:16]}: {state}")

    while True:
        try:
            for session in [session for session in server.board.sessions() if session not in ended]:
                try:
                    view = server.act(session)
                except errors.InvalidInputError as error:
                    ended.add(session)
                    say(session, f"not served: {error}")
                    continue
                state = "void" if view.is_void else view.phase
                if state in ("void", "complete"):
                    ended.add(session)
                say(session, state)
        except errors.PoolClientError as error:
            # The pool may be back at the next look.
            say("board", str(error))
        time.sleep(_POLL_INTERVAL_S)
