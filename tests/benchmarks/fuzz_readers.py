"""Read damaged MATLAB files and charters: ``python -m tests.benchmarks.fuzz_readers [INPUTS]``.

Prints for each reader how many inputs it took, the slowest, and every error that is not its own.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.io import savemat

from pool_server.wire.signatures.keys import PrivateKey
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.errors import InvalidInputError
from site_agent.secure.charter import Charter, create_charter


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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    random = np.random.default_rng(1)
    files = [matlab_file(random, compressed=each) for each in (True, False)]
    fuzz("MATLAB files", files, read_matlab, ValueError, count)
    fuzz("charters", [charter()], Charter.parse, InvalidInputError, count)


if __name__ == "__main__":
    main()
