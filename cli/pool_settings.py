"""Settings of a pool's server, for the commands that run or look after one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cli.errors import UsageError

if TYPE_CHECKING:
    from pool_server.settings import PoolSettings


def read_settings(**given: Any) -> PoolSettings:
    """Return the settings that options give, or else the environment.

    Parameters
    ----------
    **given
        Fields of `PoolSettings`; None for what was not said.

    Raises
    ------
    UsageError
        Names the field and what it should be; the value is not repeated, it may hold a password.
    """
    from pydantic import ValidationError

    from pool_server.settings import PoolSettings
    from site_agent import profiles

    said = {field: value for field, value in given.items() if value is not None}
    if "data_folder" not in said and "POOL_SERVER_DATA_FOLDER" not in os.environ:
        said["data_folder"] = profiles.data_folder()
    try:
        return PoolSettings(**said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "_".join(str(step) for step in first["loc"]).upper()
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"POOL_SERVER_{field}: {message}") from None
