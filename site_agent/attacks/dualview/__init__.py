"""DualView: pictures of a site's persons, and where they looked, from what leaked.

Source: Elfares et al. 2024, "PrivatEyes", section 4.2. View 1 searches pictures that a public prior
finds likely and on which the leaked networks do well, and of single sites the victim's best.
View 2 infers the distribution of gaze. The prior is a principal component analysis of public
eyes, which takes seconds on a CPU, and not the generative adversarial network of the paper.
"""

from __future__ import annotations

from site_agent.attacks.dualview.gaze_view import GazeGrid, infer_densities, kl_divergence
from site_agent.attacks.dualview.judging import (
    Embedding,
    fit_embedding,
    nearest_public,
    psnr,
    ssim,
)
from site_agent.attacks.dualview.pictures import InversionSettings, Victims, reconstruct
from site_agent.attacks.dualview.prior import EyePrior, fit_prior

__all__ = [
    "Embedding",
    "EyePrior",
    "GazeGrid",
    "InversionSettings",
    "Victims",
    "fit_embedding",
    "fit_prior",
    "infer_densities",
    "kl_divergence",
    "nearest_public",
    "psnr",
    "reconstruct",
    "ssim",
]
