"""``poolctl serve --check``: whether a pool can run with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.frame.errors import ConfigurationError
from cli.frame.output import Invocation, Reply, TableText


def check_config(invocation: Invocation, given: Mapping[str, Any]) -> Reply:
    """Check the settings that a pool would run with: environment, file, and what was given."""
    from pool_server.operations.configuration import check_configuration
    from site_agent.pool import profiles

    settings, found = check_configuration(**given)
    if settings is not None and "data_folder" not in settings.model_fields_set:
        settings, found = check_configuration(data_folder=profiles.data_folder())
    problems = [f"{each.setting}: {each.text}" for each in found if each.level == "problem"]
    for each in found:
        if each.level == "warning":
            invocation.warn(f"{each.setting}: {each.text}")
    if problems or settings is None:
        raise ConfigurationError("\n".join(["the pool cannot run with these settings:", *problems]))
    rows = [
        ["data folder", str(settings.data_folder)],
        ["database", settings.database_place],
        ["model files", f"bucket {settings.s3_bucket}" if settings.storage == "s3" else "folder"],
        ["listens on", f"{settings.host} port {settings.port}"],
    ]
    facts = {
        "data_folder": settings.data_folder,
        "database": settings.database_place,
        "storage": settings.storage,
        "findings": found,
    }
    return Reply(facts, [TableText(["what", "value"], rows), "the pool can run"])
