"""Drawn clips in the layouts of EGTEA Gaze+ and Ego4D, which the program reads and never writes."""

from pathlib import Path

from site_agent.datasets.egocentric import (
    EGTEA_HEADER_LINES,
    EGTEA_SIZE_PX,
    FIXATION,
    MOVING,
    UNTRACKED,
)
from site_agent.datasets.synthetic.egocentric_clips import (
    RATE_HZ,
    ClipSettings,
    drawn_clips,
    write_clip,
    write_clips,
)
from site_agent.tables import Column, Table, columns_of


def write_layout(folder: Path, settings: ClipSettings, layout: str) -> None:
    write = {"generic": write_clips, "egtea": write_egtea, "ego4d": write_ego4d}[layout]
    write(folder, settings)


def write_egtea(folder: Path, settings: ClipSettings) -> None:
    labels = {FIXATION: "Fixation", MOVING: "Saccade", UNTRACKED: "Blink"}
    for clip in drawn_clips(settings):
        session = f"{clip.person}-R{clip.number + 1:02}-Drawn"
        first, last = 24, 24 + len(clip.kind)
        name = f"{session}-F{first:06}-F{last:06}.mp4"
        write_clip(folder / "cropped_clips" / session / name, clip)
        header = [f"## [header line {line + 1}]" for line in range(EGTEA_HEADER_LINES)]
        header[9] = f"## Number of Samples:\t{2 * len(clip.kind)}"
        lines = header
        for number, (xy, kind) in enumerate(zip(clip.gaze, clip.kind, strict=True)):
            x, y = xy * EGTEA_SIZE_PX
            frame = first + number
            row = f"{frame * 41667}\tSMP\t1\t{x:.2f}\t{y:.2f}\t{frame}\t{labels[int(kind)]}"
            lines += [row, row]  # the tracker is faster than the camera
        table = folder / "gaze_data" / f"{session}.txt"
        table.parent.mkdir(exist_ok=True)
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_ego4d(folder: Path, settings: ClipSettings) -> None:
    persons = []
    for clip in drawn_clips(settings):
        write_clip(folder / "full_scale.gaze" / f"{clip.name}.mp4", clip)
        persons.append((clip.name, clip.person))
        rows = (
            (n / RATE_HZ, n, 0.0 if kind == UNTRACKED else 0.95, x, 1 - y)
            for n, ((x, y), kind) in enumerate(zip(clip.gaze.tolist(), clip.kind, strict=True))
        )
        (folder / "gaze").mkdir(exist_ok=True)
        _EGO4D.write_csv(folder / "gaze" / f"{clip.name}.csv", rows)
    _PERSONS.write_csv(folder / "persons.csv", persons)


_EGO4D = Table(
    "gaze",
    (
        Column("gaze_timestamp", format=".6f"), Column("world_index"),
        *columns_of(("confidence", "norm_pos_x", "norm_pos_y"), ".6f"),
    ),
)  # fmt: skip
_PERSONS = Table("persons", (Column("uid"), Column("person")))
