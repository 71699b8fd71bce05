"""Rounds and their progress, merges on the pool, and the scores of all models."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from aggregators.methods.registry import find_method
from aggregators.methods.round_options import protection_of
from pool_server.errors import RefusedError
from pool_server.pages import comparing, model, pool_api, showing
from pool_server.pages.matrix import Matrix, build_matrix
from pool_server.pages.signing import find_unsigned, has_key
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.evaluations import HEADLINES, SCORES, EvaluationMatrix
from pool_server.wire.merges import MERGE_KEY_PATTERN, MergeJobPage, MergeJobResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import (
    ROUND_KEY_PATTERN,
    RoundPage,
    RoundResponse,
    SecurePostList,
    SecureSessionPage,
)

router = showing.page_router()
RoundId = Annotated[str, Path(pattern=ROUND_KEY_PATTERN)]
OPEN_STATES = frozenset({"open", "closed"})
MOST_STEPS = 8


@dataclass(frozen=True)
class Step:
    """One of the rounds that follow each other; `css` is ``done``, ``now`` or empty."""

    number: int
    caption: str
    css: str
    round_id: str | None = None
    result: str | None = None


@dataclass(frozen=True)
class SecurePhase:
    """A session of the secure sum, with the sites that have posted, by phase."""

    session_id: str
    ends_at: datetime
    posts: list[tuple[str, list[str]]]


@router.get("/rounds")
async def rounds(visitor: Anyone, cursor: str = "") -> Response:
    """List the rounds of one's site, those that wait for it first."""
    page = await visitor.api.get(RoundPage, "/rounds", cursor=cursor, limit=30)
    site = visitor.member.site
    waiting = [
        round_
        for round_ in page.items
        if round_.state == "open" and site in round_.sites("waiting")
    ]
    keys = {round_.round_id for round_ in waiting}
    return await showing.show(
        visitor,
        "rounds.html",
        waiting_here=waiting,
        others=[round_ for round_ in page.items if round_.round_id not in keys],
        next_address=visitor.next_page(page.next_cursor),
    )


@router.get("/rounds/{round_id}")
async def round_page(visitor: Anyone, round_id: RoundId) -> Response:
    """Show the tasks of one's site, the contributions, and the scores of the rounds."""
    return await _show_round(visitor, round_id, showing.EMPTY_FORM)


async def _show_round(visitor: Visitor, round_id: str, form: showing.FormState) -> Response:
    api = visitor.api
    round_ = await api.get(RoundResponse, f"/rounds/{round_id}")
    others = await _neighbours(api, round_)
    matrix = await _measured(api, round_.method, others)
    mine = next((row for row in round_.participants if row.site == visitor.member.site), None)
    starter = round_.created_by.partition("/")[0]
    contributed = len(round_.contributions())
    is_open = round_.state in OPEN_STATES
    return await showing.show(
        visitor,
        "round.html",
        round=round_,
        kind=find_method(round_.method).kind,
        mine=mine,
        steps=list(_steps(round_, others)),
        matrix=matrix,
        contributed=contributed,
        is_open=is_open,
        is_starter=visitor.member.may_upload_to(starter),
        starter=starter,
        lacks_signature=is_open and round_.terms is None and await has_key(api, starter),
        signs=is_open and await has_key(api, visitor.member.site),
        can_finish=is_open and round_.ready and contributed >= round_.fewest_sites,
        secure=await _secure_phases(api, round_),
        protection=protection_of(round_.method, round_.options, secure=round_.secure is not None),
        form=form,
    )


async def _neighbours(api: pool_api.PoolApi, round_: RoundResponse) -> list[RoundResponse]:
    """Return the rounds that follow each other around this one, oldest first."""
    line = [round_]
    while line[0].predecessor and len(line) < MOST_STEPS:
        line.insert(0, await api.get(RoundResponse, f"/rounds/{line[0].predecessor}"))
    while line[-1].successor and len(line) < MOST_STEPS:
        line.append(await api.get(RoundResponse, f"/rounds/{line[-1].successor}"))
    return line


def _steps(shown: RoundResponse, line: list[RoundResponse]) -> Iterator[Step]:
    for round_ in line:
        is_here = round_.round_id == shown.round_id
        css = "done" if round_.state == "finished" else "now" if round_.state in OPEN_STATES else ""
        caption = (
            f"{round_.state}, {len(round_.contributions())} of {len(round_.participants)} sites"
        )
        yield Step(round_.number, caption, css, None if is_here else round_.round_id, round_.result)
    last = line[-1]
    if last.number < last.rounds_total and last.state in OPEN_STATES:
        caption = f"opens when round {last.number} is finished"
        yield Step(last.number + 1, caption, "")


async def _measured(api: pool_api.PoolApi, method: str, line: list[RoundResponse]) -> Matrix:
    """Return the visible scores of the rounds' bases and their result."""
    score = HEADLINES[find_method(method).kind]
    known = [*(round_.base for round_ in line), line[-1].result or ""]
    # A site that may not see a base gets its digest.
    addresses = [address for address in dict.fromkeys(known) if address.startswith("pool://")]
    rows = await comparing.find_scores(api, score, addresses) if addresses else {}
    return build_matrix(score, [rows[address] for address in addresses if address in rows])


async def _secure_phases(api: pool_api.PoolApi, round_: RoundResponse) -> list[SecurePhase]:
    """Return how far each attempt at the round's secure sum is."""
    if round_.secure is None:
        return []
    sessions = await showing.asking(
        api.get(SecureSessionPage, "/secure/sessions", round=round_.round_id)
    )
    items = sessions.items[:3] if sessions else []
    boards = await asyncio.gather(
        *(api.get(SecurePostList, f"/secure/sessions/{item.session_id}/posts") for item in items)
    )
    phases = []
    for session, board in zip(items, boards, strict=True):
        posts: dict[str, list[str]] = {}
        for post in board.items:
            posts.setdefault(post.phase, []).append(post.sender)
        phases.append(SecurePhase(session.session_id, session.ends_at, list(posts.items())))
    return phases


@router.post("/rounds/{round_id}/{act}")
async def act_on_round(request: Request, visitor: Anyone, round_id: RoundId, act: str) -> Response:
    """Finish, close or cancel a round, or take one's contribution back."""
    form = await showing.read_form(request)
    path, site = f"/rounds/{round_id}", visitor.member.site
    place = {"site": form["site"], "name": form["name"]}
    acts = {
        "finish": ("POST", f"{path}/finish", place),
        "close": ("POST", f"{path}/close", None),
        "cancel": ("POST", f"{path}/cancel", None),
        "take-back": ("DELETE", f"{path}/contributions/{site}", None),
    }
    if act not in acts:
        raise RefusedError(
            f"a round cannot be acted on by {act!r}, expected one of {', '.join(acts)}",
            hint="Use the buttons on the round's page.",
        )
    try:
        await visitor.api.send(*acts[act])
    except pool_api.RefusedByApiError as refusal:
        return await _show_round(visitor, round_id, showing.refused_form(form, refusal))
    return showing.go_to(path)


MergeId = Annotated[str, Path(pattern=MERGE_KEY_PATTERN)]
UNDER_WAY = frozenset({"queued", "running"})


@router.get("/merges")
async def merges(visitor: Anyone, cursor: str = "") -> Response:
    """List the merges of one's site; an admin of the pool sees all."""
    page = await visitor.api.get(MergeJobPage, "/merges", cursor=cursor)
    older = visitor.next_page(page.next_cursor)
    return await showing.show(visitor, "merges.html", jobs=page.items, next_address=older)


@router.get("/merges/{merge_id}")
async def merge_page(visitor: Anyone, merge_id: MergeId) -> Response:
    """Show a merge's progress, then its result or its failure."""
    job = await visitor.api.get(MergeJobResponse, f"/merges/{merge_id}")
    lacks_signature = False
    if job.version is not None:
        version = await showing.asking(
            model.find_version(visitor.api, ModelAddress.parse(job.version))
        )
        lacks_signature = version is not None and bool(await find_unsigned(visitor.api, [version]))
    return await showing.show(
        visitor,
        "merge.html",
        job=job,
        is_under_way=job.state in UNDER_WAY,
        kind=find_method(job.recipe["method"]["name"]).kind,
        lacks_signature=lacks_signature,
    )


@router.post("/merges/{merge_id}/cancel")
async def cancel(visitor: Anyone, merge_id: MergeId) -> Response:
    """Cancel a merge."""
    await visitor.api.send("POST", f"/merges/{merge_id}/cancel")
    return showing.go_to(f"/merges/{merge_id}")


@router.get("/evaluations")
async def evaluations(
    visitor: Anyone, score: str = "mean_error", kind: str = "", cursor: str = ""
) -> Response:
    """Show one score of all models by all sites."""
    page = await visitor.api.get(
        EvaluationMatrix, "/evaluations", score=score, kind=kind, cursor=cursor, limit=30
    )
    return await showing.show(
        visitor,
        "evaluations.html",
        matrix=build_matrix(score, page.rows),
        score_choices=[(name, meaning.label) for name, meaning in SCORES.items()],
        score=score,
        next_address=visitor.next_page(page.next_cursor),
    )
