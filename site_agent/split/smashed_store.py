"""Smashed data that sites send once, for training a server part alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.split.in_process import SmashedData, train_on_union
from site_agent.split.messages import BodyShape, decode_arrays
from site_agent.split.plan import SplitPlan
from site_agent.split.rounds_folder import Taken

_END = "end.json"
_MOST_PIECES = 100_000


class SmashedStore:
    """The smashed data of all sites, in files as they came.

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

    def finish(self, site: str, pieces: int, samples: int) -> None:
        """Note that a site's data are complete."""
        found = sum(len(each) for each in self._pieces(site, pieces))
        if found != samples or samples < 1:
            raise InvalidInputError(f"found {found} samples in {pieces} pieces, expected {samples}")
        content = {"pieces": pieces, "samples": samples}
        write_whole(self._folder / site / _END, json.dumps(content))

    def complete(self) -> dict[str, Taken]:
        """Return the sites whose data are complete."""
        ends = sorted(self._folder.glob(f"*/{_END}"))
        return {
            path.parent.name: Taken(1, json.loads(path.read_text())["samples"]) for path in ends
        }

    def train(
        self, part: StateDict, plan: SplitPlan, number: int, sites: Sequence[str]
    ) -> StateDict:
        """Return the server part after a round on the data of these sites."""
        data = {}
        for site in sites:
            pieces = json.loads((self._folder / site / _END).read_text())["pieces"]
            each = self._pieces(site, pieces)
            data[site] = SmashedData(
                np.concatenate([piece.smashed for piece in each]),
                np.concatenate([piece.head for piece in each]),
                np.concatenate([piece.gaze for piece in each]),
            )
        return train_on_union(part, data, plan, number)

    def _pieces(self, site: str, count: int) -> list[SmashedData]:
        paths = [self._folder / site / f"{index:06}.safetensors" for index in range(count)]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise InvalidInputError(f"{site}: the piece {missing[0]} is missing")
        return [SmashedData(**decode_arrays(path.read_bytes(), self._shape)) for path in paths]
