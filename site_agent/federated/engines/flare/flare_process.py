"""FLARE's process of a server or a site, which ends with the process that started it.

Run as ``python -m site_agent.federated.engines.flare.flare_process KIT``.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
import threading
import time
from pathlib import Path

from site_agent.errors import InvalidInputError
from site_agent.federated.engines.flare.jobs import Side, check_job
from site_agent.federated.engines.flare.kit_policy import (
    ENVIRONMENT,
    HEARTBEAT_INTERVAL_S,
    place_store,
)
from site_agent.federated.engines.flare.kits import Kit, read_kit
from site_agent.runs.child_process import die_with_parent


def main(folder: Path) -> None:
    """Become FLARE's process of a kit."""
    die_with_parent()
    kit = read_kit(folder, "server", "site")
    os.environ.update(ENVIRONMENT)
    take_only_our_jobs()
    if kit.role == "server":
        place_store(kit.folder)
    module, arguments = _command(kit)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def take_only_our_jobs() -> None:
    """Let FLARE, in this process, read JSON alone, and no job but those of `jobs.write_job`.

    FLARE reads a job's configuration to see whether it is there, before any rule of a kit is asked.
    In the formats HOCON and YAML that alone fetches addresses (``include url``) and reads the
    environment (``${VAR}``). So the check that comes first is replaced. The processes of jobs come
    after it, and find only files that it has let through.
    """
    from nvflare.apis.app_validation import AppValidator
    from nvflare.apis.fl_constant import SiteType
    from nvflare.fuel.utils.config import ConfigFormat
    from nvflare.fuel.utils.config_factory import ConfigFactory
    from nvflare.private.fed.app import fl_app_validator

    class JobValidator(AppValidator):  # type: ignore[misc]
        def __init__(self, site_type: str) -> None:
            super().__init__()
            self._side: Side = "server" if site_type == SiteType.SERVER else "client"

        def validate(self, app_folder: str) -> tuple[str, dict[str, object]]:
            try:
                check_job(Path(app_folder), self._side)
            except InvalidInputError as error:
                return str(error), {}
            return "", {}

    formats = {".json": ConfigFormat.JSON, ".json.default": ConfigFormat.JSON}
    ConfigFormat.config_ext_formats = classmethod(lambda _: dict(formats))
    ConfigFactory._fmt2Loader = {
        ConfigFormat.JSON: ConfigFactory.get_config_loader(ConfigFormat.JSON)
    }
    fl_app_validator.DefaultAppValidator = JobValidator


def _command(kit: Kit) -> tuple[str, list[str]]:
    """Return FLARE's module for a role, and its arguments."""
    common = ["secure_train=true", "org=poolctl", "config_folder=config"]
    if kit.role == "server":
        module = "nvflare.private.fed.app.server.server_train"
        return module, ["-m", str(kit.folder), "-s", "fed_server.json", "--set", *common]
    module = "nvflare.private.fed.app.client.client_train"
    own = [f"uid={kit.name}", f"heart_beat_interval={HEARTBEAT_INTERVAL_S}"]
    return module, ["-m", str(kit.folder), "-s", "fed_client.json", "--set", *common, *own]


def end_with_parent() -> None:
    """End this job process soon after the process that started it has ended.

    FLARE starts job processes from threads that end before the job, so that `die_with_parent`
    cannot be used, and looks for the parent's number, which a zombie keeps.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class ConnectionLines(logging.Filter):
    """Of what FLARE's client says, what tells people that the site is connected."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage().startswith("Successfully registered client")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
