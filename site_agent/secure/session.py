"""A session as its descriptor and the signed messages on a board show it.

`Session` goes through the phases in their order and stops at the first that is not complete. It
names the parties that are waited for and those at fault, and computes the digests that each phase
binds. It believes nothing but signatures, so labs, servers and auditors use it alike.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aggregators.secure_sum.layout import SumLayout
from aggregators.secure_sum.sharing import add_check_values, digest_of, explicit_server
from site_agent.errors import InvalidInputError
from site_agent.secure import messages
from site_agent.secure.charter import Charter

_MOST_NUMBERS = 2**28
_Names = Annotated[tuple[str, ...], Field(max_length=1024)]
_Time = Annotated[float, Field(ge=0, le=2**40, allow_inf_nan=False)]


class Deadlines(BaseModel):
    """Times in seconds since 1970 until which labs share, servers commit, labs tag, and so on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: _Time
    commit: _Time
    tag: _Time
    open: _Time
    answer: _Time


class Descriptor(BaseModel):
    """The subject of a session: its SHA-256 is the session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    charter: messages.Digest
    layout: SumLayout
    attempt: int = Field(ge=1)
    """Tells sessions of the same sum apart."""
    labs: _Names
    """The invited labs; servers close when all have shared."""
    deadlines: Deadlines
    purpose: str = Field(default="", max_length=500)

    def to_bytes(self) -> bytes:
        """Return the bytes that a board keeps."""
        return self.model_dump_json().encode()

    @property
    def subject(self) -> str:
        """The subject of the sum: its base and its layout."""
        return self.layout.subject


def new_descriptor(
    charter: Charter,
    layout: SumLayout,
    now: float,
    *,
    labs: Sequence[str] = (),
    attempt: int = 1,
    purpose: str = "",
) -> Descriptor:
    """Return the descriptor of a new session, with the deadlines that the charter gives.

    `now`: Seconds since 1970. `labs`: The invited labs; all labs of the charter by default.
    """
    lab, server = charter.terms.lab_hours * 3600, charter.terms.server_hours * 3600
    return Descriptor(
        charter=charter.digest,
        layout=layout,
        attempt=attempt,
        labs=tuple(labs) or tuple(charter.labs),
        deadlines=Deadlines(
            share=now + lab,
            commit=now + lab + server,
            tag=now + 2 * lab + server,
            open=now + 2 * lab + 2 * server,
            answer=now + 3 * lab + 2 * server,
        ),
        purpose=purpose,
    )


@dataclass(frozen=True)
class Fault:
    """Something that ends a session.

    Attributes
    ----------
    kind : str
        ``proof``: signed messages show that the party is at fault. ``pair``: one of the two lied.
        ``silence``: the party did not post before the deadline. ``refusal``: the rules do not
        allow to go on, and nobody is at fault.
    parties : tuple of str
        Members of the charter.
    """

    phase: str
    kind: Literal["proof", "pair", "silence", "refusal"]
    parties: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.phase}: {self.text}"


class Session:
    """The state of a session; see the module.

    Attributes
    ----------
    phase : str
        The first phase that is not complete; ``complete`` after the last.
    waiting : tuple of str
        Members without a post in this phase.
    faults : tuple of Fault
        Reasons why the phase cannot be completed.
    transcripts : dict of str to str
        By phase, the digest that its messages must carry.
    roster : dict of str to str
        The labs that all servers received, and the digests of their share messages.
    voids : frozenset of str
        Servers that declared the session void.
    rejected : int
        Posts that their sender did not sign; the board's doing.
    """

    def __init__(self, content: bytes, charter: Charter, posts: Iterable[messages.Post]) -> None:
        self.session = hashlib.sha256(content).hexdigest()
        self.charter = charter
        self.descriptor = parse_descriptor(content, charter)
        self.phase, self.rejected = "keys", 0
        self.waiting: tuple[str, ...] = ()
        self.faults: tuple[Fault, ...] = ()
        self.transcripts: dict[str, str] = {}
        self.roster: dict[str, str] = {}
        self._complete: dict[str, dict[str, messages.Signed]] = {}
        self._messages: dict[str, dict[str, dict[str, messages.Signed]]] = {}
        for post in posts:
            signed = messages.verify_post(post, charter) if post.session == self.session else None
            if signed is None:
                self.rejected += 1
            else:
                by_sender = self._messages.setdefault(post.phase, {})
                by_sender.setdefault(post.sender, {})[signed.digest] = signed
        self.voids = frozenset(self._messages.get("void", ()))
        self._review()

    @property
    def is_void(self) -> bool:
        """True if all servers declared that they have not opened and deleted their shares."""
        return self.voids == frozenset(self.charter.servers)

    def bodies(self, phase: str) -> dict[str, Any]:
        """Return the bodies of a complete phase, by sender."""
        return {sender: item.body for sender, item in self._complete[phase].items()}

    def has(self, phase: str) -> bool:
        """Return whether a phase is complete."""
        return phase in self._complete

    def posted(self, phase: str, sender: str) -> bool:
        """Return whether the board shows a signed message of a sender."""
        return bool(self._messages.get(phase, {}).get(sender))

    def seen(self, phase: str) -> dict[str, str]:
        """Return the digests of the messages of the phase before `phase`, by sender."""
        before = {
            "share": "keys", "receipt": "keys", "commit": "receipt", "tag": "commit",
            "check": "tag", "blame": "check", "answer": "blame", "opening": "check",
            "result": "opening",
        }  # fmt: skip
        if phase not in before:
            return {}
        return {sender: item.digest for sender, item in self._complete[before[phase]].items()}

    @cached_property
    def shares(self) -> dict[str, messages.Signed]:
        """Share messages of invited labs that can be received: one a lab, for these keys."""
        shares = {}
        for lab in self.descriptor.labs:
            signed = list(self._messages.get("share", {}).get(lab, {}).values())
            if len(signed) == 1 and not self._share_problem(signed[0]):
                shares[lab] = signed[0]
        return shares

    @property
    def checks_agree(self) -> bool:
        """True if the labs' check values add up to those of the servers."""
        tags, checks = self.bodies("tag"), self.bodies("check")
        return add_check_values(tag.values for tag in tags.values()) == add_check_values(
            check.values for check in checks.values()
        )

    def share_of(self, lab: str) -> messages.ShareBody:
        """Return the share message of a lab on the roster."""
        return cast(messages.ShareBody, self._messages["share"][lab][self.roster[lab]].body)

    def _review(self) -> None:
        servers = tuple(self.charter.servers)
        if not self._take("keys", servers, self.session):
            return
        transcript = self._bind("keys", self.session)
        self.transcripts["share"] = transcript
        if not self._take("receipt", servers, transcript):
            return
        if not self._find_roster():
            return
        transcript = self._bind("receipt", transcript, *sorted(self.roster.items()))
        labs = tuple(sorted(self.roster))
        for phase, senders in (("commit", servers), ("tag", labs), ("check", servers)):
            if not self._take(phase, senders, transcript):
                return
            transcript = self._bind(phase, transcript)
        if not self.checks_agree:
            if self._take("blame", servers, transcript):
                self.transcripts["answer"] = self._bind("blame", transcript)
            return
        if self._take("opening", servers, transcript):
            transcript = self._bind("opening", transcript)
            if self._take("result", servers, transcript):
                self.phase = "complete"

    def _bind(self, phase: str, transcript: str, *further: tuple[str, str]) -> str:
        digests = sorted((sender, item.digest) for sender, item in self._complete[phase].items())
        parts = [part for pair in (*digests, *further) for part in pair]
        return digest_of("transcript", transcript, phase, *parts).hex()

    def _take(self, phase: str, senders: Sequence[str], transcript: str) -> bool:
        """Complete a phase, if each sender has posted one message that follows from this state."""
        self.phase, self.transcripts[phase] = phase, transcript
        complete, missing, faults = {}, [], []
        for sender in senders:
            signed = list(self._messages.get(phase, {}).get(sender, {}).values())
            if not signed:
                missing.append(sender)
            elif len(signed) > 1:
                text = f"{sender} signed {len(signed)} different messages"
                faults.append(Fault(phase, "proof", (sender,), text))
            elif signed[0].message.transcript != transcript:
                faults.append(self._disagreement(phase, sender, signed[0]))
            elif (problem := self._body_problem(phase, signed[0])) != "":
                faults.append(Fault(phase, "proof", (sender,), f"{sender} signed {problem}"))
            else:
                complete[sender] = signed[0]
        self.waiting, self.faults = tuple(missing), tuple(faults)
        if missing or faults:
            return False
        self._complete[phase] = complete
        return True

    def _disagreement(self, phase: str, sender: str, signed: messages.Signed) -> Fault:
        """Return the liars where a message follows from other messages than are seen here.

        A lab or server goes on only when the messages that it sees agree in all earlier ones. So
        only those of the phase before can differ, and each of them is signed.
        """
        mine, theirs = self.seen(phase), signed.message.seen
        other = tuple(sorted(name for name in mine if theirs.get(name) != mine[name]))
        if not other or set(mine) != set(theirs):
            text = f"{sender} signed a transcript that does not follow from what it saw"
            return Fault(phase, "proof", (sender,), text)
        names = " and ".join(other)
        text = f"{sender} states other messages of {names} than are seen here; one of them lied"
        return Fault(phase, "pair", (sender, *other), text)

    def _body_problem(self, phase: str, signed: messages.Signed) -> str:
        body = signed.body
        if body is None:
            return "no message of this phase"
        count = self.charter.terms.challenges
        if isinstance(body, messages.ValuesBody) and len(body.values) != count:
            return f"{len(body.values)} check values, expected {count}"
        if isinstance(body, messages.PartsBody):
            expected = set(self.roster) if phase == "blame" else set(self.charter.servers)
            if set(body.parts) != expected or any(len(x) != count for x in body.parts.values()):
                return "other parts than were asked for"
        return ""

    def _share_problem(self, signed: messages.Signed) -> str:
        """Return why a share message cannot be received; empty if it can."""
        body, lab = signed.body, signed.message.sender
        servers = tuple(self.charter.servers)
        if not isinstance(body, messages.ShareBody):
            return "no share message"
        if signed.message.transcript != self.transcripts.get("share"):
            return "made for other keys of the servers"
        explicit = explicit_server(self.session, lab, servers)
        if body.server != explicit or set(body.seeds) != {*servers} - {explicit}:
            return "shares for other servers"
        return ""

    def _find_roster(self) -> bool:
        receipts: list[messages.ReceiptBody] = list(self.bodies("receipt").values())
        missing = []
        for lab in self.descriptor.labs:
            digests = {receipt.received.get(lab, "") for receipt in receipts}
            if len(digests) != 1 or (digest := digests.pop()) == "":
                continue
            signed = self._messages.get("share", {}).get(lab, {}).get(digest)
            if signed is None:
                missing.append(lab)
            elif not self._share_problem(signed):
                self.roster[lab] = digest
        least = self.charter.terms.least_labs
        if missing:
            # The servers have a message that the board does not show here.
            self.waiting = tuple(missing)
        elif len(self.roster) < least:
            text = f"all servers received {len(self.roster)} labs; the charter asks for {least}"
            self.faults = (Fault("receipt", "refusal", (), text),)
        return not missing and not self.faults

    def answers(self) -> dict[str, messages.Signed | Fault]:
        """Return the answers of the roster's labs to the blame phase."""
        answers: dict[str, messages.Signed | Fault] = {}
        transcript = self.transcripts.get("answer", "")
        for lab in self.roster:
            signed = list(self._messages.get("answer", {}).get(lab, {}).values())
            if len(signed) == 1 and signed[0].message.transcript == transcript:
                problem = self._body_problem("answer", signed[0])
                text = f"{lab} signed {problem}"
                answers[lab] = Fault("blame", "proof", (lab,), text) if problem else signed[0]
            elif signed:
                text = f"{lab} signed several answers, or one to other messages"
                answers[lab] = Fault("blame", "proof", (lab,), text)
        return answers


def parse_descriptor(content: bytes, charter: Charter) -> Descriptor:
    """Read a descriptor.

    Raises `InvalidInputError`: it is not a descriptor, or belongs to another charter.
    """
    try:
        descriptor = Descriptor.model_validate_json(content)
        size = descriptor.layout.size
    except (ValidationError, ValueError) as error:
        raise InvalidInputError(f"not the descriptor of a session: {error}") from error
    if descriptor.charter != charter.digest:
        raise InvalidInputError(
            f"the session is under the charter {descriptor.charter[:16]}, not {charter.digest[:16]}"
        )
    if unknown := sorted(set(descriptor.labs) - set(charter.labs)):
        raise InvalidInputError(f"the session invites {unknown[0]}, which the charter lacks")
    if not 0 < size <= _MOST_NUMBERS:
        raise InvalidInputError(f"a sum of {size:,} numbers; at most {_MOST_NUMBERS:,}")
    _require_deadlines_of(charter, descriptor.deadlines)
    return descriptor


def _require_deadlines_of(charter: Charter, deadlines: Deadlines) -> None:
    """Raise `InvalidInputError` unless each phase is as long as the charter says.

    Otherwise the opener of a session could leave a lab no time, or keep shares for years.
    """
    lab, server = charter.terms.lab_hours * 3600, charter.terms.server_hours * 3600
    phases = {
        "commit": (deadlines.share, deadlines.commit, server),
        "tag": (deadlines.commit, deadlines.tag, lab),
        "open": (deadlines.tag, deadlines.open, server),
        "answer": (deadlines.open, deadlines.answer, lab),
    }
    for name, (start, end, expected) in phases.items():
        if abs(end - start - expected) > 1:
            raise InvalidInputError(
                f"the session gives {(end - start) / 3600:g} h until {name}; the charter gives "
                f"{expected / 3600:g} h"
            )
