"""Whether landmarks are in the order they should be in, told from where they lie.

A face is laid over a reference (iBUG's mean face, or what the faces of the data set have in
common) by turning, scaling and shifting. When it fits much better with its landmarks in another
order - left and right exchanged, sorted as text, counted one off - that is most likely what
happened to it. Faces turned well away still fit best in their own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import ibug_mean_face, ibug_places, without_prefix
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, parts_array

Complex = NDArray[np.complex128]

# Fewer landmarks, or fewer faces to compare with, do not tell an order.
_FEWEST_PARTS = 5
_FEWEST_FACES = 5
_MOST_COMPARED = 500
# Real faces differ from the mean face by up to 0.1, in a wrong order by 0.25 and more.
_SUSPECT = 0.15
_CLEARLY_BETTER = 0.5
_ODD = 0.4
_ROUNDS = 5


def unsorted_names(names: Sequence[str]) -> str:
    """Say in which order dlib takes landmarks that are numbered without leading zeros.

    Returns
    -------
    str
        Empty where the order of the names as text is that of the numbers, or where they are no
        numbers, nor numbers behind the same letters (``p1``, ``p2`` ...).
    """
    numbers = dict(zip(names, without_prefix(names), strict=True))
    if not all(number.isascii() and number.isdigit() for number in numbers.values()):
        return ""
    as_text = sorted(names)
    as_numbers = sorted(names, key=lambda name: int(numbers[name]))
    if as_text == as_numbers:
        return ""
    first = next(i for i, name in enumerate(as_text) if name != as_numbers[i])
    return f"{as_text[first]!r} comes before {as_numbers[first]!r}"


def misordered_faces(
    dataset: FaceDataset, names: Sequence[str]
) -> Iterator[tuple[AnnotatedImage, FaceBox, str, bool]]:
    """Find faces whose landmarks fit a face better in another order, or no face at all.

    Parameters
    ----------
    dataset : FaceDataset
    names : sequence of str
        Its landmarks.

    Yields
    ------
    (image, box, text, certain)
        What is wrong; `certain` is False where a face only looks odd.
    """
    faces = [(image, box, _as_complex(box, names)) for image, box in dataset.boxes() if box.parts]
    reference = _reference(names, [points for _, _, points in faces])
    if reference is None:
        return
    for image, box, points in faces:
        marked = np.isfinite(points) & np.isfinite(reference)
        if marked.sum() < _FEWEST_PARTS:
            continue
        own = _misfit(points, reference)
        if own < _SUSPECT:
            continue
        fits = {text: _misfit(other, reference) for text, other in _other_orders(points)}
        best = min(fits, key=lambda text: fits[text])
        if fits[best] < _CLEARLY_BETTER * own:
            yield image, box, best, True
        elif own > _ODD:
            text = f"lie unlike those of other faces (misfit {own:.2f}, faces have up to 0.1)"
            yield image, box, text, False


def _other_orders(points: Complex) -> Iterator[tuple[str, Complex]]:
    # Where left and right are exchanged, a face, being symmetric, looks like its mirror image.
    yield (
        "have left and right exchanged: the picture or the landmarks were mirrored, and the other "
        "was not",
        points.conj(),
    )
    count = len(points)
    yield "are one place too late: the first is the last of the scheme", np.roll(points, -1)
    yield "are one place too early: the last is the first of the scheme", np.roll(points, 1)
    for first in (0, 1):
        as_text = sorted(range(count), key=lambda number: str(number + first))
        if as_text != list(range(count)):
            ordered = np.empty_like(points)
            ordered[as_text] = points
            example = "10 came before 2"
            yield f"are in the order of their numbers as text ({example})", ordered


def _as_complex(box: FaceBox, names: Sequence[str]) -> Complex:
    points = parts_array(box, names)
    result: Complex = points[:, 0] + 1j * points[:, 1]
    return result


def _reference(names: Sequence[str], faces: Sequence[Complex]) -> Complex | None:
    places = ibug_places(names)
    if places:
        mean = ibug_mean_face()
        reference = np.full(len(names), complex(np.nan, np.nan))
        for number, index in places.items():
            reference[index] = complex(*mean[number])
        return reference
    whole = [points for points in faces if np.isfinite(points).all()]
    if len(whole) < _FEWEST_FACES or len(names) < _FEWEST_PARTS:
        return None
    # What faces have in common shows in some hundreds; all with all would not fit into memory.
    picks = np.linspace(0, len(whole) - 1, min(len(whole), _MOST_COMPARED)).round().astype(int)
    return _consensus(np.stack([whole[index] for index in picks]))


def _consensus(faces: Complex) -> Complex:
    """Return the median of faces laid over each other; a few wrong ones do not move it."""
    centred = faces - faces.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(centred, axis=1, keepdims=True)
    centred = centred[(sizes > 0)[:, 0]] / sizes[sizes > 0][:, None]
    # Begin with the face that is nearest to all others.
    likeness = np.abs(centred.conj() @ centred.T)
    reference: Complex = centred[int(np.argmax(np.median(likeness, axis=1)))]
    for _ in range(_ROUNDS):
        turns = (centred.conj() * reference).sum(axis=1, keepdims=True)
        laid = centred * turns / np.abs(turns)
        reference = np.median(laid.real, axis=0) + 1j * np.median(laid.imag, axis=0)
    return reference


def _misfit(points: Complex, reference: Complex) -> float:
    """Part of a shape's extent that turning, scaling and shifting cannot explain, 0 to 1."""
    marked = np.isfinite(points) & np.isfinite(reference)
    first, second = points[marked], reference[marked]
    if len(first) < 2:
        return 1.0
    first, second = first - first.mean(), second - second.mean()
    sizes = (np.abs(first) ** 2).sum() * (np.abs(second) ** 2).sum()
    if sizes == 0:
        return 1.0
    return float(1.0 - np.abs((second.conj() * first).sum()) ** 2 / sizes)
