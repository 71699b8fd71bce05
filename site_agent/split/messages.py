"""Messages: calls over mutual TLS, with bodies of entries and shapes that the session determines.

Connections are kept, answers bounded, and calls tried again. A body is a safetensors file:

==============  =============================================================================
message         entries, all F32; n samples
==============  =============================================================================
step            ``smashed`` (n, ...), ``head`` (n, 2), ``gaze`` (n, 2)
its answer      ``gradient`` (n, ...), ``loss`` (n,), each the mean of the step
forward         ``smashed`` (n, ...); the answer ``features`` (n, ...)
backward        ``gradient`` (n, ...); the answer ``gradient`` (n, ...)
smashed         ``smashed``, ``head``, ``gaze`` as in a step, for images sent once
predict         ``smashed`` (n, ...), ``head`` (n, 2) without a tail; the answer ``found``
==============  =============================================================================

A receiver does not trust a body: it reads no more than the largest size of the message, and every
number must be finite.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from aggregators import errors, formats, models
from aggregators.formats.safetensors_file import parse_safetensors
from site_agent.errors import ConflictError, FederationError, InvalidInputError
from site_agent.split.kits import Kit, service_name
from site_agent.split.plan import SplitPlan

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_TIMEOUT_S = 120.0
_SMALL_BYTES = 1 << 20


class ServiceConnection:
    """A process's connection to one of the services.

    `service`: ``server`` or ``aggregator``. `patience_s`: For so long a service that does not
    answer is called again.

    `sent_bytes`, `received_bytes`: Bodies of requests and answers.
    """

    def __init__(self, kit: Kit, service: str, *, patience_s: float = 120.0) -> None:
        self._kit, self._service, self._patience_s = kit, service, patience_s
        self._address = f"https://{kit.addresses[service]}"
        headers = {"Authorization": f"Bearer {kit.token(service)}"} if kit.role == "site" else {}
        self._client = httpx.Client(
            verify=kit.client_context(), timeout=_TIMEOUT_S, headers=headers, trust_env=False
        )
        self.sent_bytes = self.received_bytes = 0

    def __enter__(self) -> "ServiceConnection":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get_json(self, path: str) -> dict[str, Any]:
        """Return the object at a path; raises as `call`."""
        return self._object(self.call("GET", path))

    def post_json(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Send an object, and return the answer; raises as `call`."""
        return self._object(self.call("POST", path, json.dumps(dict(content)).encode()))

    def call(
        self, method: str, path: str, body: bytes = b"", *, most_bytes: int = _SMALL_BYTES
    ) -> bytes:
        """Send a request until it is answered, and return the answer's body.

        All requests may be sent twice: services know them again.

        Raises `ConflictError` if the service is at another place: `code` says which, and
        `FederationError`: the service refuses the request, does not answer in time, or answers with
        too much.
        """
        deadline_s, wait_s = time.monotonic() + self._patience_s, _FIRST_WAIT_S
        while True:
            try:
                return self._call_once(method, path, body, most_bytes)
            except httpx.TransportError as error:
                if time.monotonic() > deadline_s:
                    raise FederationError(
                        f"the {self._service} at {self._address} does not answer: {error}",
                        hint="start it, or have the kits made again if its certificate has expired",
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _call_once(self, method: str, path: str, body: bytes, most_bytes: int) -> bytes:
        request = self._client.build_request(method, f"{self._address}{path}", content=body)
        # Whatever the address, the certificate has to be that of this service.
        request.extensions["sni_hostname"] = service_name(self._service)
        answer = self._client.send(request, stream=True)
        try:
            content = bytearray()
            for chunk in answer.iter_raw():
                content += chunk
                if len(content) > most_bytes:
                    raise FederationError(
                        f"the {self._service} answers {path} with more than {most_bytes} bytes"
                    )
        finally:
            answer.close()
        self.sent_bytes += len(body)
        self.received_bytes += len(content)
        if answer.status_code == httpx.codes.OK:
            return bytes(content)
        raise self._refusal(answer.status_code, bytes(content), path)

    def _refusal(self, status: int, content: bytes, path: str) -> Exception:
        try:
            facts = json.loads(content)
            code, message = str(facts["code"]), str(facts["message"])
        except (ValueError, KeyError, TypeError):
            code, message = "", f"status {status}"
        text = f"the {self._service} refuses {path}: {message}"
        if status == httpx.codes.CONFLICT:
            return ConflictError(text, code=code)
        return FederationError(text)

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            content_read = json.loads(content)
        except ValueError:
            content_read = None
        if not isinstance(content_read, dict):
            raise FederationError(f"the {self._service} answered with something else than JSON")
        return content_read


HEADER_BYTES = 4096
"""More than the header of any message takes."""

ROWS_AT_ONCE = 64
"""Samples in a message that is no step."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class BodyShape:
    """The shape of a message's body."""

    entries: Shapes
    """Shape of each entry for one sample."""
    most_rows: int
    """The largest number of samples."""
    fewest_rows: int = 1
    """0 in steps of DP-SGD, which draw each sample by chance."""

    @property
    def most_bytes(self) -> int:
        """The largest size of a body."""
        return HEADER_BYTES + 4 * self.most_rows * sum(
            math.prod(shape) for shape in self.entries.values()
        )


def body_shapes(plan: SplitPlan) -> dict[str, BodyShape]:
    """Return the form of each message that the main server takes, by its name."""
    from site_agent.split.parts import size_of

    size = size_of(plan.found_cut)
    angles = {"head": (2,), "gaze": (2,)}
    rows, fewest = most_rows(plan), 0 if plan.is_private else 1
    smashed = {"smashed": size.smashed}
    predict = smashed if plan.found_cut.tail else {**smashed, "head": (2,)}
    return {
        "step": BodyShape({**smashed, **angles}, rows, fewest),
        "forward": BodyShape(smashed, rows, fewest),
        "backward": BodyShape({"gradient": size.returned}, rows, fewest),
        "smashed": BodyShape({**smashed, **angles}, ROWS_AT_ONCE),
        "predict": BodyShape(predict, ROWS_AT_ONCE),
    }


def answer_shapes(plan: SplitPlan) -> dict[str, BodyShape]:
    """Return the form of each answer that a client takes, by the name of its message."""
    from site_agent.split.parts import size_of

    size = size_of(plan.found_cut)
    rows, fewest = most_rows(plan), 0 if plan.is_private else 1
    width = size.returned if plan.found_cut.tail else (2,)
    return {
        "step": BodyShape({"gradient": size.smashed, "loss": ()}, rows, fewest),
        "forward": BodyShape({"features": size.returned}, rows, fewest),
        "backward": BodyShape({"gradient": size.smashed}, rows, fewest),
        "predict": BodyShape({"found": width}, ROWS_AT_ONCE),
    }


def most_rows(plan: SplitPlan) -> int:
    """Return the largest number of samples in a step."""
    size = plan.training.batch_size
    if not plan.is_private:
        # A last batch of one sample joins the batch before.
        return size + 1
    # Each sample is drawn by chance: beyond this, less often than once in 1e20 steps.
    return size + 10 * math.isqrt(size) + 20


def encode_arrays(arrays: Mapping[str, models.Float32]) -> bytes:
    """Return arrays as a body."""
    tensors = {name: np.ascontiguousarray(values, np.float32) for name, values in arrays.items()}
    infos = {name: models.TensorInfo("F32", values.shape) for name, values in tensors.items()}
    return formats.encode_model(models.StateDict(tensors, infos), "safetensors")


def decode_arrays(body: bytes, shape: BodyShape) -> dict[str, models.Float32]:
    """Return the arrays of a body, by name; all have the same number of rows.

    Raises `InvalidInputError`: another entry, type or shape than expected, no rows or too many, or
    numbers that are not finite.
    """
    try:
        contents = parse_safetensors(body)
    except errors.FormatError as error:
        raise InvalidInputError(f"the body is no safetensors: {error}") from error
    if set(contents.entries) != set(shape.entries):
        raise InvalidInputError(
            f"found entries {', '.join(sorted(contents.entries)) or 'none'}, expected "
            f"{', '.join(sorted(shape.entries))}"
        )
    counts = {entry.info.shape[:1] for entry in contents.entries.values()}
    rows = next(iter(counts))[0] if len(counts) == 1 and () not in counts else -1
    if not shape.fewest_rows <= rows <= shape.most_rows:
        raise InvalidInputError(
            f"found {max(0, rows)} samples, expected {shape.fewest_rows} to {shape.most_rows}, "
            "the same number in each entry"
        )
    arrays: dict[str, models.Float32] = {}
    for name, entry in contents.entries.items():
        expected = (rows, *shape.entries[name])
        if entry.info.dtype != "F32" or tuple(entry.info.shape) != expected:
            raise InvalidInputError(
                f"entry {name}: found {entry.info.dtype} {list(entry.info.shape)}, expected F32 "
                f"{list(expected)}"
            )
        values = np.array(contents.array(name), dtype=np.float32)
        if not np.isfinite(values).all():
            raise InvalidInputError(f"entry {name}: found infinities or NaN")
        arrays[name] = values
    return arrays
