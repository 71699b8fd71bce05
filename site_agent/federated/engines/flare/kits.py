"""Start-up kits: what server, sites and submitter of a federation need to know each other."""

from __future__ import annotations

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
from site_agent.federated.engines.flare.kit_policy import SITE_NAME, write_policy

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
    """A kit on disk.

    Attributes
    ----------
    folder : Path
        Absolute.
    name : str
        Of the site; ``server`` and ``submit`` for the other roles.
    host : str
    port : int
        Of the server.
    sites : tuple of str
        All sites of the federation; only the submitter's kit knows them.
    """

    folder: Path
    role: Role
    name: str
    host: str
    port: int
    sites: tuple[str, ...] = ()

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
    """Return the kit in a folder.

    Raises
    ------
    InvalidInputError
        There is no kit, or it has none of the roles.
    """
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
    ``authority`` holds the key that signs the certificates; whoever has it can add sites.

    Parameters
    ----------
    host : str
        Name or address under which the sites reach the server.

    Returns
    -------
    list of Path
        The kits that were made.

    Raises
    ------
    InvalidInputError
        A name is invalid, or the folder holds kits of another server.
    MissingExtraError
        NVIDIA FLARE is not installed.
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
