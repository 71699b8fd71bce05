"""The trimmed mean and the median of networks, for each parameter by itself."""

import math

import numpy as np
from pydantic import Field

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, NoOptions, Progress
from aggregators.methods.networks.voting import RobustMethod, Votes, mean_within, stream_votes
from aggregators.models import Float64, StateDict


class TrimOptions(MethodOptions):
    """Options of the trimmed mean."""

    trim: float = Field(
        default=0.2, ge=0, le=0.5, description="Fraction of the sites left out at either end."
    )


class TrimmedMean(RobustMethod[TrimOptions]):
    """The mean of a parameter's values without the `trim` largest and smallest ones.

    With at most that fraction of hostile sites, every parameter stays within the range of the
    honest ones. A trim of 0 is the mean, one of 0.5 the median. Updates that are not finite are
    left out and reduce the number trimmed at each end.

    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates".
    """

    name = "trimmed-mean"
    summary = "mean of networks' parameters without the extremes of each"
    options_type = TrimOptions

    def require_sites(self, sites: int, options: TrimOptions) -> None:
        """Refuse a trim above 0 that leaves out nobody, which is the mean: one site decides it."""
        trimmed = min(count_tolerated(options.trim, sites), _most(sites))
        if options.trim > 0 and trimmed == 0:
            needed = max(3, math.ceil(1 / options.trim - 1e-9))
            raise OptionError(
                f"trim {options.trim:g} leaves out none of {sites} sites, which is the plain mean: "
                f"it needs at least {needed} sites"
            )

    def combine_votes(
        self, votes: Votes, options: TrimOptions, _progress: Progress, /
    ) -> StateDict:
        if votes.updates.base is not None:
            self.require_sites(votes.count + votes.dropped, options)
        # Updates that were dropped already are no longer among the extremes.
        tolerated = count_tolerated(options.trim, votes.count + votes.dropped)
        count = max(0, min(tolerated - votes.dropped, _most(votes.count)))
        return stream_votes(votes, lambda rows: trimmed_mean(rows, count))


class Median(RobustMethod[NoOptions]):
    """The median of each parameter; of an even number of sites, the mean of the middle two."""

    name = "median"
    summary = "median of networks' parameters"
    options_type = NoOptions

    def combine_votes(self, votes: Votes, _options: NoOptions, _progress: Progress, /) -> StateDict:
        return stream_votes(votes, lambda rows: trimmed_mean(rows, _most(len(rows))))


def trimmed_mean(rows: Float64, count: int) -> Float64:
    """Return the mean of each column without its `count` largest and smallest numbers.

    Parameters
    ----------
    rows : float64, shape (sites, numbers)
    """
    if count:
        rows = np.sort(rows, axis=0)[count : len(rows) - count]
    return mean_within(rows)


def count_tolerated(trim: float, sites: int) -> int:
    """Return how many sites a fraction is, rounded down."""
    # 0.29 * 100 is a little less than 29.
    return math.floor(trim * sites + 1e-9)


def _most(sites: int) -> int:
    return (sites - 1) // 2
