"""Asking the sites of a round, some of which may be gone before they answer."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from site_agent.federated.engines.flare import messages

_QUESTION_EVERY_S, _ANSWER_LIMIT_S = 1.0, 3.0
_MOST_UNANSWERED = 3
_START_LIMIT_S = 20.0
"""How long a site's job process may take until it answers for the first time."""

_REFUSAL = re.compile(r"[A-Za-z_]{1,64}")
"""The name of an error's class, or one of FLARE's return codes."""


@dataclass(frozen=True)
class Answers:
    """What sites answered.

    Attributes
    ----------
    contributions : dict
        Bytes of each contribution's file, by site.
    refusals : dict
        Type of the error that kept a site from contributing, by site.
    lost : tuple of str
        Sites that are gone.
    late : tuple of str
        Sites that were still training when the time was up, or when the rounds were stopped.
    """

    contributions: dict[str, bytes]
    refusals: dict[str, str]
    lost: tuple[str, ...]
    late: tuple[str, ...]


class Questions:
    """Asks sites again and again whether they are still there.

    FLARE itself finds this out late, and not at all when a site is back within its time-out.
    """

    def __init__(self, fl_ctx: Any) -> None:
        self._engine, self._fl_ctx = fl_ctx.get_engine(), fl_ctx
        self._began_s = time.monotonic()
        self._unanswered: dict[str, int] = {}

    def ask(self, sites: Sequence[str]) -> None:
        """Ask some sites once."""
        replies: Mapping[str, Any] = self._engine.send_aux_request(
            list(sites), messages.PRESENT, Shareable(), _ANSWER_LIMIT_S, self._fl_ctx, optional=True
        )
        starting = time.monotonic() - self._began_s < _START_LIMIT_S
        for site in sites:
            reply = replies.get(site)
            if reply is not None and reply.get_return_code() == ReturnCode.OK:
                self._unanswered[site] = 0
            elif site in self._unanswered or not starting:
                self._unanswered[site] = self._unanswered.get(site, 0) + 1

    def is_lost(self, site: str) -> bool:
        return self._unanswered.get(site, 0) >= _MOST_UNANSWERED


def ask_sites(
    controller: Controller,
    content: Shareable,
    sites: Sequence[str],
    *,
    limit_s: float,
    questions: Questions,
    fl_ctx: Any,
    abort_signal: Any,
) -> Answers:
    """Send a task to all sites, and wait until each has answered or is lost."""
    task = Task(messages.TRAIN, content, timeout=max(1, round(limit_s)))
    controller.broadcast(task, fl_ctx, targets=list(sites), min_responses=len(sites))
    asked_s = time.monotonic()
    while task.completion_status is None and not abort_signal.triggered:
        time.sleep(0.1)
        if time.monotonic() - asked_s < _QUESTION_EVERY_S:
            continue
        asked_s = time.monotonic()
        waiting = sorted(set(sites) - set(_replies(task)))
        if waiting:
            questions.ask(waiting)
            if all(questions.is_lost(site) for site in waiting):
                controller.cancel_task(task)
    contributions, refusals = {}, {}
    for site, reply in sorted(_replies(task).items()):
        content = reply.get(messages.CONTRIBUTION)
        if reply.get_return_code() == ReturnCode.OK and isinstance(content, bytes):
            contributions[site] = content
        else:
            # A site chooses these words, and people read them.
            word = str(reply.get(messages.REFUSAL) or reply.get_return_code())
            refusals[site] = word if _REFUSAL.fullmatch(word) else "an answer of another kind"
    silent = sorted(set(sites) - set(contributions) - set(refusals))
    lost = tuple(site for site in silent if questions.is_lost(site))
    return Answers(contributions, refusals, lost, tuple(set(silent) - set(lost)))


def _replies(task: Task) -> dict[str, Shareable]:
    return {each.client.name: each.result for each in task.client_tasks if each.result is not None}
