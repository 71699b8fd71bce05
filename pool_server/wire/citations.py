"""Citations of versions."""

import yaml

from pool_server.wire.exports import PortableVersion
from pool_server.wire.models import ModelVersionResponse


def citation(version: ModelVersionResponse | PortableVersion) -> str:
    """Return the text of a version's ``CITATION.cff``, with its site as the author.

    Source: Citation File Format 1.2.0.
    """
    identifiers = [{"type": "other", "value": f"sha256:{version.digest}"}]
    if doi := version.labels.get("doi"):
        identifiers.insert(0, {"type": "doi", "value": doi})
    entries = {
        "cff-version": "1.2.0",
        "message": "If you use this model, please cite it as below.",
        "type": "dataset",
        "title": f"{version.site}/{version.name}, version {version.version}",
        "authors": [{"name": version.site}],
        "version": str(version.version),
        "date-released": f"{version.created_at:%Y-%m-%d}",
        "identifiers": identifiers,
    }
    return str(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100))
