"""Releases as OCI artifacts in registries.

The manifest and its media types are those of the CNCF ModelPack, so that its tools, `oras` and
`skopeo` copy them. Each file of a release is a layer. Credentials are those that ``docker login``
and ``podman login`` left in a file; helpers that keep them elsewhere are not asked.

Sources: OCI image and distribution specifications 1.1; CNCF ModelPack specification
(https://github.com/modelpack/model-spec); Docker's token authentication.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, Field, ValidationError

from aggregators.errors import first_problem
from aggregators.whole_file import whole_file
from pool_server.wire.signatures.statements import canonical_json
from site_agent import errors
from site_agent.errors import InvalidInputError, ReleaseRefusedError
from site_agent.pool.profiles import is_this_machine
from site_agent.releases.release import CARD, MOST_TEXT_BYTES, Release
from site_agent.work.files import chunks

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_MODEL = "application/vnd.cncf.model"
_TITLE = "org.opencontainers.image.title"
_REFERENCE = re.compile(
    r"(?P<host>[\w.-]+(?::\d+)?)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class _Descriptor(BaseModel):
    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    annotations: dict[str, str] = Field(default_factory=dict)


class _Manifest(BaseModel):
    layers: list[_Descriptor] = Field(max_length=100)


def answer_error(host: str, status: int, reason: str, login: str) -> errors.PoolClientError:
    """Return the error for a status; `login` is the command by which one logs in at the host."""
    message = f"{host} answers {status} {reason}".rstrip()
    if status in (401, 403):
        hint = f"log in with an account that may do this: {login}"
        return errors.ForbiddenError(message, hint=hint)
    if status == 404:
        hint = "check the name; what you may not see is hidden, too"
        return errors.NotFoundError(message, hint=hint)
    if status >= 500 or status == 429:
        return errors.PoolUnreachableError(message)
    return errors.PoolAnswerError(message, hint="is this the address of a hub or registry?")


@contextmanager
def _reaching(host: str) -> Iterator[None]:
    """Raise `PoolUnreachableError` if a host does not answer."""
    try:
        yield
    except httpx.TransportError as error:
        raise errors.PoolUnreachableError(f"{host}: no answer: {error}") from error


class Registry:
    """One reference in a registry: HOST/NAME[:TAG][@sha256:DIGEST]."""

    def __init__(self, client: httpx.Client, match: re.Match[str]) -> None:
        self._client, self._host = client, match["host"]
        scheme = "http" if is_this_machine(f"//{self._host}") else "https"
        self._base = f"{scheme}://{self._host}/v2/{match['name']}"
        self._digest = match["digest"]
        self._reference = self._digest or match["tag"] or "latest"

    def push(self, release: Release) -> str:
        """Store a release, and return the digest of its manifest."""
        record, layers = release.record, []
        for name, file in release.files.items():
            kind = {record.file_name: "weight", CARD: "doc"}.get(name, "weight.config")
            with (release.folder / name).open("rb") as content:
                self._write_blob(
                    f"sha256:{file.digest}", file.size_bytes, chunks(content, 0, file.size_bytes)
                )
            annotations = {_TITLE: name, "org.cncf.model.filepath": name}
            layer = _describe(f"{_MODEL}.{kind}.v1.raw", file.digest, file.size_bytes)
            layers.append(layer | {"annotations": annotations})
        config = canonical_json(
            {
                "descriptor": {
                    "createdAt": record.created_at.isoformat(timespec="seconds"),
                    "name": f"{record.site}/{record.name}",
                    "version": str(record.version),
                },
                "modelfs": {"type": "layers", "diffIds": [layer["digest"] for layer in layers]},
                "config": {"format": Path(record.file_name).suffix.lstrip(".") or record.kind},
            }
        )
        digest = hashlib.sha256(config).hexdigest()
        self._write_blob(f"sha256:{digest}", len(config), [config])
        manifest = canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "artifactType": f"{_MODEL}.manifest.v1+json",
                "config": _describe(f"{_MODEL}.config.v1+json", digest, len(config)),
                "layers": layers,
                "annotations": {_TITLE: f"{record.site}/{record.name}"},
            }
        )
        named = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        self._write_manifest(manifest, named)
        return named

    def pull(self, name: str, target: Path, most_bytes: int) -> None:
        """Write the file of this name to a path, and compare it with the digest of its layer."""
        layers = [layer for layer in self._layers() if layer.annotations.get(_TITLE) == name]
        if len(layers) != 1 or layers[0].size > most_bytes:
            raise ReleaseRefusedError(
                f"{name}: found {len(layers)} layers of this title, expected one of at most "
                f"{most_bytes:,} bytes",
                hint="poolctl models export stores them so",
            )
        hasher, left = hashlib.sha256(), layers[0].size
        with whole_file(target) as file:
            for chunk in self._read_blob(layers[0].digest):
                left -= len(chunk)
                hasher.update(chunk)
                if left < 0:
                    break
                file.write(chunk)
            if left or f"sha256:{hasher.hexdigest()}" != layers[0].digest:
                raise ReleaseRefusedError(
                    f"{name}: has other bytes than its digest {layers[0].digest[:23]}... says: it "
                    "was damaged or changed on its way"
                )

    def _layers(self) -> list[_Descriptor]:
        try:
            return _Manifest.model_validate_json(self._read_manifest()).layers
        except ValidationError as error:
            raise ReleaseRefusedError(f"the manifest: {first_problem(error)}") from error

    def _write_blob(self, digest: str, size_bytes: int, content: Iterable[bytes]) -> None:
        if self._send("HEAD", f"/blobs/{digest}", allow_missing=True).is_success:
            return
        begun = self._send("POST", "/blobs/uploads/")
        where = begun.url.join(begun.headers.get("Location", "")).copy_merge_params(
            {"digest": digest}
        )
        length = {"Content-Length": str(size_bytes), "Content-Type": "application/octet-stream"}
        self._send("PUT", str(where), content=content, headers=length)

    def _write_manifest(self, content: bytes, digest: str) -> None:
        if self._digest and self._digest != digest:
            raise InvalidInputError(f"@{self._digest}: the export has the digest {digest}")
        place = f"/manifests/{self._reference}"
        self._send("PUT", place, content=content, headers={"Content-Type": _MANIFEST})

    def _read_manifest(self) -> bytes:
        answer = self._send("GET", f"/manifests/{self._reference}", headers={"Accept": _MANIFEST})
        return _require_digest(answer.content, self._digest)

    def _read_blob(self, digest: str) -> Iterator[bytes]:
        with (
            _reaching(self._host),
            self._client.stream("GET", f"{self._base}/blobs/{digest}") as answer,
        ):
            self._require(answer)
            yield from answer.iter_bytes()

    def _send(
        self, method: str, place: str, *, allow_missing: bool = False, **parts: Any
    ) -> httpx.Response:
        url = place if place.startswith("http") else self._base + place
        with _reaching(self._host):
            answer = self._client.request(method, url, **parts)
        if not (allow_missing and answer.status_code == 404):
            self._require(answer)
        return answer

    def _require(self, answer: httpx.Response) -> None:
        if answer.is_error:
            raise answer_error(
                self._host, answer.status_code, answer.reason_phrase, f"docker login {self._host}"
            )


def _describe(media_type: str, digest: str, size_bytes: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size_bytes}


@contextmanager
def open_registry(reference: str) -> Iterator[Registry]:
    """Open a reference; http is for this machine only."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise InvalidInputError(
            f"{reference}: expected HOST/NAME[:TAG], for example registry.example.org/lab/eyes:1"
        )
    timeout = httpx.Timeout(60.0, connect=10.0)
    with httpx.Client(auth=_Login(match["host"]), timeout=timeout, follow_redirects=True) as client:
        yield Registry(client, match)


class _Login(httpx.Auth):
    """Answers a registry's question for a login, by password or by a token for one scope."""

    requires_response_body = True

    def __init__(self, host: str) -> None:
        self._basic = _stored_login(host)
        self._header = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if self._header:
            request.headers["Authorization"] = self._header
        answer = yield request
        if answer.status_code != 401:
            return
        scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if scheme.lower() == "bearer" and "realm" in asked:
            realm = httpx.URL(asked.pop("realm"))
            if request.url.scheme == "https" and realm.scheme != "https":
                return
            login = {"Authorization": f"Basic {self._basic}"} if self._basic else {}
            token = yield httpx.Request("GET", realm.copy_merge_params(asked), headers=login)
            if token.is_error:
                return
            answered = token.json()
            self._header = f"Bearer {answered.get('token') or answered.get('access_token')}"
        elif self._basic:
            self._header = f"Basic {self._basic}"
        else:
            return
        request.headers["Authorization"] = self._header
        yield request


def _stored_login(host: str) -> str:
    """Return user and password as a registry wants them; empty without a login."""
    docker = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker", "config.json")
    for path in (Path(os.environ.get("REGISTRY_AUTH_FILE") or docker), docker):
        try:
            stored = json.loads(path.read_bytes())["auths"][host]["auth"]
            base64.b64decode(stored, validate=True)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return str(stored)
    return ""


def _require_digest(content: bytes, digest: str | None) -> bytes:
    actual = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if len(content) > MOST_TEXT_BYTES or digest not in (None, actual):
        raise ReleaseRefusedError(f"the manifest has the digest {actual}, expected {digest}")
    return content
