"""FLARE's process of a server or a site, which ends with the process that started it.

`run_kit` starts it as ``python -m site_agent.federated.engines.flare.flare_process KIT``, and keeps
it in the foreground until it is stopped.
"""

import contextlib
import logging
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from site_agent.errors import BusyError, FederationError, InvalidInputError
from site_agent.federated.engines.flare import jobs, kits
from site_agent.work.locks import locked
from site_agent.work.processes import end_with_parent, start_python, stop


def main(folder: Path) -> None:
    """Become FLARE's process of a kit."""
    end_with_parent()
    kit = kits.read_kit(folder, "server", "site")
    os.environ.update(kits.ENVIRONMENT)
    take_only_our_jobs()
    if kit.role == "server":
        kits.place_store(kit.folder)
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
            self._side: jobs.Side = "server" if site_type == SiteType.SERVER else "client"

        def validate(self, app_folder: str) -> tuple[str, dict[str, object]]:
            try:
                jobs.check_job(Path(app_folder), self._side)
            except InvalidInputError as error:
                return str(error), {}
            return "", {}

    formats = {".json": ConfigFormat.JSON, ".json.default": ConfigFormat.JSON}
    ConfigFormat.config_ext_formats = classmethod(lambda _: dict(formats))
    ConfigFactory._fmt2Loader = {
        ConfigFormat.JSON: ConfigFactory.get_config_loader(ConfigFormat.JSON)
    }
    fl_app_validator.DefaultAppValidator = JobValidator


def _command(kit: kits.Kit) -> tuple[str, list[str]]:
    """Return FLARE's module for a role, and its arguments."""
    common = ["secure_train=true", "org=poolctl", "config_folder=config"]
    if kit.role == "server":
        module = "nvflare.private.fed.app.server.server_train"
        return module, ["-m", str(kit.folder), "-s", "fed_server.json", "--set", *common]
    module = "nvflare.private.fed.app.client.client_train"
    settings = [f"uid={kit.name}", f"heart_beat_interval={kits.HEARTBEAT_INTERVAL_S}"]
    return module, ["-m", str(kit.folder), "-s", "fed_client.json", "--set", *common, *settings]


class ConnectionLines(logging.Filter):
    """The line of FLARE's client that shows people that the site is connected."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage().startswith("Successfully registered client")


if __name__ == "__main__":
    main(Path(sys.argv[1]))


_STOP_LIMIT_S = 10.0


def run_kit(kit: kits.Kit, environment: Mapping[str, str], on_line: Callable[[str], None]) -> None:
    """Run a server or a site until Ctrl-C, or until its process ends by itself.

    `environment`: Variables for the kit's processes. `on_line`: Called with each line of their log.
    """
    busy = BusyError(f"{kit.folder} is in use: its {kit.role} runs already")
    with locked(kit.folder / ".lock", busy=busy):
        process = start_python(
            "site_agent.federated.engines.flare.flare_process",
            str(kit.folder),
            environment=environment,
        )
        reader = threading.Thread(target=_read, args=(process.stdout, on_line), daemon=True)
        reader.start()
        try:
            code = process.wait()
        finally:
            stop(process, grace_s=_STOP_LIMIT_S)
            reader.join(_STOP_LIMIT_S)
    raise FederationError(
        f"the {kit.role} ended with code {code}", hint=f"see {kit.folder / 'log.txt'}"
    )


def _read(lines: IO[bytes] | None, on_line: Callable[[str], None]) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed while it is read
        for line in lines or ():
            on_line(_plain(line.decode("utf-8", "replace").rstrip()))


def _plain(line: str) -> str:
    """Return a line of FLARE's log, or its meaning."""
    if "CERTIFICATE_VERIFY_FAILED" in line:
        return "refused: the other side's certificate is not of this federation"
    if "UNKNOWN_CA" in line or "CERTIFICATE_UNKNOWN" in line:
        return "refused: this kit's certificate is not of the other side's federation"
    return line
