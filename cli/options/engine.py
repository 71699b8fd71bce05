"""Options of commands that do many jobs: where, and together with which other processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cli.frame.errors import UsageError
from cli.frame.options import Option
from cli.frame.output import Reply
from site_agent.wording import count_words
from site_agent.work.claims import Share, read_share


@dataclass(frozen=True)
class EngineOptions:
    """The workers of a command, and its share of the jobs."""

    workers: Annotated[
        str,
        Option(
            "Number of jobs at once, or a scheduler of Dask: tcp://HOST:8786. Default: as many as "
            "suit the machine."
        ),
    ] = ""
    share: Annotated[
        str,
        Option(
            "Do this share of the jobs, such as 3/20, while others do theirs in the same folder; "
            "auto: that of an array job.",
            "I/N",
        ),
    ] = ""

    @property
    def chosen_share(self) -> Share | None:
        return read_share(self.share) if self.share else None

    def refuse_redo(self, *, redo: bool) -> None:
        """Refuse to repeat jobs that other shares have just done."""
        if self.share and redo:
            raise UsageError("--share goes without --redo: take a new folder to repeat all")


def reply_of_share(folder: Path, elsewhere: Mapping[str, str], ended: int, noun: str) -> Reply:
    """Return the reply of a share that has ended before others."""
    others = ", ".join(sorted(set(elsewhere.values())))
    waited = count_words(len(elsewhere), f"{noun} is", f"{noun}s are")
    text = (
        f"{count_words(ended, noun)} done; {waited} with {others}, and the last "
        f"share to end writes the tables: poolctl status {folder}"
    )
    return Reply({"folder": folder, "done": ended, "elsewhere": elsewhere}, text, [str(folder)])
