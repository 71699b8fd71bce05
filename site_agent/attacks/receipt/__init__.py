"""The privacy receipt: a site's measurements of the leakage from an artifact that it sends.

One attack a line, the worst first, each with chance and with a control that was made to leak.
"""

from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.split.plan import NoiseScale


class SmashedProbeSettings(Settings, error=InvalidInputError):
    """The release that is attacked, and the effort of the attackers."""

    cut: str = "pool1"
    """Where the network is cut; 'poolctl split plan' lists the cuts."""
    noise_level: float = Field(default=0.0, ge=0)
    """Of Laplace noise on smashed data, in units of the sensitivity."""
    noise_scale: NoiseScale = "guaranteed"
    releases: int = Field(default=10, ge=1)
    """How often an image's smashed data are sent."""
    passes: int = Field(default=8, ge=1)
    """Of the attackers' training."""
