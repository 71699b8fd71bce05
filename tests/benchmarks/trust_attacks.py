"""Attack rounds and receipts, and print a table: the point, the attack, before, and now.

    python -m tests.benchmarks.trust_attacks FOLDER [--cameras] [--receipts] [--long]

Cameras (A): how many of a site's samples each kind of base reads, and how clearly. ``step``: from
one step on all samples, as without any rule. ``before``: from a contribution by the rules up to 27
November, which compared weights, and watched single rows of dense layers. ``now``: by today's.
FOLDER gets a sheet of the pictures for each camera of the first dense layer; columns: the
picture as the network gets it, step, before, now; black where it was not read.

Receipts (B): updates of 1, 4 and 15 labs, at a low learning rate and by default. Before: the
verdict without the span attack. --long also trains shadow networks (LiRA, RMIA).
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import PrivacyReceipt, score_text
from site_agent.attacks.gradients import read_inputs
from site_agent.attacks.leaks import apply_update
from site_agent.attacks.membership import PREFIX
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.probing import probe
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import TrainingFailedError
from site_agent.federated import leak_checks
from site_agent.federated.local_training import train_at_site
from site_agent.federated.tasks import SaliencyTask
from site_agent.networks.modules import from_module, new_network, to_module
from tests.site_agent.federated.network_cameras import (
    CODE_ROWS,
    KINDS,
    PASSING,
    build_code_camera,
    build_network_camera,
    features_of,
    read_filters,
    read_neighbours,
    read_statistics,
)
from tests.site_agent.federated.test_leak_checks import camera as token_camera

_ROWS, _ENLARGED = 8, 6
_RATES = (1e-2, 1e-3)

Readings = Mapping[int, tuple[float, Any]]


@dataclass(frozen=True)
class _Camera:
    """A base, the samples of the victim, and the way to read their inputs from an update."""

    name: str
    base: StateDict
    samples: Any
    read: Callable[[StateDict, Mapping[str, Any], Any], Readings]
    inputs: int
    """Number of inputs that could be read."""


def main() -> None:
    """Print both tables, and write the sheets."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cameras", action="store_true", help="only the cameras")
    parser.add_argument("--receipts", action="store_true", help="only the receipts")
    parser.add_argument("--long", action="store_true", help="also LiRA and RMIA")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.cameras or not asked.receipts:
        print("| camera | audit | step | before | now |\n|---|---|---|---|---|")
        for item in _cameras():
            _attack(item, asked.folder)
    if asked.receipts or not asked.cameras:
        print(
            "\n| update | span AUC | control | before | now | epsilon |\n|---|---|---|---|---|---|"
        )
        _probe_sums(16 * asked.long)


def _cameras() -> Iterator[_Camera]:
    settings = RenderSettings(persons=4, frames_per_person=120, seed=3)
    persons = [render_person(settings, number) for number in settings.numbers]
    public, eyes = GazeSamples.join(persons[:2]), GazeSamples.join(persons[2:])[::2]
    for kind in (*KINDS, *PASSING):
        read = read_filters if kind == "filters" else _read_dense
        yield _Camera(kind, build_network_camera(kind, public), eyes, read, len(eyes))
    few = eyes[:16]
    yield _Camera("running means", new_network("gaze-resnet18", 1), few, read_statistics, len(few))
    both = RenderSettings(persons=3, frames_per_person=60, both_eyes=True, seed=3)
    faces = [render_person(both, number) for number in both.numbers]
    victim = faces[2]
    read_codes = partial(read_neighbours, layer="decoder.fc", order=CODE_ROWS)
    camera = build_code_camera(GazeSamples.join(faces[:2]))
    yield _Camera("codes of a cross-encoder", camera, victim, read_codes, len(victim))
    with tempfile.TemporaryDirectory() as folder:
        write_clips(Path(folder) / "clips", ClipSettings(persons=1, videos=10, seconds=3))
        clips = SaliencyTask("glc-tiny").read(Path(folder) / "clips")
        base, tokens = token_camera(clips)
        for name, layer in (("hidden layer", "mlp.fc1"), ("qkv", "attn.qkv")):
            network = base if layer == "mlp.fc1" else _sorting_keys(tokens)
            read_tokens = partial(read_neighbours, layer=f"blocks.0.{layer}")
            yield _Camera(f"tokens of GLC, {name}", network, clips, read_tokens, len(tokens))


def _sorting_keys(tokens: torch.Tensor) -> StateDict:
    """Return a GLC with queries, keys and values that measure the same with graded thresholds."""
    module: Any = to_module(new_network("glc-tiny"))
    layer = module.blocks[0].attn.qkv
    row = torch.randn(tokens.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        levels = torch.linspace(0.5, 0.9999, layer.out_features)
        layer.weight[:], layer.bias[:] = 30 * row, -30 * torch.quantile(tokens @ row, levels)
    return from_module(module, "glc-tiny")


def _read_dense(base: StateDict, update: Mapping[str, Any], samples: GazeSamples) -> Readings:
    """Return the clearest readings of all attacks on the first dense layer."""
    best: dict[int, tuple[float, Any]] = {}
    for readings in (read_inputs(base, update, samples), read_neighbours(base, update, samples)):
        for number, reading in readings.items():
            if reading[0] > best.get(number, (0.0,))[0]:
                best[number] = reading
    return best


def _attack(camera: _Camera, folder: Path) -> None:
    objections = leak_checks.audit_base(camera.base, camera.samples)
    columns = [_strongest(camera, guarded=False)]
    with _rules_before():
        noticed = leak_checks.audit_base(camera.base, camera.samples)
        columns.append(_strongest(camera))
    columns.append(_strongest(camera))
    verdict = "refuses" if objections else "passes"
    if bool(noticed) != bool(objections):
        verdict += " (before: passed)"
    shown = [_words(readings, camera.inputs) for readings in columns]
    print(f"| {camera.name} | {verdict} | {' | '.join(shown)} |", flush=True)
    if camera.read is _read_dense:
        _write_sheet(camera, columns, folder / f"{camera.name.replace(' ', '-')}.png")


def _strongest(camera: _Camera, *, guarded: bool = True) -> Readings:
    """Return the readings at the learning rate that shows most, in one step or a contribution."""
    best: Readings = {}
    for rate in _RATES:
        asked = LocalTraining(batch_size=65_536, momentum=0.0, learning_rate=rate)
        try:
            made = train_at_site(
                camera.base, "ab" * 32, camera.samples, asked, site="site-a", round_number=1,
                guarded=guarded,
            )  # fmt: skip
        except TrainingFailedError:
            continue
        best = max(
            best,
            camera.read(camera.base, made.contribution.network.tensors, camera.samples),
            key=len,
        )
    return best


@contextmanager
def _rules_before() -> Iterator[None]:
    with (
        mock.patch.object(leak_checks, "_readable_pairs", lambda *rows: torch.zeros_like(rows[-1])),
        mock.patch.object(leak_checks, "_correlated_units", return_value=0),
        mock.patch.object(leak_checks, "_CONVOLUTIONS", ()),
    ):
        yield


def _words(readings: Readings, inputs: int) -> str:
    best = max((gain for gain, _ in readings.values()), default=0.0)
    return f"{len(readings)} of {inputs}" + (f", {best:.0f} dB" if readings else "")


def _write_sheet(camera: _Camera, columns: list[Readings], path: Path) -> None:
    shown = sorted(columns[0], key=lambda number: -columns[0][number][0])
    shown = [*sorted(columns[1], key=lambda number: -columns[1][number][0])[: _ROWS // 2], *shown]
    shown = list(dict.fromkeys(shown))[:_ROWS]
    if not shown:
        return
    truth = features_of(to_module(camera.base), camera.samples).numpy()
    rows = [
        np.hstack([_draw(truth[n]), *(_draw(x[n][1]) if n in x else _draw(None) for x in columns)])
        for n in shown
    ]
    picture = Image.fromarray(np.vstack(rows))
    picture.resize((picture.width * _ENLARGED, picture.height * _ENLARGED), 0).save(path)


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


def _probe_sums(shadows: int) -> None:
    settings = RenderSettings(
        persons=24, frames_per_person=120, sessions=(1, 1), seed=21, skews=Skews(amount=1.0)
    )
    persons = [render_person(settings, number)[:120] for number in settings.numbers]
    others = GazeSamples.join([samples[::4] for samples in persons[15:]])
    base = new_network("gaze-lenet", 9)
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        files = Path(folder) / "sent.contribution", Path(folder) / "base.safetensors"
        write_model(base, files[1])
        for labs in (1, 4, 15):
            sites = [samples[: (120 if labs < 15 else 16)] for samples in persons[:labs]]
            for name, training in (
                ("rate 0.002", LocalTraining(learning_rate=0.002)), ("defaults", LocalTraining())
            ):  # fmt: skip
                made = [
                    train_at_site(
                        base, file_digest(files[1]), samples, training,
                        site=f"site-{number}", round_number=1,
                    ).contribution
                    for number, samples in enumerate(sites)
                ]  # fmt: skip
                write_network_contribution(_sum(base, made), files[0])
                mode: Any = "update" if labs == 1 else "secure-sum"
                sides = GazeSides(sites[0], others)
                receipt = probe(files[0], mode, sides, base=files[1], shadows=shadows).receipt
                count = sum(map(len, sites))
                _report(f"{labs} labs, {count} samples, {name}", receipt)


def _sum(base: StateDict, made: list[NetworkContribution]) -> NetworkContribution:
    network = apply_update(base, *made)
    differences = {
        name: np.subtract(network.tensors[name], base.tensors[name]) for name in base.infos
    }
    return NetworkContribution(
        StateDict(differences, dict(base.infos)), "differences",
        sum(item.samples for item in made), made[0].base_digest, made[0].settings,
    )  # fmt: skip


def _report(name: str, receipt: PrivacyReceipt) -> None:
    span = next(item for item in receipt.attacks if item.name.startswith(f"membership: {PREFIX}"))
    rest = [item for item in receipt.attacks if f"membership: {PREFIX}" not in item.name]
    before = PrivacyReceipt.model_validate({**receipt.model_dump(), "attacks": rest})
    tried = [item for item in receipt.attacks if item.control is not None]
    missed = [f"{item.name} {item.control.value:.2f}" for item in tried if not item.is_judged]
    assert span.control is not None
    assert receipt.bounds is not None
    print(
        f"| {name} | {score_text(span.found)} | {span.control.value:.3g} | {before.level} "
        f"| {receipt.level} | at least {receipt.bounds.at_least:g} |",
        flush=True,
    )
    for item in receipt.attacks:
        if item.name in {"membership: LiRA", "membership: RMIA"}:
            print(f"|   {item.name} | {score_text(item.found)} | | | | |", flush=True)
    if missed:
        print(f"|   controls below 0.95, not counted: {', '.join(missed)} | | | | | |", flush=True)


if __name__ == "__main__":
    main()
