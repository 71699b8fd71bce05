"""Data sets as several sites would record them: different persons and light."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.datasets.synthetic import portraits
from site_agent.datasets.synthetic.canvas import Camera, Float64, UInt8, expose
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import AgeGroup, person
from site_agent.datasets.synthetic.rendering import Light
from site_agent.datasets.synthetic.settings import Drawing, FaceDrawing
from site_agent.errors import writing_to
from site_agent.tables import Column, Table, columns_of
from site_agent.work import Progress, no_progress

TRUTH = Table(
    "truth",
    (
        *columns_of(("file", "person", "age_group")),
        *columns_of(("yaw_deg", "pitch_deg", "roll_deg"), ".3f"),
        *columns_of(("closure_right", "closure_left"), ".4f"),
        *columns_of(("ear_right", "ear_left"), ".5f"),
        Column("mouth_open", format=".3f"),
        *columns_of(("box_left", "box_top", "box_width", "box_height")),
    ),
)


@dataclass(frozen=True)
class SiteStyle:
    """The style that the pictures of one site have in common."""

    ages: tuple[tuple[AgeGroup, float], ...] | None = None
    """Weights of age groups; None for the population's own mix."""
    steepest_deg: float = 20.0
    """Heads are turned by at most this about each axis."""
    azimuth_deg: tuple[float, float] = (-60.0, 60.0)
    elevation_deg: tuple[float, float] = (0.0, 55.0)
    contrast: tuple[float, float] = (0.35, 0.7)
    """(low, high): Share of the lamp in all light, 0..1."""
    warmth: float = 0.0
    """-1 bluish to 1 reddish light."""
    blur_px: tuple[float, float] = (0.2, 1.1)
    noise: tuple[float, float] = (0.5, 5.0)
    grey: bool = False
    closing: float = 0.45
    """Share of pictures with lids partly or wholly closed."""
    scenery: tuple[portraits.Background, ...] = ("plain", "room", "clutter")
    box_spread: float = 0.07
    """Standard deviation of the boxes' size, and three times that of their place, as a share of
    their side. Boxes that all fit exactly would teach a landmark model to rely on that, and a
    detector's boxes come in steps of size."""


SITE_STYLES: dict[str, SiteStyle] = {
    "mixed": SiteStyle(),
    "adult-lab": SiteStyle(
        ages=(("adult", 0.85), ("elder", 0.15)),
        steepest_deg=14.0,
        azimuth_deg=(-35.0, 35.0),
        elevation_deg=(15.0, 45.0),
        scenery=("plain", "room"),
    ),
    "infant-lab": SiteStyle(
        ages=(("infant", 0.9), ("adult", 0.1)),
        warmth=0.6,
        contrast=(0.3, 0.5),
        scenery=("room", "clutter"),
    ),
    "air-puff": SiteStyle(
        ages=(("adult", 0.6), ("infant", 0.25), ("elder", 0.15)),
        steepest_deg=12.0,
        azimuth_deg=(-60.0, 60.0),
        contrast=(0.45, 0.7),
        warmth=-0.6,
        grey=True,
        closing=0.6,
        scenery=("plain", "room"),
    ),
    "ward": SiteStyle(
        ages=(("elder", 0.6), ("adult", 0.4)),
        elevation_deg=(25.0, 65.0),
        warmth=0.3,
        blur_px=(0.7, 1.6),
        noise=(3.0, 8.0),
        scenery=("clutter", "room"),
    ),
}


def face_dataset_files(folder: Path, settings: FaceDrawing) -> list[Path]:
    """Return the files of `write_face_dataset`: the XML file, the table, and the pictures."""
    first, name = settings.first_person, settings.name
    numbers = [first + index % settings.persons for index in range(settings.images)]
    pictures = [f"person-{number:03d}_{index:04d}.png" for index, number in enumerate(numbers)]
    files = [folder / f"{name}.xml", folder / f"{name}_truth.csv"]
    return files + [folder / name / picture for picture in pictures]


def write_face_dataset(
    folder: Path, settings: FaceDrawing = FaceDrawing(), progress: Progress = no_progress
) -> Drawing:
    """Draw an annotated data set: PNG files, an XML file for dlib and a table of the truth.

    The folder gets ``<name>.xml``, ``<name>_truth.csv`` (one row a face) and
    ``<name>/person-NNN_IIII.png``. Equal settings give equal files.
    """
    if settings.style not in SITE_STYLES:
        raise settings.refused("style", settings.style, f"one of {', '.join(SITE_STYLES)}")
    look, seed, images = SITE_STYLES[settings.style], settings.seed, settings.images
    xml, table, *pictures = face_dataset_files(folder, settings)
    annotated: list[AnnotatedImage] = []
    rows: list[list[object]] = []
    with writing_to(folder):
        (folder / settings.name).mkdir(parents=True, exist_ok=True)
        for index, file in enumerate(pictures):
            progress(index / images, f"drawing {index + 1} of {images}")
            rng = np.random.default_rng([0xFACE5, seed, index])
            number = settings.first_person + index % settings.persons
            portrait = _portrait(number, look, settings.size, rng)
            wearer = np.random.default_rng([0x5EE, seed, number]).random() < settings.glasses
            pixels, landmarks = _taken(portrait, look, settings.size, rng, wearer)
            Image.fromarray(pixels).save(file, compress_level=1)
            box = _annotated_face(landmarks, look, rng)
            annotated.append(AnnotatedImage(file, (box,), *settings.size))
            rows.append(_truth(f"{settings.name}/{file.name}", portrait, landmarks, box))
        TRUTH.write_csv(table, rows)
    comment = f"Drawn by poolctl, seed {seed}; 68 landmarks in the order of iBUG 300-W."
    write_imglab_xml(FaceDataset(xml, settings.name, comment, tuple(annotated)), xml)
    progress(1.0, f"{images} pictures drawn")
    return Drawing(xml, {"images": images})


def _random_light(look: SiteStyle, rng: np.random.Generator) -> Light:
    lamp = float(rng.uniform(*look.contrast))
    total = float(rng.uniform(0.98, 1.18))
    warm = 0.06 * look.warmth + 0.02 * float(rng.normal())
    return Light(
        azimuth_deg=float(rng.uniform(*look.azimuth_deg)),
        elevation_deg=float(rng.uniform(*look.elevation_deg)),
        strength=total * lamp,
        ambient=total * (1 - lamp),
        colour=(1 + warm, 1.0, 1 - warm),
    )


def _random_camera(look: SiteStyle, rng: np.random.Generator) -> Camera:
    return Camera(
        blur_px=float(rng.uniform(*look.blur_px)),
        noise=float(rng.uniform(*look.noise)),
        exposure=float(rng.uniform(0.85, 1.1)),
        jpeg_quality=int(rng.integers(55, 95)) if rng.random() < 0.3 else None,
        grey=look.grey,
    )


def _portrait(
    number: int, look: SiteStyle, size: tuple[int, int], rng: np.random.Generator
) -> portraits.Portrait:
    """Return a person, turned, lit and blinking as the style says."""
    age = None
    if look.ages is not None:
        # The site of a person depends on the person alone, so that all pictures agree.
        groups, weights = zip(*look.ages, strict=True)
        share = np.asarray(weights) / sum(weights)
        age = groups[np.random.default_rng([0xA6E, number]).choice(len(groups), p=share)]
    scale = float(min(size) * rng.uniform(0.165, 0.165 * 1.35))
    spare = np.maximum(np.array(size) - 2.7 * scale, 0) / 2
    centre = np.array(size) / 2 - (0, 0.25 * scale) + rng.uniform(-0.8, 0.8, 2) * spare
    closure = 0.0
    if rng.random() < look.closing:
        closure = float(rng.uniform(0.15, 1.0)) if rng.random() < 0.6 else 1.0
    # Most people look towards the camera; the rest turn as far as the style allows.
    steep = look.steepest_deg
    angles = np.clip(rng.normal(0, 0.45 * steep, 3), -steep, steep)
    return portraits.Portrait(
        person(number, age),
        (float(centre[0]), float(centre[1])),
        scale,
        Pose(*(float(angle) for angle in angles)),
        Expression(float(np.clip(rng.normal(-0.1, 0.35), 0, 1)), float(rng.uniform(-0.5, 1.0))),
        closure_left=float(np.clip(closure + rng.normal(0, 0.02), 0, 1)),
        closure_right=float(np.clip(closure + rng.normal(0, 0.02), 0, 1)),
        gaze=(float(rng.uniform(-1, 1)), float(rng.uniform(-1, 1))),
    )


def _taken(
    portrait: portraits.Portrait,
    look: SiteStyle,
    size: tuple[int, int],
    rng: np.random.Generator,
    wearer: bool,
) -> tuple[UInt8, Float64]:
    """Return a picture and its landmarks."""
    scenery = look.scenery[rng.integers(len(look.scenery))]
    light, camera = _random_light(look, rng), _random_camera(look, rng)
    scene = portraits.background(rng, size, scenery)
    landmarks = portraits.draw_portrait(scene, portrait, light)
    if wearer:
        portraits.draw_glasses(scene, landmarks, portrait.person.number, rng)
    return expose(scene, camera, rng), landmarks


def _annotated_face(landmarks: Float64, look: SiteStyle, rng: np.random.Generator) -> FaceBox:
    """Landmarks with a box about as exact as people and detectors draw it."""
    left, top, right, _ = portraits.face_box(landmarks)
    side = right - left + 1
    grown, across, down = rng.normal(0, 1, 3) * look.box_spread * np.array([1, 1 / 3, 1 / 3])
    drawn = max(1, round(side * float(np.exp(np.clip(grown, -0.2, 0.2)))))
    shift = (side - drawn) / 2
    return FaceBox(
        round(left + shift + across * side),
        round(top + shift + down * side),
        drawn,
        drawn,
        numbered_parts(landmarks),
    )


def _truth(
    file: str, portrait: portraits.Portrait, landmarks: Float64, box: FaceBox
) -> list[object]:
    ear_right, ear_left = portraits.eye_aspect_ratios(landmarks)
    pose = portrait.pose
    return [
        file,
        portrait.person.number,
        portrait.person.age_group,
        *map(float, (pose.yaw_deg, pose.pitch_deg, pose.roll_deg)),
        *map(float, (portrait.closure_right, portrait.closure_left, ear_right, ear_left)),
        float(portrait.expression.mouth_open),
        box.left,
        box.top,
        box.width,
        box.height,
    ]
