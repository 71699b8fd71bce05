"""Persistent connections to services over mutual TLS, with retries and bounded answers."""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

import httpx

from site_agent.errors import ConflictError, FederationError, UntrustedServiceError
from site_agent.live.kits import Kit, service_name
from site_agent.pool import sent

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_TIMEOUT_S = 120.0
_SMALL_BYTES = 1 << 20
_OTHER_AUTHORITY = ("CERTIFICATE_VERIFY_FAILED", "UNKNOWN_CA")


class ServiceConnection:
    """A process's connection to one of the services.

    `service`: Its role. `patience_s`: How long to retry a service that does not answer.

    `sent_bytes`, `received_bytes`: Bodies of requests and answers.
    """

    def __init__(self, kit: Kit, service: str, *, patience_s: float = 120.0) -> None:
        self._kit, self._service, self._patience_s = kit, service, patience_s
        self._address = f"https://{kit.addresses[service]}"
        self._client = httpx.Client(
            verify=kit.client_context(), timeout=_TIMEOUT_S, trust_env=False
        )
        self.sent_bytes = self.received_bytes = 0
        self._training = ""

    def __enter__(self) -> "ServiceConnection":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()
        if self._training:
            sent.note_file(self._address, self._training, self.sent_bytes)

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

        Requests may be sent twice: services recognise repeated ones.

        Raises `ConflictError` if the service is in another state, which `code` names, and
        `FederationError` if it refuses the request, does not answer in time, or answers with too
        many bytes.
        """
        if body and self._kit.role == "site" and not self._training:
            # Messages are many: the ledger has one entry for all of this connection.
            self._training = secrets.token_hex(8)
            sent.note_request(
                self._address, sent.LIVE, f'{{"digest": "{self._training}"}}'.encode()
            )
        deadline_s, wait_s = time.monotonic() + self._patience_s, _FIRST_WAIT_S
        while True:
            try:
                return self._call_once(method, path, body, most_bytes)
            except httpx.TransportError as error:
                text = f"the {self._service} at {self._address} does not answer: {error}"
                if any(word in str(error) for word in _OTHER_AUTHORITY):
                    raise UntrustedServiceError(
                        text, hint="its certificate has expired, or is of another training"
                    ) from error
                if time.monotonic() > deadline_s:
                    raise FederationError(
                        text, hint="have it started; its address is in this kit"
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _call_once(self, method: str, path: str, body: bytes, most_bytes: int) -> bytes:
        request = self._client.build_request(method, f"{self._address}{path}", content=body)
        # The certificate names the service, whatever its address.
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
