"""``poolctl privacy``: measure leaks of models and contributions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.models.records import receipt_tables
from cli.options.data import ImagesOption, PersonOptions, read_face_file, reading_from
from cli.vision.gaze import read_gaze_samples, view_of
from pool_server.wire.cards import ReceiptMode
from site_agent.attacks.receipt import SmashedProbeSettings
from site_agent.attacks.receipt.pages import receipt_files, write_receipt
from site_agent.attacks.receipt.sub_models import FaceSides, know_faces
from site_agent.datasets.gaze.check import is_gaze_data
from site_agent.networks.views import EYE

app = group("Measure what something that left your site reveals.")

_SHADOWS = 32
_FACE_MODES = ("sub-model", "leaf-sums")
SMASHED_SETTINGS = CommandSettings(SmashedProbeSettings())


@dataclass(frozen=True)
class NetworkProbeOptions:
    """The options of probes of networks' updates."""

    reference: Annotated[
        Path | None,
        Option("Gaze data of public persons; of 8 or more, pictures are made, too.", "DATA"),
    ] = None
    shadows_trained: Annotated[
        bool, Option("Networks: also train 32 shadow networks (LiRA).", name="--long")
    ] = False


@command(
    app,
    "probe",
    "privacy probe siteA.dat --data mine.xml --holdout others.xml --mode sub-model "
    "--person-pattern 'person-([0-9]+)' -o receipt/",
    "privacy probe sent.contribution --base merged.dat --data mine.xml --holdout others.xml "
    "--mode leaf-sums --persons persons.csv -o receipt/",
    "privacy probe sent.contribution --base gaze.safetensors --data mine/ --holdout others/ "
    "--reference public/ --mode update -o receipt/",
    "privacy probe sum.contribution --base gaze.safetensors --data mine/ --holdout others/ "
    "--mode secure-sum -o receipt/",
    "privacy probe gaze.safetensors --data mine/ --holdout public/ --mode smashed-data "
    "--set cut=pool1 --set noise_level=1 -o receipt/",
)
def probe(
    invocation: Invocation,
    artifact: Annotated[Path, Argument("The file that leaves, or the whole network.", "ARTIFACT")],
    *,
    data: Annotated[Path, Option("The faces or gaze data that trained.", "DATA")],
    holdout: Annotated[Path, Option("The same kind of data, of other persons.", "DATA")],
    mode: Annotated[ReceiptMode, Option("What leaves; of networks, one of the last three.")],
    output: Annotated[Path, Option("Folder for the receipt.", "FOLDER")],
    base: Annotated[str, Option("The model that a contribution was made to.", "FILE|ADDRESS")] = "",
    updates: NetworkProbeOptions,
    persons: PersonOptions,
    images: ImagesOption = None,
    seed: Annotated[int, Option("Seed of controls and intervals.", min=0)] = 0,
    settings: SettingsOptions,
    force: ForceOption = False,
) -> Reply:
    """Attack your own artifact, and write a privacy receipt.

    A receipt begins with the verdict of the worst attack. Every attack's result is compared with
    chance and with a positive control: the same attack on something that was made to leak. An
    attack counts if its control reaches 0.95. Contributions to rounds are kept in the folder
    'rounds' of the cache ('poolctl env' shows where). Held-out data must show other persons,
    not other images of the same ones. For faces, give the persons by --person-pattern or
    --persons. FOLDER gets receipt.json, receipt.html and statement.html, one page for a data
    protection officer to print. 'poolctl upload --receipt' shows a receipt with the model.

    With --mode smashed-data, the output of the client part of split training is turned back into
    eyes, with the held-out persons as the attackers' own: A fits a decoder to them, B gives it the
    mean of all releases, C knows the client part. A gain of 0 is as good as the mean eye, 1 is the
    eye itself. 'poolctl settings privacy probe' explains the settings of this mode.
    """
    from site_agent.attacks.receipt import networks, probing

    for path in receipt_files(output):
        require_free(path, force=force)
    sets = [path for path in (data, holdout, updates.reference) if path is not None]
    _require_fitting(mode, sets, base, updates, of_faces=persons.given or images is not None)
    release = SMASHED_SETTINGS.read(settings)
    if release != SmashedProbeSettings() and mode != "smashed-data":
        raise UsageError("--set and --settings go with --mode smashed-data")
    base_file = None if not base else invocation.model_file(base).path
    sides: FaceSides | networks.GazeSides
    if mode in _FACE_MODES:
        faces = [read_face_file(path, reading_from(images)) for path in sets]
        known = [know_faces(one, persons.person_of(one, "probes of faces")) for one in faces]
        sides = FaceSides(*known)
    else:
        if base_file is not None and (view := view_of([base_file])) != EYE:
            raise UsageError(f"--base {base}: takes {view.description}; probes know eye patches")
        samples = [read_gaze_samples(invocation, [path], "", "")[0] for path in sets]
        sides = networks.GazeSides(*samples)
    with invocation.progress(f"probe {artifact.name}") as report:
        probed = probing.probe(
            artifact, mode, sides, base=base_file, shadows=_SHADOWS * updates.shadows_trained,
            release=release, seed=seed, progress=report,
        )  # fmt: skip
    files = write_receipt(probed.receipt, probed.pictures, output, artifact.name)
    text: list[str | TableText] = [*receipt_tables([probed.receipt])]
    text += [f"written {path}" for path in files]
    return Reply({"receipt": probed.receipt, "files": files}, text, [str(path) for path in files])


def _require_fitting(
    mode: ReceiptMode,
    sets: Sequence[Path],
    base: str,
    updates: NetworkProbeOptions,
    *,
    of_faces: bool,
) -> None:
    """Refuse options and data that are not for this mode."""
    on_faces = mode in _FACE_MODES
    if updates != NetworkProbeOptions() and mode not in {"update", "secure-sum"}:
        raise UsageError("--reference and --long go with --mode update or secure-sum")
    if not on_faces and of_faces:
        raise UsageError("--person-pattern, --persons and --images go with faces")
    if mode not in {"sub-model", "smashed-data"} and not base:
        raise UsageError(f"--mode {mode}: give the --base that the contribution was made to")
    if other := [path for path in sets if is_gaze_data(path) == on_faces]:
        raise UsageError(
            f"{other[0]}: --mode {mode} is for models of faces, and this is gaze data; of "
            "networks, probe the update of a site: --mode update or secure-sum"
            if on_faces
            else f"{other[0]}: expected gaze data, as --mode {mode} is for networks; for models of "
            "faces, --mode sub-model or leaf-sums"
        )
