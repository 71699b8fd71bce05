"""What a service keeps of the rounds: its part after each, and what sites sent in the current one.

A round's part is written before ``rounds.json`` names it; putting that file in place is the commit
point. A service that is killed at any moment goes on from what the file says.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from aggregators.formats import encode_model, read_model
from aggregators.methods.networks.round_files import (
    read_network_contribution,
    write_network_contribution,
)
from aggregators.models import NetworkContribution, StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.federated.plan import RoundModel, combine, first_model
from site_agent.split.plan import FEWEST_SITES, SplitPlan

_CLOSING = "closing.json"


@dataclass(frozen=True)
class Taken:
    """What counts of a site in a round.

    `attempt`: Of the site's training in this round; both services count the same one. `samples`: As
    the site states them.
    """

    attempt: int
    samples: int


Roster = Mapping[str, Taken]
"""The sites of a round's averages."""


@dataclass(frozen=True)
class ClosedRound:
    """A round that has ended.

    `number`: From 1. `digest`: SHA-256 of this service's part after the round. `client_digest`:
    That of the client part, which the main server knows from the aggregator.
    """

    number: int
    roster: Roster
    digest: str
    client_digest: str


class RoundsFolder:
    """The rounds of one service.

    `folder`: Made where absent. `start`: The part with which the first round begins.
    """

    FOLDER, RECORDS = "rounds", "rounds.json"

    def __init__(self, folder: Path, start: Path, plan: SplitPlan) -> None:
        self.folder, self._start, self.plan = folder, start, plan
        folder.mkdir(parents=True, exist_ok=True)
        self.closed: list[ClosedRound] = []
        if (folder / self.RECORDS).is_file():
            for entry in json.loads((folder / self.RECORDS).read_text(encoding="utf-8")):
                roster = {site: Taken(**taken) for site, taken in entry.pop("roster").items()}
                self.closed.append(ClosedRound(roster=roster, **entry))
        self.model = self.part_at(self.number)
        self._remove_old()

    @property
    def number(self) -> int:
        """The round that is under way, from 1; one more than the plan's where all have ended."""
        return len(self.closed) + 1

    @property
    def is_finished(self) -> bool:
        return self.number > self.plan.rounds

    def part_path(self, number: int) -> Path:
        """Return the file of the part with which a round begins."""
        return self._start if number == 1 else self.folder / f"part-{number:04}.safetensors"

    def part_at(self, number: int) -> RoundModel:
        """Return the part with which a round begins."""
        network = read_model(self.part_path(number))
        assert isinstance(network, StateDict)
        return first_model(network)

    @property
    def round_folder(self) -> Path:
        """Folder of what belongs to the round under way."""
        place = self.folder / f"round-{self.number:04}"
        place.mkdir(exist_ok=True)
        return place

    def contributions(self) -> dict[str, tuple[Taken, Path]]:
        """Return the newest contribution of each site to the round under way."""
        found: dict[str, tuple[Taken, Path]] = {}
        for path in self.round_folder.glob("*.contribution"):
            site, attempt, samples, _ = path.name.split(".")
            taken = Taken(int(attempt), int(samples))
            if site not in found or taken.attempt > found[site][0].attempt:
                found[site] = taken, path
        return found

    def add(self, site: str, attempt: int, contribution: NetworkContribution) -> None:
        """Write a site's contribution to the round under way; it is on disk when this returns."""
        name = f"{site}.{attempt}.{contribution.samples}.contribution"
        write_network_contribution(contribution, self.round_folder / name)

    def intention(self) -> Roster | None:
        """Return the roster with which the round under way was begun to be closed."""
        path = self.round_folder / _CLOSING
        if not path.is_file():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        return {site: Taken(**taken) for site, taken in content.items()}

    def intend(self, roster: Roster) -> None:
        """Write the roster with which the round is to be closed; it stays, come what may."""
        known = self.intention()
        if known is not None and dict(known) != dict(roster):
            raise ConflictError(
                f"round {self.number} is being closed with {_words(known)}, not {_words(roster)}",
                code="other_roster",
            )
        content = {site: asdict(taken) for site, taken in roster.items()}
        write_whole(self.round_folder / _CLOSING, json.dumps(content, sort_keys=True))

    def close(
        self,
        number: int,
        roster: Roster,
        *,
        make: Callable[[], StateDict] | None = None,
        client_digest: str = "",
    ) -> ClosedRound:
        """End a round, and return its record; the same call again returns the same record.

        `make`: Returns the part after the round; by default the mean over the roster.
        `client_digest`: Of the client part; by default that of this part.
        """
        if number < self.number:
            record = self.closed[number - 1]
            if dict(record.roster) != dict(roster):
                raise ConflictError(
                    f"round {number} was closed with {_words(record.roster)}, and cannot be opened "
                    f"for {_words(roster)}",
                    code="other_roster",
                )
            return record
        if number != self.number or self.is_finished:
            raise ConflictError(f"round {self.number} is under way, not {number}", code="round")
        if len(roster) < FEWEST_SITES:
            raise InvalidInputError(
                f"found {len(roster)} sites, expected at least {FEWEST_SITES}: of fewer, a mean "
                "shows each site's part to the others"
            )
        if make is None:
            self._require_here(roster)
        self.intend(roster)
        network = self._mean(roster) if make is None else make()
        model = first_model(network)
        write_whole(self.part_path(number + 1), encode_model(network))
        record = ClosedRound(number, dict(roster), model.digest, client_digest or model.digest)
        content = [asdict(each) for each in [*self.closed, record]]
        write_whole(self.folder / self.RECORDS, json.dumps(content, indent=1) + "\n")
        self.closed.append(record)
        self.model = model
        self._remove_old()
        return record

    def _require_here(self, roster: Roster) -> None:
        known = self.contributions()
        missing = [site for site in roster if known.get(site, (None,))[0] != roster[site]]
        if missing:
            raise InvalidInputError(
                f"round {self.number}: found no contribution of {', '.join(sorted(missing))} of "
                "the attempt and number of samples that are asked for"
            )

    def _mean(self, roster: Roster) -> StateDict:
        known = self.contributions()
        given = {site: read_network_contribution(known[site][1]) for site in roster}
        return combine(self.plan.averaging, self.model, given).model.network

    def _remove_old(self) -> None:
        """Delete what sites sent in rounds that have ended: nobody needs it any more."""
        for place in self.folder.glob("round-*"):
            if int(place.name.removeprefix("round-")) < self.number:
                shutil.rmtree(place)


def _words(roster: Roster) -> str:
    return ", ".join(f"{site} (attempt {roster[site].attempt})" for site in sorted(roster))
