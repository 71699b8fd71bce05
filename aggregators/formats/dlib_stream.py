"""dlib's coding of numbers, common to its file formats.

===========  =========================================================================
item         bytes
===========  =========================================================================
integer      one byte ``size | 0x80 if negative`` (size 1..8), then `size` bytes of
             magnitude, least significant first; the writer uses the fewest bytes
float        integer mantissa, integer exponent; the value is mantissa * 2**exponent
vector       integer count, then the items
column       integer ``-rows``, integer ``-1``, then the items (``matrix<T, 0, 1>``)
===========  =========================================================================

Readers accept integers that are longer than necessary, as dlib does, and nothing else that dlib
would not write. Exponents of 32000 and more mean infinities and NaN, which are refused.
"""

import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError
from aggregators.models import Float32, Float64, UInt8, UInt32

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


@cache
def load_kernels() -> ModuleType:
    """Return the compiled loops; loading numba takes a third of a second."""
    from aggregators.formats import dlib_kernels

    return dlib_kernels


def view_bytes(data: Buffer) -> memoryview:
    """Return a view of the bytes of a buffer."""
    whole = data.data if isinstance(data, np.ndarray) else memoryview(data)
    return whole.cast("B")


def flat_view(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Return an array as one read-only row, copied only if it is not contiguous.

    With read-only inputs throughout, each kernel is compiled for one type only.
    """
    flat = np.ascontiguousarray(values, dtype=dtype).reshape(-1).view()
    flat.flags.writeable = False
    return flat


class StreamReader:
    """A position in the bytes of one file; each method reads one item and moves past it.

    All methods raise `FormatError`, with the offset at which the invalid number starts.
    """

    def __init__(self, data: Buffer) -> None:
        self.bytes: UInt8 = np.frombuffer(data, dtype=np.uint8)
        self.bytes.flags.writeable = False
        self.offset = 0
        self.end = int(self.bytes.shape[0])

    @property
    def remaining(self) -> int:
        return self.end - self.offset

    def fail(self, what: str, offset: int, value: object, expected: str) -> NoReturn:
        raise FormatError(what, offset, str(value), expected)

    def integer(self, what: str, minimum: int, maximum: int) -> int:
        """Read an integer in ``[minimum, maximum]``."""
        start = self.offset
        value = self._magnitude(what)
        if not minimum <= value <= maximum:
            expected = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
            self.fail(what, start, value, expected)
        return value

    def count(self, what: str, item_bytes: int, minimum: int = 0) -> int:
        """Read a vector's length; the rest of the file must hold its items of `item_bytes`."""
        start = self.offset
        value = self._magnitude(what)
        most = self.remaining // item_bytes
        if not minimum <= value <= most:
            self.fail(
                what,
                start,
                value,
                f"{minimum} to {most} (all that {self.remaining} more bytes can hold)",
            )
        return value

    def column_rows(self, what: str, item_bytes: int) -> int:
        """Read the header of a column matrix and return its number of rows."""
        start = self.offset
        rows = -self._magnitude(f"{what}, rows")
        if rows < 0:
            self.fail(
                f"{what}, rows", start, -rows, "a negative number (dlib's mark of a column matrix)"
            )
        self.integer(f"{what}, columns", -1, -1)
        most = self.remaining // item_bytes
        if rows > most:
            self.fail(
                f"{what}, rows",
                start,
                rows,
                f"0 to {most} (all that {self.remaining} more bytes can hold)",
            )
        return rows

    def double(self, what: str) -> float:
        """Read one finite float."""
        start = self.offset
        mantissa = self._magnitude(what)
        middle = self.offset
        exponent = self._magnitude(what)
        if not -32768 <= exponent <= 32767:
            self.fail(f"exponent of {what}", middle, exponent, "-32768 to 32767")
        try:
            value = math.inf if exponent >= 32000 else math.ldexp(mantissa, exponent)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.fail(
                what, start, f"an infinite number or NaN (exponent {exponent})", "a finite number"
            )
        return value

    def float32_array(self, what: str, length: int) -> Float32:
        """Read `length` floats; the caller has checked `length`."""
        kernels = load_kernels()
        values = np.empty(length, dtype=np.float32)
        report = new_report()
        after = kernels.read_float32(
            self.bytes, self.offset, self.end, values, 0, length, kernels.POWERS_OF_TWO, report
        )
        self.move(after, report, what)
        return values

    def float64_array(self, what: str, length: int) -> Float64:
        """Read `length` doubles; the caller has checked `length`."""
        kernels = load_kernels()
        values = np.empty(length, dtype=np.float64)
        report = new_report()
        after = kernels.read_float64(self.bytes, self.offset, self.end, values, report)
        self.move(after, report, what)
        return values

    def index_array(self, what: str, length: int, limit: int) -> UInt32:
        """Read `length` integers in ``[0, limit)``."""
        kernels = load_kernels()
        values = np.empty(length, dtype=np.uint32)
        report = new_report()
        after = kernels.read_indices(self.bytes, self.offset, self.end, values, limit, report)
        self.move(after, report, what)
        return values

    def finish(self, what: str) -> None:
        """Require the end of the file."""
        if self.remaining:
            self.fail(what, self.offset, f"{self.remaining} more bytes", "the end of the file")

    def move(self, after: int, report: NDArray[np.int64], what: str) -> None:
        """Move to where a kernel stopped, or raise its error."""
        if after < 0:
            raise kernel_error(report, what, self.end)
        self.offset = int(after)

    def _magnitude(self, what: str) -> int:
        start = self.offset
        if start >= self.end:
            self.fail(what, start, "the end of the file", "an integer")
        head = int(self.bytes[start])
        size = head & 0x7F
        if not 1 <= size <= 8:
            self.fail(what, start, f"size byte 0x{head:02x}", "0x01 to 0x08, or 0x81 to 0x88")
        after = start + 1 + size
        if after > self.end:
            self.fail(what, start, "the end of the file", f"{size} more bytes of an integer")
        value = int.from_bytes(self.bytes[start + 1 : after].tobytes(), "little")
        # No number in these files is that large, and int64 would take it for a negative one.
        if value >> 63:
            self.fail(what, start, value, "a number below 2**63")
        self.offset = after
        return -value if head & 0x80 else value


def new_report() -> NDArray[np.int64]:
    """Return the array in which a kernel reports failure."""
    kernels = load_kernels()
    return np.zeros(kernels.REPORT_LENGTH, dtype=np.int64)


def kernel_error(report: NDArray[np.int64], what: str, end: int) -> FormatError:
    """Return the error that a kernel reported while reading `what`; the file has `end` bytes."""
    kernels = load_kernels()
    code, offset, number, expected = (int(value) for value in report[:4])
    texts: dict[int, tuple[str, str]] = {
        kernels.TRUNCATED: ("the end of the file", f"an integer (the file has {end} bytes)"),
        kernels.BAD_SIZE_BYTE: (f"size byte 0x{number:02x}", "0x01 to 0x08, or 0x81 to 0x88"),
        kernels.TOO_LARGE: ("a number of 64 bits", "a number below 2**63"),
        kernels.NOT_FINITE: (
            f"an infinite number, NaN or a too large number (exponent {number})",
            "a finite number",
        ),
        kernels.BAD_EXPONENT: (f"exponent {number}", "-32768 to 32767"),
        kernels.BAD_COUNT: (
            str(number),
            f"1 to {expected} (the remaining bytes cannot hold more)"
            if number == 0
            else f"at most {expected} (the remaining bytes cannot hold more)",
        ),
        kernels.NOT_POWER_OF_TWO: (str(number), "one less than a power of two"),
        kernels.WRONG_VALUE: (str(number), str(expected)),
        kernels.OUT_OF_RANGE: (str(number), f"0 to {expected - 1}"),
    }
    found_text, expected_text = texts[code]
    return FormatError(what, offset, found_text, expected_text)


class StreamWriter:
    """Collects the bytes of a part of a file."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def integers(self, *values: int) -> None:
        """Append integers, each in the fewest bytes."""
        for value in values:
            # Zero takes one byte in dlib's coding, too.
            size = max(1, (abs(value).bit_length() + 7) // 8)
            head = size | (0x80 if value < 0 else 0)
            self._parts.append(bytes([head]) + abs(value).to_bytes(size, "little"))

    def doubles(self, what: str, values: Float64 | Sequence[float]) -> None:
        """Append doubles; `what` names them in errors."""
        kernels = load_kernels()
        array = flat_view(np.asarray(values), np.float64)
        # At most 11 bytes a double (mantissa 1 + 7, exponent 1 + 2); kernels write whole words, so
        # some room is needed behind the last.
        out = np.empty(11 * array.shape[0] + 16, dtype=np.uint8)
        report = new_report()
        self._append(out, kernels.write_float64(out, 0, array, report), what)

    def floats(self, what: str, values: Float32) -> None:
        """Append floats; `what` names them in errors."""
        kernels = load_kernels()
        bits = flat_view(values, np.float32).view(np.uint32)
        out = np.empty(6 * bits.shape[0] + 16, dtype=np.uint8)
        report = new_report()
        after = kernels.write_float32(out, 0, bits, 0, bits.shape[0], report)
        self._append(out, after, what)

    def indices(self, values: UInt32) -> None:
        """Append unsigned integers."""
        kernels = load_kernels()
        out = np.empty(5 * values.shape[0] + 16, dtype=np.uint8)
        self._append(out, kernels.write_indices(out, 0, flat_view(values, np.uint32)), "indices")

    def take(self) -> bytes:
        """Return the collected bytes and clear them."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content

    def _append(self, out: UInt8, after: Any, what: str) -> None:
        if after < 0:
            raise not_finite(what)
        self._parts.append(out[: int(after)].tobytes())


def not_finite(what: str) -> ConversionError:
    """Return the error for a model with infinite numbers or NaN."""
    return ConversionError(f"{what}: found an infinite number or NaN, expected finite numbers")
