"""Refitting the leaves of a merged landmark model at each site, without moving data.

`contribute` makes a site's `LeafContribution`, which the method ``leaf-refit`` adds to the base.
"""

from aggregators.methods.refitting.base_check import find_untrained_features
from aggregators.methods.refitting.contribution_file import (
    CONTRIBUTION_SUFFIX,
    RefitSettings,
    encode_contribution,
    forest_digest,
    read_contribution,
    refit_settings,
    thin_base,
    write_contribution,
)
from aggregators.methods.refitting.faces import SiteFaces
from aggregators.methods.refitting.fitting import SiteFit, contribute

__all__ = [
    "CONTRIBUTION_SUFFIX",
    "RefitSettings",
    "SiteFaces",
    "SiteFit",
    "contribute",
    "encode_contribution",
    "find_untrained_features",
    "forest_digest",
    "read_contribution",
    "refit_settings",
    "thin_base",
    "write_contribution",
]
