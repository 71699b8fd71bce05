"""A data set cut into parts: sites of a simulated study, or training and test.

Groups - the pictures of a person, of a folder, copies of the same file - go into one part as a
whole.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from site_agent.datasets.data_tables import rows_of
from site_agent.datasets.records import AnnotatedImage, FaceDataset
from site_agent.errors import AnnotationFileError, InvalidInputError
from site_agent.named_files import plain_name

GroupOf = Callable[[AnnotatedImage], str]
"""Returns the name of an image's group: a person, a folder."""

_MOST_PARTS = 1000


def site_shares(sites: int, test: float = 0.0) -> dict[str, float]:
    """Return equal shares for ``site-1``, ``site-2`` ..., after a part for ``test``.

    With one site the parts are ``train`` and ``test``.
    """
    if not 0.0 <= test < 1.0:
        raise InvalidInputError(f"the test part is {test:g} of the data; expected 0 to below 1")
    if not 1 <= sites <= _MOST_PARTS:
        raise InvalidInputError(f"{sites} sites; expected 1 to {_MOST_PARTS}")
    if sites == 1 and not test:
        raise InvalidInputError(
            "one site and no test part is not a split; give --site-count or --test-share"
        )
    digits = len(str(sites))
    names = ["train"] if sites == 1 else [f"site-{i + 1:0{digits}d}" for i in range(sites)]
    shares = dict.fromkeys(names, (1.0 - test) / sites)
    return {**shares, "test": test} if test else shares


def split_dataset(
    dataset: FaceDataset,
    shares: Mapping[str, float],
    *,
    group_of: GroupOf | None = None,
    seed: int = 0,
) -> dict[str, FaceDataset]:
    """Cut a data set into parts, with images in its order and `path` None.

    `shares`: the parts' shares of the images by name; above 0. `group_of`: the group of an image.
    Files of the same content belong together in any case. `seed`: the same gives the same parts for
    any order of the images in the file.

    Raises `InvalidInputError`: fewer groups than parts.
    """
    total = sum(shares.values())
    if not shares or any(not share > 0 for share in shares.values()):
        raise InvalidInputError(f"the shares are {dict(shares)}; expected numbers above 0")
    groups = _groups(dataset, group_of)
    if len(groups) < len(shares):
        raise InvalidInputError(
            f"{dataset.path or 'the data set'} has {len(groups)} groups of images that belong "
            f"together, too few for {len(shares)} parts ({', '.join(shares)})"
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    # Large groups first: the small ones then even out what is left.
    by_size = sorted((groups[i] for i in order), key=len, reverse=True)
    sizes = {name: share / total * len(dataset.images) for name, share in shares.items()}
    part_of: dict[int, str] = {}
    empty = set(shares)
    for place, group in enumerate(by_size):
        # No part stays empty, however small its share.
        open_parts = empty if len(by_size) - place <= len(empty) else set(shares)
        name = max((n for n in shares if n in open_parts), key=lambda n: sizes[n])
        sizes[name] -= len(group)
        empty.discard(name)
        part_of.update(dict.fromkeys(group, name))
    return {
        name: replace(
            dataset,
            path=None,
            images=tuple(image for i, image in enumerate(dataset.images) if part_of[i] == name),
        )
        for name in shares
    }


def by_folder(image: AnnotatedImage) -> str:
    """Group images by the folder they lie in."""
    return image.path.parent.as_posix()


def by_pattern(dataset: FaceDataset, pattern: str) -> GroupOf:
    """Group images by the match of a regular expression in their names.

    Names are relative to the folder of the data set, with ``/`` between folders. The group is
    the match of the expression's group called ``person``, or of its first group, or all of it.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(f"{pattern!r} is not a regular expression: {error}") from error

    def group_of(image: AnnotatedImage) -> str:
        name = _name_in(dataset, image)
        match = expression.search(name)
        if match is None:
            raise InvalidInputError(
                f"{_place(dataset, image)}: {name!r} does not match {pattern!r}"
            )
        if "person" in expression.groupindex:
            return str(match["person"])
        return str(match[1] if expression.groups else match[0])

    return group_of


def by_table(dataset: FaceDataset, table: Path | str) -> GroupOf:
    """Group images by person, as the columns ``file`` and ``person`` of a CSV file say.

    Files are named relative to the folder of the data set, or by their names alone where these
    are unique.
    """
    table = Path(table)
    rows = _persons(table)
    by_name: dict[str, set[str]] = defaultdict(set)
    for name, value in rows.items():
        by_name[name.rsplit("/", 1)[-1]].add(value)

    def group_of(image: AnnotatedImage) -> str:
        name = plain_name(_name_in(dataset, image))
        if name in rows:
            return rows[name]
        values = by_name.get(plain_name(image.path.name), set())
        if len(values) != 1:
            problem = "names several persons for it" if values else "does not have it"
            raise InvalidInputError(f"{_place(dataset, image)}: {table} {problem}: {name}")
        return next(iter(values))

    return group_of


def _persons(table: Path) -> dict[str, str]:
    persons: dict[str, str] = {}
    for line, cells in rows_of(table, ("file", "person")):
        name, person = plain_name(cells["file"]), cells["person"]
        if not name or not person:
            raise AnnotationFileError(table, line, "lacks 'person' of a file")
        if persons.setdefault(name, person) != person:
            problem = f"has {person!r} for {name}, which had {persons[name]!r} above"
            raise AnnotationFileError(table, line, problem)
    return persons


def _groups(dataset: FaceDataset, group_of: GroupOf | None) -> list[list[int]]:
    """Return the images of each group, groups in an order that the file's does not change."""
    keys: list[list[str]] = []
    for image in dataset.images:
        image_keys = [f"content {_content(image)}"]
        if group_of is not None:
            image_keys.append(f"group {group_of(image)}")
        keys.append(image_keys)
    first_with: dict[str, int] = {}
    parent = list(range(len(keys)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    for index, of_image in enumerate(keys):
        for key in of_image:
            parent[root(index)] = root(first_with.setdefault(key, index))
    members: dict[int, list[int]] = defaultdict(list)
    for index in range(len(keys)):
        members[root(index)].append(index)
    return sorted(members.values(), key=lambda group: min(min(keys[index]) for index in group))


def _content(image: AnnotatedImage) -> str:
    try:
        with image.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:  # `check_datasets` reports it
        return image.path.as_posix()


def _name_in(dataset: FaceDataset, image: AnnotatedImage) -> str:
    folder = _folder(dataset)
    try:
        return image.path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return image.path.as_posix()


def _folder(dataset: FaceDataset) -> Path:
    if dataset.path is None:
        return Path()
    return dataset.path if dataset.path.is_dir() else dataset.path.parent


def _place(dataset: FaceDataset, image: AnnotatedImage) -> str:
    place = str(dataset.path or image.path)
    return f"{place}, line {image.line}" if image.line else place


def free_names(paths: Iterable[Path]) -> list[str]:
    """Return file names for copies of these files in one folder, each once and in UTF-8."""
    used: set[str] = set()
    names = []
    for original in paths:
        path = Path(os.fsencode(original.name).decode("utf-8", "replace"))
        name, number = path.name, 1
        while name.lower() in used:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        used.add(name.lower())
        names.append(name)
    return names
