"""Addresses of models as people write them, and where a pool has what they mean."""

from __future__ import annotations

from pool_server.wire.names import ModelAddress
from site_agent.errors import InvalidInputError


def parse_address(text: str) -> ModelAddress:
    """Read ``[pool://]SITE/NAME[@VERSION|@ALIAS|@sha256:DIGEST]``."""
    try:
        return ModelAddress.parse(text)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error


def model_path(address: str | ModelAddress) -> str:
    """Return where a pool has a model, whatever version the address names."""
    where = parse_address(address) if isinstance(address, str) else address
    return f"/api/v1/models/{where.site}/{where.name}"


def version_path(address: str | ModelAddress) -> str:
    """Return where a pool has a version: the newest where the address names none."""
    where = parse_address(address) if isinstance(address, str) else address
    return f"{model_path(where)}/versions/{where.reference or 'latest'}"
