"""Start-up kits: certificates and addresses of a federation, and the rules of each machine."""

import json
import logging
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError, MissingExtraError
from site_agent.plain_json import write_json

Role = Literal["server", "site", "submitter"]

SUBMITTER = "submitter@poolctl.local"
"""FLARE names administrators by an address of mail; nothing is ever sent there."""

_FEDERATION, _ORGANISATION = "federation", "poolctl"
_AUTHORITY, _SERVER, _SUBMIT = "authority", "server", "submit"
_FILE_OF_ROLE: dict[Role, str] = {
    "server": "fed_server.json",
    "site": "fed_client.json",
    "submitter": "fed_admin.json",
}


@dataclass(frozen=True)
class Kit:
    """A kit on disk."""

    folder: Path
    """An absolute path."""
    role: Role
    name: str
    """The site's name; ``server`` and ``submit`` for the other roles."""
    host: str
    port: int
    """The server's port."""
    sites: tuple[str, ...] = ()
    """All sites of the federation; only the submitter's kit knows them."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def require_flare() -> None:
    """Raise `MissingExtraError` where NVIDIA FLARE is not installed."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise MissingExtraError("nvflare", "federated") from None


def read_kit(folder: Path, *roles: Role) -> Kit:
    """Return the kit in a folder."""
    startup = folder.resolve() / "startup"
    role = next((role for role, name in _FILE_OF_ROLE.items() if (startup / name).is_file()), None)
    if role is None:
        raise InvalidInputError(
            f"{folder}: found no start-up kit, expected a folder that 'poolctl federated "
            "provision' made"
        )
    if role not in roles:
        raise InvalidInputError(f"{folder} is the kit of a {role}, expected {' or '.join(roles)}")
    content = json.loads((startup / _FILE_OF_ROLE[role]).read_text(encoding="utf-8"))
    kit = startup.parent
    if role == "submitter":
        admin = content["admin"]
        sites = tuple(json.loads((kit / "sites.json").read_text(encoding="utf-8")))
        return Kit(kit, role, _SUBMIT, admin["host"], int(admin["port"]), sites)
    host, _, port = content["servers"][0]["service"]["target"].rpartition(":")
    name = content["client"]["fqsn"] if role == "site" else _SERVER
    return Kit(kit, role, name, host, int(port))


def provision(output: Path, *, host: str, port: int, sites: Sequence[str]) -> list[Path]:
    """Make the kits of a federation: ``server``, ``submit`` and one for each site.

    Existing kits stay as they are, so that a call with further sites adds these. The folder
    ``authority`` holds the key that signs the certificates; its holder can add sites.

    `host`: Name or address under which the sites reach the server.

    Returns
    -------
    list of Path
        The kits that were made.
    """
    require_flare()
    names = sorted(set(sites))
    for name in names:
        if not re.fullmatch(SITE_NAME, name) or name in (_AUTHORITY, _SERVER, _SUBMIT):
            raise InvalidInputError(
                f"site {name!r}: expected small letters, digits, - and _, and none of "
                f"{_AUTHORITY}, {_SERVER}, {_SUBMIT}"
            )
    if (output / _SUBMIT).is_dir():
        known = read_kit(output / _SUBMIT, "submitter")
        if (known.host, known.port) != (host, port):
            raise InvalidInputError(f"{output} holds the kits of a server at {known.address}")
        names = sorted({*names, *known.sites})
    if len(names) < 2:
        raise InvalidInputError(f"found {len(names)} site, expected at least 2")
    output.mkdir(parents=True, exist_ok=True)
    (output / _AUTHORITY).mkdir(mode=0o700, exist_ok=True)
    made = _make(output / _AUTHORITY, host, port, names)
    placed = []
    for participant, name, role in [
        (host, _SERVER, "server"),
        *((site, site, "site") for site in names),
        (SUBMITTER, _SUBMIT, "submitter"),
    ]:
        kit = output / name
        if not kit.exists():
            write_policy(made / participant, role)
            (made / participant).chmod(0o700)
            (made / participant).rename(kit)
            placed.append(kit)
    write_whole(output / _SUBMIT / "sites.json", json.dumps(names))
    shutil.rmtree(made)
    return placed


def _make(authority: Path, host: str, port: int, sites: Sequence[str]) -> Path:
    """Let FLARE make its kits, and return their folder."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Participant, Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    participants = [
        Participant("server", host, _ORGANISATION, {"fed_learn_port": port, "default_host": host}),
        *(Participant("client", site, _ORGANISATION, {}) for site in sites),
        Participant("admin", SUBMITTER, _ORGANISATION, {"role": "project_admin"}),
    ]
    project = Project(_FEDERATION, "", participants, props={"api_version": 3})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(scheme="grpc", config_folder="config"),
        CertBuilder(),
    ]
    provisioner: Any = Provisioner(str(authority), builders)
    context = provisioner.provision(project, logger=logging.getLogger(__name__))
    if context.get(CtxKey.BUILD_ERROR):
        raise InvalidInputError(f"NVIDIA FLARE could not make the kits in {authority}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


# The rules of a kit: what others may do on its machine, and how long it waits for them.
PACKAGE = "site_agent.federated.engines.flare"
CONTROLLER = f"{PACKAGE}.controller.RoundsController"
EXECUTOR = f"{PACKAGE}.executor.SiteExecutor"

SITE_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"

HEARTBEAT_INTERVAL_S = 2
_HEARTBEAT_LIMIT_S = 10
"""A site that is silent for so long is not given a part in the next job."""

MOST_MESSAGE_BYTES = 512 * 1024**2
"""Of a network or a contribution on its way: several times the size of today's networks."""

_ROLES = ("project_admin", "org_admin", "lead", "member")
_SUBMITTERS_RIGHTS = ("submit_job", "manage_job", "download_job")
_NOBODYS_RIGHTS = ("clone_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")

# Job processes of FLARE read settings from such variables; the files of a job cannot change them.
ENVIRONMENT = {
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "10",
    "NVFLARE_DEAD_CLIENT_GRACE_PERIOD": "5",
    "NVFLARE_DEAD_CLIENT_CHECK_LEAD_TIME": "5",
    "NVFLARE_MAX_RUNNER_SYNC_TIMEOUT": "30",
    "NVFLARE_END_RUN_READINESS_TIMEOUT": "1",
    "NVFLARE_JOB_HEARTBEAT_INTERVAL": str(HEARTBEAT_INTERVAL_S),
    # A larger message is refused by its announced size, before memory is taken for it.
    "NVFLARE_STREAMING_MAX_BLOB_SIZE": str(MOST_MESSAGE_BYTES),
}


def write_policy(kit: Path, role: str) -> None:
    """Replace the rules of FLARE's own kit by ours; a submitter's kit has none."""
    # Scripts that start FLARE without the settings above, and words on them.
    for pattern in ("*.txt", "startup/*.txt", "startup/*.sh", "startup/*.ipynb", "local/*.sample"):
        for path in kit.glob(pattern):
            path.unlink()
    if role == "submitter":
        return
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    change = _server_resources if role == "server" else _site_resources
    _write(local / "resources.json", change(resources))
    _write(local / "authorization.json", {"format_version": "1.0", "permissions": _permissions()})
    _write(local / "log_config.json", _log_config())
    for name in ("resources.json", "authorization.json", "log_config.json"):
        (local / f"{name}.default").unlink()


def place_store(kit: Path) -> None:
    """Let a server keep everything within its kit, wherever that is now."""
    place = kit / "local" / "resources.json"
    resources = json.loads(place.read_text(encoding="utf-8"))
    storage = resources["snapshot_persistor"]["args"]["storage"]
    storage["args"]["root_dir"] = str(kit / "store" / "snapshots")
    components = {entry["id"]: entry for entry in resources["components"]}
    components["job_manager"]["args"]["uri_root"] = str(kit / "store" / "jobs")
    _write(place, resources)


def _server_resources(resources: dict[str, Any]) -> dict[str, Any]:
    resources["class_allow_list"] = [CONTROLLER]
    resources["servers"][0]["heart_beat_timeout"] = _HEARTBEAT_LIMIT_S
    components = {entry["id"]: entry for entry in resources["components"]}
    components["job_scheduler"]["args"] = {
        "max_jobs": 1,
        "min_schedule_interval": 1.0,
        "max_schedule_interval": 2.0,
        "max_schedule_count": 1000,
    }
    # It takes the logs of sites.
    del components["log_receiver"]
    return {**resources, "components": list(components.values())}


def _site_resources(resources: dict[str, Any]) -> dict[str, Any]:
    resources["class_allow_list"] = [EXECUTOR]
    # A site's log stays at the site.
    resources["allow_log_streaming"] = False
    kept = [entry for entry in resources["components"] if entry["id"] != "site_log_streamer"]
    return {**resources, "components": kept}


def _permissions() -> dict[str, dict[str, str]]:
    """Return the rights of each role: nobody sends code or commands of the shell."""
    submitters = dict.fromkeys(_SUBMITTERS_RIGHTS, "any") | {"view": "any"}
    others = dict.fromkeys((*_SUBMITTERS_RIGHTS, "view"), "none")
    nobody = dict.fromkeys(_NOBODYS_RIGHTS, "none")
    return {
        role: {**(submitters if role == "project_admin" else others), **nobody} for role in _ROLES
    }


def _log_config() -> dict[str, Any]:
    """Return a log of everything in log.txt, and of progress on standard output."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"},
            "full": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"},
        },
        "filters": {"connected": {"()": f"{PACKAGE}.flare_process.ConnectionLines"}},
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "formatter": "plain",
                "stream": "ext://sys.stdout",
            },
            "connection": {
                "class": "logging.StreamHandler",
                "formatter": "plain",
                "filters": ["connected"],
                "stream": "ext://sys.stdout",
            },
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "formatter": "full",
                "filename": "log.txt",
                "maxBytes": 10_000_000,
                "backupCount": 3,
            },
        },
        "root": {"level": "INFO", "handlers": ["file"]},
        "loggers": {
            PACKAGE: {"handlers": ["console"]},
            "nvflare.private.fed.client.fed_client.FederatedClient": {"handlers": ["connection"]},
        },
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    write_json(path, content, mode=0o600)
