"""A lab in a secure sum: it shares on its first visit and tags on its second.

The lab's own ledger decides about its sessions. A second session of the same sum gets the same
numbers and the same roster, unless all servers signed that the first one is void: else the
difference of two sums would show one lab's numbers.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aggregators.secure_sum import sharing
from aggregators.secure_sum.layout import SumLayout
from aggregators.whole_file import write_whole
from pool_server.wire.signatures.keys import Envelope
from site_agent.errors import ConflictError, InvalidInputError, NotFoundError, SecureSumError
from site_agent.plain_json import write_json
from site_agent.secure.messages import PartsBody, ShareBody, ValuesBody
from site_agent.secure.party import Party, challenges_of, seal_share
from site_agent.secure.session import Fault, Session
from site_agent.secure.verification import Mode, WrittenResult, disputed_labs, verify_result


@dataclass(frozen=True)
class RosterPolicy:
    """A lab's demands on the other labs of a sum; the charter's `least_labs` holds besides.

    `least_others`: Fewest other labs. `insists_on`: Labs that must be among them, because this lab
    knows that they are honest.
    """

    least_others: int = 0
    insists_on: frozenset[str] = frozenset()

    def require(self, view: Session) -> None:
        """Raise `ConflictError` unless the roster of a session is as this lab asks."""
        roster = sorted(view.roster)
        lacking = sorted(self.insists_on - set(roster))
        if lacking or len(roster) - 1 < self.least_others:
            expected = (
                f"insists on {', '.join(lacking)}"
                if lacking
                else (f"asks for {self.least_others} others")
            )
            raise ConflictError(
                f"session {view.session[:16]} would sum {', '.join(roster)}, "
                f"and this lab {expected}",
                hint="nothing was tagged, so no sum with this lab's numbers can be opened",
                code="roster_refused",
            )


_CLOCKS_DIFFER_S = 300.0


class Lab(Party):
    """A lab on one machine; see `Party`."""

    role = "labs"

    def approve_base(self, digest: str) -> None:
        """Record that updates of this base may be summed: its user chose it, or verified it as
        the result of the round before.
        """
        with self.ledger.at_work():
            if not self.ledger.find("base", digest=digest):
                self.ledger.append({"kind": "base", "digest": digest})

    def share(
        self, session: str, layout: SumLayout, numbers: sharing.UInt64, labs: Collection[str] = ()
    ) -> bool:
        """Share a vector; return False while the servers have not posted their keys.

        Parameters
        ----------
        layout : SumLayout
            This lab's layout; the session must have the same.
        numbers : uint64, shape (size of the layout,)
            The encoded vector.
        labs : collection of str
            Those that the session must invite; any of the charter where empty.

        Raises
        ------
        InvalidInputError
            The session has another layout, or its base was not approved.
        ConflictError
            This lab gave other numbers to this sum.
        SecureSumError
            The session cannot go on.
        """
        digest = hashlib.sha256(sharing.to_bytes(numbers)).hexdigest()
        with self.ledger.at_work():
            view = self.review(session)
            if self.has_said(session, "share"):
                if self.facts(session, "share")["input"] != digest:
                    raise ConflictError(f"other numbers were shared in session {session[:16]}")
                self.resume(view)
                return True
            self._require_wanted(view, layout, labs)
            self._require_consistent(view, digest, None)
            if view.faults or view.voids:
                raise SecureSumError(view.faults or (_declared_void(view),))
            if not view.has("keys"):
                return False
            if self.clock() > view.descriptor.deadlines.share or view.phase != "receipt":
                raise ConflictError(f"session {session[:16]} takes no more shares")
            self._share(view, numbers, digest)
            return True

    def visit(
        self,
        session: str,
        policy: RosterPolicy | None = None,
        show_roster: Callable[[Sequence[str]], None] = lambda _labs: None,
    ) -> Session:
        """Tag the shared vector, or answer in the blame phase, when it is time.

        Without its tag no sum over this lab's numbers is ever opened.

        `policy`: This lab's demands on the other labs, besides the charter.
        `show_roster`: Called with the labs of the sum before the tag is given.

        Raises `ConflictError` if an earlier session of this sum had another roster and is not void,
        and `SecureSumError` if the session cannot go on, or the servers did not receive this lab.
        """
        with self.ledger.at_work():
            view = self.review(session)
            self.resume(view)
            if self._note_void(session, view):
                return view
            if not self.has_said(session, "tag"):
                if view.faults:
                    raise SecureSumError(view.faults)
                if "commit" in view.transcripts:
                    self._require_received(view)
                if view.phase == "tag":
                    (policy or RosterPolicy()).require(view)
                    show_roster(sorted(view.roster))
                    self._tag(view)
            elif view.has("blame") and not self.has_said(session, "answer"):
                self._answer(view)
            elif view.faults:
                raise SecureSumError(view.faults)
            return self.review(session)

    def finish(self, session: str, target: Path, mode: Mode = "servers") -> WrittenResult:
        """Verify a session that this lab tagged and write its result.

        Raises `SecureSumError` if the session has no result, or one that does not verify.
        """
        with self.ledger.at_work():
            view = self.review(session)
            if not self.has_said(session, "tag"):
                raise InvalidInputError(f"{self.name} did not tag session {session[:16]}")
            written = verify_result(view, self.board, target, mode=mode)
            if not self.ledger.find("result", session=session):
                self.ledger.append(
                    {"kind": "result", "session": session, "file": written.file_digest}
                )
            self.forget_secrets(session)
            return written

    def _require_wanted(self, view: Session, layout: SumLayout, labs: Collection[str]) -> None:
        layout_ = view.descriptor.layout
        if layout_.digest != layout.digest:
            raise InvalidInputError(
                f"session {view.session[:16]} sums something else than this lab gives: "
                f"layout {layout_.digest[:16]}, expected {layout.digest[:16]}"
            )
        if not self.ledger.find("base", digest=layout.base_digest):
            raise InvalidInputError(
                f"the base {layout.base_digest[:16]} was not approved by this lab"
            )
        invited = view.descriptor.labs
        if self.name not in invited:
            raise InvalidInputError(f"session {view.session[:16]} does not invite {self.name}")
        if labs and set(invited) != set(labs):
            # Few labs that open a session of their own could isolate another in it.
            raise InvalidInputError(
                f"session {view.session[:16]} invites {', '.join(sorted(invited))}, expected "
                f"{', '.join(sorted(labs))}"
            )
        lab_s = self.charter.terms.lab_hours * 3600
        if view.descriptor.deadlines.share > self.clock() + lab_s + _CLOCKS_DIFFER_S:
            raise InvalidInputError(
                f"session {view.session[:16]} takes shares for longer than the charter's "
                f"{self.charter.terms.lab_hours:g} h"
            )

    def _require_consistent(self, view: Session, digest: str, roster: list[str] | None) -> None:
        """Refuse a session that would show the difference to an earlier one of the same sum."""
        subject = view.descriptor.subject
        for entry in self.ledger.find("post", phase="tag", subject=subject):
            earlier = entry["session"]
            if earlier == view.session or self.is_void(earlier):
                continue
            facts = entry["facts"]
            if facts["input"] != digest or (roster is not None and facts["roster"] != roster):
                different = "numbers" if facts["input"] != digest else "labs"
                raise ConflictError(
                    f"session {earlier[:16]} of the same sum had other {different}, and not all "
                    "servers declared it void",
                    hint="wait for the next base",
                    code="sum_repeated",
                )

    def is_void(self, session: str) -> bool:
        """Return whether all servers declared a session void, as the ledger or the board says."""
        if self.ledger.find("voided", session=session):
            return True
        try:
            return self._note_void(session, self.review(session))
        except (NotFoundError, InvalidInputError):
            return False

    def _note_void(self, session: str, view: Session) -> bool:
        """Remember that all servers declared a session void, and delete its secrets."""
        if view.is_void and not self.ledger.find("voided", session=session):
            self.ledger.append({"kind": "voided", "session": session})
            self.forget_secrets(session)
        return view.is_void

    def _share(self, view: Session, numbers: sharing.UInt64, digest: str) -> None:
        servers = tuple(self.charter.servers)
        explicit = sharing.explicit_server(view.session, self.name, servers)
        seeds = {server: os.urandom(sharing.SEED_BYTES) for server in servers if server != explicit}
        masks = sharing.random_numbers(
            os.urandom(sharing.SEED_BYTES), self.charter.terms.challenges
        )
        # The masks keep the check values, which all see, from showing anything of the numbers.
        vector = np.concatenate([numbers, masks])
        # On disk before anything is posted: the tag on the next visit must be of this very vector.
        folder = self.secrets(view.session)
        write_whole(folder / "vector", sharing.to_bytes(vector), mode=0o600)
        texts = {server: seed.hex() for server, seed in seeds.items()}
        write_json(folder / "seeds.json", texts, mode=0o600)
        rest = sharing.to_bytes(sharing.explicit_share(vector, seeds, view.session, self.name))
        sealed = {
            server: self._seal(view, server, content)
            for server, content in [*seeds.items(), (explicit, rest)]
        }
        blob = folder / "share"
        write_whole(blob, sealed[explicit], mode=0o600)
        body = ShareBody(
            seeds={server: base64.b64encode(sealed[server]).decode() for server in seeds},
            server=explicit,
            blob=hashlib.sha256(sealed[explicit]).hexdigest(),
        )
        self.say(view, "share", body, blob=blob, input=digest)

    def _seal(self, view: Session, server: str, content: bytes) -> bytes:
        context = ("share", view.session, view.transcripts["share"], self.name, server)
        try:
            public = base64.b64decode(view.bodies("keys")[server].hpke, validate=True)
            return seal_share(content, public, *context)
        except ValueError as error:
            text = f"{server} signed something that is not a key"
            raise SecureSumError((Fault("keys", "proof", (server,), text),)) from error

    def _tag(self, view: Session) -> None:
        if self.clock() > view.descriptor.deadlines.tag or view.voids:
            raise ConflictError(f"session {view.session[:16]} takes no more tags")
        roster = sorted(view.roster)
        self._require_roster_of_presence(view, roster)
        digest = self.facts(view.session, "share")["input"]
        self._require_consistent(view, digest, roster)
        values = sharing.check_values(self._vector(view), challenges_of(view))
        self.say(view, "tag", ValuesBody(values=values), input=digest, roster=roster)

    def _require_roster_of_presence(self, view: Session, roster: list[str]) -> None:
        """Refuse the second sum of leaves over other labs than the first, which counted them.

        A leaf that three labs reach would show one of them if the other two were left out.
        """
        layout = view.descriptor.layout
        if layout.kind != "leaf-sums":
            return
        counted = [
            entry["facts"]["roster"]
            for entry in self.ledger.find(
                "post", phase="tag", subject=f"leaf-presence:{layout.base_digest}"
            )
            if not self.is_void(entry["session"])
        ]
        if roster not in counted:
            were = "; ".join(", ".join(item) for item in counted) or "none"
            raise ConflictError(
                f"session {view.session[:16]} sums leaves of {', '.join(roster)}, and the labs "
                f"that reach them were counted among {were}",
                hint="nothing was tagged; the round goes on with the next base",
                code="rosters_differ",
            )

    def _require_received(self, view: Session) -> None:
        """Raise `SecureSumError` unless this lab is on the roster, with the share that it made."""
        mine = self._said_digest(view.session)
        if view.roster.get(self.name, "") != mine:
            reasons = {
                server: receipt.refused.get(self.name, "no share arrived")
                for server, receipt in view.bodies("receipt").items()
                if receipt.received.get(self.name) != mine
            }
            text = "; ".join(f"{server} did not receive: {why}" for server, why in reasons.items())
            raise SecureSumError((Fault("commit", "refusal", (), text),))

    def _answer(self, view: Session) -> None:
        if self.name not in disputed_labs(view) or not self.has_said(view.session, "tag"):
            return
        folder = self.secrets(view.session)
        vector = self._vector(view)
        texts = json.loads((folder / "seeds.json").read_text())
        seeds = {server: bytes.fromhex(text) for server, text in texts.items()}
        explicit = sharing.explicit_server(view.session, self.name, tuple(self.charter.servers))
        drawn = challenges_of(view)
        rest = sharing.explicit_share(vector, seeds, view.session, self.name)
        parts = {explicit: sharing.check_values(rest, drawn)}
        for server, seed in seeds.items():
            share = sharing.share_from_seed(seed, view.session, self.name, server, len(vector))
            parts[server] = sharing.check_values(share, drawn)
        self.say(view, "answer", PartsBody(parts=parts))

    def _vector(self, view: Session) -> sharing.UInt64:
        count = view.descriptor.layout.size + self.charter.terms.challenges
        return sharing.from_bytes((self.secrets(view.session) / "vector").read_bytes(), count)

    def _said_digest(self, session: str) -> str:
        entries = self.ledger.find("post", session=session, phase="share")
        if not entries:
            return "none"
        body = Envelope.model_validate_json(entries[0]["envelope"]).body()
        return hashlib.sha256(body).hexdigest()


def _declared_void(view: Session) -> Fault:
    text = f"{', '.join(sorted(view.voids))} declared the session void"
    return Fault(view.phase, "refusal", (), text)
