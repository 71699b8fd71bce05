"""The parts of a study: a data set that is split, or several; kept with its results."""

import hashlib
import json
import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from site_agent import errors
from site_agent.datasets import conversion, imglab_xml, records, split
from site_agent.datasets.soundness import Use, require_sound
from site_agent.wording import count_words
from site_agent.work import Progress

SEVERAL = True
"""The data can be several data sets, one for each part."""
TEST_PART = "test"
"""Name of the test data among the parts."""
_FILE = "parts"


@dataclass(frozen=True)
class FaceStudyData:
    """The data sets that a user named."""

    paths: tuple[Path, ...]
    despite_findings: bool = False


@dataclass(frozen=True)
class StudyPart:
    """One part of a study, or its test data."""

    name: str
    file: Path
    """Its annotations. Landmarks of the parts are in whole pixels, as training takes them."""
    digest: str
    """`site_agent.datasets.records.dataset_digest`."""
    images: int
    faces: int
    source: str
    reading: conversion.ReadingOptions = field(default_factory=conversion.ReadingOptions)

    def read(self) -> records.FaceDataset:
        """Read its annotations."""
        return conversion.read_faces(self.file, self.reading)


@dataclass(frozen=True)
class StudyData:
    """All data of a study."""

    name: str
    parts: tuple[StudyPart, ...]
    test: StudyPart
    landmarks: tuple[str, ...]
    """Names of the landmarks of the parts, empty where they have none."""
    remarks: tuple[str, ...]
    """Pictures that are in more than one part, or in the test data as well."""

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each part, and of the test data, by name."""
        return {part.name: part.digest for part in (*self.parts, self.test)}

    @property
    def by_name(self) -> dict[str, StudyPart]:
        """Each part, and the test data, by name."""
        return {part.name: part for part in (*self.parts, self.test)}


@dataclass(frozen=True)
class Look:
    """The data of a study before its first run."""

    parts: Mapping[str, records.FaceDataset]
    """By name, in whole pixels."""
    data: StudyData


def open_data(paths: Sequence[Path], *, despite_findings: bool = False) -> FaceStudyData:
    """Return the data sets that a user named; `look` reads them."""
    return FaceStudyData(tuple(paths), despite_findings)


def list_names(dataset: FaceStudyData | None, _settings: Any) -> dict[str, list[str]]:
    """Return no lists for factors; refuse to draw faces."""
    if dataset is None:
        raise errors.InvalidInputError("this study needs FACES; --drawn is for networks")
    return {}


@lru_cache(maxsize=1)
def look(dataset: FaceStudyData, settings: Any) -> Look:
    """Read and divide the data of a study, without writing anything."""
    images = Path(settings.images) if settings.images else None
    reading = conversion.ReadingOptions(images=images)
    if not settings.test or not Path(settings.test).exists():
        raise errors.InvalidInputError(
            f"test is {settings.test!r}, expected annotations, as in: --set test=test.xml"
        )
    datasets = [conversion.read_faces(path, reading) for path in dataset.paths]
    parts = dict(zip(_part_names(len(datasets)), datasets, strict=True))
    if len(datasets) == 1:
        parts = split_into_parts(datasets[0], settings.sites, seed=settings.seed)
    parts = {name: whole_pixels(part) for name, part in parts.items()}
    return Look(
        parts,
        describe_parts(
            Path("parts"),
            settings.name or dataset.paths[0].stem,
            parts,
            conversion.read_faces(Path(settings.test), reading),
            reading,
            use="boxes" if hasattr(settings.training, "epsilon") else "landmarks",
            despite_findings=dataset.despite_findings,
        ),
    )


def prepare(
    dataset: FaceStudyData, settings: Any, folder: Path, _progress: Progress
) -> dict[str, Any]:
    """Write the parts' annotations, for the workers and for readers of the folder."""
    seen = look(dataset, settings)
    _refuse_other_parts(folder.parent, seen.data.digests)
    place = folder.parent / "parts"
    place.mkdir(exist_ok=True)
    parts = tuple(replace(part, file=place / f"{part.name}.xml") for part in seen.data.parts)
    data = replace(seen.data, parts=parts)
    for part in parts:
        dataset_of_part = replace(seen.parts[part.name], name=f"{data.name} {part.name}")
        imglab_xml.write_imglab_xml(dataset_of_part, part.file)
    (folder / _FILE).write_bytes(pickle.dumps(data))
    described = [
        {"part": part.name, "pictures": part.images, "faces": part.faces,
         "digest": part.digest, "source": part.source}
        for part in (*parts, data.test)
    ]  # fmt: skip
    return {
        "named": [{"value": data.name}], "given_parts": described, "digests": data.digests,
        "remarks": [{"remark": remark} for remark in data.remarks],
    }  # fmt: skip


def _refuse_other_parts(study: Path, digests: Mapping[str, str]) -> None:
    """Refuse a folder with a study of other parts, so that its models stay."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads((study / "study.json").read_text(encoding="utf-8"))["digests"]
        if {**known, TEST_PART: ""} != {**digests, TEST_PART: ""}:
            raise errors.InvalidInputError(
                f"{study} holds a study of {len(known) - 1} other parts; choose another folder "
                "with -o"
            )


def load_parts(folder: Path) -> StudyData:
    """Return the parts that `prepare` wrote."""
    data: StudyData = pickle.loads((folder / _FILE).read_bytes())
    return data


def split_into_parts(
    dataset: records.FaceDataset, sites: int, *, seed: int = 0
) -> dict[str, records.FaceDataset]:
    """Cut a data set into parts P1, P2, ... of about equal size; see `split_dataset`."""
    if sites < 2:
        raise errors.InvalidInputError(f"{sites} sites; expected at least 2 parts to merge")
    shares = dict.fromkeys(_part_names(sites), 1.0)
    split.site_shares(sites)  # refuses too many
    return split.split_dataset(dataset, shares, seed=seed)


def describe_parts(
    folder: Path,
    name: str,
    parts: Mapping[str, records.FaceDataset],
    test: records.FaceDataset,
    reading: conversion.ReadingOptions,
    *,
    use: Use,
    despite_findings: bool,
) -> StudyData:
    """Look at the parts and the test data of a study; nothing is written.

    Raises `UnsoundDataError`: faults of the data must be mended, unless `despite_findings` makes
    remarks of them.

    `folder`: where `prepare` will write the parts' annotations. `parts`: with landmarks as
    `whole_pixels` gives them.
    """
    if test.path is None:
        raise errors.InvalidInputError("the test data come from no file")
    described = [
        _describe(part, folder / f"{part}.xml", dataset, str(dataset.path or "split"))
        for part, dataset in parts.items()
    ]
    tested = _describe(TEST_PART, test.path.absolute(), test, str(test.path))
    images = reading.images and reading.images.absolute()
    tested = replace(tested, reading=replace(reading, images=images))
    for part in (*described, tested):
        if not part.faces:
            raise errors.InvalidInputError(f"{part.name} ({part.source}) has no faces")
    whole = records.FaceDataset(
        None, images=tuple(i for part in parts.values() for i in part.images)
    )
    remarks = list(_shared_pictures(parts, test))
    for part_name, dataset in {**parts, TEST_PART: test}.items():
        sound = require_sound(dataset, use=use, despite_findings=despite_findings)
        remarks += [f"{part_name} was used despite findings: {fault}" for fault in sound.despite]
    return StudyData(name, tuple(described), tested, records.part_names(whole), tuple(remarks))


def whole_pixels(dataset: records.FaceDataset) -> records.FaceDataset:
    """Round landmarks as an annotation file does, so that both have the same digest."""

    def rounded(box: records.FaceBox) -> records.FaceBox:
        parts = {
            name: (float(math.floor(x + 0.5)), float(math.floor(y + 0.5)))
            for name, (x, y) in box.parts.items()
        }
        return replace(box, parts=parts)

    return dataset.with_boxes(rounded)


def join_parts(datasets: Sequence[records.FaceDataset]) -> records.FaceDataset:
    """Join data sets into one."""
    if len(datasets) == 1:
        return datasets[0]
    return records.FaceDataset(
        None,
        name="+".join(dataset.name for dataset in datasets),
        images=tuple(image for dataset in datasets for image in dataset.images),
    )


def _part_names(count: int) -> list[str]:
    return [f"P{number}" for number in range(1, count + 1)]


def _describe(name: str, file: Path, dataset: records.FaceDataset, source: str) -> StudyPart:
    faces = sum(1 for _ in dataset.boxes())
    return StudyPart(
        name, file, records.dataset_digest(dataset), len(dataset.images), faces, source
    )


def _shared_pictures(
    parts: Mapping[str, records.FaceDataset], test: records.FaceDataset
) -> Iterable[str]:
    owners: dict[str, set[str]] = defaultdict(set)
    for name, dataset in {**parts, TEST_PART: test}.items():
        for image in dataset.images:
            with image.path.open("rb") as stream:
                owners[hashlib.file_digest(stream, "sha256").hexdigest()].add(name)
    shared: dict[tuple[str, ...], int] = defaultdict(int)
    for sharers in owners.values():
        if len(sharers) > 1:
            shared[tuple(sorted(sharers))] += 1
    for names, count in sorted(shared.items()):
        spoiled = "; scores flatter models that were trained on them" if TEST_PART in names else ""
        pictures = count_words(count, "picture is", "pictures are")
        yield f"{pictures} in {' and '.join(names)}{spoiled}"
