"""Read damaged files of every kind: ``python -m tests.benchmarks.fuzz_readers [INPUTS [SECONDS]]``.

Prints for each reader how many inputs it took, the slowest, and every error that is not its own.
A reader that takes longer than SECONDS for all inputs (by default 70) gets no more.
"""

import io
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from aggregators import FORMATS, decode_model, encode_model, parse_recipe
from aggregators.errors import FormatError, RecipeError
from aggregators.methods.networks.round_files import (
    contribution_as_network,
    decode_network_contribution,
)
from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import Model
from pool_server.wire.cards import read_card
from pool_server.wire.signatures.keys import Envelope, PrivateKey
from pool_server.wire.signatures.statements import Statement, sign_statement
from site_agent.datasets.gaze.generic_layout import COLUMNS, open_folder
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.errors import (
    AnnotationFileError,
    InvalidInputError,
    ReleaseRefusedError,
    TableFileError,
)
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.releases.release import parse_record, record_bytes
from site_agent.secure.charter import Charter, create_charter
from site_agent.split.messages import BodyShape, decode_arrays, encode_arrays
from tests.aggregators.methods.networks.small_rounds import make_base
from tests.aggregators.small_models import (
    make_detector,
    make_ensemble,
    make_network,
    make_predictor,
)
from tests.pool_server.rounds.network_driver import network_contribution
from tests.pool_server.rounds.round_driver import base_model, contribution_bytes
from tests.pool_server.wire.test_statements import STATEMENT
from tests.site_agent.releases.made_releases import record_of, signed

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


# Values that pass for what they replace until something is computed from them.
NUMBERS = [
    *(str(number).encode() for number in (0, -1, 2**31, 2**63, 2**64, 10**10, 10**30)),
    b"9" * 5000,
    *(b"0.5", b"-0.0", b"1e308", b"1e999", b"NaN", b"Infinity", b"true", b"null"),
]
STRINGS = [
    *(
        b"",
        b"x" * 300,
        b"x" * 100_000,
        b"../../etc/passwd",
        b"/etc/passwd",
        b"a/" * 200,
        b"\\u0000",
    ),
    *("\u202e".encode(), b"con", b"\xff\xfe", b"%s%n", b"{}", b"[" * 5000),
]
NUMBER = re.compile(
    rb"(?<![\w.\"'])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?<=['\"])\d+(?=['\"])"
)
STRING = re.compile(rb"(?<=['\"])[^'\"\n]{1,200}(?=['\"])")


def damage(random: np.random.Generator, content: bytes) -> bytes:
    """Return the content with bytes changed, cut off, or repeated, or values replaced."""
    pattern, values = (NUMBER, NUMBERS) if random.integers(2) else (STRING, STRINGS)
    if random.integers(2) and (matches := list(pattern.finditer(content))):
        match = matches[int(random.integers(len(matches)))]
        value = values[int(random.integers(len(values)))]
        return content[: match.start()] + value + content[match.end() :]
    return damage_bytes(random, content)


def damage_bytes(random: np.random.Generator, content: bytes) -> bytes:
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
    *,
    count: int,
    longest_s: float,
) -> None:
    random = np.random.default_rng(7)
    inputs, accepted, slowest_s, unexpected = 0, 0, 0.0, set()
    for seed in seeds:
        read(seed)
    end = time.monotonic() + longest_s
    for number in range(count):
        if time.monotonic() > end:
            break
        inputs += 1
        content = damage(random, seeds[number % len(seeds)])
        # Of the processor: how long a busy machine takes says nothing about the reader.
        started_s = time.process_time()
        try:
            read(content)
            accepted += 1
        except refusal:
            pass
        except Exception as error:
            unexpected.add(f"{type(error).__name__}: {error}"[:120])
        slowest_s = max(slowest_s, time.process_time() - started_s)
    print(f"{name}: {inputs:,} inputs, {accepted:,} accepted, slowest {slowest_s:.3f} s")
    print("\n".join(sorted(unexpected)) or "every refusal is the reader's own", flush=True)


def models() -> list[bytes]:
    """Return a small model in each format that can hold it."""
    made: list[Model] = [make_detector(1), make_predictor(2), make_ensemble(3), make_network(4)]
    return [
        encode_model(model, name)
        for model in made
        for name, form in FORMATS.items()
        if form.holds(model)
    ]


def split_body() -> bytes:
    return encode_arrays({"smashed": np.zeros((3, 8), np.float32)})


def gaze_table(folder: Path) -> bytes:
    """Write a table with one picture and return it."""
    (folder / "images").mkdir()
    Image.new("L", (60, 36)).save(folder / "images" / "a.png")
    row = "images/a.png,p01,s01,7,left,0.1,-0.2,0.0,0.3"
    return "\n".join([",".join(COLUMNS), row, row.replace("7", "8", 1)]).encode()


def read_gaze_table(path: Path) -> object:
    return open_folder(path).read()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    longest_s = float(sys.argv[2]) if len(sys.argv) > 2 else 70.0
    random = np.random.default_rng(1)
    base = make_base(3, "f4")
    contribution = network_contribution(base, "1f" * 32, 5)
    network = bytes(encode_model(contribution_as_network(contribution)))
    statement = sign_statement(STATEMENT, PrivateKey.generate()).model_dump_json().encode()
    card = b"---\nlicense: mit\ntags: [a, b]\nmetrics: {ear: 0.1}\n---\n# Model\n"
    forest = contribution_bytes(base_model(), 1)
    record = record_bytes(signed(record_of(b"a model")))
    decode_body = partial(decode_arrays, shape=BodyShape({"smashed": (8,)}, 9))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
            """Return a reader of bytes from one of files."""

            def read_bytes(content: bytes) -> object:
                (folder / name).write_bytes(content)
                return read(folder / name)

            return read_bytes

        matlab = [matlab_file(random, compressed=compressed) for compressed in (True, False)]
        trace = partial(read_trace, frame_rate_hz=30.0)
        table = gaze_table(folder)
        readers: list[tuple[str, list[bytes], Callable[[bytes], object], type[Exception]]] = [
            ("models", models(), decode_model, FormatError),
            ("recipes", [RECIPE], parse_recipe, RecipeError),
            ("annotations", [FACES], from_file("f.xml", read_imglab_xml), AnnotationFileError),
            ("traces", TRACES, from_file("t.csv", trace), TableFileError),
            (
                "records of exports",
                [record],
                from_file("poolctl.json", parse_record),
                ReleaseRefusedError,
            ),
            ("MATLAB files", matlab, read_matlab, ValueError),
            ("charters", [charter()], Charter.parse, InvalidInputError),
            ("gaze tables", [table], from_file("gaze.csv", read_gaze_table), AnnotationFileError),
            ("shares of networks", [network], decode_network_contribution, FormatError),
            ("shares of forests", [forest], decode_contribution, FormatError),
            ("bodies of split training", [split_body()], decode_body, InvalidInputError),
            ("statements", [STATEMENT.to_bytes()], Statement.parse, ValueError),
            ("envelopes", [statement], Envelope.model_validate_json, ValueError),
            ("cards", [card], lambda text: read_card(text.decode(errors="replace")), ValueError),
        ]
        for reader in readers:
            fuzz(*reader, count=count, longest_s=longest_s)


if __name__ == "__main__":
    main()
