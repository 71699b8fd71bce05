"""Splits keep groups together and are repeatable."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.datasets.records import AnnotatedImage, FaceDataset
from site_agent.datasets.split import by_folder, by_pattern, by_table, site_shares, split_dataset
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.drawn import faces_in


def names(dataset: FaceDataset) -> list[str]:
    return [image.path.name for image in dataset.images]


def absent(count: int, persons: int) -> FaceDataset:
    """Name images that are nowhere; that is enough for a split."""
    images = [AnnotatedImage(Path(f"data/p{i % persons}/{i:03d}.png")) for i in range(count)]
    return FaceDataset(Path("data/faces.xml"), images=tuple(images))


def test_shares_of_sites_and_a_test_part() -> None:
    assert site_shares(2) == {"site-1": 0.5, "site-2": 0.5}
    assert site_shares(1, 0.2) == {"train": 0.8, "test": 0.2}
    assert list(site_shares(10, 0.5)) == [*(f"site-{i:02d}" for i in range(1, 11)), "test"]
    for wrong in ((1, 0.0), (0, 0.5), (2, 1.0), (2, -0.1)):
        with pytest.raises(InvalidInputError):
            site_shares(*wrong)


@settings(max_examples=30)
@given(
    count=st.integers(6, 60),
    persons=st.integers(6, 60),
    sites=st.integers(2, 5),
    test=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9),
)
def test_every_image_is_in_one_part_and_no_person_in_two(
    count: int, persons: int, sites: int, test: float, seed: int
) -> None:
    dataset = absent(count, persons)
    parts = split_dataset(dataset, site_shares(sites, test), group_of=by_folder, seed=seed)
    together = sorted(name for part in parts.values() for name in names(part))
    assert together == names(dataset)
    folders = [{image.path.parent for image in part.images} for part in parts.values()]
    assert all(folders), "no part is empty"
    assert sum(map(len, folders)) == len(set().union(*folders))
    backwards = replace(dataset, images=dataset.images[::-1])
    again = split_dataset(backwards, site_shares(sites, test), group_of=by_folder, seed=seed)
    assert {part: set(names(d)) for part, d in again.items()} == {
        part: set(names(d)) for part, d in parts.items()
    }


def test_parts_have_their_shares_and_the_seed_counts() -> None:
    dataset = absent(200, 50)
    parts = split_dataset(dataset, site_shares(3, 0.25), group_of=by_folder)
    assert [len(part.images) for part in parts.values()] == pytest.approx([50] * 4, abs=2)
    other = split_dataset(dataset, site_shares(3, 0.25), group_of=by_folder, seed=1)
    assert names(other["test"]) != names(parts["test"])
    alone = split_dataset(dataset, {"a": 1, "b": 2, "c": 1})
    assert [len(part.images) for part in alone.values()] == [50, 100, 50]


def test_copies_of_a_file_stay_together(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 6)
    copies = []
    for image in dataset.images:
        copy = image.path.with_name(f"copy-{image.path.name}")
        copy.write_bytes(image.path.read_bytes())
        copies.append(replace(image, path=copy))
    doubled = replace(dataset, images=(*dataset.images, *copies))
    for part in split_dataset(doubled, site_shares(3)).values():
        kept = set(names(part))
        assert {f"copy-{name}" for name in kept if not name.startswith("copy")} <= kept
        assert len(kept) == 4


def test_persons_by_a_pattern(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 6)
    for pattern in (r"person-(\d+)", r"(?P<person>person-\d+)_(\d+)", r"person-\d+"):
        parts = split_dataset(dataset, site_shares(3), group_of=by_pattern(dataset, pattern))
        assert sorted(len(part.images) for part in parts.values()) == [2, 2, 2]
        assert all(len({n[:9] for n in names(part)}) == 1 for part in parts.values())
    with pytest.raises(InvalidInputError, match=r"faces\.xml, line \d+: 'person-00_00.png'"):
        split_dataset(dataset, site_shares(2), group_of=by_pattern(dataset, "child"))
    with pytest.raises(InvalidInputError, match="not a regular expression"):
        by_pattern(dataset, "(")
    with pytest.raises(InvalidInputError, match="3 groups of images"):
        split_dataset(dataset, site_shares(4), group_of=by_pattern(dataset, r"person-\d+"))


def test_persons_by_a_table(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 4)
    table = tmp_path / "persons.csv"
    rows = ["person,file", *(f"{i // 2},{name}" for i, name in enumerate(names(dataset)))]
    table.write_text("\n".join(rows))
    parts = split_dataset(dataset, site_shares(2), group_of=by_table(dataset, table))
    assert {len({n[:9] for n in names(part)}) for part in parts.values()} == {1}
    table.write_text("\n".join(rows[:-1]))
    with pytest.raises(InvalidInputError, match="does not have it: person-01_03"):
        split_dataset(dataset, site_shares(2), group_of=by_table(dataset, table))
    table.write_text("\n".join([*rows, f"9,{names(dataset)[0]}"]))
    with pytest.raises(AnnotationFileError, match="line 6"):
        by_table(dataset, table)
