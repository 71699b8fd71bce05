"""The turns of V2: the sites of a round train one server part, one after the other.

The part and its optimiser are on disk after each turn, in one file with the sites whose turn is
over. A turn that takes too long is given up, and the part stays as it was before.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from aggregators.whole_file import whole_file
from site_agent.split.plan import SplitPlan
from site_agent.split.rounds_folder import RoundsFolder, Taken
from site_agent.split.training import ServerHalf


class Turns:
    """Whose turn it is in the round under way.

    `done`: The sites whose turn is over, in their order.
    """

    def __init__(self, plan: SplitPlan, rounds: RoundsFolder) -> None:
        self._plan, self._rounds = plan, rounds
        self.done: dict[str, Taken] = {}
        self._skipped: set[str] = set()
        self._order: tuple[str, ...] = ()
        self._limit_s, self._began_s = 0.0, 0.0

    def open(self, sites: Collection[str], limit_s: float, now_s: float) -> None:
        """Begin a round, or go on with one whose turns are on disk."""
        if self._plan.variant != "v2" or self._rounds.is_finished:
            return
        self._order = self._plan.order_in(self._rounds.number, sites)
        self._limit_s, self._began_s = limit_s / max(1, len(self._order)), now_s
        self.done, self._skipped = {}, set()
        if self._path.is_file():
            self.done = {name: Taken(*each) for name, each in self._read()["done"].items()}

    def whose(self, now_s: float) -> str | None:
        """Return the site whose turn it is; a turn that took too long goes to the next site."""
        for site in self._order:
            if site in self.done or site in self._skipped:
                continue
            if now_s - self._began_s <= self._limit_s:
                return site
            self._skipped.add(site)
            self._began_s = now_s
        return None

    def skip_all(self) -> None:
        """Give up all turns that are not over."""
        self._skipped.update(self._order)

    def restore(self, half: ServerHalf) -> None:
        """Put a server part where the last turn left it."""
        if self.done:
            half.load(self._read()["half"])

    def keep(self, site: str, taken: Taken, half: ServerHalf) -> None:
        """End a turn; it is on disk when this returns."""
        done = {**self.done, site: taken}
        listed = {name: (each.attempt, each.samples) for name, each in done.items()}
        with whole_file(self._path) as file:
            torch.save({"half": half.state(), "done": listed}, file)
        self.done = done

    def forget(self) -> None:
        """End the round."""
        self.done, self._skipped = {}, set()

    @property
    def _path(self) -> Path:
        return self._rounds.round_folder / "turns.pt"

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = torch.load(self._path, weights_only=True)
        return content
