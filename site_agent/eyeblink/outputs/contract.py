"""What an output of the eyeblink analysis is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from site_agent.eyeblink.session import AnalysedSession


@dataclass(frozen=True)
class BlinkOutput:
    """One file of an analysed session: a row of `OUTPUTS`, and a function that writes it.

    Laws:

    1. `write` creates exactly the file that it is given, and changes nothing else;
    2. it accepts a session without blinks, without faces, and of a single frame;
    3. its memory does not grow with the length of the session beyond the session's own arrays.

    Attributes
    ----------
    file_name : str
        In a plain folder; the names of the BIDS standard end with it.
    essential : bool
        Without it there are no results. The failure of another output is a warning.
    needs_trials : bool
        Written for sessions with trials only.
    library, extra : str
        Of outputs on request: the library that they need, and the extra with it.
    """

    name: str
    file_name: str
    write: Callable[[AnalysedSession, Path], None]
    essential: bool = False
    needs_trials: bool = False
    library: str = ""
    extra: str = ""

    @property
    def on_request(self) -> bool:
        return bool(self.library)

    def wanted(self, session: AnalysedSession) -> bool:
        if self.needs_trials and session.conditioning is None:
            return False
        return not self.on_request or self.name in session.settings.outputs
