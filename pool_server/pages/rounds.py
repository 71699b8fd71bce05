"""Rounds and what each needs, merges on the pool, and the scores of all models."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from aggregators.methods.registry import find_method, list_round_methods
from pool_server.database.records import now_utc
from pool_server.errors import RefusedError
from pool_server.pages import comparing, pool_api, showing
from pool_server.pages.matrix import Matrix, build_matrix
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.evaluations import HEADLINES, SCORES, EvaluationMatrix
from pool_server.wire.merges import MERGE_KEY_PATTERN, MergeJobPage, MergeJobResponse
from pool_server.wire.people import SiteList
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
LIFETIME_DAYS = 7


@dataclass(frozen=True)
class Step:
    """One of the rounds that follow each other; `css` is ``done``, ``now`` or empty."""

    number: int
    words: str
    css: str
    round_id: str | None = None
    result: str | None = None


@dataclass(frozen=True)
class SecurePhase:
    """A session of the secure sum, and who has posted in which phase."""

    session_id: str
    ends_at: datetime
    posts: list[tuple[str, list[str]]]


@router.get("/rounds")
async def rounds(visitor: Anyone, cursor: str = "") -> Response:
    """List the rounds of one's site, those that wait for it first."""
    found = await visitor.api.get(RoundPage, "/rounds", cursor=cursor, limit=30)
    site = visitor.member.site
    waiting = [
        each for each in found.items if each.state == "open" and site in each.sites("waiting")
    ]
    keys = {each.round_id for each in waiting}
    return await showing.show(
        visitor,
        "rounds.html",
        waiting_here=waiting,
        others=[each for each in found.items if each.round_id not in keys],
        next_address=visitor.next_page(found.next_cursor),
    )


@router.get("/rounds/new")
async def new_round(visitor: Anyone, base: str = "", method: str = "") -> Response:
    """Show the form that starts a round."""
    return await _show_form(visitor, showing.FormState({"base": base, "method": method}))


async def _show_form(visitor: Visitor, form: showing.FormState) -> Response:
    sites = await visitor.api.get(SiteList, "/sites")
    deadline = (now_utc() + timedelta(days=LIFETIME_DAYS)).date().isoformat()
    return await showing.show(
        visitor,
        "round_new.html",
        sites=[each.name for each in sites.items if not each.suspended],
        methods=list_round_methods(),
        deadline=deadline,
        form=form,
    )


@router.post("/rounds")
async def start_round(request: Request, visitor: Anyone) -> Response:
    """Start a round, and lead to it."""
    form = await showing.read_form(request)
    try:
        wanted = {
            "base": form["base"],
            "method": form["method"],
            "sites": form.all("site"),
            "deadline": _end_of_day(form["deadline"]).isoformat(),
            "rounds": form["rounds"] or 1,
            "description": form["description"],
        }
        answer = await visitor.api.send("POST", "/rounds", wanted)
    except (pool_api.RefusedByApiError, RefusedError) as error:
        return await _show_form(visitor, showing.refused_form(form, error))
    return showing.go_to(f"/rounds/{RoundResponse.model_validate_json(answer).round_id}")


def _end_of_day(text: str) -> datetime:
    try:
        day = datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        raise RefusedError(
            f"the deadline {text!r} is no day", hint="Give a day such as 2026-03-08."
        ) from None
    return day.replace(hour=23, minute=59, tzinfo=UTC)


@router.get("/rounds/{round_id}")
async def round_page(visitor: Anyone, round_id: RoundId) -> Response:
    """Show what one's site must do, who has contributed, and what the rounds bring."""
    return await _show_round(visitor, round_id, showing.EMPTY_FORM)


async def _show_round(visitor: Visitor, round_id: str, form: showing.FormState) -> Response:
    api = visitor.api
    found = await api.get(RoundResponse, f"/rounds/{round_id}")
    others = await _neighbours(api, found)
    matrix = await _measured(api, found.method, others)
    mine = next((each for each in found.participants if each.site == visitor.member.site), None)
    starter = found.created_by.partition("/")[0]
    contributed = len(found.contributions())
    return await showing.show(
        visitor,
        "round.html",
        round=found,
        mine=mine,
        steps=list(_steps(found, others)),
        matrix=matrix,
        contributed=contributed,
        is_open=found.state in OPEN_STATES,
        is_starter=visitor.member.may_upload_to(starter),
        starter=starter,
        can_finish=found.state in OPEN_STATES and found.ready and contributed >= found.fewest_sites,
        secure=await _secure_phases(api, found),
        form=form,
    )


async def _neighbours(api: pool_api.PoolApi, found: RoundResponse) -> list[RoundResponse]:
    """Return the rounds that follow each other around this one, oldest first."""
    line = [found]
    while line[0].predecessor and len(line) < MOST_STEPS:
        line.insert(0, await api.get(RoundResponse, f"/rounds/{line[0].predecessor}"))
    while line[-1].successor and len(line) < MOST_STEPS:
        line.append(await api.get(RoundResponse, f"/rounds/{line[-1].successor}"))
    return line


def _steps(found: RoundResponse, line: list[RoundResponse]) -> Iterator[Step]:
    for each in line:
        is_here = each.round_id == found.round_id
        css = "done" if each.state == "finished" else "now" if each.state in OPEN_STATES else ""
        words = f"{each.state}, {len(each.contributions())} of {len(each.participants)} sites"
        yield Step(each.number, words, css, None if is_here else each.round_id, each.result)
    last = line[-1]
    if last.number < last.rounds_total and last.state in OPEN_STATES:
        what = f"opens when round {last.number} is finished"
        yield Step(last.number + 1, what, "")


async def _measured(api: pool_api.PoolApi, method: str, line: list[RoundResponse]) -> Matrix:
    """Return what the sites measured of the bases and the result, as far as one may see it."""
    score = HEADLINES[find_method(method).kind]
    known = [*(each.base for each in line), line[-1].result or ""]
    # Who may not see a base knows its digest.
    named = [each for each in dict.fromkeys(known) if each.startswith("pool://")]
    found = await comparing.find_scores(api, score, named) if named else {}
    return build_matrix(score, [found[each] for each in named if each in found])


async def _secure_phases(api: pool_api.PoolApi, found: RoundResponse) -> list[SecurePhase]:
    """Return how far each attempt at the round's secure sum is."""
    if found.secure is None:
        return []
    sessions = await showing.asking(
        api.get(SecureSessionPage, "/secure/sessions", round=found.round_id)
    )
    items = sessions.items[:3] if sessions else []
    boards = await asyncio.gather(
        *(api.get(SecurePostList, f"/secure/sessions/{each.session_id}/posts") for each in items)
    )
    phases = []
    for each, board in zip(items, boards, strict=True):
        posts: dict[str, list[str]] = {}
        for post in board.items:
            posts.setdefault(post.phase, []).append(post.sender)
        phases.append(SecurePhase(each.session_id, each.ends_at, list(posts.items())))
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
    found = await visitor.api.get(MergeJobPage, "/merges", cursor=cursor)
    older = visitor.next_page(found.next_cursor)
    return await showing.show(visitor, "merges.html", jobs=found.items, next_address=older)


@router.get("/merges/{merge_id}")
async def merge_page(visitor: Anyone, merge_id: MergeId) -> Response:
    """Show how far a merge is, what it became, or why it failed."""
    job = await visitor.api.get(MergeJobResponse, f"/merges/{merge_id}")
    return await showing.show(visitor, "merge.html", job=job, is_under_way=job.state in UNDER_WAY)


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
    found = await visitor.api.get(
        EvaluationMatrix, "/evaluations", score=score, kind=kind, cursor=cursor, limit=30
    )
    return await showing.show(
        visitor,
        "evaluations.html",
        matrix=build_matrix(score, found.rows),
        score_choices=[(name, meaning.label) for name, meaning in SCORES.items()],
        score=score,
        next_address=visitor.next_page(found.next_cursor),
    )
