"""The server's side of the rounds of each method: options, bases, and checking contributions.

`aggregators.methods.registry` lists the methods. Each declares a kind of contribution, and the
server has one class for each kind (`find_round_method`), so a new method needs no change here.

In a limited child process, `run` compares a contribution with its round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aggregators.errors import AggregatorError, FormatError, OptionError
from aggregators.formats import read_model
from aggregators.methods import refitting
from aggregators.methods.contract import (
    AggregationMethod,
    CappedOptions,
    ContributionKind,
    check_options,
    require_made_for,
)
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.networks.round_files import check_network_contribution
from aggregators.methods.refitting import refit_settings
from aggregators.methods.registry import METHODS, list_round_methods
from aggregators.methods.round_options import RoundOptions, split_options
from aggregators.models import ShapePredictor, StateDict
from pool_server.errors import RefusedError, RoundRefusedError

if TYPE_CHECKING:
    # Not at run time: the child process that checks contributions must not load the database.
    from pool_server.database.records import ModelVersionRecord


@dataclass(frozen=True)
class RoundMethod:
    """The rounds of one aggregation method; subclasses serve one kind of contribution each."""

    aggregation: "AggregationMethod[Any]"
    """Combines the contributions with the base, by `aggregators.merge`."""
    data: ClassVar[str]
    """The sites' data, in examples of commands."""
    alone: ClassVar[str]
    """The command that does the same on one machine."""

    @property
    def name(self) -> str:
        return self.aggregation.name

    def full_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete options, shared by all sites.

        Raises `RoundRefusedError` for an unknown or invalid one.
        """
        raise NotImplementedError

    def require_sites(self, sites: int, options: Mapping[str, Any]) -> None:
        """Raise `RoundRefusedError` if the options do not allow this number of sites."""
        method = self.aggregation
        method_options = check_options(method.options_type, method.take_own(options), self.name)
        try:
            method.require_sites(sites, method_options)
        except OptionError as error:
            raise RoundRefusedError(str(error)) from error

    def require_base(self, base: "ModelVersionRecord") -> None:
        """Raise `RoundRefusedError` if the method cannot hold rounds with this base."""
        raise NotImplementedError

    def cover_rounds(self, options: Mapping[str, Any], rounds: int) -> dict[str, Any]:  # noqa: ARG002
        """Return the options of a series of `rounds` rounds."""
        return dict(options)

    def options_of_next(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the round that follows on a result."""
        return dict(options)

    def examine(
        self, path: Path, base: Path, base_digest: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Compare a contribution with its round, and return a summary for its participants.

        Raises `RefusedError` or `AggregatorError` if it does not fit.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LeafRefitRounds(RoundMethod):
    """Sites fit the leaves of a landmark model to their faces, and send the leaves' changes."""

    data: ClassVar[str] = "FACES.XML"
    alone: ClassVar[str] = "poolctl refine"

    def full_options(self, options: Mapping[str, object]) -> dict[str, object]:
        if "seed" in options:
            raise RoundRefusedError(
                "option seed: every site draws its own starting shapes, so the seed stays at the "
                "site"
            )
        try:
            method_options = check_options(
                CappedOptions, self.aggregation.take_own(options), self.name
            )
            return refit_settings(**self._fit(options)).shared() | method_options.model_dump()
        except OptionError as error:
            raise RoundRefusedError(str(error)) from error

    def _fit(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return the options of the sites' fit."""
        method_options = self.aggregation.take_own(options)
        return {name: value for name, value in options.items() if name not in method_options}

    def require_base(self, base: "ModelVersionRecord") -> None:
        members = base.fingerprint.get("members", 1)
        if base.kind != "ert" or members != 1:
            ensemble = f"a WBA ensemble of {members}"
            actual = ensemble if base.kind == "ert" else f"of kind {base.kind}"
            raise RoundRefusedError(
                f"{self.name} refines one landmark model; the base is {actual}",
                hint="Merge the sub-models with wba-cascade first."
                if base.kind == "ert"
                else "Networks are trained by other methods: --method fedavg.",
            )

    def options_of_next(self, options: Mapping[str, Any]) -> dict[str, Any]:
        # The first round has thinned the model; its result must not be thinned again.
        return {**options, "thin": None}

    def examine(
        self,
        path: Path,
        base: Path,
        base_digest: str,  # noqa: ARG002 - its leaves change, so its forest is compared
        options: Mapping[str, object],
    ) -> dict[str, object]:
        contribution = refitting.read_contribution(path)
        model = read_model(base, max_bytes=base.stat().st_size)
        if not isinstance(model, ShapePredictor):
            raise RefusedError("the base is no single landmark model")
        settings = refit_settings(**self._fit(options))
        forest = refitting.thin_base(model, settings.thin)
        require_made_for(
            (refitting.forest_digest(model), contribution.base_digest),
            (settings.resolved(forest).shared(), contribution.settings),
        )
        if not contribution.counts.any() or not contribution.changes.any():
            # An empty contribution would silently reduce the number of sites behind the sum.
            raise RefusedError("changes no leaf: too few faces reach any of them")
        if contribution.changes.shape != forest.leaves.shape:
            raise RefusedError(
                f"changes leaves of shape {contribution.changes.shape}, the base has "
                f"{forest.leaves.shape} (leaves, landmarks, 2)"
            )
        return {
            "leaves": int(contribution.changes.shape[0]),
            "parts": contribution.part_count,
            "leaves_changed": int((contribution.counts > 0).sum()),
            "samples": int(contribution.counts.sum(dtype="int64")),
            "settings": dict(contribution.settings),
        }


_FORMAT = "safetensors"


@dataclass(frozen=True)
class NetworkRounds(RoundMethod):
    """Sites train a network on their data, and send the differences from the base with samples.

    Options of the method, such as ``eta``, and settings of the sites' training, such as ``epochs``,
    are given together.
    """

    data: ClassVar[str] = "GAZE"
    alone: ClassVar[str] = "poolctl federated simulate"

    def full_options(self, options: Mapping[str, object]) -> dict[str, object]:
        try:
            return self._split(options).together()
        except OptionError as error:
            raise RoundRefusedError(str(error)) from error

    def cover_rounds(self, options: Mapping[str, Any], rounds: int) -> dict[str, Any]:
        return self._split(options).over(rounds).together()

    def require_base(self, base: "ModelVersionRecord") -> None:
        if base.kind != "network" or base.format != _FORMAT:
            raise RoundRefusedError(
                f"{self.name} trains networks in safetensors files; the base is of kind "
                f"{base.kind}, in the format {base.format}",
                hint="`poolctl federated init` makes a network.",
            )

    def examine(
        self, path: Path, base: Path, base_digest: str, options: Mapping[str, object]
    ) -> dict[str, object]:
        contribution = read_network_contribution(path)
        settings = self._split(options).training.shared()
        network = read_model(base, max_bytes=base.stat().st_size)
        assert isinstance(network, StateDict), "require_base() admits only networks"
        check_network_contribution(
            contribution,
            network,
            base_digest=base_digest,
            settings=settings,
            replies=self.aggregation.replies,
        )
        return {
            "samples": contribution.samples,
            "entries": len(network.infos),
            "settings": settings,
        }

    def _split(self, options: Mapping[str, object]) -> RoundOptions:
        return split_options(self.name, options)


_BY_CONTRIBUTION: Mapping[ContributionKind, type[RoundMethod]] = {
    "leaf-changes": LeafRefitRounds,
    "network-update": NetworkRounds,
}


def find_round_method(name: str) -> RoundMethod:
    """Return the rounds of the method of this name."""
    method = METHODS.get(name)
    if method is None or method.contribution is None:
        raise RoundRefusedError(
            f"no round can be held with method {name!r}; expected one of "
            f"{', '.join(list_round_methods())}"
        )
    return _BY_CONTRIBUTION[method.contribution](method)


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the contribution `path` and compare it with the round's base and options.

    Messages call the file `name`; its path means nothing to the uploader. The answer is one of::

        {"accepted": true, "summary": {"samples": ..., ...}}
        {"accepted": false, "message": "the contribution's value and the expected one"}
    """
    name = plan["name"]
    try:
        summary = find_round_method(plan["method"]).examine(
            Path(plan["path"]), Path(plan["base"]), plan["base_digest"], plan["options"]
        )
        return {"accepted": True, "summary": summary}
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except (AggregatorError, RefusedError) as error:
        return {"accepted": False, "message": f"{name}: {error}"}
