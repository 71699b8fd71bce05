"""Values as pages show them: sizes, moments, kinds and states in words."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from pool_server.activity.events import describe_event
from pool_server.database.records import now_utc
from pool_server.wire.activity import EventResponse
from pool_server.wire.data_use import DATA_USE_TERMS
from pool_server.wire.models import ModelVersionResponse

KINDS = {"ert": "Landmarks", "hog-svm": "Detector", "network": "Network"}
LABELS = {
    "population": "Faces of",
    "condition": "Condition",
    "dataset_type": "Pictures from",
    "orientation": "Faces look",
    "lighting": "Light",
    "air_puff_hose": "Air-puff hose",
    "glasses": "Glasses",
    "camera": "Camera",
    "images": "Images",
    "boxes": "Faces",
    "subjects": "Persons",
    "frame_rate_hz": "Images a second",
}
DATA = {"ert": "faces", "hog-svm": "faces"}
_TEST_DATA = {"ert": "test.xml", "hog-svm": "test.xml"}
_SHORTHANDS = {term.code: term.shorthand for term in DATA_USE_TERMS}
_STEPS = ((60, "s"), (60, "min"), (24, "h"), (30, "days"), (12, "months"), (10_000, "years"))
_ONE = {"days": "day", "months": "month", "years": "year"}


def size(count: int | None) -> str:
    """Return a number of bytes with three digits: ``1.24 MB``."""
    value, unit = float(count or 0), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def duration(seconds: float) -> str:
    """Return a length of time in its largest unit: ``3 days``."""
    value = max(0, int(seconds))
    for step, unit in _STEPS:
        if value < step:
            return f"{value} {_ONE.get(unit, unit) if value == 1 else unit}"
        value //= step
    return "ages"


def age(moment: datetime | None) -> Markup:
    """Return how long ago a moment was, or how far off it is, with the exact time."""
    if moment is None:
        return Markup('<span class="quiet">never</span>')
    seconds = (now_utc() - moment).total_seconds()
    text = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    exact = moment.astimezone(UTC).isoformat()
    # Nothing in it needs escapes, which take long where a page has thirty ages.
    title = exact[:19].replace("T", " ")
    return Markup(f'<time datetime="{exact}" title="{title} UTC">{text}</time>')


def number(value: float) -> str:
    """Return a score with three or four digits."""
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.4g}"


def short(address: str) -> str:
    """Return an address without its scheme."""
    return address.removeprefix("pool://")


def page_of(address: str) -> str:
    """Return the page of a model or version: ``/models/alder/eyes@2``."""
    return f"/models/{short(address)}"


def digest(text: str) -> str:
    """Return the beginning of a digest."""
    return f"{text[:16]}…"


def kind(name: str | None) -> str:
    return KINDS.get(name or "", name or "unknown kind")


def data(kind: str) -> str:
    """Return the word for the data of a kind of models: ``faces``."""
    return DATA.get(kind, "data")


def measuring(address: str, kind: str) -> str:
    """Return the command that measures a model on a site's data, and tells the pool."""
    test_data = _TEST_DATA.get(kind, "DATA")
    return f"poolctl evaluate {short(address)} {test_data} --post --dataset-name NAME"


def build(fingerprint: Mapping[str, Any]) -> str:
    """Return a model's structure in a few words."""
    if "parts" in fingerprint:
        return f"{fingerprint['parts']} points, {fingerprint.get('levels', '?')} levels"
    if "window_width_px" in fingerprint:
        return "{window_width_px} × {window_height_px} window".format(**fingerprint)
    if fingerprint.get("parameters"):
        return f"{fingerprint['parameters']:,} parameters"
    return str(fingerprint.get("architecture", ""))


def label(key: str) -> str:
    return LABELS.get(key, key.replace("_", " "))


def shorthand(code: str) -> str:
    """Return the letters of a term of use, as DUO gives them."""
    return _SHORTHANDS.get(code, "own words" if code == "text" else code)


def standing(version: ModelVersionResponse) -> tuple[str, str]:
    """Return the class and the words of a version's badge; two empty ones where all is well."""
    if version.state == "withdrawn":
        return "bad", "withdrawn"
    if version.state == "quarantined":
        return "bad", "in quarantine"
    if version.flags:
        return "warn", "holds a withdrawn model"
    return ("open", "draft") if version.state == "draft" else ("", "")


def happened(event: EventResponse) -> str:
    """Return an event as a sentence."""
    return describe_event(event.kind, event.subject, event.details)


def count(items: int, noun: str) -> str:
    """Return a number with its noun: ``1 site``, ``3 sites``."""
    return f"{items:,} {noun}" if items == 1 else f"{items:,} {noun}s"


FILTERS = {
    function.__name__: function
    for function in (
        age, build, count, data, digest, duration, happened, kind, label, measuring, number,
        page_of, short, shorthand, size, standing,
    )
}  # fmt: skip
