"""Which sessions of a person are held out of a training."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError

HELD_OUT = "held-out"
HELD_OUT_SHARE = 0.2


def held_out_sessions(samples: GazeSamples, share: float = HELD_OUT_SHARE) -> NDArray[np.bool_]:
    """Mark the samples of the sessions that are held out of a training.

    Of each person with two sessions or more about `share` of the sessions, at least one and never
    all; of the others none. Frames of one session resemble each other, so that whole sessions are
    held out. The choice depends on the names of person and sessions alone: equal names and
    shares give equal choices everywhere.

    Parameters
    ----------
    share : float
        0 to 1; 0 holds out nothing.

    Returns
    -------
    bool, shape (n,)
    """
    held = np.zeros(len(samples), dtype=np.bool_)
    for person in np.unique(samples.person) if share > 0 else ():
        own = samples.person == person
        sessions = sorted(np.unique(samples.session[own]), key=lambda name: _order(person, name))
        count = min(max(1, round(share * len(sessions))), len(sessions) - 1)
        held |= own & np.isin(samples.session, sessions[:count])
    return held


def select_sessions(samples: GazeSamples, sessions: Sequence[str]) -> GazeSamples:
    """Return the samples of some sessions: of these names, or those held out by default.

    Parameters
    ----------
    sessions : sequence of str
        Names; ``held-out`` alone for `held_out_sessions`; empty for all.

    Raises
    ------
    InvalidInputError
        Nobody has such a session.
    """
    if not sessions:
        return samples
    if list(sessions) == [HELD_OUT]:
        held = held_out_sessions(samples)
        if not held.any():
            raise InvalidInputError("no person has two sessions, so that none is held out")
        return samples[held]
    known = np.unique(samples.session)
    if unknown := sorted(set(sessions) - set(known.tolist())):
        raise InvalidInputError(
            f"there is no session {', '.join(unknown)}; expected {', '.join(known.tolist())}, or "
            f"{HELD_OUT}"
        )
    return samples[np.isin(samples.session, list(sessions))]


def _order(person: str, session: str) -> bytes:
    return hashlib.sha256(f"poolctl-session/1|{person}|{session}".encode()).digest()
