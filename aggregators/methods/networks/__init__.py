"""Methods for networks, and the files of contributions and optimiser states."""

from aggregators.methods.networks.round_files import (
    read_network_contribution,
    state_path,
    write_network_contribution,
)

__all__ = ["read_network_contribution", "state_path", "write_network_contribution"]
