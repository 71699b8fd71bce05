"""``poolctl privacy``: measure leaks of models and contributions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cli.frame.addresses import model_file
from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.models.records import receipt_tables
from cli.options.data import ImagesOption, PersonOptions, read_face_file, reading_from
from cli.vision.gaze import read_gaze_samples
from site_agent.attacks.receipt.findings import receipt_files, write_receipt
from site_agent.attacks.receipt.sub_models import FaceSides, know_faces
from site_agent.datasets.gaze.check import is_gaze_data

if TYPE_CHECKING:
    from site_agent.attacks.receipt.probing import ProbedReceipt


app = group("Measure what something that left your site reveals.")

_SHADOWS = 32
Mode = Literal["sub-model", "leaf-sums", "update", "secure-sum"]


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
)
def probe(
    invocation: Invocation,
    artifact: Annotated[Path, Argument("The file that leaves.", "ARTIFACT")],
    *,
    data: Annotated[Path, Option("The faces or gaze data that trained.", "DATA")],
    holdout: Annotated[Path, Option("The same kind of data, of other persons.", "DATA")],
    mode: Annotated[Mode, Option("What the artifact is; of networks, update or secure-sum.")],
    output: Annotated[Path, Option("Folder for the receipt.", "FOLDER")],
    base: Annotated[str, Option("The model that a contribution was made to.", "FILE|ADDRESS")] = "",
    reference: Annotated[
        Path | None,
        Option("Gaze data of public persons; of 8 or more, pictures are made, too.", "DATA"),
    ] = None,
    contribution: Annotated[
        Sequence[Path],
        Option("Secure sum: a contribution to it, known in trials; repeatable.", "FILE"),
    ] = (),
    persons: PersonOptions,
    images: ImagesOption = None,
    shadows_trained: Annotated[
        bool, Option("Networks: also train 32 shadow networks (LiRA).", name="--long")
    ] = False,
    seed: Annotated[int, Option("Seed of controls and intervals.", min=0)] = 0,
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
    """
    from site_agent.attacks.receipt.networks import GazeSides
    from site_agent.attacks.receipt.probing import probe_faces, probe_gaze

    for path in receipt_files(output):
        require_free(path, force=force)
    base_file = None if not base else model_file(invocation, base).path
    on_faces = mode in {"sub-model", "leaf-sums"}
    if on_faces and (reference is not None or contribution or shadows_trained):
        raise UsageError(
            "--reference, --contribution and --long go with --mode update or secure-sum"
        )
    if not on_faces and (persons.given or images):
        raise UsageError("--person-pattern, --persons and --images go with faces")
    if contribution and mode != "secure-sum":
        raise UsageError("--contribution goes with --mode secure-sum")
    if mode != "sub-model" and base_file is None:
        raise UsageError(f"--mode {mode}: give the --base that the contribution was made to")
    sets = [path for path in (data, holdout, reference) if path is not None]
    if other := [path for path in sets if is_gaze_data(path) == on_faces]:
        raise UsageError(
            f"{other[0]}: --mode {mode} is for models of faces, and this is gaze data; of "
            "networks, probe the update of a site: --mode update or secure-sum"
            if on_faces
            else f"{other[0]}: expected gaze data, as --mode {mode} is for networks; for models of "
            "faces, --mode sub-model or leaf-sums"
        )
    if mode in {"sub-model", "leaf-sums"}:
        faces = [read_face_file(path, reading_from(images)) for path in sets]
        known = [
            know_faces(dataset, persons.person_of(dataset, "probes of faces")) for dataset in faces
        ]
        with invocation.progress(f"probe {artifact.name}") as report:
            probed = probe_faces(
                artifact, FaceSides(*known), mode, base=base_file, seed=seed, progress=report
            )
    else:
        assert base_file is not None
        assert mode in {"update", "secure-sum"}
        sides = GazeSides(*(read_gaze_samples(invocation, [path], "", "")[0] for path in sets))
        with invocation.progress(f"probe {artifact.name}") as report:
            probed = probe_gaze(
                artifact, base_file, sides, mode, contributions=contribution,
                shadows=_SHADOWS * shadows_trained, seed=seed, progress=report,
            )  # fmt: skip
    return reply_with_receipt(probed, output, artifact.name)


def reply_with_receipt(probed: "ProbedReceipt", folder: Path, name: str) -> Reply:
    """Write the files of a receipt, and return it as the reply of a command."""
    files = write_receipt(probed.receipt, probed.pictures, folder, name)
    text: list[str | TableText] = [*receipt_tables([probed.receipt])]
    text += [f"written {path}" for path in files]
    return Reply({"receipt": probed.receipt, "files": files}, text, [str(path) for path in files])
