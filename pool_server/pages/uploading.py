"""Uploads from a browser: a file is announced, sent in parts, and completed.

The script of the page sends the same requests as a program, with the cookie in place of the
token. Choosing the same file again resumes an interrupted upload, because the pool identifies
uploads by digest.
"""

from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.responses import JSONResponse, Response

from pool_server.database.records import now_utc
from pool_server.errors import PoolError, RefusedError
from pool_server.http.session import Parts, ReadingSession
from pool_server.pages import describing, pool_api, showing, words
from pool_server.pages.signing import has_key
from pool_server.pages.visitor import Anyone
from pool_server.registry.repository import find_anywhere
from pool_server.wire.errors import ErrorBody
from pool_server.wire.labels import VocabularyResponse
from pool_server.wire.models import VISIBILITIES
from pool_server.wire.names import DIGEST_PATTERN

router = showing.page_router()
UploadId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Digest = Annotated[str, Query(pattern=DIGEST_PATTERN)]
MOST_BROWSER_BYTES = 1 << 30
"""Larger files are sent by the command, which goes on by itself after a break."""
_LABEL = "label-"


@router.get("/upload")
async def upload_page(visitor: Anyone, parts: Parts) -> Response:
    """Show the form; where a browser cannot upload, the command instead."""
    visitor.member.require_upload_to(visitor.member.site)
    vocabulary = await visitor.api.get(VocabularyResponse, "/vocabulary")
    settings = parts.settings
    return await showing.show(
        visitor,
        "upload.html",
        labels=[label for label in vocabulary.labels if label.type == "choice"],
        other_labels=[label for label in vocabulary.labels if label.type != "choice"],
        terms=vocabulary.terms,
        visibilities=VISIBILITIES,
        usual_visibility=settings.default_visibility,
        must_sign=settings.require_signatures,
        form=showing.EMPTY_FORM,
        signs=await has_key(visitor.api, visitor.member.site),
        most_bytes=min(MOST_BROWSER_BYTES, settings.max_model_bytes),
    )


@router.get("/uploads/known")
async def find_known(visitor: Anyone, session: ReadingSession, digest: Digest) -> JSONResponse:
    """Return the oldest visible version of a file, in words; null if there is none."""
    known = find_anywhere(session, visitor.member, digest)
    if known is None:
        return JSONResponse(None)
    model = f"{known.model.site.name}/{known.model.name}"
    ago = words.duration((now_utc() - known.created_at).total_seconds())
    text = f"version {known.number} of {model}, from {known.created_by}, {ago} ago"
    return JSONResponse({"model": model, "address": f"{model}@{known.number}", "text": text})


@router.post("/uploads")
async def announce(request: Request, visitor: Anyone) -> Response:
    """Announce the file of the form, and return the upload as the API describes it."""
    form = await showing.read_form(request)
    try:
        body = _upload_request(form, visitor.member.site)
        # The browser has no key; readers that know the site's key refuse what is not signed.
        body["draft"] = body["draft"] or await has_key(visitor.api, visitor.member.site)
        answer = await visitor.api.send("POST", "/uploads", body)
    except (pool_api.RefusedByApiError, RefusedError) as error:
        return _refuse(form, error)
    return Response(answer, media_type="application/json")


def _refuse(form: showing.Form, error: pool_api.RefusedByApiError | PoolError) -> Response:
    """Return the refusal for the page's script: each problem with the field that it belongs to."""
    state = showing.refused_form(form, error)
    fields = [{"where": name, "problem": problem} for name, problem in state.errors.items()]
    code = error.code if isinstance(error, PoolError) else error.body.code
    body = ErrorBody(code=code, message=state.message, hint=state.hint, details={"fields": fields})
    return JSONResponse({"error": body.model_dump()}, status_code=error.status)


def _upload_request(form: showing.Form, site: str) -> dict[str, Any]:
    labels = {
        name.removeprefix(_LABEL): value
        for name, value in form.kept().items()
        if name.startswith(_LABEL) and value
    }
    body: dict[str, Any] = {
        "site": site,
        "name": form["name"].removeprefix(f"{site}/"),
        "file_name": form["file_name"],
        "size_bytes": form["size_bytes"],
        "digest": form["digest"],
        "description": form["description"],
        "labels": labels | describing.read_lines(form["labels"], "label", str),
        "metrics": describing.read_lines(form["metrics"], "metric", float),
        "terms": [
            {"code": code, "detail": form[f"detail-{code}"]}
            if form[f"detail-{code}"]
            else {"code": code}
            for code in form.all("term")
        ],
        "card": form["card"].replace("\r\n", "\n"),
        "draft": form.has("draft"),
    }
    if form["visibility"]:
        body["visibility"] = form["visibility"]
    return body


@router.put("/uploads/{upload_id}/parts/{number}")
async def send_part(visitor: Anyone, upload_id: UploadId, number: int) -> Response:
    """Pass one part on to the API as it comes."""
    return visitor.api.pass_on("PUT", f"/uploads/{upload_id}/parts/{number}")


@router.post("/uploads/{upload_id}/complete")
async def complete(visitor: Anyone, upload_id: UploadId) -> Response:
    """Have the file checked; the answer comes when it is a version, or is refused."""
    try:
        answer = await visitor.api.send("POST", f"/uploads/{upload_id}/complete")
    except pool_api.RefusedByApiError as refusal:
        return _refuse(showing.Form({}), refusal)
    return Response(answer, media_type="application/json")
