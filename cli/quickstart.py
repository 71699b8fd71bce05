"""``poolctl quickstart``: the journey of the README with a local pool, as poolctl commands.

Each command is shown before it runs, as a user would type it in the folder of the quickstart:
``POOL_HOME`` stands for the machine of one site.

How the journey goes: a pool is started (`cli.frame.shell`), an admin registers the sites,
each site trains and uploads, one lab downloads and merges, the sites refine the result in rounds,
and the lab finds blinks. `cli.frame.shell` shows and runs the lines, and reads the answers that
``--json`` gives.
"""

import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cli.frame.options import Option, command, single
from cli.frame.output import Invocation, Reply
from cli.frame.shell import Shell, program_name
from site_agent.errors import InvalidInputError

app = single()

_ROUNDS = 3
_PERSONS, _TEST_PERSONS = 60, 60
# Small trees and few of them: each training takes seconds.
_ERT = (
    "--for blinks --set num_trees_per_cascade_level=100 --set tree_depth=4 "
    "--set oversampling_amount=20 --no-training-scores"
)


@command(app, "quickstart", "quickstart", "quickstart --site-count 5 -o ~/poolctl-trial")
def quickstart(
    invocation: Invocation,
    *,
    output: Annotated[Path, Option("A new or empty folder for all files.", "FOLDER")] = Path(
        "poolctl-quickstart"
    ),
    site_count: Annotated[int, Option("Number of sites that train.", min=2, max=8)] = 3,
    seed: Annotated[int, Option("Seed of the synthetic persons.", min=0)] = 1,
) -> Reply:
    """Run the whole journey as a list of poolctl commands, each shown before it runs.

    Starts a pool on this machine. Sites with synthetic faces train and upload; a lab downloads,
    merges and uploads the merged models; the sites refine the merged landmark model in rounds; and
    the lab finds the blinks in a synthetic video. Takes a few minutes.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InvalidInputError(f"{output} is not an empty folder; name a new one with --output")
    output.mkdir(parents=True, exist_ok=True)
    folder = output
    sites = [f"site-{chr(ord('a') + index)}" for index in range(site_count)]
    started_s = time.monotonic()
    with Shell(invocation, folder) as shell:
        blinks = _face_journey(shell, sites, seed)
    seconds = round(time.monotonic() - started_s, 1)
    lines = [
        "",
        f"The merged and refined model finds {blinks['matched']} of {blinks['true']} blinks "
        f"({blinks['found']} reported, {blinks['found'] - blinks['matched']} false).",
        f"Everything took {seconds:.0f} s and is in {folder}/.",
        "",
        "Try next:",
        *(f"  {line}" for line in next_lines(folder, shell.endpoint)),
    ]
    return Reply({"folder": folder, "blinks": blinks, "seconds": seconds}, lines, [str(folder)])


def _face_journey(shell: Shell, sites: Sequence[str], seed: int) -> dict[str, int]:
    """Make the journey, and return how many blinks were drawn, found, and both."""
    from site_agent.datasets.synthetic.sites import SITE_STYLES

    # Sites differ in who comes and how the room is lit; the test set is of all kinds.
    styles = [name for name in SITE_STYLES if name != "mixed"]
    shell.title(f"Draw faces for {len(sites)} sites, and a test set and a video of other persons")
    for index, site in enumerate(sites):
        shell.run(
            f"dataset draw faces {site} --set images={2 * _PERSONS} --set persons={_PERSONS} "
            f"--set first_person={index * _PERSONS} --set seed={seed + index} "
            f"--set style={styles[index % len(styles)]}"
        )
    shell.run(
        f"dataset draw faces test --set images={_TEST_PERSONS} --set persons={_TEST_PERSONS} "
        f"--set first_person={len(sites) * _PERSONS} --set seed={seed + 1000}"
    )
    shell.run(f"dataset draw video our-lab/session.mp4 --set seed={seed + 1000}")
    _register(shell, [*sites, "our-lab"])
    shell.title("Train a face detector and a landmark model of the eyes at each site")
    for site in sites:
        shell.run(f"train hog-svm {site}/faces.xml -o {site}/face.svm --no-training-scores")
        shell.run(f"train ert {site}/faces.xml -o {site}/eyes.dat {_ERT}")
    shell.title("Upload the sub-models; the pool checks each before it is shown")
    names = {"face.svm": "face", "eyes.dat": "eyes"}
    for site in sites:
        for file, name in names.items():
            shell.run(
                f"upload {site}/{file} --name {site}/{name} --label population=synthetic", site
            )
    shell.title("Find and download what can be merged")
    shell.show("models ls --label population=synthetic", "our-lab")
    for name in names.values():
        shell.run(f"download {' '.join(f'{site}/{name}' for site in sites)} -o our-lab/", "our-lab")
    shell.title("Merge: MWMA for detectors, WBA for landmark models; upload the result")
    detectors, landmarks = (
        " ".join(f"our-lab/{site}--{name}--v1{Path(file).suffix}" for site in sites)
        for file, name in names.items()
    )
    shell.run(f"merge mwma {detectors} -o our-lab/merged.svm", "our-lab")
    shell.run(f"merge wba-cascade {landmarks} --option step=1.1 -o our-lab/merged.dat", "our-lab")
    shell.run("upload our-lab/merged.svm --name our-lab/face", "our-lab")
    shell.run("upload our-lab/merged.dat --name our-lab/eyes", "our-lab")
    shell.show("models lineage our-lab/eyes", "our-lab")
    shell.title(f"Refine the merged landmark model in {_ROUNDS} rounds: only sums leave a site")
    refined = _hold_rounds(shell, sites, "our-lab/eyes")
    shell.run(f"download {refined} -o our-lab/refined.dat", "our-lab")
    shell.title("Evaluate all models on persons nobody trained on")
    shell.show(
        f"evaluate {detectors} our-lab/merged.svm {landmarks} our-lab/merged.dat "
        "our-lab/refined.dat test/faces.xml --set resamples=0 -o our-lab/scores",
        "our-lab",
    )
    shell.title("Find the blinks in the video")
    shell.run(
        "blink our-lab/session.mp4 --detector our-lab/merged.svm --landmarks our-lab/refined.dat "
        "-o our-lab/blinks"
    )
    return _compare_blinks(Path("our-lab"))


def _register(shell: Shell, sites: Sequence[str]) -> None:
    """Log the admin in, and let it create each site with a token, by which the site logs in."""
    shell.title("Register the sites with the pool")
    login = f"auth login {shell.endpoint} --token-stdin"
    shell.run(login, "admin", stdin=shell.admin_token)
    for site in sites:
        shell.run(f"admin sites create {site}", "admin")
        made = shell.run(f"admin people token {site} quickstart", "admin")
        shell.run(login, site, stdin=made["secret"])


def _hold_rounds(shell: Shell, sites: Sequence[str], base: str) -> str:
    """Hold rounds in which all sites take part; return the address of the last result."""
    for site in sites:
        shell.run(f"rounds trust {' '.join(other for other in sites if other != site)}", site)
    first = sites[0]
    started = shell.run(
        f"rounds start --base {base} --sites {','.join(sites)} --deadline 1d --rounds {_ROUNDS}",
        first,
    )
    key, address = started["round_id"], ""
    # With two sites, each can compute the other's contribution; both must accept that.
    two_only = " --least-others 1" if len(sites) == 2 else ""
    for _ in range(_ROUNDS):
        for site in sites:
            shell.run(f"rounds contribute {key} --data {site}/faces.xml{two_only}", site)
        finished = shell.run(f"rounds finish {key}", first)
        key = finished["round"]["successor"]
        address = finished["version"]["address"].removeprefix("pool://")
    return address


def _compare_blinks(lab: Path) -> dict[str, int]:
    """Compare the blinks that were found with those that were drawn."""
    with (lab / "blinks" / "blinks.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "blink"]
    detected = [(float(row["onset_s"]), float(row["offset_s"])) for row in rows]
    true = json.loads((lab / "session_truth.json").read_text(encoding="utf-8"))["blinks"]
    matched = sum(
        any(
            onset_s < blink["offset_s"] and blink["onset_s"] < offset_s
            for onset_s, offset_s in detected
        )
        for blink in true
    )
    return {"true": len(true), "found": len(detected), "matched": matched}


def next_lines(folder: Path, endpoint: str) -> list[str]:
    """Return commands to go on with; the sites know the pool at `endpoint`."""
    poolctl, lab, port = program_name(), folder / "our-lab", urlsplit(endpoint).port
    return [
        f"{poolctl} predict {folder / 'test' / 'faces'} --detector {lab / 'merged.svm'} "
        f"--landmarks {lab / 'refined.dat'} -o found.xml",
        f"{poolctl} blink review {lab / 'blinks'}",
        f"{poolctl} serve --data {folder / 'pool'} --port {port}   # the pool, with all models",
        f"POOL_HOME={lab} {poolctl} models ls   # in another terminal",
    ]
