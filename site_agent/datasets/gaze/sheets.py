"""Contact sheets of gaze data: one row a person, with an arrow for each gaze."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from site_agent.datasets.gaze import records
from site_agent.errors import writing_to
from site_agent.pictures.plot_style import FOUND_RGB, INK_RGB, PAPER_RGB, RGB, TRUE_RGB
from site_agent.runs.progress import Progress, no_progress

_MARGIN_PX, _GAP_PX, _ZOOM = 56, 2, 2
_FOUND_ZOOM, _FOUND_COLUMNS, _FOUND_ROWS = 3, 6, 10
# The arrow of 90 degrees, in heights of a patch.
_ARROW_LENGTH = 1.0
_LEGEND_PX = 20


def write_gaze_sheet(
    dataset: records.GazeDataset,
    output: Path,
    *,
    columns: int = 10,
    rows: int = 30,
    progress: Progress = no_progress,
) -> Path:
    """Draw up to `rows` persons with `columns` samples each, spread evenly over all.

    Samples are in the order of their yaw and as the camera saw them, right eyes not mirrored.
    """
    picks = np.linspace(0, len(dataset.persons) - 1, min(rows, len(dataset.persons)))
    persons = [dataset.persons[round(pick)] for pick in picks]
    high, wide = (_ZOOM * side for side in records.PATCH_SHAPE)
    size = (_MARGIN_PX + columns * (wide + _GAP_PX), len(persons) * (high + _GAP_PX))
    sheet, pen = _new_sheet(*size, {"true gaze": TRUE_RGB})
    font = ImageFont.load_default(12)
    for row, person in enumerate(persons):
        progress(row / len(persons), f"person {person}")
        top = row * (high + _GAP_PX)
        pen.text((4, top + high // 2 - 8), person[:8], fill=INK_RGB, font=font)
        samples = _spread_samples(dataset.read_person(person), columns)
        for column in range(len(samples)):
            left = _MARGIN_PX + column * (wide + _GAP_PX)
            patch = Image.fromarray(samples.patches[column]).convert("RGB")
            sheet.paste(patch.resize((wide, high), Image.Resampling.BICUBIC), (left, top))
            middle = (left + wide / 2, top + high / 2)
            draw_gaze(pen, middle, samples.gaze[column], _ARROW_LENGTH * high)
    with writing_to(output):
        sheet.save(output, format="PNG")
    return output


def draw_found_gaze(samples: records.GazeSamples, found: records.Float64) -> Image.Image:
    """Draw up to 60 samples of one person with two arrows: the true gaze yellow, that found green.

    Samples are in the order of their true yaw and as the camera saw them.

    `found`, float64 of shape (n, 2): yaw and pitch as of left eyes, as in `samples`.
    """
    patches = samples.patches.copy()
    angles = np.stack([samples.gaze, found], axis=1)
    records.as_left_eyes(patches, angles, samples.eye == "right")
    order = np.argsort(angles[:, 0, 0], kind="stable")
    count = min(_FOUND_COLUMNS * _FOUND_ROWS, len(order))
    kept = order[np.linspace(0, len(order) - 1, count).round().astype(int)]
    high, wide = (_FOUND_ZOOM * side for side in records.PATCH_SHAPE)
    columns, rows = min(count, _FOUND_COLUMNS), -(-count // _FOUND_COLUMNS)
    legend = {"true gaze": TRUE_RGB, "found": FOUND_RGB}
    sheet, _ = _new_sheet(columns * (wide + _GAP_PX), rows * (high + _GAP_PX), legend)
    for place, number in enumerate(kept.tolist()):
        row, column = divmod(place, _FOUND_COLUMNS)
        tile = draw_patch(patches[number], angles[number], _FOUND_ZOOM)
        sheet.paste(tile, (column * (wide + _GAP_PX), row * (high + _GAP_PX)))
    return sheet


def _new_sheet(
    width_px: int, height_px: int, legend: Mapping[str, RGB]
) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return an empty sheet with its legend below, each word in its colour, and a pen."""
    sheet = Image.new("RGB", (width_px, height_px + _LEGEND_PX), PAPER_RGB)
    pen, font, left = ImageDraw.Draw(sheet), ImageFont.load_default(12), 4.0
    for words, colour in legend.items():
        pen.text((left, height_px + 2), words, fill=colour, font=font)
        left += pen.textlength(f"{words}   ", font=font)
    return sheet, pen


def draw_patch(patch: records.UInt8, gazes: records.Float64, zoom: int) -> Image.Image:
    """Draw an enlarged patch with its gazes, float64 (1 or 2, 2): the one found comes last."""
    high, wide = (zoom * side for side in records.PATCH_SHAPE)
    tile = Image.fromarray(patch).convert("RGB").resize((wide, high), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(tile)
    for gaze, colour in zip(gazes, (TRUE_RGB, FOUND_RGB)[-len(gazes) :], strict=True):
        draw_gaze(pen, (wide / 2, high / 2), gaze, _ARROW_LENGTH * high, colour)
    return tile


def draw_gaze(
    pen: ImageDraw.ImageDraw,
    start: tuple[float, float],
    gaze: records.Float64,
    length_px: float,
    colour: RGB = TRUE_RGB,
) -> None:
    """Draw an arrow from `start` along a gaze (yaw, pitch), as the camera sees it."""
    yaw, pitch = float(gaze[0]), float(gaze[1])
    x = start[0] - length_px * np.cos(pitch) * np.sin(yaw)
    y = start[1] - length_px * np.sin(pitch)
    pen.line((*start, x, y), fill=colour, width=2)
    pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)


def _spread_samples(samples: records.GazeSamples, count: int) -> records.GazeSamples:
    """Return some samples in the order of their yaw, right eyes turned back."""
    angles = samples.gaze.copy()
    patches = samples.patches.copy()
    records.as_left_eyes(patches, angles, samples.eye == "right")
    order = np.argsort(angles[:, 0], kind="stable")
    picks = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    kept = order[picks]
    chosen = samples[kept]
    chosen.patches[:], chosen.gaze[:] = patches[kept], angles[kept]
    return chosen
