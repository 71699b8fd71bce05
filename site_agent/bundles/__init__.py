"""Bundles: models travel in one file between pools that no network connects."""

from site_agent.bundles.exporting import Exported, export_bundle
from site_agent.bundles.importing import ImportedVersion, ImportOutcome, import_bundle
from site_agent.bundles.inspecting import BundleReport, inspect_bundle

__all__ = [
    "BundleReport",
    "Exported",
    "ImportOutcome",
    "ImportedVersion",
    "export_bundle",
    "import_bundle",
    "inspect_bundle",
]
