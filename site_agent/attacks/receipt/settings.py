"""The settings of attacks on smashed data."""

from typing import Literal

from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.split.plan import NoiseScale


class SmashedProbeSettings(Settings, error=InvalidInputError):
    """The release that is attacked, and the effort of the attackers."""

    cut: str = "pool1"
    """Where the network is cut; 'poolctl split plan' lists the cuts."""
    noise: Literal["laplace", "gaussian"] = "laplace"
    """On smashed data, with a `noise_level`."""
    noise_level: float = Field(default=0.0, ge=0)
    noise_scale: NoiseScale = "guaranteed"
    """In units of the sensitivity."""
    releases: int = Field(default=10, ge=1)
    """How often an image's smashed data are sent."""
    passes: int = Field(default=8, ge=1)
    """Of the attackers' training."""
