"""The states of a version: who is shown it in which, and how it gets from one to another.

==============  ==========================================  ====================================
state           who sees it                                 how it comes about
==============  ==========================================  ====================================
``draft``       its own site, and curators of the pool      uploaded as one, or to a curated
                                                            pool by others than its curators, or
                                                            while the same
                                                            file is quarantined; or merged by a
                                                            pool that demands signatures
``available``   everybody who may see the model             uploaded, published, or released
``quarantined`` its own site, and curators of the pool      a curator doubts what was available
``withdrawn``   everybody who asks for it by number,        withdrawn with a reason, once it was
                digest or state; no listing shows it        available; who has it is notified
``deleted``     nobody; family trees keep its digest        deleted; number and name stay taken
==============  ==========================================  ====================================

A state only narrows: whether a caller may see the model at all is a question of its visibility
(`pool_server.registry.access`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pool_server.database.records import ModelVersionRecord, now_utc
from pool_server.errors import ConflictError
from pool_server.wire.models import StateChoice, VersionState

DRAFT: VersionState = "draft"
AVAILABLE: VersionState = "available"
QUARANTINED: VersionState = "quarantined"
WITHDRAWN: VersionState = "withdrawn"
DELETED: VersionState = "deleted"

ANY: StateChoice = "any"
PUBLIC = (AVAILABLE, WITHDRAWN)
"""States in which everybody who may see the model may ask for the version."""
HIDDEN = (DRAFT, QUARANTINED)
"""States that only the own site and the pool's curators see; they wait for a curator."""


@dataclass(frozen=True)
class Step:
    """A change of state, named by a word such as ``"published"``, and where it may start."""

    word: str
    starts: tuple[str, ...]
    end: str


PUBLISH = Step("published", (DRAFT,), AVAILABLE)
QUARANTINE = Step("quarantined", (AVAILABLE,), QUARANTINED)
RELEASE = Step("released", (QUARANTINED,), AVAILABLE)
WITHDRAW = Step("withdrawn", (AVAILABLE, QUARANTINED), WITHDRAWN)
DELETE = Step("deleted", (DRAFT, AVAILABLE, WITHDRAWN), DELETED)


def move(version: ModelVersionRecord, step: Step, actor: str, reason: str = "") -> None:
    """Change a version's state, or raise `ConflictError` if the step does not start there."""
    if version.state not in step.starts:
        raise ConflictError(
            f"version {version.number} is {version.state} and cannot be {step.word}; expected it "
            f"to be {' or '.join(step.starts)}",
            code="wrong_state",
            details={"found": version.state, "expected": list(step.starts)},
        )
    version.state = step.end
    version.state_reason = reason
    version.state_changed_at = now_utc()
    version.state_changed_by = actor
