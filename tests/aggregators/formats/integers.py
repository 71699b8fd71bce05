"""dlib's integers one by one, in plain Python: how tests take files apart and craft others."""


def split_integers(data: bytes) -> list[tuple[int, int]]:
    """Return (offset, value) of each integer; dlib's model files consist of nothing else."""
    integers, offset = [], 0
    while offset < len(data):
        size = data[offset] & 0x0F
        value = int.from_bytes(data[offset + 1 : offset + 1 + size], "little")
        integers.append((offset, -value if data[offset] & 0x80 else value))
        offset += 1 + size
    return integers


def write_integer(value: int, size: int | None = None) -> bytes:
    """Return an integer's bytes, as few as possible or as many as asked for."""
    size = size or max(1, (abs(value).bit_length() + 7) // 8)
    return bytes([size | (0x80 if value < 0 else 0)]) + abs(value).to_bytes(size, "little")
