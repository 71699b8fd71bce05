"""Send jobs that are not ours: ``send_jobs.py KIT FOLDER BASE KIND ...``.

It is a process of its own because FLARE leaves threads in a process that talks to its server.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from site_agent.errors import FederationError
from site_agent.federated.engines.flare import jobs
from site_agent.federated.engines.flare.federation import FederationSession, has_finished
from site_agent.federated.engines.flare.kits import Kit, read_kit
from site_agent.federated.plan import make_plan


def main(kit_folder: Path, folder: Path, base: Path, kinds: Sequence[str]) -> None:
    """Print the final state of each job, by kind."""
    kit = read_kit(kit_folder, "submitter")
    with FederationSession(kit) as session:
        results = {
            kind: send(kit, session, folder / str(place), base, kind)
            for place, kind in enumerate(kinds)
        }
    print(json.dumps(results))


def send(
    kit: Kit, session: FederationSession, folder: Path, base: Path, kind: str
) -> dict[str, object]:
    jobs.write_job(
        folder,
        make_plan("fedavg", {}, rounds=1),
        kit.sites,
        base,
        first_base="0123456789abcdef" * 4,
        first_round=1,
        rounds=1,
        round_limit_s=30,
    )
    if kind == "custom-code":
        for app in ("server", "site"):
            (folder / app / "custom").mkdir()
            (folder / app / "custom" / "own.py").write_text("raise SystemExit")
    elif kind == "other-class":
        place = folder / "site" / "config" / "config_fed_client.json"
        content = json.loads(place.read_text())
        content["executors"][0]["executor"] = {"path": "subprocess.Popen", "args": {"args": "true"}}
        place.write_text(json.dumps(content))
    elif kind == "path":
        place = folder / "server" / "config" / "config_fed_server.json"
        content = json.loads(place.read_text())
        content["workflows"][0]["args"]["base"] = "../../../startup/server.key"
        place.write_text(json.dumps(content))
    elif kind.startswith("include "):
        (folder / "site" / "config" / "config_fed_client.json").unlink()
        place = folder / "site" / "config" / "config_fed_client.conf"
        place.write_text(f'include url("{kind.split()[1]}")\nformat_version = 2\n')
    try:
        job = session.submit(folder)
    except FederationError as error:
        return {"status": "not accepted", "details": [str(error)]}
    while not has_finished((state := session.status(job))[0]):
        time.sleep(0.5)
    return {"status": state[0], "details": state[1]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
