"""Tables of a privacy study, in the paper's form, and sheets of reconstructed pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from site_agent.attacks.leaks import LEAKS
from site_agent.datasets.gaze.records import PATCH_SHAPE
from site_agent.studies.privacy.persons import StudyPersons
from site_agent.tables import Table, columns_of, write_tables

Results = Mapping[int, Mapping[str, Any]]
Rows = list[list[str]]
_TITLES = {
    "main": "DualView and re-identification",
    "membership": "Membership",
    "attributes": "Attributes: AUC",
    "sums": "Sums over some sites, first round",
    "controls": "Controls: AUC of membership",
}


def write_report(
    folder: Path,
    everyone: StudyPersons,
    results: Results,
    pictures: Mapping[str, NDArray[np.uint8]],
    repeat: Sequence[str],
) -> list[Path]:
    """Write all tables and the sheet; return their files, ``table.md`` first."""
    victims = len(everyone.victims)
    notes = (
        f"{victims} victims, {len(results)} seeds; means over seeds. Re-identified: of {victims}, "
        "by chance 1. An AUC is 0.5 by chance. MAE and KL of `none` are those of the mean "
        "distribution of public persons. Membership: the attack with the highest mean AUC; 95 % "
        "intervals are the means of those of the seeds, by resampling persons. Pictures of the "
        "first seed: `pictures.png`."
    )
    files = write_tables(
        folder, "What federated training reveals", make_tables(results), [_verdict(results)],
        notes, repeat=repeat,
    )  # fmt: skip
    files.append(folder / "pictures.png")
    _draw_sheet(files[-1], everyone, pictures)
    return files


def _verdict(results: Results) -> str:
    sentences = []
    for leak, name in (("plain", "single updates"), ("secure", "sums of all sites")):
        attack = strongest(results, "leaks", leak, "samples")
        mean = _Mean(results, "leaks", leak)
        sentences.append(
            f"{name} give {mean.share('reidentified', 'matched')} of the persons away, and "
            f"training pictures with an AUC of {mean.of('samples', attack, 'auc', form='.2f')} "
            f"({attack})"
        )
    return f"{sentences[0].capitalize()}; {sentences[1]}."


def make_tables(results: Results) -> list[tuple[Table, Rows]]:
    """Return the tables that have rows."""
    tables = {
        "main": _main_table(results),
        "membership": _membership_table(results),
        "attributes": _attribute_table(results),
        "sums": _sums_table(results),
        "controls": _controls_table(results),
    }
    return [
        (Table(name, columns_of(header), _TITLES[name]), rows)
        for name, (header, *rows) in tables.items()
        if rows
    ]


def _main_table(results: Results) -> Rows:
    header = ["leak", "re-identified by updates", "p", "other session", "by losses",
              "by pictures", "PSNR", "SSIM", "MAE (deg)", "KL"]  # fmt: skip
    rows = []
    for leak in LEAKS:
        mean = _Mean(results, "leaks", leak)
        view = mean.below("dualview")
        elsewhere = "" if leak != "plain" else mean.share("elsewhere", "matched")
        rows.append([leak, mean.share("reidentified", "matched"),
                     mean.of("reidentified", "p_value"), elsewhere,
                     mean.share("by losses", "matched"), view.share("matched"),
                     view.of("psnr", form=".1f"), view.of("ssim", form=".2f"),
                     view.of("mae_deg", form=".1f"), view.of("kl")])  # fmt: skip
    view = _Mean(results, "leaks", "plain", "dualview")
    for name in ("mean public", "nearest public"):
        cells = [view.of(f"{name} psnr", form=".1f"), view.of(f"{name} ssim", form=".2f")]
        rows.append([f"{name} picture", "", "", "", "", "", *cells, "", ""])
    return [header, *rows]


def _membership_table(results: Results) -> Rows:
    header = ["leak", "by", "attack", "AUC", "95 %", "balanced accuracy", "TPR at 1 % FPR"]
    rows = []
    for leak in LEAKS:
        for unit in ("samples", "persons"):
            mean = _Mean(results, "leaks", leak, unit)
            attack = strongest(results, "leaks", leak, unit)
            below = mean.below(attack)
            rows.append([leak, unit, attack, below.of("auc"), below.interval("auc"),
                         below.of("balanced_accuracy"),
                         below.of("true_positives_at_1_percent")])  # fmt: skip
    return [header, *rows]


def strongest(results: Results, group: str, way: str, unit: str) -> str:
    """Return the membership attack of the highest mean AUC over seeds."""
    leaks = [result[group][way][unit] for result in results.values()]
    # The loss at the base says how members differ, and nothing of what training leaves.
    names: list[str] = [name for name in leaks[0] if name != "loss at base"]
    return max(names, key=lambda name: float(np.mean([leak[name]["auc"] for leak in leaks])))


def _attribute_table(results: Results) -> Rows:
    names = list(next(iter(results.values()))["leaks"]["plain"].get("attributes", {}))
    rows = []
    for leak in LEAKS if names else ():
        mean = _Mean(results, "leaks", leak, "attributes")
        rows.append([leak, *(mean.of(name, "auc") for name in names)])
    return [["leak", *names], *rows]


def _sums_table(results: Results) -> Rows:
    rows = []
    for count in next(iter(results.values()))["sweep"]:
        mean = _Mean(results, "sweep", count)
        attack = strongest(results, "sweep", count, "samples")
        rows.append([count, mean.share("reidentified", "matched"),
                     mean.of("reidentified", "p_value"), attack,
                     mean.of("samples", attack, "auc")])  # fmt: skip
    return [["sites in the sum", "re-identified by updates", "p", "attack", "AUC"], *rows]


def _controls_table(results: Results) -> Rows:
    mean = _Mean(results, "controls")
    rows = [[name, mean.of(name)] for name in ("overfitted", "random labels")]
    return [["control", "AUC"], *rows]


class _Mean:
    """Means over seeds of the values under some keys."""

    def __init__(self, results: Results, *keys: str) -> None:
        self._results, self._keys = results, keys
        self._found = [self._value(result, keys) for result in results.values()]

    def below(self, key: str) -> "_Mean":
        return _Mean(self._results, *self._keys, key)

    def of(self, *keys: str, form: str = ".3f") -> str:
        return format(float(np.mean([self._value(values, keys) for values in self._found])), form)

    def share(self, *keys: str) -> str:
        """Return a share with its range over seeds, in per cent."""
        if any(keys[0] not in values for values in self._found):
            return ""
        values = [100 * self._value(values, keys) for values in self._found]
        mean = f"{np.mean(values):.0f} %"
        same = round(min(values)) == round(max(values))
        return mean if same else f"{mean} ({min(values):.0f} to {max(values):.0f})"

    def interval(self, key: str) -> str:
        ends = [values["intervals"][key] for values in self._found if values["intervals"]]
        if not ends:
            return ""
        low, high = np.mean(ends, axis=0)
        return f"{low:.2f} to {high:.2f}"

    @staticmethod
    def _value(value: Any, keys: Sequence[str]) -> Any:
        for key in keys:
            value = value[key]
        return value


def _draw_sheet(
    path: Path, everyone: StudyPersons, pictures: Mapping[str, NDArray[np.uint8]]
) -> None:
    """Draw a row for each victim: true pictures, and those of each leak."""
    high, wide, left, top = PATCH_SHAPE[0] * 2, PATCH_SHAPE[1] * 2, 60, 24
    true = [
        person.trains.patches[np.argsort(person.trains.gaze[:, 0], kind="stable")]
        for person in everyone.victims.values()
    ]
    shown = pictures["plain"].shape[1]
    places = (np.arange(shown) + 0.5) / shown
    rows = {"true": [pictures[(places * len(pictures)).astype(int)] for pictures in true]}
    rows |= {leak: list(pictures[leak]) for leak in LEAKS}
    columns = [(name, index) for name in rows for index in range(shown)]
    size = (left + len(columns) * (wide + 2) + 8 * len(rows), top + len(true) * (high + 2))
    sheet = Image.new("RGB", size, (25, 25, 25))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for column, (name, index) in enumerate(columns):
        x = left + column * (wide + 2) + 8 * (column // shown)
        if not index:
            pen.text((x, 4), name, fill=(235, 235, 235), font=font)
        for row, row_pictures in enumerate(rows[name]):
            picture = Image.fromarray(row_pictures[index]).resize(
                (wide, high), Image.Resampling.BICUBIC
            )
            sheet.paste(picture.convert("RGB"), (x, top + row * (high + 2)))
    for row, victim in enumerate(everyone.victims):
        pen.text(
            (4, top + row * (high + 2) + high // 2), victim[:7], fill=(235, 235, 235), font=font
        )
    sheet.save(path, format="PNG")
