"""RO-Crate metadata of a release: its files, lineage and terms, as JSON-LD.

Source: RO-Crate Metadata Specification 1.1 (https://w3id.org/ro/crate/1.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pool_server.wire.bundles import PortableVersion
from pool_server.wire.data_use import TEXT, label_of

CRATE = "ro-crate-metadata.json"
_CONTEXT = "https://w3id.org/ro/crate/1.1"
_TYPES = {".md": "text/markdown", ".json": "application/json", ".cff": "application/yaml"}


@dataclass(frozen=True)
class CrateFile:
    """A file of a release."""

    size_bytes: int
    digest: str


def describe_crate(record: PortableVersion, files: Mapping[str, CrateFile]) -> dict[str, Any]:
    """Return the metadata of a version and its files."""
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{record.site}/{record.name}, version {record.version}",
        "description": record.description or f"A shared model of the kind {record.kind}.",
        "datePublished": record.created_at.isoformat(timespec="seconds"),
        "version": str(record.version),
        "creator": {"@id": f"#{record.site}"},
        "license": {"@id": "#terms"},
        "mainEntity": {"@id": quote(record.file_name)},
        "keywords": [f"{key}:{value}" for key, value in sorted(record.labels.items())],
        "hasPart": [{"@id": quote(name)} for name in sorted(files)],
    }
    if doi := record.labels.get("doi"):
        root["identifier"] = f"https://doi.org/{doi}"
    graph = [
        {
            "@id": CRATE,
            "@type": "CreativeWork",
            "conformsTo": {"@id": _CONTEXT},
            "about": {"@id": "./"},
        },
        root,
        {"@id": f"#{record.site}", "@type": "Organization", "name": record.site},
        {"@id": "#terms", "@type": "CreativeWork", "name": "Terms of use", "text": _terms(record)},
    ]
    graph += [_describe_file(name, file) for name, file in sorted(files.items())]
    return {"@context": f"{_CONTEXT}/context", "@graph": graph + _lineage(record)}


def _describe_file(name: str, file: CrateFile) -> dict[str, Any]:
    suffix = name[name.rfind(".") :]
    return {
        "@id": quote(name),
        "name": name,
        "@type": "File",
        "contentSize": str(file.size_bytes),
        "sha256": file.digest,
        "encodingFormat": _TYPES.get(suffix, "application/octet-stream"),
    }


def _terms(record: PortableVersion) -> str:
    lines = [
        label_of(term.code)
        + ("" if term.code == TEXT else f" ({term.code})")
        + (f": {term.detail}" if term.detail else "")
        + (" (inherited)" if term.inherited else "")
        for term in record.terms
    ]
    return "\n".join(lines) or "None stated: ask the site before any use."


def _lineage(record: PortableVersion) -> list[dict[str, Any]]:
    """Return the merge that made a version, with its inputs; empty if none did."""
    if record.recipe is None:
        return []
    inputs = {source["digest"]: source for source in record.recipe["inputs"]}
    method = record.recipe["method"]
    return [
        {
            "@id": "#merge",
            "@type": "CreateAction",
            "name": f"Merged by {method['name']}",
            "instrument": {"@id": "#method"},
            "object": [{"@id": f"#sha256-{digest}"} for digest in inputs],
            "result": {"@id": quote(record.file_name)},
        },
        {
            "@id": "#method",
            "@type": "SoftwareApplication",
            "name": f"poolctl, method {method['name']}",
            "softwareVersion": str(method["version"]),
        },
        *(
            {
                "@id": f"#sha256-{digest}",
                "@type": "CreativeWork",
                "name": source.get("address") or source.get("file_name") or f"sha256:{digest}",
                "identifier": f"sha256:{digest}",
            }
            for digest, source in inputs.items()
        ),
    ]
