"""``poolctl predict``: find faces and landmarks in images, or where a person looks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.options import Argument, ForceOption, Option, ProcessesOption, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.vision.clips import predict_looks
from site_agent.datasets.gaze.check import is_gaze_data
from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.faces.models import open_detector
from site_agent.faces.prediction import (
    ImagePrediction,
    find_images,
    predict_images,
    predictions_to_dataset,
)
from site_agent.networks.architectures import SALIENCY_ARCHITECTURES
from site_agent.networks.files import read_network
from site_agent.wording import count_words

app = single()


@dataclass(frozen=True)
class FaceModelOptions:
    """The models of faces and landmarks, and how images are searched."""

    detector: Annotated[str, Option("Model of faces; 'stock' is dlib's own.", "FILE|ADDRESS")] = ""
    landmarks: Annotated[str, Option("Model that places the landmarks.", "FILE|ADDRESS")] = ""
    upsample: Annotated[
        int | None,
        Option("How often images are doubled. Default: as stored in the file.", min=0, max=4),
    ] = None
    threshold: Annotated[float, Option("Added to the score that a detection needs.")] = 0.0
    workers: ProcessesOption = 0

    @property
    def any(self) -> bool:
        """An option was given."""
        return bool(self.detector or self.landmarks or self.upsample is not None or self.threshold)


@dataclass(frozen=True)
class ResultOptions:
    """The files of the result."""

    output: Annotated[
        Path | None, Option("Write the faces as imglab annotations, or the looks as CSV.")
    ] = None
    pictures: Annotated[Path | None, Option("Draw the maps of looks over videos.", "FOLDER")] = None
    force: ForceOption = False


@command(
    app,
    "predict",
    "predict photos/ --detector merged.svm --landmarks merged.dat -o found.xml",
    "predict a.jpg b.jpg --detector merged.svm -o found.xml",
    "predict walk.mp4 --network look.safetensors --pictures seen/",
)
def predict(
    invocation: Invocation,
    inputs: Annotated[
        list[str], Argument("Images, folders of images, videos or clips.", "IMAGE|FOLDER|DATA")
    ],
    *,
    models: FaceModelOptions,
    network: Annotated[
        str, Option("Network that finds where a person looks in videos or clips.", "FILE|ADDRESS")
    ] = "",
    result: ResultOptions,
) -> Reply:
    """Find faces and landmarks in images, or the target of a wearer's gaze in videos.

    Boxes are left, top, right, bottom in pixels, inclusive; landmarks are x, y in pixels, not
    rounded (--json). Of videos of a head-worn camera, x and y are where the wearer looks, in widths
    and heights of the picture; --pictures writes videos with the map, the predicted region, its
    peak (cross), and for test clips the tracked gaze (ring). --output and --pictures replace
    existing files only with --force, and never an input.
    """
    if of_gaze := [word for word in inputs if is_gaze_data(Path(word))]:
        raise UsageError(f"{of_gaze[0]}: is gaze data, which 'poolctl evaluate' takes")
    if network:
        if models.any:
            raise UsageError("--network: not with the options of detectors and landmark models")
        return _predict_looks(invocation, inputs, network, result)
    if result.pictures is not None:
        raise UsageError(
            "--pictures: of videos of a head-worn camera only; write the faces (-o FACES.xml), "
            "then look at them with 'poolctl dataset preview FACES.xml'"
        )
    for word in inputs:
        if not Path(word).exists():
            raise InputMissingError(f"{word}: no such file; expected images or a folder of them")
        if Path(word).suffix.lower() in {".xml", ".json", ".pts"}:
            raise UsageError(f"{word}: expected images; 'poolctl evaluate' takes annotations")
    if not models.detector:
        raise UsageError("expected --detector FILE, or --detector stock, to find the faces")
    return _reply(invocation, _search(invocation, find_images(inputs), models, result), result)


def _search(
    invocation: Invocation, images: list[Path], models: FaceModelOptions, result: ResultOptions
) -> list[ImagePrediction]:
    """Find the faces and landmarks, once nothing stands where results go."""
    roles = {"detector": models.detector, "landmarks": models.landmarks}
    named = {role: word for role, word in roles.items() if word and word != "stock"}
    files = dict(zip(named, invocation.model_files(list(named.values())), strict=True))
    if result.output is not None:
        sources = [*images, *(file.path for file in files.values())]
        refuse_inputs([result.output], sources, "--output")
        require_free(result.output, force=result.force)
    is_stock = models.detector == "stock"
    with invocation.progress("predict") as report:
        return list(
            predict_images(
                images,
                detector=open_detector(None) if is_stock else files["detector"].path,
                landmarks=files["landmarks"].path if "landmarks" in files else None,
                upsample=models.upsample,
                threshold=models.threshold,
                workers=models.workers,
                # One broken photograph must not cost the work on a whole folder.
                skip_unreadable=len(images) > 1,
                progress=report,
            )
        )


def _reply(
    invocation: Invocation, predictions: list[ImagePrediction], result: ResultOptions
) -> Reply:
    broken = [prediction.problem for prediction in predictions if prediction.problem]
    if len(broken) == len(predictions):
        raise InputMissingError(f"no image could be read: {broken[0]}")
    for problem in broken:
        invocation.warn(f"left out: {problem}")
    notes = []
    if result.output is not None:
        write_imglab_xml(predictions_to_dataset(predictions), result.output)
        notes.append(f"annotations {result.output}")
    items = [prediction.to_dict() for prediction in predictions]
    data = {"items": items, "output": result.output}
    faces = sum(len(prediction.faces) for prediction in predictions)
    read = count_words(len(predictions) - len(broken), "image")
    verdict = f"{count_words(faces, 'face') if faces else 'no faces'} in {read}"
    text: list[str | TableText] = [f"{verdict}."]
    text += [_table(predictions)] if faces else []
    text += notes
    return Reply(data, text, [str(prediction.path) for prediction in predictions])


def _predict_looks(
    invocation: Invocation, inputs: list[str], network: str, result: ResultOptions
) -> Reply:
    file = invocation.model_file(network).path
    if read_network(file).metadata.get("architecture") not in SALIENCY_ARCHITECTURES:
        raise UsageError(f"{network}: expected a saliency network, which looks at videos")
    return predict_looks(
        invocation, inputs, file, result.output, result.pictures, force=result.force
    )


def _table(predictions: list[ImagePrediction]) -> TableText:
    rows = [
        [
            str(prediction.path),
            " ".join(f"{edge:.0f}" for edge in face.box),
            f"{face.score:.3f}",
            "-" if face.landmarks is None else str(len(face.landmarks)),
        ]
        for prediction in predictions
        for face in prediction.faces
    ]
    columns = ["image", "left top right bottom", "score", "landmarks"]
    return TableText(columns, rows)
