"""The rounds folder of a service: its part after each round, and the sites' data of this one.

A round's part is written before ``rounds.json`` names it; putting that file in place is the commit
point. A service that is killed at any moment resumes from the file.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.formats import encode_model, read_model, write_model
from aggregators.methods.networks import round_files
from aggregators.models import NetworkContribution, StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.federated.plan import RoundModel, combine, first_model
from site_agent.plain_json import write_json
from site_agent.split import kits, noise, private_steps
from site_agent.split.frozen import MeansPlan, SmashedData
from site_agent.split.messages import BodyShape, decode_arrays
from site_agent.split.parts import join_parts
from site_agent.split.plan import FEWEST_SITES, SplitPlan
from site_agent.training_record import beside

_CLOSING = "closing.json"


@dataclass(frozen=True)
class Taken:
    """The training of a site that counts in a round."""

    attempt: int
    """Number of the site's training in this round; both services count the same one."""
    samples: int
    """As stated by the site."""


Roster = Mapping[str, Taken]
"""The sites of a round's averages."""


@dataclass(frozen=True)
class ClosedRound:
    """A round that has ended."""

    number: int
    """From 1."""
    roster: Roster
    digest: str
    """SHA-256 of this service's part after the round."""
    client_digest: str
    """SHA-256 of the client part, which the main server learns from the aggregator."""


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
                roster = {site: Taken(**numbers) for site, numbers in entry.pop("roster").items()}
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
        """Folder of the current round."""
        place = self.folder / f"round-{self.number:04}"
        place.mkdir(exist_ok=True)
        return place

    def contributions(self) -> dict[str, tuple[Taken, Path]]:
        """Return the newest contribution of each site to the round under way."""
        contributions: dict[str, tuple[Taken, Path]] = {}
        for path in self.round_folder.glob("*.contribution"):
            site, attempt, samples, _ = path.name.split(".")
            entry = Taken(int(attempt), int(samples))
            if site not in contributions or entry.attempt > contributions[site][0].attempt:
                contributions[site] = entry, path
        return contributions

    def add(self, site: str, attempt: int, contribution: NetworkContribution) -> None:
        """Write a site's contribution to the round under way; it is on disk when this returns."""
        name = f"{site}.{attempt}.{contribution.samples}.contribution"
        round_files.write_network_contribution(contribution, self.round_folder / name)

    def intention(self) -> Roster | None:
        """Return the roster with which the round under way was begun to be closed."""
        path = self.round_folder / _CLOSING
        if not path.is_file():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        return {site: Taken(**entry) for site, entry in content.items()}

    def intend(self, roster: Roster) -> None:
        """Write the roster with which the round must close; it never changes afterwards."""
        known = self.intention()
        if known is not None and dict(known) != dict(roster):
            raise ConflictError(
                f"round {self.number} is being closed with {_words(known)}, not {_words(roster)}",
                code="other_roster",
            )
        content = {site: asdict(entry) for site, entry in roster.items()}
        write_json(self.round_folder / _CLOSING, content)

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
        write_json(self.folder / self.RECORDS, [*self.closed, record])
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
        updates = {site: round_files.read_network_contribution(known[site][1]) for site in roster}
        return combine(self.plan.averaging, self.model, updates).model.network

    def _remove_old(self) -> None:
        """Delete the sites' data of rounds that have ended."""
        for place in self.folder.glob("round-*"):
            if int(place.name.removeprefix("round-")) < self.number:
                shutil.rmtree(place)


def _words(roster: Roster) -> str:
    return ", ".join(f"{site} (attempt {roster[site].attempt})" for site in sorted(roster))


def rounds_of(kit: kits.SplitKit) -> RoundsFolder:
    """Return the rounds that a service has on disk."""
    return RoundsFolder(kit.folder / RoundsFolder.FOLDER, kit.folder / kits.START, kit.plan)


def assemble(server: kits.SplitKit, aggregator: kits.SplitKit, output: Path) -> dict[str, Any]:
    """Write the network of the newest round with a statement next to it; return the statement.

    It takes both kits: neither service has the whole network.
    """
    if server.plan != aggregator.plan or server.first_client != aggregator.first_client:
        raise InvalidInputError("the kits are of different trainings")
    theirs, parts = rounds_of(server), rounds_of(aggregator)
    if not theirs.closed or len(parts.closed) < len(theirs.closed):
        raise InvalidInputError(
            f"the server has ended {len(theirs.closed)} rounds, the aggregator {len(parts.closed)}"
        )
    last = theirs.closed[-1]
    client = parts.part_at(last.number + 1)
    if client.digest != last.client_digest:
        raise InvalidInputError(
            f"the aggregator's part of round {last.number} is {client.digest[:16]}..., the server "
            f"knows {last.client_digest[:16]}..."
        )
    network: StateDict = join_parts(client.network, theirs.model.network)
    digest = write_model(network, output, format_name="safetensors")
    statement = {
        "network": digest,
        "plan": server.plan.model_dump(mode="json"),
        "plan_digest": server.plan.digest,
        "first_parts": {"client": server.first_client, "server": server.first_server},
        "rounds": [asdict(record) for record in theirs.closed],
        "privacy": privacy_statement(server),
    }
    write_json(beside(output, "split"), statement)
    return statement


def releases_of(plan: SplitPlan) -> int:
    """Return the least number of times that the smashed data of an image are sent."""
    return 1 if plan.trains_server_alone else plan.rounds * plan.training.epochs


def privacy_statement(kit: kits.SplitKit) -> str:
    """Describe the data that left the sites, and their protection."""
    plan = kit.plan
    smashed = noise.SmashedNoise.of(plan)
    seen = f"the smashed data of every image, and {plan.found_cut.labels_seen}"
    parts_seen = "client parts of at least 3 sites"
    if kit.charter and plan.trains_server_alone:
        seen = "means over at least 3 sites of smashed data, labels and head angles"
    elif kit.charter:
        parts_seen = f"sum of the client parts of {len(kit.sites)} sites"
    return (
        f"Images stay at the sites. The main server gets {seen}. Images can be guessed from "
        f"smashed data ('poolctl privacy probe'). The aggregator gets the {parts_seen} a round. "
        "Training: "
        f"{private_steps.protection_words(plan)}. "
        f"Smashed data: {smashed.words(releases_of(plan))}."
    )


_END = "end.json"
_MOST_PIECES = 100_000


class SmashedStore:
    """The means of smashed data over all sites in a round, in files as they came.

    `shape`: Of each piece.
    """

    def __init__(self, folder: Path, shape: BodyShape) -> None:
        self._folder, self._shape = folder, shape

    def add(self, site: str, index: int, body: bytes) -> None:
        """Keep a piece, from 0 on; the same one again changes nothing."""
        if not 0 <= index < _MOST_PIECES:
            raise InvalidInputError(f"piece {index}: expected 0 to {_MOST_PIECES - 1}")
        place = self._folder / site
        path = place / f"{index:06}.safetensors"
        if path.is_file():
            if path.read_bytes() == body:
                return
            raise ConflictError(f"piece {index} was another one before", code="step_changed")
        if (place / _END).is_file():
            raise ConflictError("the smashed data are complete", code="step")
        place.mkdir(parents=True, exist_ok=True)
        write_whole(path, body)

    def finish(self, site: str, pieces: int, samples: int, digest: str) -> None:
        """Note that a site knows the means; one site sends the pieces.

        `digest`: SHA-256 of all pieces.
        """
        sent = hashlib.sha256()
        for path in self._paths(site, pieces):
            sent.update(path.read_bytes())
        others = {end["digest"] for end in self._ends().values()}
        if {digest, *others} != {digest} or (pieces and sent.hexdigest() != digest):
            raise InvalidInputError(f"{site}: the smashed data are not those of the other sites")
        if samples < 1:
            raise InvalidInputError(f"found {samples} samples, expected at least 1")
        end = {"pieces": pieces, "samples": samples, "digest": digest}
        (self._folder / site).mkdir(parents=True, exist_ok=True)
        write_json(self._folder / site / _END, end)

    def complete(self) -> dict[str, Taken]:
        """Return the sites that know the means."""
        return {site: Taken(1, end["samples"]) for site, end in self._ends().items()}

    def _ends(self) -> dict[str, dict[str, Any]]:
        ends = sorted(self._folder.glob(f"*/{_END}"))
        return {path.parent.name: json.loads(path.read_text()) for path in ends}

    def train(
        self, part: StateDict, plan: SplitPlan, number: int, sites: Sequence[str]
    ) -> StateDict:
        """Return the server part after a round on the means over these sites."""
        ends = self._ends()
        pieces = [
            SmashedData(**decode_arrays(path.read_bytes(), self._shape))
            for site in sites
            for path in self._paths(site, ends[site]["pieces"])
        ]
        expected = MeansPlan.of(plan, number, {site: int(ends[site]["samples"]) for site in sites})
        if sum(map(len, pieces)) != expected.rows:
            raise InvalidInputError(f"expected {expected.rows} means, from one site")
        arrays = zip(*(vars(piece).values() for piece in pieces), strict=True)
        return expected.train(part, SmashedData(*map(np.concatenate, arrays)))

    def _paths(self, site: str, count: int) -> list[Path]:
        paths = [self._folder / site / f"{index:06}.safetensors" for index in range(count)]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise InvalidInputError(f"{site}: the piece {missing[0]} is missing")
        return paths
