"""Model file formats, one per module. Importing this package does not load numba."""

from aggregators.formats.contract import ModelFormat
from aggregators.formats.fingerprints import fingerprint
from aggregators.formats.registry import (
    FORMATS,
    NETWORK_FORMATS,
    decode_model,
    default_format,
    encode_model,
    file_digest,
    read_model,
    recognise,
    write_model,
)

__all__ = [
    "FORMATS",
    "NETWORK_FORMATS",
    "ModelFormat",
    "decode_model",
    "default_format",
    "encode_model",
    "file_digest",
    "fingerprint",
    "read_model",
    "recognise",
    "write_model",
]
