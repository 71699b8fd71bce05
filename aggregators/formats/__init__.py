"""Model file formats, one per module. Importing this package does not load numba."""

from aggregators.formats.contract import ModelFormat
from aggregators.formats.fingerprints import Fingerprint, fingerprint, model_kind
from aggregators.formats.registry import (
    DEFAULT_MAX_BYTES,
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
    "DEFAULT_MAX_BYTES",
    "FORMATS",
    "NETWORK_FORMATS",
    "Fingerprint",
    "ModelFormat",
    "decode_model",
    "default_format",
    "encode_model",
    "file_digest",
    "fingerprint",
    "model_kind",
    "read_model",
    "recognise",
    "write_model",
]
