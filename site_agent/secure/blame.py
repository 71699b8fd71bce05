"""Who is to blame when the check values of labs and servers do not agree.

Each server has posted the check values of every single share. A server whose values do not add up
to its check value is at fault. Where those of a lab do not add up to its tag, the lab posts what
it expects: if that does not give its tag either, the lab is at fault; else it differs from what
some server posted, and one of the two lied. A share is never decrypted to settle it.
"""

from __future__ import annotations

from aggregators.secure_sum.sharing import add_check_values
from site_agent.secure.session import Fault, Session


def find_liars(view: Session, now: float) -> tuple[Fault, ...]:
    """Return who is at fault in a complete blame phase; empty while a lab has time to answer."""
    posted = view.bodies("blame")
    checks = view.bodies("check")
    answers = view.answers()
    faults = [
        Fault("blame", "proof", (server,), f"the parts of {server} do not give its check values")
        for server in posted
        if add_check_values(posted[server].parts.values()) != checks[server].values
    ]
    disputed = disputed_labs(view)
    silent = tuple(lab for lab in disputed if lab not in answers)
    if silent and now <= view.descriptor.deadlines.answer:
        return ()
    if silent:
        text = f"{', '.join(silent)} did not answer in time"
        faults.append(Fault("blame", "silence", silent, text))
    for lab in disputed:
        answer = answers.get(lab)
        if isinstance(answer, Fault):
            faults.append(answer)
        elif answer is not None:
            faults.extend(_compare(view, lab, answer.body.parts))  # type: ignore[union-attr]
    return tuple(faults)


def disputed_labs(view: Session) -> tuple[str, ...]:
    """Return the labs whose tags are not the sum of what the servers posted of their shares."""
    posted, tags = view.bodies("blame"), view.bodies("tag")
    return tuple(
        lab
        for lab in sorted(view.roster)
        if add_check_values(posted[server].parts[lab] for server in posted) != tags[lab].values
    )


def _compare(view: Session, lab: str, expected: dict[str, tuple[int, ...]]) -> list[Fault]:
    if add_check_values(expected.values()) != view.bodies("tag")[lab].values:
        text = f"the answer of {lab} does not give its own tag"
        return [Fault("blame", "proof", (lab,), text)]
    posted = view.bodies("blame")
    return [
        Fault("blame", "pair", (lab, server), f"{lab} and {server} differ; one of them lied")
        for server in sorted(posted)
        if posted[server].parts[lab] != expected[server]
    ]
