"""Read damaged files of every kind: ``python -m tests.benchmarks.fuzz_readers [INPUTS]``.

Prints for each reader how many inputs it took, the slowest, and every error that is not its own.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.io import savemat

from aggregators import FORMATS, decode_model, encode_model, parse_recipe
from aggregators.errors import FormatError, RecipeError
from aggregators.models import Model
from pool_server.wire.signatures.keys import PrivateKey
from site_agent.bundles.inspecting import inspect_bundle
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.errors import (
    AnnotationFileError,
    BundleRefusedError,
    InvalidInputError,
    TableFileError,
)
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.secure.charter import Charter, create_charter
from tests.aggregators.small_models import (
    make_detector,
    make_ensemble,
    make_network,
    make_predictor,
)
from tests.site_agent.bundles.made_bundles import good_bundle

FACES = b"""<?xml version='1.0' encoding='UTF-8'?>
<dataset><images><image file='a.png' width='90' height='80'>
<box top='1' left='2' width='30' height='31' ignore='0'><label>front</label>
<part name='00' x='3' y='4'/><part name='01' x='5' y='6'/></box></image></images></dataset>
"""
TRACES = [b"timestamp_s,ear\n0.0,0.3\n0.1,n/a\n0.2,0.1\n", b"x\n0.3\n* 0.2\n", b"0.3\n0.2\n"]
RECIPE = b"""{"schema": "poolctl-recipe/1", "method": {"name": "mwma", "version": 1}, "options": {},
"inputs": [{"digest": "DIGEST", "weight": 1.0}, {"digest": "DIGEST", "weight": 2}]}
""".replace(b"DIGEST", b"1f" * 32)


def matlab_file(random: np.random.Generator, *, compressed: bool) -> bytes:
    image = np.zeros((3, 36, 60), np.uint8)
    eye = {"gaze": random.normal(size=(3, 3)), "image": image, "pose": random.normal(size=(3, 3))}
    names = np.array(["a", "b", "c"], dtype=object).reshape(-1, 1)
    stream = io.BytesIO()
    content = {"data": {"left": eye, "right": eye}, "filenames": names}
    savemat(stream, content, do_compression=compressed)
    return stream.getvalue()


def charter() -> bytes:
    servers, labs = (
        {name: PrivateKey.generate().public.text for name in names} for names in ("st", "abc")
    )
    return create_charter("gaze", servers, labs).content


def damage(random: np.random.Generator, content: bytes) -> bytes:
    """Return the content with bytes changed, cut off, or repeated."""
    data, how = bytearray(content), random.integers(4)
    for place in random.integers(0, len(data) if how else min(400, len(data)), 4):
        data[place] = random.integers(256)
    if how == 2:
        del data[random.integers(1, len(data)) :]
    if how == 3:
        at = int(random.integers(len(data)))
        data[at:at] = data[max(0, at - 32) : at] * int(random.integers(1, 20))
    return bytes(data)


def fuzz(
    name: str,
    seeds: list[bytes],
    read: Callable[[bytes], object],
    refusal: type[Exception],
    count: int,
) -> None:
    random = np.random.default_rng(7)
    accepted, slowest_s, unexpected = 0, 0.0, set()
    for seed in seeds:
        read(seed)
    for number in range(count):
        content = damage(random, seeds[number % len(seeds)])
        started = time.monotonic()
        try:
            read(content)
            accepted += 1
        except refusal:
            pass
        except Exception as error:
            unexpected.add(f"{type(error).__name__}: {error}"[:120])
        slowest_s = max(slowest_s, time.monotonic() - started)
    print(f"{name}: {count:,} inputs, {accepted:,} accepted, slowest {slowest_s:.3f} s")
    print("\n".join(sorted(unexpected)) or "every refusal is the reader's own")


def models() -> list[bytes]:
    """Return a small model in each format that can hold it."""
    made: list[Model] = [make_detector(1), make_predictor(2), make_ensemble(3), make_network(4)]
    return [
        encode_model(model, name)
        for model in made
        for name, form in FORMATS.items()
        if form.holds(model)
    ]


def bundle(folder: Path) -> bytes:
    path = folder / "good.bundle"
    good_bundle(path)
    return path.read_bytes()


def from_file(folder: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes from one of files."""

    def read_bytes(content: bytes) -> object:
        (folder / name).write_bytes(content)
        return read(folder / name)

    return read_bytes


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fuzz("models", models(), decode_model, FormatError, count)
        fuzz("recipes", [RECIPE], parse_recipe, RecipeError, count)
        read = from_file(folder, "faces.xml", read_imglab_xml)
        fuzz("annotations", [FACES], read, AnnotationFileError, count)
        read = from_file(folder, "trace.csv", partial(read_trace, frame_rate_hz=30.0))
        fuzz("traces", TRACES, read, TableFileError, count)
        read = from_file(folder, "damaged.bundle", inspect_bundle)
        fuzz("bundles", [bundle(folder)], read, BundleRefusedError, count)
    files = [matlab_file(random, compressed=each) for each in (True, False)]
    fuzz("MATLAB files", files, read_matlab, ValueError, count)
    fuzz("charters", [charter()], Charter.parse, InvalidInputError, count)


if __name__ == "__main__":
    main()
