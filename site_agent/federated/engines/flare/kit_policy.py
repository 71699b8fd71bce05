"""What a kit lets others do on its machine, and how long it waits for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole

PACKAGE = "site_agent.federated.engines.flare"
CONTROLLER = f"{PACKAGE}.controller.RoundsController"
EXECUTOR = f"{PACKAGE}.executor.SiteExecutor"

SITE_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"

HEARTBEAT_INTERVAL_S = 2
_HEARTBEAT_LIMIT_S = 10
"""A site that is silent for so long is not given a part in the next job."""

MOST_MESSAGE_BYTES = 512 * 1024**2
"""Of a network or a contribution on its way: several times what the networks here have."""

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
    """Return what each role may do: nobody sends code or commands of the shell."""
    submitters = dict.fromkeys(_SUBMITTERS_RIGHTS, "any") | {"view": "any"}
    others = dict.fromkeys((*_SUBMITTERS_RIGHTS, "view"), "none")
    nobody = dict.fromkeys(_NOBODYS_RIGHTS, "none")
    return {
        role: {**(submitters if role == "project_admin" else others), **nobody} for role in _ROLES
    }


def _log_config() -> dict[str, Any]:
    """Return a log of everything in log.txt, and of what people need on standard output."""
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
    write_whole(path, json.dumps(content, indent=2) + "\n", mode=0o600)
