"""Findings of attacks as lines of a receipt, and the receipt as a page."""

import base64
import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import FormatError
from aggregators.whole_file import write_whole
from pool_server.wire.cards import AttackFinding, EpsilonBounds, PrivacyReceipt, score_text
from pool_server.wire.evaluations import Score
from site_agent.attacks.separation import Float64, MemberScores, separation
from site_agent.errors import InvalidInputError
from site_agent.evaluation import bootstrap_intervals
from site_agent.pages import render_page

Sent = TypeVar("Sent")
RESAMPLES = 200
_NORMAL_95 = 1.959964


def membership(  # noqa: PLR0917 - found and control belong side by side
    name: str,
    attack: MemberScores,
    control: MemberScores | None,
    seed: int,
    note: str = "",
    reveals: Literal["membership", "persons"] = "membership",
    *,
    chance: float | None = 0.5,
) -> AttackFinding:
    """Return the line of an attack that separates members from others."""
    return AttackFinding(
        name=name,
        measure="AUC",
        found=auc_of(attack, seed),
        chance=chance,
        control=None if control is None else auc_of(control, seed),
        note=note,
        reveals=reveals,
    )


def auc_of(scores: MemberScores, seed: int) -> Score:
    """Return the area under the ROC curve with its 95 % interval.

    Resampling whole persons says nothing where few samples are separated perfectly; the interval is
    at least as wide as Wilson's for a share of that number of samples.
    """
    member = scores.is_member
    auc = separation(
        scores.scores, member, groups=scores.persons, resamples=RESAMPLES, seed=seed
    )  # fmt: skip
    fewest = min(int(member.sum()), int((~member).sum()))
    least = share_of(auc.auc * fewest, fewest)
    low, high = auc.intervals.get("auc", (auc.auc, auc.auc))
    assert least.low is not None
    assert least.high is not None
    ends = np.nanmin([low, least.low]), np.nanmax([high, least.high])
    return Score(value=auc.auc, low=float(ends[0]), high=float(ends[1]))


def score_of(value: float, interval: tuple[float, float] | None = None) -> Score:
    """Return a score; an interval that is not finite is left out."""
    if interval is None or not all(math.isfinite(end) for end in interval):
        return Score(value=value)
    return Score(value=value, low=interval[0], high=interval[1])


def share_of(count: float, total: int) -> Score:
    """Return a share with its 95 % interval (Wilson 1927)."""
    if not total:
        return Score(value=0.0)
    share, z2 = count / total, _NORMAL_95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _NORMAL_95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    half /= 1 + z2 / total
    low = centre - half if count else 0.0
    high = centre + half if count < total else 1.0
    return Score(value=share, low=low, high=high)


def mean_over_persons(
    measure: Callable[[Float64], float], persons: NDArray[np.str_], seed: int
) -> Score:
    """Return a measure with the interval from resampling persons.

    `measure`: From how often each sample counts, float64 (n,), to the value.
    """
    _, group = np.unique(persons, return_inverse=True)

    def drawn(times: NDArray[np.int64]) -> dict[str, float]:
        return {"value": measure(times[group].astype(np.float64))}

    count = int(group.max()) + 1
    intervals = bootstrap_intervals(drawn, count, resamples=RESAMPLES, seed=seed)
    return score_of(measure(np.ones(len(persons))), intervals.get("value"))


def read_sent(path: Path, read: Callable[[Path], Sent]) -> Sent:
    """Read a contribution, or say where contributions are.

    Raises `InvalidInputError`: the file is not a contribution, or is of another kind.
    """
    try:
        return read(path)
    except FormatError as error:
        raise InvalidInputError(
            f"{path}: not a contribution of this --mode: {error}",
            hint="contributions are kept in the folder 'rounds' of the cache ('poolctl env')",
        ) from error


def require_held_out(
    members: Collection[str], others: Collection[str], marks: Mapping[str, Collection[str]]
) -> None:
    """Refuse held-out data that show persons of the site.

    `own`, `others`: The persons of ``--data`` and of ``--holdout``. `marks`: Marks of the pictures,
    under ``own`` and ``others``.

    Raises `InvalidInputError`: a person or a picture is in both, or fewer than two persons are held
    out.
    """
    hint = "hold out persons, not only other pictures of the same persons"
    if both := sorted(set(members) & set(others)):
        names = ", ".join(both[:5])
        raise InvalidInputError(
            f"{len(both)} persons are in --data and in --holdout: {names}", hint=hint
        )
    if both := sorted(set(marks["own"]) & set(marks["others"])):
        raise InvalidInputError(
            f"{len(both)} pictures are in --data and in --holdout, under other persons' names",
            hint=hint,
        )
    if len(set(others)) < 2:
        raise InvalidInputError(
            f"--holdout has {len(set(others))} persons; expected at least 2", hint=hint
        )


def receipt_files(folder: Path) -> list[Path]:
    """Return the files of a receipt: data, page, and the statement to print."""
    return [folder / name for name in ("receipt.json", "receipt.html", "statement.html")]


def write_receipt(
    receipt: PrivacyReceipt, pictures: Mapping[str, bytes], folder: Path, name: str
) -> list[Path]:
    """Write a receipt with its pages, and return the files; see `receipt_page`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = receipt_files(folder)
    content = receipt.model_dump_json(indent=2) + "\n"
    pages = receipt_page(receipt, pictures, name), statement_page(receipt, content, name)
    for path, text in zip(files, (content, *pages), strict=True):
        write_whole(path, text)
    return files


def statement_page(receipt: PrivacyReceipt, content: str, name: str) -> str:
    """Return one page to print and sign, for a data protection officer.

    `content`: That of the receipt's file; its digest ties the signed page to it.
    """
    judged = [finding for finding in receipt.attacks if finding.is_judged]
    tried = sum(finding.is_attack for finding in receipt.attacks)
    facts = {
        "Sent": f"{name}: {receipt.what_left}",
        "SHA-256 of the file": receipt.artifact_digest,
        "Protection": receipt.protection,
        "Epsilon": _epsilon_words(receipt.bounds),
        "Assumed attacker": receipt.attacker,
        "Persons and samples": f"{receipt.persons} persons of the site, {receipt.samples} samples; "
        f"compared with {receipt.held_out_persons} others, {receipt.held_out_samples} samples",
        "Attacks": f"{len(judged)} judged of {tried} tried, with seed {receipt.seed} on "
        f"{receipt.compute}",
        "SHA-256 of receipt.json": hashlib.sha256(content.encode()).hexdigest(),
        "Date": "" if receipt.measured_on is None else f"{receipt.measured_on:%Y-%m-%d}",
    }
    rows = [
        (finding.name, finding.measure, score_text(finding.found), f"{finding.chance:.2f}")
        for finding in judged[:_STATED_ATTACKS]
    ]
    return render_page(
        "privacy_statement.html",
        receipt=receipt,
        name=name,
        facts_of_receipt=facts.items(),
        attacks=rows,
        left_out=len(judged) - len(rows),
    )


def _epsilon_words(bounds: EpsilonBounds | None) -> str:
    """Return the bounds, and the meaning of the upper one for an attack with 1 % false alarms."""
    if bounds is None or bounds.at_most is None:
        return bounds.sentence if bounds else "not bounded"
    share = min(1.0, 0.01 * math.exp(bounds.at_most) + bounds.delta)
    return (
        f"{bounds.sentence} Whatever others know, an attack that wrongly accuses 1 in 100 finds "
        f"at most {share:.0%} of the {bounds.unit}s that trained."
    )


_STATED_ATTACKS = 10
"""The worst; more do not fit the page."""

# The page; the places of its drawings are in pixels.
_BAR_LEFT_PX, _BAR_RIGHT_PX = 6, 134


def receipt_page(receipt: PrivacyReceipt, pictures: Mapping[str, bytes], name: str) -> str:
    """Return the page.

    `pictures`: PNG files by their captions. `name`: The name by which the page calls the artifact.
    """
    facts = {
        "What left the site": receipt.what_left,
        "Assumed attacker": receipt.attacker,
        "Measured by": receipt.measured_by,
        "Epsilon": receipt.bounds.sentence if receipt.bounds else "not bounded",
        "Persons of the site": f"{receipt.persons}, {receipt.samples} samples",
        "Held-out persons": f"{receipt.held_out_persons}, {receipt.held_out_samples} samples",
        "Seed": str(receipt.seed),
        "Compute": f"{receipt.seconds:.0f} s on {receipt.compute}",
        "SHA-256": receipt.artifact_digest,
    }
    attacks = [
        {
            "finding": finding,
            "found": score_text(finding.found),
            "chance": "" if finding.chance is None else f"{finding.chance:.2f}",
            "control": "" if finding.control is None else score_text(finding.control),
            "is_judged": finding.is_judged or not finding.is_attack,
            "bar": _bar(finding),
        }
        for finding in receipt.attacks
    ]
    return render_page(
        "privacy_receipt.html",
        receipt=receipt,
        name=name,
        facts_of_receipt=facts.items(),
        attacks=attacks,
        pictures=[
            (caption, f"data:{_media_type(content)};base64,{base64.b64encode(content).decode()}")
            for caption, content in pictures.items()
        ],
    )


def _media_type(picture: bytes) -> str:
    return "image/svg+xml" if picture.startswith(b"<svg") else "image/png"


def _bar(finding: AttackFinding) -> dict[str, str] | None:
    """Return the positions in pixels of result, chance and control."""
    if finding.chance is None or finding.control is None:
        return None
    low, high = _ends(finding.found)
    values = {
        "chance": finding.chance,
        "control": finding.control.value,
        "low": low,
        "high": high,
        "found": finding.found.value,
    }
    top = max(1.0, finding.chance, high, _ends(finding.control)[1])
    wide = _BAR_RIGHT_PX - _BAR_LEFT_PX
    return {
        name: f"{_BAR_LEFT_PX + wide * min(max(value, 0.0), top) / top:.1f}"
        for name, value in values.items()
    }


def _ends(score: Score) -> tuple[float, float]:
    if score.low is None or score.high is None:
        return score.value, score.value
    return score.low, score.high
