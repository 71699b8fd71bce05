"""Replies to single sites, of methods that make something else for each (FedPAC).

The state of a round holds them, beside the prototypes that all sites get:

======================  ================================================================
entry of the state      content
======================  ================================================================
``prototypes``          F32, (classes, features): mean features of the sites' samples; zeros
                        for classes that no site has told of
``known``               U8, (classes,): 1 for the others
``reply/DIGEST/NAME``   entry NAME of the last layer, for the site whose contribution has
                        this SHA-256; as in the network: type and shape
======================  ================================================================

A site gets its reply only, as a file of its own, which is marked as one that stays there:

======================  ================================================================
entry of a reply        content
======================  ================================================================
metadata ``format``     ``poolctl-site-reply``
metadata ``version``    ``1``
``prototypes, known``   as in the state
``head/NAME``           entry NAME of the last layer
======================  ================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import dlib_stream, registry, safetensors_file
from aggregators.methods.networks.class_statistics import LARGEST_FEATURE, MOST_CLASSES
from aggregators.methods.networks.updates import head_entries, require_same_entries
from aggregators.models import Float32, OptimiserState, StateDict, TensorInfo

REPLY = "poolctl-site-reply"

_VERSION = "1"
_COMMON = ("prototypes", "known")
_HEAD = "head/"


@dataclass(frozen=True, eq=False)
class Reply:
    """What a site gets after a round.

    Attributes
    ----------
    head : mapping of str to array
        The entries of its last layer.
    prototypes : float32, shape (classes, features)
        NaN for classes that no site has told of.
    """

    head: Mapping[str, NDArray[Any]]
    prototypes: Float32


def reply_prefix(contribution: str) -> str:
    """Return how the state calls the entries for the site with this contribution (SHA-256)."""
    return f"reply/{contribution}/"


def encode_reply(state: OptimiserState, contribution: str) -> bytes | None:
    """Return the file for the site with this contribution (SHA-256), or None if it had no part."""
    found, own = state.moments, reply_prefix(contribution)
    names = {name: _HEAD + name.removeprefix(own) for name in found.infos if name.startswith(own)}
    if not names:
        return None
    names |= {name: name for name in _COMMON}
    return bytes(
        registry.encode_model(
            StateDict(
                {short: found.tensors[name] for name, short in names.items()},
                {short: found.infos[name] for name, short in names.items()},
                {"format": REPLY, "version": _VERSION, **safetensors_file.SITE_ONLY},
            )
        )
    )


def decode_reply(data: dlib_stream.Buffer, infos: Mapping[str, TensorInfo]) -> Reply:
    """Read a reply to a contribution to a network; whoever combined the round may lie.

    Parameters
    ----------
    infos : mapping of str to TensorInfo
        The entries of the network.
    """
    found = safetensors_file.TensorsFormat().decode(data)
    safetensors_file.require_metadata(found.metadata, "format", REPLY)
    safetensors_file.require_metadata(found.metadata, "version", _VERSION)
    head = head_entries(infos)
    features = infos[head[0]].shape[1]
    classes = (*found.infos.get("known", TensorInfo("", ())).shape, 0)[0]
    wanted = {_HEAD + name: infos[name] for name in head} | {
        "prototypes": TensorInfo("F32", (classes, features)),
        "known": TensorInfo("U8", (classes,)),
    }
    require_same_entries("a reply", wanted, "this one", found.infos)
    if not 1 <= classes <= MOST_CLASSES:
        raise safetensors_file.header_error(
            "prototypes", f"{classes} classes", f"1 to {MOST_CLASSES}"
        )
    arrays = {name: np.array(found.tensors[name]) for name in wanted}
    for name, values in arrays.items():
        numbers = values.astype(np.float64)
        if not np.isfinite(numbers).all() or np.abs(numbers).max(initial=0) > LARGEST_FEATURE:
            raise safetensors_file.header_error(
                name, "numbers out of range", f"finite ones of at most {LARGEST_FEATURE:g}"
            )
    prototypes = arrays["prototypes"]
    prototypes[arrays["known"] == 0] = np.nan
    return Reply({name: arrays[_HEAD + name] for name in head}, prototypes)
