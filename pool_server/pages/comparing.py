"""Two to six models side by side: their fit, their differences and their merge."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.pages import matrix, showing, words
from pool_server.pages.pool_api import PoolApi, RefusedByApiError
from pool_server.pages.signing import has_key
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.evaluations import HEADLINES, EvaluationMatrix, MatrixRow
from pool_server.wire.merges import MOST_COMPARED, FitResponse, MergeJobResponse
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress

router = showing.page_router()
_BUILD = ("format", "parts", "levels", "members", "window_width_px", "window_height_px",
          "cell_size_px", "detectors", "architecture", "parameters")  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One property, with its value for each of the models."""

    title: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@router.get("/compare")
async def compare(visitor: Anyone, everything: bool = False) -> Response:
    """Show the differences between models, and the form that merges them."""
    return await _show(visitor, showing.EMPTY_FORM, everything=everything)


async def _show(
    visitor: Visitor,
    form: showing.FormState,
    *,
    everything: bool = False,
    models: Sequence[str] = (),
) -> Response:
    api = visitor.api
    chosen = list(models) or visitor.request.query_params.getlist("model")
    addresses = [_parse(text) for text in dict.fromkeys(filter(None, chosen))]
    if len(addresses) > MOST_COMPARED:
        raise RefusedError(
            f"{len(addresses)} models were chosen, expected 2 to {MOST_COMPARED}",
            hint="Go back, and tick fewer.",
        )
    fit = FitResponse(methods=[])
    if addresses:
        fit = await _fit(api, addresses)
    versions = fit.versions
    names = [words.short(version.address) for version in versions]
    facts = _facts(versions)
    return await showing.show(
        visitor,
        "compare.html",
        versions=versions,
        names=names,
        fit=fit,
        facts={
            title: [fact for fact in group if everything or fact.differs]
            for title, group in facts.items()
        },
        equal=sum(not fact.differs for group in facts.values() for fact in group),
        everything=everything,
        here="/compare?" + urlencode([("model", name) for name in names]),
        matrix=await _measured(api, versions),
        terms=list(dict.fromkeys(term for version in versions for term in _terms(version))),
        signs=await has_key(api, visitor.member.site),
        form=form,
    )


async def _fit(api: PoolApi, addresses: Sequence[ModelAddress]) -> FitResponse:
    return await api.get(FitResponse, "/merges/fit", model=[str(address) for address in addresses])


def _parse(text: str) -> ModelAddress:
    try:
        return ModelAddress.parse(text)
    except ValueError as error:
        raise RefusedError(str(error), hint="Tick the models on the page `/models`.") from None


def _facts(versions: Sequence[ModelVersionResponse]) -> dict[str, list[Fact]]:
    def fact(title: str, values: list[object]) -> Fact:
        return Fact(title, ["not said" if value in (None, "") else str(value) for value in values])

    labels = dict.fromkeys(key for version in versions for key in version.labels)
    built = [key for key in _BUILD if any(key in version.fingerprint for version in versions)]
    return {
        "Trained on": [
            fact(words.label(key), [version.labels.get(key) for version in versions])
            for key in labels
        ],
        "Built": [
            fact("Kind", [words.kind(version.kind) for version in versions]),
            *(
                fact(key.replace("_", " "), [version.fingerprint.get(key) for version in versions])
                for key in built
            ),
        ],
        "Terms and origin": [
            fact("Terms of use", [", ".join(_terms(version)) for version in versions]),
            fact("Site", [version.site for version in versions]),
            fact("By", [version.created_by for version in versions]),
            fact("State", [version.state for version in versions]),
        ],
    }


def _terms(version: ModelVersionResponse) -> list[str]:
    return [f"{term.label or term.code} {term.detail}".strip() for term in version.terms]


async def _measured(api: PoolApi, versions: Sequence[ModelVersionResponse]) -> matrix.Matrix | None:
    if not versions:
        return None
    score = HEADLINES.get(versions[0].kind, "mean_error")
    scores = await find_scores(api, score, [version.address for version in versions])
    rows = [
        scores.get(version.address)
        or matrix.row_of(version.address, version.digest, version.kind, (), score)
        for version in versions
    ]
    return matrix.build_matrix(score, rows, keep_empty=True)


async def find_scores(api: PoolApi, score: str, addresses: Sequence[str]) -> dict[str, MatrixRow]:
    """Return one score of these versions by all sites, by address, where anybody measured it."""
    scores = await api.get(EvaluationMatrix, "/evaluations", score=score, model=addresses)
    return {row.address: row for row in scores.rows}


@router.post("/merges")
async def merge(request: Request, visitor: Anyone) -> Response:
    """Have the pool merge the models, and lead to the merge; or show the form's errors."""
    form = await showing.read_form(request)
    try:
        fit = await _fit(visitor.api, [_parse(text) for text in form.all("model")])
        body = _merge_request(visitor, form, fit.versions)
        answer = await visitor.api.send("POST", "/merges", body)
    except (RefusedByApiError, RefusedError) as error:
        return await _show(visitor, showing.refused_form(form, error), models=form.all("model"))
    return showing.go_to(f"/merges/{MergeJobResponse.model_validate_json(answer).merge_id}")


def _merge_request(
    visitor: Visitor, form: showing.Form, versions: Sequence[ModelVersionResponse]
) -> dict[str, object]:
    weights = form.all("weight")
    if len(weights) != len(versions):
        raise RefusedError(
            f"{len(weights)} weights for {len(versions)} models, expected one for each",
            hint="Give every model a weight.",
        )
    inputs = [
        {
            "digest": version.digest,
            "weight": _number(weight),
            "address": version.address,
            "file_name": version.file_name,
        }
        for version, weight in zip(versions, weights, strict=True)
    ]
    body: dict[str, object] = {
        "site": visitor.member.site,
        "name": form["name"],
        "description": form["description"],
        "draft": form.has("draft"),
        "recipe": {
            "schema": "poolctl-recipe/1",
            "method": {"name": form["method"], "version": 1},
            "inputs": inputs,
        },
    }
    return body


def _number(text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        raise RefusedError(
            f"the weight {text!r} is no number", hint="Give a number above 0, such as 1.5."
        ) from None
