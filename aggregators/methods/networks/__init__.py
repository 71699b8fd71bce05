"""Methods for networks, and the files of contributions and optimiser states."""

from __future__ import annotations

from aggregators.methods.networks.contribution_file import (
    NETWORK_CONTRIBUTION,
    read_network_contribution,
    write_network_contribution,
)
from aggregators.methods.networks.state_file import OPTIMISER_STATE, STATE_SUFFIX, state_path

__all__ = [
    "NETWORK_CONTRIBUTION",
    "OPTIMISER_STATE",
    "STATE_SUFFIX",
    "read_network_contribution",
    "state_path",
    "write_network_contribution",
]
