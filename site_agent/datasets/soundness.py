"""The check of data before a training, a test or a contribution: faults stop it."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from site_agent.datasets.check import Finding, check_datasets, count_more, kinds_of
from site_agent.datasets.egocentric import EgocentricDataset, check_clips
from site_agent.datasets.gaze.check import check_gaze
from site_agent.datasets.gaze.records import GazeDataset
from site_agent.datasets.network_data import NetworkData
from site_agent.datasets.records import FaceDataset
from site_agent.errors import UnsoundDataError
from site_agent.work import Progress, no_progress

Use = Literal["landmarks", "boxes"]
"""The landmarks of faces, or their boxes alone."""

_log = logging.getLogger(__name__)

_JUDGED_BY_USERS = {"no-images", "no-boxes", "no-parts", "inconsistent-parts", "missing-image"}
"""Findings that every training and test judges by its own settings and words."""
_OF_LANDMARKS = {
    *("names-unsorted", "part-order", "odd-shape"),
    *("other-parts", "parts-outside", "parts-off-box", "parts-unmarked"),
}
_OF_TESTS_APART = {"few-samples", "one-session"}
"""Remarks that no training needs."""
_MOST_CHECKED = 64
_checked: "dict[object, list[Finding]]" = {}
_said: set[str] = set()


@dataclass(frozen=True)
class Soundness:
    """The result of a check that lets the data pass."""

    despite: tuple[str, ...] = ()
    """The faults that `--despite-findings` went on with, as ``CODE (NUMBER)``."""

    @property
    def details(self) -> dict[str, str]:
        """The faults for the record of a training; nothing where there is none."""
        return {"despite_findings": ", ".join(self.despite)} if self.despite else {}


def require_sound(
    data: FaceDataset | NetworkData | Sequence[FaceDataset],
    *,
    use: Use = "landmarks",
    persons: Iterable[str] = (),
    despite_findings: bool = False,
    progress: Progress = no_progress,
) -> Soundness:
    """Check data before they are used, and log each kind of warning once.

    Raises `UnsoundDataError`: faults that must be mended, unless `despite_findings` goes on.

    `persons`: those of network data that are used; all if empty.
    """
    findings = _findings(data, set(persons), lambda *_: progress(None, "checking the data"))
    unused = _JUDGED_BY_USERS | _OF_TESTS_APART | (_OF_LANDMARKS if use == "boxes" else set())
    relevant = [finding for finding in findings if finding.code not in unused]
    faults = [finding for finding in relevant if finding.severity == "error"]
    if faults and not despite_findings:
        raise UnsoundDataError(len(faults), _texts(faults))
    for text in _texts(relevant):
        if text not in _said:
            _said.add(text)
            _log.warning(text)
    counts = Counter(finding.code for finding in faults)
    return Soundness(tuple(f"{code} ({count})" for code, count in sorted(counts.items())))


def _texts(findings: Sequence[Finding]) -> list[str]:
    return [f"{kind[0]}{count_more(kind)}" for kind in kinds_of(findings)]


def _findings(
    data: FaceDataset | NetworkData | Sequence[FaceDataset], persons: set[str], progress: Progress
) -> list[Finding]:
    """Return the findings, those of unchanged data from the check before."""
    if isinstance(data, GazeDataset):
        key: object = (data.path, _state(data.path), tuple(sorted(persons)))
        if key not in _checked:
            _keep(key, check_gaze([data.path], progress, persons=persons))
        return _checked[key]
    if isinstance(data, EgocentricDataset):
        used = data.only(sorted(persons)) if persons else data
        key = (data.path, data.digest, tuple(sorted(persons)))
        if key not in _checked:
            _keep(key, check_clips(used))
        return _checked[key]
    datasets = [data] if isinstance(data, FaceDataset) else list(data)
    images = [image for dataset in datasets for image in dataset.images]
    # The records say all but the pixels, which are as they were if the file is.
    key = (repr(datasets), hash(tuple(map(repr, images))), tuple(_state(i.path) for i in images))
    if key not in _checked:
        _keep(key, check_datasets(datasets, progress))
    return _checked[key]


def _keep(key: object, findings: list[Finding]) -> None:
    while len(_checked) >= _MOST_CHECKED:
        del _checked[next(iter(_checked))]
    _checked[key] = findings


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
