"""The mean of networks' updates, none larger than most."""

import numpy as np
from pydantic import Field

from aggregators.methods.contract import MethodOptions, Progress
from aggregators.methods.networks.updates import update_norms
from aggregators.methods.networks.voting import RobustMethod, Votes, mean_within, stream_votes
from aggregators.models import Float64, StateDict


class ClipOptions(MethodOptions):
    """Options of the clipped mean."""

    limit: float = Field(
        default=1.0, ge=1, description="Largest norm of an update, in medians of all norms."
    )


class NormClip(RobustMethod[ClipOptions]):
    """The mean of the updates, each scaled down to at most `limit` times the median norm.

    An update is the difference from the base. Networks without a base are clipped as they are,
    which only stops those with inflated parameters: give contributions.

    Source: Sun et al. 2019, "Can You Really Backdoor Federated Learning?"; the bound here is
    relative, so that it follows the size of the updates.
    """

    name = "norm-clip"
    summary = "mean of networks' updates, none larger than most"
    options_type = ClipOptions

    def combine_votes(
        self, votes: Votes, options: ClipOptions, _progress: Progress, /
    ) -> StateDict:
        factors = clip_factors(update_norms(votes.updates), options.limit)
        return stream_votes(votes, lambda rows: mean_within(rows * factors[:, np.newaxis]))


def clip_factors(norms: Float64, limit: float) -> Float64:
    """Return the number by which each update is multiplied, at most 1."""
    # The median cannot be moved beyond the honest norms by fewer than half of the sites.
    bound = limit * np.median(norms)
    return np.divide(bound, norms, out=np.ones_like(norms), where=norms > bound)
