"""Kits of live rounds: of the server, and of each site."""

import json
from collections.abc import Sequence
from pathlib import Path

from site_agent.errors import InvalidInputError
from site_agent.live.kits import AUTHORITY, Authority, open_kit, require_names
from site_agent.plain_json import write_json

SERVER = "server"
FEWEST_SITES = 2


def provision(output: Path, *, address: str, sites: Sequence[str]) -> list[Path]:
    """Make the kits of a federation: ``server``, and one for each site.

    Existing kits stay as they are, but the server's names all sites afterwards. The folder
    ``authority`` holds the key that signs the certificates; its holder can add sites.

    `address`: HOST:PORT at which the sites reach the server.

    Returns
    -------
    list of Path
        The kits that were made.
    """
    names, addresses = sorted(set(sites)), {SERVER: address}
    require_names(names, addresses)
    if (output / SERVER).is_dir():
        known = open_kit(output / SERVER)
        if known.addresses != addresses:
            raise InvalidInputError(
                f"{output} holds the kits of a server at {known.addresses[SERVER]}"
            )
        names = sorted({*names, *known.sites})
    if len(names) < FEWEST_SITES:
        raise InvalidInputError(f"found {len(names)} site, expected at least {FEWEST_SITES}")
    output.mkdir(parents=True, exist_ok=True)
    authority = Authority.open(output / AUTHORITY)
    made = []
    for name, role in {SERVER: SERVER, **dict.fromkeys(names, "site")}.items():
        if not (output / name).exists():
            authority.make_kit(output / name, role, name, addresses, {"sites": []})
            made.append(output / name)
    path = output / SERVER / "kit.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {**facts, "sites": names}, mode=0o600)
    return made
