"""Refining merged landmark models on the faces of sites, all of them on one machine."""

from __future__ import annotations

from site_agent.refinement.one_machine import (
    LoadedSite,
    RefinedModel,
    RefinementPlan,
    SiteSource,
    load_site,
    read_base,
    refine_sites,
    write_contributions,
)

__all__ = [
    "LoadedSite",
    "RefinedModel",
    "RefinementPlan",
    "SiteSource",
    "load_site",
    "read_base",
    "refine_sites",
    "write_contributions",
]
