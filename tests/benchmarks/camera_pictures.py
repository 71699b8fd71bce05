"""Draw the pictures of three labs that cameras among bases read: by old rules, and by today's.

    python -m tests.benchmarks.camera_pictures SHEET.png [--kind imprint]

A row for each of the six pictures that one step on all samples shows best, which a starter
could ask for before sites had rules of their own. Columns: the picture as the network gets it;
read from one lab's step; from the sum of three labs' steps; from one lab's contribution by its
rules, and from the sum of three; black where it is not shown. Whether the lab refuses the base
before all that is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.attacks.gradients import read_inputs
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_contribution
from site_agent.networks.modules import to_module
from tests.site_agent.federated.network_cameras import (
    KINDS,
    build_network_camera,
    features_of,
    first_gradient,
)

_ROWS, _ENLARGED = 6, 6
_ASKED = LocalTraining(batch_size=65_536, momentum=0.0)

Readings = dict[int, tuple[float, Any]]


def main() -> None:
    """Write the sheet, and print how many pictures each update shows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--kind", choices=KINDS, default="imprint")
    asked = parser.parse_args()
    settings = RenderSettings(persons=9, frames_per_person=120, seed=11)
    persons = [render_person(settings, number) for number in settings.numbers]
    labs, camera = persons[6:], build_network_camera(asked.kind, join_samples(persons[:6]))
    own_samples = labs[0]
    print(f"{asked.kind}: {'refused' if audit_base(camera, own_samples) else 'NOT refused'}")
    steps = [first_gradient(camera, lab) for lab in labs]
    rules = [_contribution(camera, lab, f"lab-{n}") for n, lab in enumerate(labs)]
    columns: dict[str, Readings] = {
        name: read_inputs(camera, update, own_samples)
        for name, update in {
            "one lab's step": steps[0],
            "the sum of three steps": _mean(steps),
            "one lab's contribution": rules[0],
            "the sum of three contributions": _mean(rules),
        }.items()
    }
    for name, pictures in columns.items():
        best = max((gain for gain, _ in pictures.values()), default=0)
        print(
            f"{name}: {len(pictures)} of {len(own_samples)} pictures, the best {best:.0f} dB nearer"
        )
    first = columns["one lab's step"]
    shown = sorted(first, key=lambda number: -first[number][0])[:_ROWS]
    truth = features_of(to_module(camera), own_samples).numpy()
    rows = [
        np.hstack([_draw(x[n][1] if n in x else None) for x in (_exact(truth), *columns.values())])
        for n in shown
    ]
    picture = Image.fromarray(np.vstack(rows))
    picture.resize((picture.width * _ENLARGED, picture.height * _ENLARGED), 0).save(asked.sheet)


def _contribution(camera: StateDict, samples: GazeSamples, lab: str) -> Mapping[str, Any]:
    made = train_contribution(camera, "ab" * 32, samples, _ASKED, site=lab, round_number=1)
    return made.network.tensors


def _mean(updates: list[Any]) -> dict[str, Any]:
    return {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}


def _exact(features: Any) -> Readings:
    return {number: (np.inf, feature) for number, feature in enumerate(features)}


def _draw(features: Any) -> Any:
    """Put a picture together from the shifts, bright and dark, that a camera's channels pass on."""
    if features is None:
        return np.zeros((18, 30), dtype=np.uint8)
    sums, counts = np.zeros((16, 28)), np.zeros((16, 28))
    for channel, values in enumerate(np.asarray(features).reshape(50, 6, 12)):
        row, column = divmod(channel // 2, 5)
        for y, x in np.ndindex(6, 12):
            block = np.s_[2 * y + row : 2 * y + row + 2, 2 * x + column : 2 * x + column + 2]
            sums[block] += values[y, x] * (1 - 2 * (channel % 2))
            counts[block] += 1
    means = sums / np.maximum(counts, 1)
    low, high = np.percentile(means, (1, 99))
    grey = (255 * (means - low) / max(high - low, 1e-9)).clip(0, 255).astype(np.uint8)
    return np.pad(grey, 1)


if __name__ == "__main__":
    main()
