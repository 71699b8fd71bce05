"""Methods for networks, and the files of contributions and optimiser states."""

from aggregators.methods.networks.round_files import (
    NETWORK_CONTRIBUTION,
    OPTIMISER_STATE,
    STATE_SUFFIX,
    read_network_contribution,
    state_path,
    write_network_contribution,
)

__all__ = [
    "NETWORK_CONTRIBUTION",
    "OPTIMISER_STATE",
    "STATE_SUFFIX",
    "read_network_contribution",
    "state_path",
    "write_network_contribution",
]
