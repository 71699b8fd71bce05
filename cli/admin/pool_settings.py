"""Settings of a pool's server, for the commands that run or look after one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.frame.errors import UsageError

if TYPE_CHECKING:
    from pool_server.settings import PoolSettings


def use_config_file(path: Path | None) -> None:
    """Have settings read from this file, too, by this process and those that it starts."""
    import tomllib

    from pool_server.settings import CONFIG_VARIABLE

    if path is not None:
        os.environ[CONFIG_VARIABLE] = str(path.absolute())
    name = os.environ.get(CONFIG_VARIABLE, "")
    if not name:
        return
    try:
        tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: the settings cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{name}: {error}; expected TOML, one line a setting, such as port = 8710"
        ) from None


def read_settings(**given: Any) -> PoolSettings:
    """Return the settings that options give, or else the environment or a file."""
    from pydantic import ValidationError

    from pool_server.settings import PoolSettings
    from site_agent.pool import profiles

    use_config_file(None)
    said = {field: value for field, value in given.items() if value is not None}
    try:
        settings = PoolSettings(**said)
        if "data_folder" not in settings.model_fields_set:
            settings = PoolSettings(**said, data_folder=profiles.data_folder())
        return settings
    except ValidationError as error:
        from pool_server.operations.configuration import wrong_values

        first = next(wrong_values(error))
        raise UsageError(
            f"{first.setting}: {first.text}; `poolctl serve --check` lists all problems"
        ) from None
