"""Compiled inner loops for dlib's number coding.

A model file of 130 MB holds 44 million variable-length numbers, so the loops below read eight
bytes at once: one unaligned load holds a whole float (mantissa and exponent) in nearly all cases,
and one unaligned store writes one. Rare cases (the last bytes of the file, long mantissas,
unusual exponents) take a slower path that gives the same values.

Compiled code cannot raise exceptions with text, so failures are stored in `report`, an int64
array:

    report[CODE]      0, or one of the codes below
    report[OFFSET]    where the invalid number starts
    report[FOUND]     the number, or the size byte
    report[EXPECTED]  the limit, for some codes
    report[FIELD]     item of the format (an index into the caller's table)
    report[LEVEL], report[TREE], report[ITEM]   where in the model

This module is imported only when a file is read or written: numba takes a third of a second to
load.
"""

# Compiled code takes its arrays and counters one by one, and returns early on failure.
# ruff: noqa: PLR0911, PLR0917
# numba infers the types and does not check annotations.
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aggregators.compiled import compiled

CODE, OFFSET, FOUND, EXPECTED, FIELD, LEVEL, TREE, ITEM = range(8)
REPORT_LENGTH = 8

TRUNCATED = 1
BAD_SIZE_BYTE = 2
TOO_LARGE = 3
NOT_FINITE = 4
BAD_EXPONENT = 5
BAD_COUNT = 6
NOT_POWER_OF_TWO = 7
WRONG_VALUE = 8
OUT_OF_RANGE = 9

# Exponents from 32000 on mean infinities and NaN.
FIRST_SPECIAL_EXPONENT = 32000
LAST_EXPONENT = 32767
FLOAT32_MAX = float(np.finfo(np.float32).max)

# 2**e for one-byte exponents: index e for positive, 256 + e for negative ones. All are exact.
POWERS_OF_TWO = np.ldexp(1.0, np.concatenate([np.arange(256), -np.arange(256)]))


@intrinsic
def _load_word(_typing, data, _offset):
    """Load eight bytes from any offset of a uint8 array, least significant first."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.gep(array.data, [args[1]])
        word = builder.bitcast(address, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def _store_word(_typing, data, _offset, _value):
    """Store eight bytes at any offset of a uint8 array, least significant first."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.gep(array.data, [args[1]])
        word = builder.bitcast(address, ir.IntType(64).as_pointer())
        builder.store(args[2], word, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@compiled
def _fail(report, code, offset, value, expected):
    report[CODE] = code
    report[OFFSET] = offset
    report[FOUND] = value
    report[EXPECTED] = expected
    return np.int64(-1)


@compiled
def _read_integer(data, offset, end, report):
    """Return (value, next offset); the offset is -1 on failure."""
    if offset >= end:
        return np.int64(0), _fail(report, TRUNCATED, offset, end, 0)
    head = np.int64(data[offset])
    size = head & 0x7F
    if size == 0 or size > 8:
        return np.int64(0), _fail(report, BAD_SIZE_BYTE, offset, head, 0)
    after = offset + 1 + size
    if after > end:
        return np.int64(0), _fail(report, TRUNCATED, offset, end, 0)
    # One unaligned load instead of a loop over bytes; near the end of the file it would read
    # beyond.
    if offset + 9 <= end:
        magnitude = _load_word(data, offset + 1) & (
            np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size)
        )
    else:
        magnitude = np.uint64(0)
        for byte in range(size):
            magnitude |= np.uint64(data[offset + 1 + byte]) << np.uint64(8 * byte)
    if magnitude >> np.uint64(63):
        return np.int64(0), _fail(report, TOO_LARGE, offset, size, 0)
    value = np.int64(magnitude)
    if head & 0x80:
        value = -value
    return value, after


@compiled
def _read_number(data, offset, end, report):
    """Read a finite float of any size; return (mantissa, exponent, next offset or -1)."""
    mantissa, middle = _read_integer(data, offset, end, report)
    if middle < 0:
        return mantissa, np.int64(0), middle
    exponent, after = _read_integer(data, middle, end, report)
    if after < 0:
        return mantissa, exponent, after
    if exponent >= FIRST_SPECIAL_EXPONENT and exponent <= LAST_EXPONENT:
        return mantissa, exponent, _fail(report, NOT_FINITE, offset, exponent, 0)
    if exponent > LAST_EXPONENT or exponent < -LAST_EXPONENT - 1:
        return mantissa, exponent, _fail(report, BAD_EXPONENT, middle, exponent, 0)
    return mantissa, exponent, after


@compiled
def read_float32(data, offset, end, out, first, count, powers, report):
    """Read `count` floats into ``out[first:]``; return the next offset, or -1."""
    last_whole_word = end - 8
    for index in range(first, first + count):
        if offset <= last_whole_word:
            word = _load_word(data, offset)
            size = np.int64(word & np.uint64(0x7F))
            tail = word >> np.uint64((8 * size + 8) & 63)
            # The common case, decoded from one word: a mantissa of at most 3 bytes and an exponent
            # of one. All other codings take the slow path below.
            if size >= 1 and size <= 3 and (tail & np.uint64(0x7F)) == 1:
                magnitude = np.int64(
                    (word >> np.uint64(8)) & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
                )
                negative = np.int64((word >> np.uint64(7)) & np.uint64(1))
                mantissa = (magnitude ^ -negative) + negative
                power = np.int64(
                    ((tail >> np.uint64(8)) & np.uint64(0xFF))
                    | ((tail & np.uint64(0x80)) << np.uint64(1))
                )
                value = np.float64(mantissa) * powers[power]
                if abs(value) > FLOAT32_MAX:
                    report[ITEM] = index - first
                    return _fail(report, NOT_FINITE, offset, power, 0)
                out[index] = np.float32(value)
                offset += size + 3
                continue
        long_mantissa, exponent, after = _read_number(data, offset, end, report)
        if after < 0:
            report[ITEM] = index - first
            return after
        # Rounded to float32 first, as dlib does, so that both read the same value.
        value = math.ldexp(np.float64(np.float32(long_mantissa)), exponent)
        if not abs(value) <= FLOAT32_MAX or np.isinf(np.float32(value)):
            report[ITEM] = index - first
            return _fail(report, NOT_FINITE, offset, exponent, 0)
        out[index] = np.float32(value)
        offset = after
    return offset


@compiled
def read_float64(data, offset, end, out, report):
    """Fill `out` with doubles; return the next offset, or -1."""
    for index in range(out.shape[0]):
        mantissa, exponent, after = _read_number(data, offset, end, report)
        if after < 0:
            report[ITEM] = index
            return after
        value = math.ldexp(np.float64(mantissa), exponent)
        if not math.isfinite(value):
            report[ITEM] = index
            return _fail(report, NOT_FINITE, offset, exponent, 0)
        out[index] = value
        offset = after
    return offset


@compiled
def read_indices(data, offset, end, out, limit, report):
    """Fill `out` with integers in ``[0, limit)``; return the next offset, or -1."""
    for index in range(out.shape[0]):
        value, after = _read_integer(data, offset, end, report)
        if after >= 0 and (value < 0 or value >= limit):
            after = _fail(report, OUT_OF_RANGE, offset, value, limit)
        if after < 0:
            report[ITEM] = index
            return after
        out[index] = value
        offset = after
    return offset


# The item of a forest whose reading failed (`report[FIELD]`).
(
    TREE_COUNT,
    SPLIT_COUNT,
    SPLIT_INDEX,
    SPLIT_THRESHOLD,
    LEAF_COUNT,
    LEAF_ROWS,
    LEAF_COLUMNS,
    LEAF_VALUE,
) = range(8)


@compiled
def _read_count(data, offset, end, item_bytes, report):
    """Read a vector's length; fail if the rest of the file is too short for its items."""
    count, after = _read_integer(data, offset, end, report)
    if after >= 0 and (count < 0 or count > (end - after) // item_bytes):
        after = _fail(report, BAD_COUNT, offset, count, (end - after) // item_bytes)
    return count, after


@compiled
def _read_splits(data, offset, end, count, first, idx1, idx2, thresholds, powers, highest, report):
    """Read one tree's splits; `highest` keeps the level's largest index and its offset."""
    for split in range(first, first + count):
        report[FIELD] = SPLIT_INDEX
        left, middle = _read_integer(data, offset, end, report)
        if middle < 0:
            return middle
        right, after = _read_integer(data, middle, end, report)
        if after < 0:
            return after
        if left < 0 or left > 0xFFFFFFFF:
            return _fail(report, OUT_OF_RANGE, offset, left, 1 << 32)
        if right < 0 or right > 0xFFFFFFFF:
            return _fail(report, OUT_OF_RANGE, middle, right, 1 << 32)
        if left > highest[0]:
            highest[0] = left
            highest[1] = offset
        if right > highest[0]:
            highest[0] = right
            highest[1] = middle
        idx1[split] = left
        idx2[split] = right
        report[FIELD] = SPLIT_THRESHOLD
        offset = read_float32(data, after, end, thresholds, split, 1, powers, report)
        if offset < 0:
            return offset
    return offset


@compiled
def _read_leaves(data, offset, end, count, first, coordinates, leaves, powers, report):
    """Read one tree's leaves, each a column matrix of `coordinates` floats."""
    for leaf in range(first, first + count):
        report[FIELD] = LEAF_ROWS
        rows, middle = _read_integer(data, offset, end, report)
        if middle < 0:
            return middle
        # dlib marks matrices by negative sizes, to tell them from an older coding.
        if rows != -coordinates:
            return _fail(report, WRONG_VALUE, offset, rows, -coordinates)
        report[FIELD] = LEAF_COLUMNS
        columns, after = _read_integer(data, middle, end, report)
        if after < 0:
            return after
        if columns != -1:
            return _fail(report, WRONG_VALUE, middle, columns, -1)
        report[FIELD] = LEAF_VALUE
        offset = read_float32(
            data, after, end, leaves, leaf * coordinates, coordinates, powers, report
        )
        if offset < 0:
            return offset
    return offset


@compiled
def read_forests(
    data,
    offset,
    end,
    coordinates,
    trees_per_level,
    highest_index,
    depths,
    idx1,
    idx2,
    thresholds,
    leaves,
    powers,
    report,
):
    """Read all cascade levels' trees into flat arrays.

    The arrays must be as long as `shape_predictor` computes from the remaining bytes: every
    count is checked against these bytes before its items are read, so no write passes the end
    of an array. Returns (next offset or -1, trees, splits, leaves).
    """
    leaf_bytes = 4 + 4 * coordinates
    tree_bytes = 4 + leaf_bytes
    tree = 0
    split = 0
    leaf = 0
    for level in range(trees_per_level.shape[0]):
        report[LEVEL] = level
        report[TREE] = -1
        report[FIELD] = TREE_COUNT
        tree_count, offset_after = _read_count(data, offset, end, tree_bytes, report)
        if offset_after >= 0 and tree_count == 0:
            offset_after = _fail(report, BAD_COUNT, offset, 0, (end - offset) // tree_bytes)
        if offset_after < 0:
            return offset_after, tree, split, leaf
        offset = offset_after
        trees_per_level[level] = tree_count
        for number in range(tree_count):
            report[TREE] = number
            report[FIELD] = SPLIT_COUNT
            split_count, after = _read_count(data, offset, end, 8 + leaf_bytes, report)
            if after < 0:
                return after, tree, split, leaf
            if (split_count + 1) & split_count:
                after = _fail(report, NOT_POWER_OF_TWO, offset, split_count, 0)
                return after, tree, split, leaf
            if split_count * (8 + leaf_bytes) + leaf_bytes > end - after:
                after = _fail(
                    report, BAD_COUNT, offset, split_count, (end - after) // (8 + leaf_bytes)
                )
                return after, tree, split, leaf
            after = _read_splits(
                data,
                after,
                end,
                split_count,
                split,
                idx1,
                idx2,
                thresholds,
                powers,
                highest_index[level],
                report,
            )
            if after < 0:
                return after, tree, split, leaf
            offset = after
            report[FIELD] = LEAF_COUNT
            leaf_count, after = _read_count(data, offset, end, leaf_bytes, report)
            if after >= 0 and leaf_count != split_count + 1:
                after = _fail(report, WRONG_VALUE, offset, leaf_count, split_count + 1)
            if after < 0:
                return after, tree, split, leaf
            offset = _read_leaves(
                data, after, end, leaf_count, leaf, coordinates, leaves, powers, report
            )
            if offset < 0:
                return offset, tree, split, leaf
            depth = 0
            while (1 << depth) < leaf_count:
                depth += 1
            depths[tree] = depth
            tree += 1
            split += split_count
            leaf += leaf_count
    return offset, tree, split, leaf


@compiled
def _write_integer(out, offset, value):
    """Write an integer in the fewest bytes; at most nine are touched."""
    negative = value < 0
    magnitude = np.uint64(-value if negative else value)
    size = 1
    rest = magnitude >> np.uint64(8)
    while rest:
        size += 1
        rest >>= np.uint64(8)
    out[offset] = np.uint8(size | (0x80 if negative else 0))
    _store_word(out, offset + 1, magnitude)
    return offset + 1 + size


@compiled
def write_float32(out, offset, values, first, count, report):
    """Write floats given by their bits (uint32); return the next offset, or -1.

    A float takes at most six bytes; eight are touched.
    """
    for index in range(first, first + count):
        bits = values[index]
        field = np.int64((bits >> np.uint32(23)) & np.uint32(0xFF))
        mantissa = np.uint64(bits & np.uint32(0x7FFFFF))
        if field == 255:
            report[ITEM] = index
            return _fail(report, NOT_FINITE, offset, 0, 0)
        negative = np.uint64(bits >> np.uint32(31))
        if field:
            mantissa |= np.uint64(0x800000)
            exponent = field - 150
        elif mantissa:
            exponent = np.int64(-149)
            while mantissa < 0x800000:
                mantissa <<= np.uint64(1)
                exponent -= 1
        else:
            # dlib shifts zero eight times by eight bits and drops its sign.
            negative = np.uint64(0)
            exponent = np.int64(40)
        if mantissa:
            while (mantissa & np.uint64(0xFF)) == 0:
                mantissa >>= np.uint64(8)
                exponent += 8
        size = np.uint64(1) + np.uint64(mantissa > 0xFF) + np.uint64(mantissa > 0xFFFF)
        below = np.uint64(exponent < 0)
        word = size | (negative << np.uint64(7)) | (mantissa << np.uint64(8))
        tail = np.uint64(1) | (below << np.uint64(7)) | (np.uint64(abs(exponent)) << np.uint64(8))
        word |= tail << (np.uint64(8) * size + np.uint64(8))
        _store_word(out, offset, word)
        offset += np.int64(size) + 3
    return offset


@compiled
def write_float64(out, offset, values, report):
    """Write doubles; return the next offset, or -1. A double takes at most 11 bytes."""
    for index in range(values.shape[0]):
        value = values[index]
        if not math.isfinite(value):
            report[ITEM] = index
            return _fail(report, NOT_FINITE, offset, 0, 0)
        fraction, power = math.frexp(value)
        mantissa = np.int64(fraction * 9007199254740992.0)
        exponent = np.int64(power) - 53
        for _ in range(8):
            if mantissa & 0xFF:
                break
            mantissa >>= 8
            exponent += 8
        offset = _write_integer(out, offset, mantissa)
        offset = _write_integer(out, offset, exponent)
    return offset


@compiled
def write_indices(out, offset, values):
    """Write unsigned integers; return the next offset."""
    for index in range(values.shape[0]):
        offset = _write_integer(out, offset, np.int64(values[index]))
    return offset


@compiled
def write_trees(out, offset, coordinates, depths, idx1, idx2, thresholds, leaves, report):
    """Write the trees of one level (floats as uint32 bits); return the next offset, or -1."""
    split = 0
    leaf = 0
    for tree in range(depths.shape[0]):
        report[TREE] = tree
        leaf_count = 1 << np.int64(depths[tree])
        offset = _write_integer(out, offset, leaf_count - 1)
        report[FIELD] = SPLIT_THRESHOLD
        for node in range(split, split + leaf_count - 1):
            offset = _write_integer(out, offset, np.int64(idx1[node]))
            offset = _write_integer(out, offset, np.int64(idx2[node]))
            offset = write_float32(out, offset, thresholds, node, 1, report)
            if offset < 0:
                return offset
        split += leaf_count - 1
        report[FIELD] = LEAF_VALUE
        offset = _write_integer(out, offset, leaf_count)
        for _ in range(leaf_count):
            offset = _write_integer(out, offset, -coordinates)
            offset = _write_integer(out, offset, -1)
            offset = write_float32(out, offset, leaves, leaf * coordinates, coordinates, report)
            if offset < 0:
                return offset
            leaf += 1
    return offset
