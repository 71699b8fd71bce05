"""The part of the hub's API that its own client asks for when it stores and fetches a model."""

import base64
import hashlib
import json
import re
from collections import defaultdict
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pool_server.wire.cards import read_card


class HubStub:
    """Repositories in memory, with one commit each; a file over 1 kB goes by Git LFS."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.files: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.private: dict[str, bool] = {}
        self._stored: dict[str, bytes] = {}
        repo = "{owner}/{name}"
        self.app = Starlette(
            routes=[
                Route("/api/repos/create", self._create, methods=["POST"]),
                Route("/api/validate-yaml", self._validate, methods=["POST"]),
                Route(f"/api/models/{repo}/preupload/main", self._announce, methods=["POST"]),
                Route(f"/api/models/{repo}/commit/main", self._commit, methods=["POST"]),
                Route(f"/api/models/{repo}/tree/main", self._tree),
                Route(f"/api/models/{repo}", self._info),
                Route(f"/api/models/{repo}/revision/{{revision}}", self._info),
                Route(f"/api/models/{repo}/paths-info/{{revision}}", self._paths, methods=["POST"]),
                Route(f"/{repo}.git/info/lfs/objects/batch", self._batch, methods=["POST"]),
                Route("/lfs/{digest}", self._store, methods=["PUT"]),
                Route(f"/{repo}/resolve/{{revision}}/{{path:path}}", self._resolve),
            ]
        )

    def commit_of(self, repository: str) -> str:
        listed = sorted(self.files[repository].items())
        return hashlib.sha1(repr(listed).encode()).hexdigest()

    def _files(self, request: Request) -> dict[str, bytes] | None:
        name = "{owner}/{name}".format(**request.path_params)
        is_known = request.headers.get("authorization") == f"Bearer {self.token}"
        return self.files[name] if is_known and name in self.private else None

    async def _create(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return JSONResponse({"error": "no token"}, 401)
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        self.private[name] = asked.get("private", asked.get("visibility") == "private")
        return JSONResponse({"url": f"{request.base_url}{name}"})

    async def _validate(self, request: Request) -> Response:
        card = read_card((await request.json())["content"])
        bases = card.front_matter.get("base_model", [])
        wrong = [base for base in bases if not re.fullmatch(r"[\w.-]+/[\w.-]+", base)]
        problems = [{"message": f"base_model with value {base!r} is not valid"} for base in wrong]
        return JSONResponse({"errors": problems, "warnings": []}, 400 if problems else 200)

    async def _announce(self, request: Request) -> Response:
        files = (await request.json())["files"]
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["size"] > 1000 else "regular",
                "shouldIgnore": False,
            }
            for file in files
        ]
        return JSONResponse({"files": modes})

    async def _batch(self, request: Request) -> Response:
        objects = [
            {**file, "actions": {"upload": {"href": f"{request.base_url}lfs/{file['oid']}"}}}
            for file in (await request.json())["objects"]
        ]
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def _store(self, request: Request) -> Response:
        self._stored[request.path_params["digest"]] = await request.body()
        return Response()

    async def _commit(self, request: Request) -> Response:
        files = self._files(request)
        assert files is not None
        for line in (await request.body()).splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self._stored[value["oid"]]
            elif entry["key"] == "deletedFile":
                files.pop(value["path"])
        name = "{owner}/{name}".format(**request.path_params)
        commit = self.commit_of(name)
        place = f"{request.base_url}{name}/commit/{commit}"
        return JSONResponse({"commitUrl": place, "commitOid": commit})

    async def _tree(self, request: Request) -> Response:
        files = self._files(request) or {}
        return JSONResponse([self._entry(path, content) for path, content in files.items()])

    async def _info(self, request: Request) -> Response:
        if self._files(request) is None:
            return JSONResponse({"error": "no repository"}, 404)
        name = "{owner}/{name}".format(**request.path_params)
        return JSONResponse({"id": name, "sha": self.commit_of(name), "siblings": []})

    async def _paths(self, request: Request) -> Response:
        files = self._files(request) or {}
        paths = parse_qs((await request.body()).decode())["paths"]
        return JSONResponse([self._entry(path, files[path]) for path in paths if path in files])

    def _entry(self, path: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": path, "size": len(content), "oid": digest}

    async def _resolve(self, request: Request) -> Response:
        files = self._files(request) or {}
        content = files.get(request.path_params["path"])
        if content is None:
            return Response(status_code=404, headers={"X-Error-Code": "EntryNotFound"})
        digest = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": request.path_params["revision"]}
        return Response(content, headers=headers)
