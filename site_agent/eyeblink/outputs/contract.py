"""What an output of the eyeblink analysis must be able to do."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from site_agent.eyeblink.session import AnalysedSession


class BlinkOutput(Protocol):
    """Writes one file of an analysed session.

    A new one is a module with such a class and a line in `OUTPUTS`. Laws:

    1. `write` creates exactly the file that it is given, and changes nothing else;
    2. it copes with a session without blinks, without faces, and of a single frame;
    3. its memory does not grow with the length of the session beyond the session's own arrays.

    Attributes
    ----------
    name : str
    file_name : str
        In a plain folder; the names of the BIDS standard end with it.
    essential : bool
        Without it there are no results. The failure of another output is a warning.
    """

    @property
    def name(self) -> str: ...

    @property
    def file_name(self) -> str: ...

    @property
    def essential(self) -> bool: ...

    def wanted(self, session: AnalysedSession, /) -> bool:
        """Whether the session has anything for it, and it was asked for where it must be."""
        ...

    def write(self, session: AnalysedSession, path: Path) -> None: ...
