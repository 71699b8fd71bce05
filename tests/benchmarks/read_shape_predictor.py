"""Time reading and writing a landmark model of the papers' size, compared with dlib itself.

    python -m tests.benchmarks.read_shape_predictor [--rounds N]

Makes a file of about 130 MB in a temporary folder and, in one process, lets this package and dlib
read and write it in turns. Measured are `read_model` and `write_model` as everybody calls
them (`write_model` also hashes the file and waits until it is on disk), and of the latter the
part that reading has too, encoding and writing.

The limits, on the least times: reading takes no longer than dlib's, encoding and writing no longer
than reading, and both programs write the same bytes. The exit status is 1 beyond them.
"""

import argparse
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from aggregators.formats import file_digest, read_model, write_model
from aggregators.formats.shape_predictor import ShapePredictorFormat
from aggregators.models import ShapePredictor
from tests.benchmarks.paper_size import make_paper_size_predictor

_LIMITS = (("read, ours", "read, dlib"), ("encode and write, ours", "read, ours"))
"""Pairs of steps: the first takes no longer than the second."""


def main() -> None:
    """Run the benchmark; the exit status is 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="alternating runs (default 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        kept = _run(Path(folder), max(1, arguments.rounds))
    sys.exit(0 if kept else 1)


def _run(folder: Path, rounds: int) -> bool:
    ours = folder / "ours.dat"
    model = make_paper_size_predictor(seed=0)
    write_model(model, ours)
    del model
    size_bytes = ours.stat().st_size
    print(f"10 levels x 500 trees, depth 5, 68 parts: {size_bytes / 1e6:.1f} MB")
    seconds = _time_in_turns(folder, rounds)
    _print_table(seconds)
    files = [ours, folder / "again.dat", folder / "theirs.dat"]
    same = len({file_digest(path) for path in files}) == 1
    print(f"the files of both are {'equal byte for byte' if same else 'DIFFERENT'}")
    kept = same and all(min(seconds[one]) <= min(seconds[other]) for one, other in _LIMITS)
    print("within the limits" if kept else "BEYOND THE LIMITS")
    return kept


def _time_in_turns(folder: Path, rounds: int) -> dict[str, list[float]]:
    import dlib

    ours = folder / "ours.dat"
    held = read_model(ours)
    their_model = dlib.shape_predictor(str(ours))
    tasks: dict[str, Callable[[], object]] = {
        "read, ours": lambda: read_model(ours),
        "read, dlib": lambda: dlib.shape_predictor(str(ours)),
        "encode and write, ours": lambda: _write_plainly(held, folder / "plain.dat"),
        "write_model, ours": lambda: write_model(held, folder / "again.dat"),
        "write, dlib": lambda: their_model.save(str(folder / "theirs.dat")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            gc.collect()
            start = perf_counter()
            result = task()
            seconds[name].append(perf_counter() - start)
            del result
    return seconds


def _write_plainly(model: object, path: Path) -> None:
    assert isinstance(model, ShapePredictor)
    with path.open("wb") as file:
        for piece in ShapePredictorFormat().pieces(model):
            file.write(piece)


def _print_table(seconds: dict[str, list[float]]) -> None:
    print(f"{'':26}{'least':>9}{'median':>9}   seconds")
    for name, values in seconds.items():
        print(f"{name:26}{min(values):9.3f}{statistics.median(values):9.3f}")
    for over, under in _LIMITS:
        least = min(seconds[over]) / min(seconds[under])
        median = statistics.median(seconds[over]) / statistics.median(seconds[under])
        print(f"{over} / {under}: {least:.2f} (least), {median:.2f} (median)")


if __name__ == "__main__":
    main()
