"""The parts of a study: a data set that is split, or several; kept with its results."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from site_agent import errors, wording
from site_agent.datasets import conversion, imglab_xml, records, split
from site_agent.datasets.soundness import Use, require_sound
from site_agent.datasets.split import GroupOf
from site_agent.studies.steps import TEST_PART


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

    def to_dict(self, folder: Path) -> dict[str, Any]:
        """Return plain data for JSON, files relative to `folder` where they lie in it."""
        file = self.file.relative_to(folder) if self.file.is_relative_to(folder) else self.file
        content = {**asdict(self), "file": file.as_posix()}
        content["reading"] |= {"images": self.reading.images and str(self.reading.images)}
        if self.reading == conversion.ReadingOptions():
            del content["reading"]
        return content


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


def split_into_parts(
    dataset: records.FaceDataset, sites: int, *, group_of: GroupOf | None = None, seed: int = 0
) -> dict[str, records.FaceDataset]:
    """Cut a data set into parts P1, P2, ... of about equal size; see `split_dataset`."""
    if sites < 2:
        raise errors.InvalidInputError(f"{sites} sites; expected at least 2 parts to merge")
    shares = dict.fromkeys(_part_names(sites), 1.0)
    split.site_shares(sites)  # refuses too many
    return split.split_dataset(dataset, shares, group_of=group_of, seed=seed)


def named_parts(datasets: Sequence[records.FaceDataset]) -> dict[str, records.FaceDataset]:
    """Call several data sets P1, P2, ... in their order."""
    return dict(zip(_part_names(len(datasets)), datasets, strict=True))


def describe_parts(
    folder: Path,
    name: str,
    parts: Mapping[str, records.FaceDataset],
    test: records.FaceDataset,
    test_reading: conversion.ReadingOptions | None = None,
    *,
    use: Use = "landmarks",
    despite_findings: bool = False,
) -> StudyData:
    """Look at the parts and the test data of a study; nothing is written.

    Raises `UnsoundDataError`: faults of the data must be mended, unless `despite_findings` makes
    remarks of them.

    `folder`: where `write_parts` will write the parts' annotations. `parts`: with landmarks as
    `whole_pixels` gives them.
    """
    if test.path is None:
        raise errors.InvalidInputError("the test data come from no file")
    described = [
        _describe(part, folder / f"{part}.xml", dataset, str(dataset.path or "split"))
        for part, dataset in parts.items()
    ]
    tested = _describe(TEST_PART, test.path.absolute(), test, str(test.path))
    tested = replace(tested, reading=_absolute(test_reading or conversion.ReadingOptions()))
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


def write_parts(data: StudyData, parts: Mapping[str, records.FaceDataset]) -> None:
    """Write the parts' annotations where `data` says; pictures stay where they are."""
    for part in data.parts:
        dataset = replace(parts[part.name], name=f"{data.name} {part.name}")
        imglab_xml.write_imglab_xml(dataset, part.file)


def whole_pixels(dataset: records.FaceDataset) -> records.FaceDataset:
    """Round landmarks as an annotation file does, so that both have the same digest."""

    def rounded(box: records.FaceBox) -> records.FaceBox:
        parts = {
            name: (float(math.floor(x + 0.5)), float(math.floor(y + 0.5)))
            for name, (x, y) in box.parts.items()
        }
        return replace(box, parts=parts)

    return dataset.with_boxes(rounded)


def read_union(parts: Iterable[StudyPart]) -> records.FaceDataset:
    """Read parts as one data set, as if they lay in one place."""
    datasets = [part.read() for part in parts]
    if len(datasets) == 1:
        return datasets[0]
    return records.FaceDataset(
        None,
        name="+".join(dataset.name for dataset in datasets),
        images=tuple(image for dataset in datasets for image in dataset.images),
    )


def _part_names(count: int) -> list[str]:
    return [f"P{number}" for number in range(1, count + 1)]


def _absolute(reading: conversion.ReadingOptions) -> conversion.ReadingOptions:
    return replace(reading, images=reading.images and reading.images.absolute())


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
        pictures = wording.count_words(count, "picture is", "pictures are")
        yield f"{pictures} in {' and '.join(names)}{spoiled}"
