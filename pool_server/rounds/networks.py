"""Rounds of networks: sites train a network on their data and send the differences from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pool_server.errors import RoundRefusedError
from pool_server.rounds.contract import (
    RoundMethod,
)

if TYPE_CHECKING:
    from aggregators.methods.networks.round_options import RoundOptions
    from pool_server.database.records import ModelVersionRecord

_FORMAT = "safetensors"


@dataclass(frozen=True)
class NetworkRounds(RoundMethod):
    """Contributions are differences with samples (`aggregators.models.NetworkContribution`).

    Options of the method, such as ``eta``, and settings of the sites' training, such as
    ``epochs``, are given together.
    """

    data: ClassVar[str] = "GAZE"
    alone: ClassVar[str] = "poolctl federated simulate"

    def full_options(self, _mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
        from aggregators.errors import OptionError

        try:
            return self._split(options).together()
        except OptionError as error:
            raise RoundRefusedError(str(error)) from error

    def merge_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return self._split(options).own.model_dump(mode="json")

    def require_base(self, base: ModelVersionRecord) -> None:
        if base.kind != "network" or base.format != _FORMAT:
            raise RoundRefusedError(
                f"{self.name} trains networks in safetensors files; the base is of kind "
                f"{base.kind}, in the format {base.format}",
                hint="`poolctl federated init` makes a network.",
            )

    def examine(
        self, path: Path, base: Path, base_digest: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        from aggregators.formats import read_model
        from aggregators.methods.networks import read_network_contribution
        from aggregators.methods.networks.round_files import check_network_contribution
        from aggregators.models import StateDict

        contribution = read_network_contribution(path)
        settings = self._split(options).training.shared()
        network = read_model(base, max_bytes=base.stat().st_size)
        assert isinstance(network, StateDict), "require_base() lets networks through alone"
        check_network_contribution(
            contribution, network, base_digest=base_digest, settings=settings
        )
        return {
            "samples": contribution.samples,
            "entries": len(network.infos),
            "settings": settings,
        }

    def _split(self, options: Mapping[str, Any]) -> RoundOptions:
        from aggregators.methods.networks.round_options import split_options

        return split_options(self.name, options)
