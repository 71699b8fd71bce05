"""A site that trains privately and writes its releases until it is killed: ``... FOLDER``."""

import itertools
import sys
from pathlib import Path

from aggregators.methods.networks import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from site_agent.federated.local_training import Privacy, train_at_site
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import samples_at


def main(folder: Path) -> None:
    settings = LocalTraining(batch_size=2, dp_epsilon=3.0)
    base, samples = new_network("gaze-lenet", 3), samples_at(1, 16)
    for number in itertools.count(1):
        made = train_at_site(
            base, "ab" * 32, samples, settings, site="a", round_number=number,
            privacy=Privacy(folder),
        ).contribution  # fmt: skip
        write_network_contribution(made, folder / f"{number}.sent")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
