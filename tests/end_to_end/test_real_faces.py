"""Two labs with real photographs, from training to merged models that plain dlib runs.

Everything is done by ``poolctl`` processes and a pool started by ``poolctl serve``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import file_digest
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from tests.end_to_end.labs import Lab, serving_pool

# The journey of quickstart takes the same way with drawn faces.
pytestmark = pytest.mark.slow

DLIB_ROUNDING_PX = 0.75
DETECTOR_WORDS = ("--set", "upsample=1", "--set", "epsilon=0.1", "--set", "threads=2")
ERT_WORDS = ("--set", "num_trees_per_cascade_level=30", "--set", "oversampling_amount=5")


@dataclass(frozen=True)
class Study:
    """Two labs that share models of their own photographs, and photographs to test them on."""

    labs: tuple[Lab, Lab]
    testing: Path


@pytest.fixture(scope="module")
def study(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    folder = tmp_path_factory.mktemp("study")
    photographs = shared_data / "dlib_faces"
    training = read_imglab_xml(photographs / "training_with_face_landmarks.xml")
    with serving_pool(folder / "pool") as pool:
        labs = (pool.make_lab(folder / "a", "lab-a"), pool.make_lab(folder / "b", "lab-b"))
        for number, lab in enumerate(labs):
            site_faces = replace(training, images=training.images[number::2])
            write_imglab_xml(site_faces, lab.folder / "faces.xml")
            lab.poolctl("train", "hog-svm", "faces.xml", "-o", "face.svm", *DETECTOR_WORDS)
            lab.poolctl("train", "ert", "faces.xml", "-o", "face-68.dat", *ERT_WORDS)
            for name in ("face.svm", "face-68.dat"):
                lab.poolctl("upload", name, "--name", Path(name).stem)
        yield Study(labs, photographs / "testing_with_face_landmarks.xml")


def test_a_merged_detector_runs_in_plain_dlib(study: Study) -> None:
    lab = study.labs[1]
    lab.poolctl("download", "lab-a/face", "-o", "theirs.svm")
    assert file_digest(lab.folder / "theirs.svm") == file_digest(study.labs[0].folder / "face.svm")
    lab.poolctl("merge", "mwma", "theirs.svm", "face.svm", "-o", "merged.svm")
    # Without the boxes of the XML.
    images = [image.path for image in read_imglab_xml(study.testing).images]
    pictures = lab.poolctl("predict", *images, "--detector", "merged.svm")["items"]
    # A file of Python's kind says how often dlib doubles the image: once, as in training.
    detector = dlib.simple_object_detector(str(lab.folder / "merged.svm"))
    for item in pictures:
        boxes = detector(dlib.load_rgb_image(item["image"]))
        expected = sorted((box.left(), box.top(), box.right(), box.bottom()) for box in boxes)
        edges = ("left", "top", "right", "bottom")
        assert sorted(tuple(face[edge] for edge in edges) for face in item["faces"]) == expected
    assert any(item["faces"] for item in pictures)


def test_merged_landmarks_run_in_plain_dlib(study: Study) -> None:
    lab = study.labs[1]
    inputs = ("lab-a/face-68", "face-68.dat", "--option", "step=1.1", "--weight", "1.5,1")
    made = lab.poolctl("merge", "wba-cascade", *inputs, "-o", "merged.dat")
    predicted = lab.poolctl("predict", study.testing, "--landmarks", "merged.dat")["items"]
    predictor = dlib.shape_predictor(str(lab.folder / "merged.dat"))
    worst_px, compared = 0.0, 0
    for item in predicted:
        image = dlib.load_rgb_image(item["image"])
        for face in item["faces"]:
            edges = (face["left"], face["top"], face["right"], face["bottom"])
            shape = predictor(image, dlib.rectangle(*edges))
            expected = np.array([[point.x, point.y] for point in shape.parts()])
            worst_px = max(worst_px, float(np.abs(face["landmarks"] - expected).max()))
            compared += 1
    assert compared == 25
    assert worst_px < DLIB_ROUNDING_PX

    version = lab.poolctl("upload", "merged.dat", "--name", "merged-68")["version"]
    assert version["digest"] == made["digest"]
    tree = study.labs[0].poolctl("models", "lineage", "lab-a/face-68")
    assert made["digest"] in {node["digest"] for node in tree["nodes"]}
