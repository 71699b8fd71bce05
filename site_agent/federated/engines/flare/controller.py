"""The server's part in live rounds: it sends the network, and combines the contributions."""

import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.widgets.info_collector import InfoCollector

from aggregators.errors import AggregatorError, ContributionError
from aggregators.formats import file_digest, read_model
from aggregators.methods.networks import round_files
from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.registry import find_method
from aggregators.models import OptimiserState, StateDict
from aggregators.whole_file import write_whole
from site_agent.federated.engines.flare import jobs, messages
from site_agent.federated.plan import combine_files
from site_agent.wording import count_words
from site_agent.work.processes import end_with

FEWEST_CONTRIBUTIONS = 2
"""The mean of one site's contribution would be the contribution itself. Sites may ask for more."""

_MOST_OTHERS = 1000
_REPLY_LIMIT_S = 20.0


class RoundsController(Controller):  # type: ignore[misc]
    """Holds a block of rounds.

    It ends before its last round when a site is missing, so that the site can take part in the next
    block, or when too few sites contribute.

    `**arguments`: Those of `jobs.BlockArguments`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        # FLARE would load torch at the end of a job, which takes seconds, to clear away downloads
        # of a kind that does not exist here.
        sys.modules.setdefault("nvflare.app_opt.pt.tensor_downloader", None)  # type: ignore[arg-type]
        block = jobs.read_arguments(arguments)
        self._block, self._plan = block, block.read_plan()
        self._numbers = range(block.first_round, block.first_round + block.rounds)
        self._reports: list[messages.RoundReport] = []
        # FLARE starts it from a thread that ends before the job.
        end_with(os.getppid())

    def start_controller(self, fl_ctx: Any) -> None:
        """Prepare nothing."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Clear nothing away."""

    def process_result_of_unknown_task(self, *_arguments: Any, **_named: Any) -> None:
        """Drop contributions that arrive too late."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Answer the submitter's question how far the rounds are."""
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            collector.set_info(
                messages.RESULTS, {"done": [asdict(report) for report in self._reports]}
            )

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Hold the rounds of this block."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        results = Path(workspace.get_run_dir(job)) / messages.RESULTS
        results.mkdir()
        base = Path(workspace.get_app_config_dir(job)) / self._block.base
        # Contributions are files while their round is combined, and no longer; outside of what the
        # submitter can download. What a killed process left goes now.
        passing = Path(workspace.get_root_dir()) / "contributions"
        shutil.rmtree(passing, ignore_errors=True)
        present = {client.name for client in engine.get_clients()}
        questions = Questions(fl_ctx)
        for number in self._numbers:
            began_s = time.monotonic()
            selected = self._plan.sites_in(number, self._block.sites)
            asked = [site for site in selected if site in present]
            answers = ask_sites(
                self,
                self._task(number, base),
                asked,
                limit_s=self._block.round_limit_s,
                questions=questions,
                fl_ctx=fl_ctx,
                abort_signal=abort_signal,
            )
            passing.mkdir(mode=0o700)
            try:
                files, left_out = self._receive(answers, base, passing)
                shortage = describe_shortage(files, answers.least_others)
                if abort_signal.triggered or shortage:
                    report = _describe(files, answers, left_out, shortage)
                    self._give_up(results, number, report)
                    return
                base = self._combine(
                    number,
                    base,
                    sites=selected,
                    files=files,
                    left_out=left_out,
                    results=results,
                    began_s=began_s,
                    fl_ctx=fl_ctx,
                )
            except AggregatorError as error:
                self._give_up(results, number, f"cannot be combined: {error}")
                return
            finally:
                shutil.rmtree(passing)
            report = _describe(files, answers, left_out)
            self.logger.info(f"round {number}: {report}; {self._reports[-1].digest[:12]}")
            if answers.lost or present < set(self._block.sites):
                return

    def _receive(
        self, answers: "Answers", base: Path, folder: Path
    ) -> tuple[dict[str, Path], dict[str, str]]:
        """Write the contributions that fit; return their files, and why sites are left out."""
        digest, network = file_digest(base), cast("StateDict", read_model(base))
        settings, most = self._plan.training.shared(), 2 * base.stat().st_size + 1024**2
        files, left_out = {}, {site: f"refused: {word}" for site, word in answers.refusals.items()}
        for site, content in answers.contributions.items():
            try:
                if len(content) > most:
                    raise ContributionError(f"has {len(content)} bytes, expected at most {most}")
                round_files.check_network_contribution(
                    round_files.decode_network_contribution(content),
                    network,
                    base_digest=digest,
                    settings=settings,
                    replies=find_method(self._plan.method).replies,
                )
            except AggregatorError as error:
                left_out[site] = f"its contribution {error}"
                self.logger.warning(f"{site} is left out: its contribution {error}")
                continue
            files[site] = folder / f"{site}.contribution"
            write_whole(files[site], content, mode=0o600)
        return files, left_out

    def _give_up(self, results: Path, number: int, problem: str) -> None:
        self.logger.error(f"round {number} made no network: {problem}")
        write_whole(results / messages.PROBLEM, f"round {number}: {problem}")

    def _task(self, number: int, base: Path) -> Shareable:
        content = self._about(number)
        content[messages.BASE] = base.read_bytes()
        return content

    def _about(self, number: int) -> Shareable:
        content = Shareable()
        content[messages.ROUND] = number
        content[messages.PLAN] = self._plan.model_dump(mode="json")
        content[messages.FIRST_BASE] = self._block.first_base
        return content

    def _combine(
        self,
        number: int,
        base: Path,
        *,
        sites: Sequence[str],
        files: Mapping[str, Path],
        left_out: Mapping[str, str],
        results: Path,
        began_s: float,
        fl_ctx: Any,
    ) -> Path:
        """Write the network of a round with its report, and return its file."""
        output, state = results / messages.model_name(number), round_files.state_path(base)
        state_file = state if state.is_file() else None
        merged = combine_files(self._plan, base, state_file, files, output)
        updates = dict(merged.update_digests)
        if merged.state is not None and find_method(self._plan.method).replies:
            self._reply(number, merged.state, updates, fl_ctx)
            # Nobody else gets the replies, and the submitter of the job would download the state.
            round_files.state_path(output).unlink()
        report = messages.RoundReport(
            number,
            updates,
            tuple(site for site in sites if site not in files),
            merged.digest,
            round(time.monotonic() - began_s, 2),
            merged.warnings,
            dict(left_out),
        )
        self._reports.append(report)
        write_whole(results / messages.REPORT, messages.write_reports(self._reports))
        return output

    def _reply(
        self, number: int, state: OptimiserState, updates: Mapping[str, str], fl_ctx: Any
    ) -> None:
        """Send each site the reply to its contribution; one that is gone keeps its own head."""
        for site, digest in updates.items():
            content = self._about(number)
            content[messages.REPLY] = encode_reply(state, digest)
            answers = fl_ctx.get_engine().send_aux_request(
                [site], messages.REPLY, content, _REPLY_LIMIT_S, fl_ctx, optional=True
            )
            answer = answers.get(site)
            if answer is None or answer.get_return_code() != ReturnCode.OK:
                self.logger.warning(f"round {number}: {site} has not taken its reply")


def describe_shortage(files: Collection[str], least_others: Mapping[str, int]) -> str:
    """Return how many contributions would be needed, and why; empty where they are enough."""
    floor = max((least_others[site] for site in files), default=0)
    if len(files) >= max(FEWEST_CONTRIBUTIONS, floor + 1):
        return ""
    if floor < FEWEST_CONTRIBUTIONS:
        return f", needed {FEWEST_CONTRIBUTIONS}"
    asking = ", ".join(site for site in sorted(files) if least_others[site] == floor)
    return f", needed {floor + 1}: {asking} contributes only with {floor} others (--least-others)"


def _describe(
    files: Collection[str], answers: "Answers", left_out: Mapping[str, str], needed: str = ""
) -> str:
    count = count_words(len(files), "usable contribution")
    problems = [f"{site}: {reason}" for site, reason in left_out.items()]
    lost = [f"{site} is lost" for site in answers.lost]
    late = [f"{site} has not finished" for site in answers.late]
    return "; ".join([count + needed, *problems, *lost, *late])


# Some of the sites that are asked may be gone before they answer.
_QUESTION_EVERY_S, _ANSWER_LIMIT_S = 1.0, 3.0
_MOST_UNANSWERED = 3
_START_LIMIT_S = 60.0
"""How long a site's job process may take until it answers for the first time."""

_REFUSAL = re.compile(r"[A-Za-z_]{1,64}")
"""The name of an error's class, or one of FLARE's return codes."""


@dataclass(frozen=True)
class Answers:
    """The answers of the sites."""

    contributions: dict[str, bytes]
    """Bytes of each contribution's file, by site."""
    least_others: dict[str, int]
    """Smallest number of other sites with which each contribution may be combined."""
    refusals: dict[str, str]
    """Type of the error that kept a site from contributing, by site."""
    lost: tuple[str, ...]
    """Sites that are gone."""
    late: tuple[str, ...]
    """Sites that were still training when the time was up, or when the rounds were stopped."""


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
    contributions, least_others, refusals = {}, {}, {}
    for site, reply in sorted(_replies(task).items()):
        content, others = reply.get(messages.CONTRIBUTION), reply.get(messages.LEAST_OTHERS)
        usable = isinstance(content, bytes) and type(others) is int and 1 <= others <= _MOST_OTHERS
        if reply.get_return_code() == ReturnCode.OK and usable:
            contributions[site], least_others[site] = content, others
        else:
            # A site chooses these words, and people read them.
            word = str(reply.get(messages.REFUSAL) or reply.get_return_code())
            refusals[site] = word if _REFUSAL.fullmatch(word) else "an answer of another kind"
    silent = sorted(set(sites) - set(contributions) - set(refusals))
    lost = tuple(site for site in silent if questions.is_lost(site))
    return Answers(contributions, least_others, refusals, lost, tuple(set(silent) - set(lost)))


def _replies(task: Task) -> dict[str, Shareable]:
    return {task.client.name: task.result for task in task.client_tasks if task.result is not None}
