"""Finding landmarks in the wrong order by where they lie.

A face is laid over a reference (iBUG's mean face, or the mean of the data set's faces) by turning,
scaling and shifting. When it fits much better with its landmarks in another order - left and right
exchanged, sorted as text, counted one off - that is its most likely fault. Faces turned well away
still fit best in their own order.

A misfit is the part of a shape's extent that turning, scaling and shifting cannot explain, from
0 to 1. Real faces differ from the mean face by up to 0.1, in a wrong order by 0.25 and more.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets import landmark_schemes, records

Complex = NDArray[np.complex128]

# Fewer landmarks, or fewer faces to compare with, do not show an order.
_FEWEST_PARTS = 5
_FEWEST_FACES = 5
_MOST_COMPARED = 500
_SUSPECT = 0.15
_CLEARLY_BETTER = 0.5
_ODD = 0.4
# A mean shape has no outliers, but that of faces turned by 90 degrees has a misfit up to 0.65.
_MEAN_CLEARLY_BETTER = 0.25
_MEAN_ODD = 0.8
_ROUNDS = 5


def unsorted_names(names: Sequence[str]) -> str:
    """Describe how dlib orders landmarks that are numbered without leading zeros.

    Empty where the order of the names as text is that of the numbers, or where they are not
    numbers, nor numbers behind the same letters (``p1``, ``p2`` ...).
    """
    numbers = dict(zip(names, landmark_schemes.without_prefix(names), strict=True))
    if not all(number.isascii() and number.isdigit() for number in numbers.values()):
        return ""
    as_text = sorted(names)
    as_numbers = sorted(names, key=lambda name: int(numbers[name]))
    if as_text == as_numbers:
        return ""
    first = next(i for i, name in enumerate(as_text) if name != as_numbers[i])
    return f"{as_text[first]!r} comes before {as_numbers[first]!r}"


def misordered_faces(
    dataset: records.FaceDataset, names: Sequence[str]
) -> Iterator[tuple[records.AnnotatedImage, records.FaceBox, str, bool]]:
    """Find faces with landmarks that fit a face better in another order, or no face at all.

    Yields
    ------
    (image, box, text, certain)
        The fault; `certain` is False where a face only looks odd.
    """
    faces = [
        (image, box, as_complex(records.parts_array(box, names)))
        for image, box in dataset.boxes()
        if box.parts
    ]
    reference = _reference(names, [points for _, _, points in faces])
    if reference is None:
        return
    for image, box, points in faces:
        marked = np.isfinite(points) & np.isfinite(reference)
        if marked.sum() < _FEWEST_PARTS:
            continue
        misfit, turn_rad = misfit_and_turn(points, reference)
        if misfit < _SUSPECT:
            # Two eyes look alike on their head and with left and right exchanged.
            if len(names) <= landmark_schemes.EYE_POINTS and abs(turn_rad) > np.pi / 2:
                yield image, box, "stand upside down, or have left and right exchanged", False
            continue
        text, fit = _best_other_order(points, reference)
        if fit < _CLEARLY_BETTER * misfit:
            yield image, box, text, True
        elif misfit > _ODD:
            text = f"lie unlike those of other faces (misfit {misfit:.2f}, faces have up to 0.1)"
            yield image, box, text, False


def order_problem(shape: NDArray[np.floating]) -> str:
    """Return how the landmarks of a mean face are in a wrong order.

    Empty where they are iBUG's 68 in order, also of a face that is turned away, or landmarks of
    another scheme.
    """
    if len(shape) != landmark_schemes.IBUG_PARTS:
        return ""
    points, face = as_complex(shape), as_complex(landmark_schemes.ibug_mean_face())
    misfit, _ = misfit_and_turn(points, face)
    if misfit < _SUSPECT:
        return ""
    text, fit = _best_other_order(points, face)
    if fit < _MEAN_CLEARLY_BETTER * misfit:
        return text
    return "lie unlike those of a face" if misfit > _MEAN_ODD else ""


def misfit_and_turn(points: Complex, reference: Complex) -> tuple[float, float]:
    """Return the misfit of a shape, 0 to 1, and the turn in radians that fits it best.

    Landmarks that are NaN in either are left out.
    """
    marked = np.isfinite(points) & np.isfinite(reference)
    first, second = points[marked], reference[marked]
    if len(first) < 2:
        return 1.0, 0.0
    first, second = first - first.mean(), second - second.mean()
    sizes = float((np.abs(first) ** 2).sum() * (np.abs(second) ** 2).sum())
    if sizes == 0:
        return 1.0, 0.0
    product = complex((second.conj() * first).sum())
    return 1.0 - abs(product) ** 2 / sizes, float(np.angle(product))


def face_turn(box: records.FaceBox, names: Sequence[str]) -> float | None:
    """Return the turn of a face from upright in radians; None where its landmarks do not show it.

    `names`: The landmarks of the data set; those of a group of iBUG's 68 are known.
    """
    reference = _reference(names, [])
    points = as_complex(records.parts_array(box, names))
    if reference is None or (np.isfinite(points) & np.isfinite(reference)).sum() < _FEWEST_PARTS:
        return None
    misfit, turn_rad = misfit_and_turn(points, reference)
    return turn_rad if misfit < _SUSPECT else None


def as_complex(points: NDArray[np.floating]) -> Complex:
    """Return points, shape (n, 2), as x + iy."""
    result: Complex = np.asarray(points, dtype=np.float64) @ np.array([1, 1j])
    return result


def _best_other_order(points: Complex, reference: Complex) -> tuple[str, float]:
    fits = {text: misfit_and_turn(other, reference)[0] for text, other in _other_orders(points)}
    best = min(fits, key=lambda text: fits[text])
    return best, fits[best]


def _other_orders(points: Complex) -> Iterator[tuple[str, Complex]]:
    # A face, being symmetric, looks like its mirror image where left and right are exchanged.
    yield "have left and right exchanged", points.conj()
    every, eyes = range(len(points)), list(landmark_schemes.PART_GROUPS["eyes"])
    if len(points) in (landmark_schemes.IBUG_PARTS, landmark_schemes.EYE_POINTS):
        eyes = [index for index in every if len(points) == len(eyes) or index in eyes]
        exchanged = points.copy()
        exchanged[eyes] = np.roll(points[eyes], len(eyes) // 2)
        yield "have the left and the right eye exchanged", exchanged
    yield "are one place too late", np.roll(points, -1)
    yield "are one place too early", np.roll(points, 1)
    for first in (0, 1):
        as_text = sorted(range(len(points)), key=lambda number: str(number + first))
        if as_text != list(range(len(points))):
            ordered = np.empty_like(points)
            ordered[as_text] = points
            yield f"are in the order of their numbers as text ({first}, 10, 11 ...)", ordered


def _reference(names: Sequence[str], faces: Sequence[Complex]) -> Complex | None:
    places = landmark_schemes.ibug_places(names)
    if places:
        reference = np.full(len(names), complex(np.nan, np.nan))
        reference[list(places.values())] = as_complex(landmark_schemes.ibug_mean_face())[
            list(places)
        ]
        return reference
    whole = [points for points in faces if np.isfinite(points).all()]
    if len(whole) < _FEWEST_FACES or len(names) < _FEWEST_PARTS:
        return None
    # Some hundreds of faces show their common shape; all with all would not fit into memory.
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


# Of mean shapes on photographs and drawn faces: 0.003 to 0.07 of their own group, 0.74 and more of
# another one with the same number of landmarks, on the same side of the face.
_LARGEST_MISFIT = 0.16
_LARGEST_TURN_RAD = np.radians(30)
_NUMBERS = tuple(str(number) for number in range(landmark_schemes.IBUG_PARTS))


def find_model_parts(
    names: Sequence[str], initial_shape: NDArray[np.floating], terms: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """Find the landmarks of a data set that a model places.

    `terms` are the user's names for them, as in `expand_parts`. Without any: all where the numbers
    are equal, else the group of iBUG's landmarks that the mean shape (in box coordinates) shows.

    Returns
    -------
    (parts, unknown)
        The names in the model's order, none where nothing is known; and words that mean none.
    """
    if terms:
        return landmark_schemes.expand_parts(terms, names)
    if len(names) == len(initial_shape):
        return tuple(names), []
    group = group_of_shape(initial_shape, names)
    return landmark_schemes.expand_parts([group], names) if group else ((), [])


def group_of_shape(
    initial_shape: NDArray[np.floating], names: Sequence[str] = _NUMBERS
) -> str | None:
    """Return the group of `PART_GROUPS` that a model places, or None.

    `initial_shape` is in box coordinates; models have landmarks in the order of their names.
    """
    number_of = {index: number for number, index in landmark_schemes.ibug_places(names).items()}
    ordered = [number_of[index] for index in sorted(number_of)]
    face = landmark_schemes.ibug_mean_face()
    shape = np.asarray(initial_shape, dtype=np.float64)
    misfits = {}
    for group, numbers in landmark_schemes.PART_GROUPS.items():
        members = [number for number in ordered if number in numbers]
        if len(members) == len(numbers) == len(shape) and _same_side(shape, face[members]):
            misfits[group] = _misfit(shape, face[members])
    best = min(misfits, key=lambda group: misfits[group], default=None)
    return best if best is not None and misfits[best] <= _LARGEST_MISFIT else None


def _same_side(shape: NDArray[np.float64], like: NDArray[np.float64]) -> bool:
    """Return whether a shape lies in the same half of its box as in the mean face.

    The two eyes, and the two brows, are alike but for their places.
    """
    centre = float(like[:, 0].mean())
    if abs(centre) < 0.1 * float(np.ptp(landmark_schemes.ibug_mean_face()[:, 0])):
        return True
    return (float(shape[:, 0].mean()) > 0.5) == (centre > 0)


def _misfit(shape: NDArray[np.float64], like: NDArray[np.float64]) -> float:
    misfit, turn_rad = misfit_and_turn(as_complex(shape), as_complex(like))
    return 1.0 if abs(turn_rad) > _LARGEST_TURN_RAD else misfit
