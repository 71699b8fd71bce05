"""A site's part in a round of networks: it trains the base on its gaze data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from site_agent.rounds.contract import DataChoice, DataKind, Made, SitePart
from site_agent.runs.progress import Progress

if TYPE_CHECKING:
    from aggregators.methods.networks.local_training import LocalTraining
    from aggregators.models import StateDict
    from pool_server.wire.rounds import RoundResponse
    from site_agent.datasets.gaze import GazeDataset, GazeSamples
    from site_agent.pool.client import PoolClient
    from site_agent.rounds.contract import SiteData
    from site_agent.rounds.rules import ContributionRules


@dataclass(frozen=True, eq=False)
class NetworkPart(SitePart):
    """The differences of a network after local training, and the number of samples."""

    data: ClassVar[DataKind] = "gaze"

    found: RoundResponse
    site: str
    samples: GazeSamples
    settings: LocalTraining

    @classmethod
    def prepare(
        cls, _pool: PoolClient, found: RoundResponse, site: str, data: SiteData, choice: DataChoice
    ) -> NetworkPart:
        from aggregators.methods.networks.round_options import split_options
        from site_agent.datasets.gaze import open_gaze

        dataset = open_gaze(data) if isinstance(data, Path) else cast("GazeDataset", data)
        samples = dataset.read(sorted(set(choice.persons)) or None)
        return cls(found, site, samples, split_options(found.method, found.options).training)

    def inputs(self, _rules: ContributionRules) -> list[Any]:
        from site_agent.datasets.gaze import person_digests

        return [person_digests(self.samples), self.settings.shared()]

    def compute(
        self, base: Path, output: Path, _rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        from aggregators.formats import read_model
        from aggregators.methods.networks import write_network_contribution
        from site_agent.federated.local_training import train_contribution

        progress(None, f"training on {len(self.samples)} samples")
        contribution = train_contribution(
            cast("StateDict", read_model(base)),
            self.found.base_digest,
            self.samples,
            self.settings,
            site=self.site,
            round_number=self.found.number,
        )
        write_network_contribution(contribution, output)
        return ()

    def describe(self, path: Path) -> Made:
        from aggregators.methods.networks import read_network_contribution

        samples = read_network_contribution(path).samples
        words = f"differences of the network after training on {samples} samples, and this number"
        return Made(words, samples=samples)
