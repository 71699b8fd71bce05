"""The page of one version: may I use it, how, is it good, and where is it from."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response

from pool_server.errors import MissingError
from pool_server.pages import pool_api, showing, words
from pool_server.pages.matrix import Cell, Column, Matrix, build_matrix, row_of
from pool_server.pages.signing import find_unsigned
from pool_server.pages.visitor import Anyone
from pool_server.wire import cards, models
from pool_server.wire.evaluations import HEADLINES, SCORES, EvaluationMatrix, EvaluationPage
from pool_server.wire.names import ModelAddress

router = showing.page_router()
MOST_COMPARED = 8
CAPTIONS = {
    "ert": "The mean shape; each halo is how far the trees move a point.",
    "hog-svm": "What the detector looks for: edges, brighter where they count more.",
    "network": "The layers in their order; the more channels, the higher.",
}


@dataclass(frozen=True)
class HistoryEntry:
    """Something that happened to a version."""

    at: datetime
    who: str
    what: str


def read_address(site: str, name: str) -> ModelAddress:
    """Return the address in the path of a page: ``alder/eyes@2``.

    Raises `MissingError`: it is no address.
    """
    try:
        return ModelAddress.parse(f"{site}/{name}")
    except ValueError as error:
        raise MissingError(
            str(error), code="no_such_page", hint="`/models` lists the models of the pool."
        ) from None


def api_path(address: ModelAddress) -> str:
    """Return the path of a version in the API."""
    reference = address.reference or models.LATEST
    return f"/models/{address.site}/{address.name}/versions/{reference}"


async def find_version(api: pool_api.PoolApi, address: ModelAddress) -> models.ModelVersionResponse:
    return await api.get(models.ModelVersionResponse, api_path(address))


@router.get("/models/{site}")
async def models_of_site(site: str) -> Response:
    """Lead to the listing of one site's models."""
    return showing.go_to(f"/models?site={site}")


@router.get("/models/{site}/{name}")
async def model_page(visitor: Anyone, site: str, name: str, score: str = "") -> Response:
    """Show all that the pool knows of a version."""
    api = visitor.api
    version = await find_version(api, read_address(site, name))
    path = api_path(ModelAddress(version.site, version.name, str(version.version)))
    shown_score = score or HEADLINES.get(version.kind, "mean_error")
    versions, evaluations, others, family, receipts = await asyncio.gather(
        api.get(models.ModelPage, f"/models/{version.site}/{version.name}"),
        api.get(EvaluationPage, f"{path}/evaluations", limit=100),
        api.get(EvaluationMatrix, "/evaluations", score=shown_score, kind=version.kind),
        api.get(models.LineageResponse, f"{path}/lineage"),
        api.get(cards.ReceiptPage, f"{path}/receipts"),
    )
    may_change = visitor.member.may_upload_to(version.site)
    lacks_signature = may_change and bool(await find_unsigned(api, [version]))
    sharing = await showing.asking(
        api.get(models.SharingResponse, f"/models/{version.site}/{version.name}/sharing")
    )
    own_row = row_of(version.address, version.digest, version.kind, evaluations.items, shown_score)
    near = [row for row in others.rows if row.address != version.address]
    matrix = build_matrix(shown_score, [own_row, *near], version.address)
    body = ""
    if version.has_card:
        # To make the card of a version that has none takes longer than the rest of the page.
        card = await api.get(cards.CardResponse, f"{path}/card")
        body = cards.read_card(card.source).body
    return await showing.show(
        visitor,
        "model.html",
        version=version,
        captions=CAPTIONS,
        address=words.short(version.address),
        versions=versions.items,
        rights=sharing.your_rights if sharing else [],
        sharing=sharing,
        matrix=matrix,
        json_path=path,
        headline=_headline(matrix),
        lines=matrix.lines[:MOST_COMPARED],
        replacement=_replacement(version, versions.items),
        scores=sorted({name for item in evaluations.items for name in item.scores} & SCORES.keys()),
        score_words=SCORES,
        ancestors=list_relatives(family, descendants=False),
        descendants=list_relatives(family, descendants=True),
        recipe=family.recipe,
        card_html=card_html(body),
        receipts=receipts.items,
        history=sorted(_history(version, evaluations), key=lambda entry: entry.at, reverse=True),
        commands=list(_commands(version)),
        lacks_signature=lacks_signature,
        may_change=may_change,
    )


def _replacement(
    version: models.ModelVersionResponse, siblings: Sequence[models.ModelVersionResponse]
) -> str:
    """Return the newer version that holds nothing withdrawn, or a successor; empty without one."""
    newest = next(
        (
            sibling.address
            for sibling in siblings
            if sibling.version > version.version
            and sibling.state == "available"
            and not sibling.flags
        ),
        "",
    )
    return newest or next(iter(version.successors), "")


def _headline(matrix: Matrix) -> tuple[Column, Cell] | None:
    """Return the version's score on faces of its own site, or else on any."""
    row = next((line.cells for line in matrix.lines if line.is_here), [])
    measured = [
        (column, cell)
        for column, cell in zip(matrix.columns, row, strict=False)
        if cell is not None
    ]
    return min(measured, key=lambda pair: not pair[1].is_own, default=None)


def _commands(version: models.ModelVersionResponse) -> Iterator[tuple[str, str]]:
    """Yield the commands that use a version, each after its title."""
    address = words.short(version.address)
    if version.state == "withdrawn":
        return
    yield "Download", f"poolctl download {address}"
    if version.mergeable_by:
        yield "Merge", f"poolctl merge {version.mergeable_by[0]} {address} MINE -o merged"
    if version.kind == "network":
        yield "Evaluate", f"poolctl evaluate {address} DATA"
    if version.kind == "ert":
        yield "Find blinks", f"poolctl blink session.mp4 --landmarks {address} -o out/"
    if version.kind == "hog-svm":
        yield "Find faces", f"poolctl blink session.mp4 --detector {address} -o out/"


def _history(
    version: models.ModelVersionResponse, evaluations: EvaluationPage
) -> Iterator[HistoryEntry]:
    made = "merged it" if version.has_recipe else "uploaded it"
    yield HistoryEntry(version.created_at, version.created_by, made)
    if version.state_changed_at is not None:
        reason = f": {version.state_reason}" if version.state_reason else ""
        what = f"made it {version.state}{reason}"
        yield HistoryEntry(version.state_changed_at, version.state_changed_by, what)
    for flag in version.flags:
        what = f"was withdrawn, which it holds: {flag.reason}"
        yield HistoryEntry(flag.flagged_at, words.short(flag.address), what)
    for evaluation in evaluations.items:
        score, value = next(iter(evaluation.scores.items()))
        meaning = SCORES.get(score)
        shown = meaning.label.lower() if meaning else score
        what = f"measured it on {evaluation.dataset}: {shown} {words.number(value.value)}"
        yield HistoryEntry(evaluation.created_at, evaluation.site, what)


@router.get("/models/{site}/{name}/download")
async def download(visitor: Anyone, site: str, name: str) -> Response:
    """Send the file; interrupted downloads go on as those of the API do."""
    return visitor.api.pass_on("GET", f"{api_path(read_address(site, name))}/content")


@router.get("/models/{site}/{name}/card.md")
async def card_source(visitor: Anyone, site: str, name: str) -> Response:
    """Send the card as Markdown."""
    card = await visitor.api.get(cards.CardResponse, f"{api_path(read_address(site, name))}/card")
    headers = {"content-disposition": 'attachment; filename="card.md"'}
    return Response(card.text, media_type="text/markdown", headers=headers)


@router.get("/pictures/{digest}/{size}")
async def picture(visitor: Anyone, digest: str, size: str) -> Response:
    """Send a drawing of a model."""
    return visitor.api.pass_on("GET", f"/pictures/{digest}/{size}")


# The family of a model as nested lists: ancestors, and descendants.
_MOST_ENTRIES = 60


@dataclass
class Box:
    """One model, or the contributions of a round."""

    title: str
    address: str = ""
    badge: str = ""
    is_withdrawn: bool = False


@dataclass(frozen=True)
class Relative:
    """One entry of the family as a nested list."""

    box: Box
    by: str
    relatives: "list[Relative]"


def list_relatives(family: models.LineageResponse, *, descendants: bool) -> list[Relative]:
    """Return the ancestors or the descendants of the version as nested lists, each once."""
    boxes, edges = _boxes(family)
    steps: dict[str, list[tuple[str, models.LineageEdge]]] = defaultdict(list)
    for edge in edges:
        start, end = (edge.parent, edge.child) if descendants else (edge.child, edge.parent)
        steps[start].append((end, edge))
    seen = {family.root}

    def walk(digest: str) -> list[Relative]:
        relatives = []
        for other, edge in steps[digest]:
            if other not in seen and other in boxes and len(seen) <= _MOST_ENTRIES:
                seen.add(other)
                by = f"by {edge.method}, weight {edge.weight:g}"
                relatives.append(Relative(boxes[other], by, walk(other)))
        return relatives

    return walk(family.root)


def _boxes(family: models.LineageResponse) -> tuple[dict[str, Box], list[models.LineageEdge]]:
    """Return boxes by digest, and the edges between them: all contributions to a round are one."""
    boxes = {node.digest: _box(node) for node in family.nodes}
    kinds = {node.digest: node.kind for node in family.nodes}
    contributions: dict[str, list[str]] = defaultdict(list)
    edges = []
    for edge in family.edges:
        if edge.parent in boxes and kinds[edge.parent] == models.CONTRIBUTION:
            contributions[edge.child].append(edge.parent)
            if len(contributions[edge.child]) > 1:
                continue
        edges.append(edge)
    for first, *others in contributions.values():
        boxes[first].title = words.count(1 + len(others), "contribution")
        for digest in others:
            boxes.pop(digest, None)
    return boxes, edges


def _box(node: models.LineageNode) -> Box:
    if node.kind in models.ROUND_FILES:
        return Box(models.ROUND_FILES[node.kind])
    if not node.addresses:
        return Box(f"sha256:{node.digest[:12]}…")
    title, address = words.short(node.addresses[0]), words.page_of(node.addresses[0])
    if node.withdrawn:
        return Box(title, address, f"withdrawn: {node.withdrawn}", is_withdrawn=True)
    return Box(title, address, "holds a withdrawn model" if node.flagged else "")


MOST_NESTED = 20
HEADINGS_DOWN = 2
LOWEST_HEADING = 6


def _is_web_address(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MOST_NESTED})
    parser.enable("table")
    parser.disable(["image", "html_block", "html_inline", "reference"])
    parser.validateLink = _is_web_address  # type: ignore[method-assign, assignment]
    return parser


_PARSER = _make_parser()


def card_html(source: str) -> Markup:
    """Return Markdown as HTML without raw HTML, pictures, and links to anything but the web.

    Headings are below those of the page; links say nothing of where one was.
    """
    tokens = _PARSER.parse(source)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1]) + HEADINGS_DOWN, LOWEST_HEADING)}"
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noreferrer nofollow")
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))
