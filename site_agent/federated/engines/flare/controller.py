"""The server's part in live rounds: it sends the network, and combines what comes back."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.widgets.info_collector import InfoCollector

from aggregators.errors import AggregatorError
from aggregators.formats import file_digest
from aggregators.methods.networks.state_file import state_path
from aggregators.whole_file import write_whole
from site_agent.federated.combining import combine_files
from site_agent.federated.engines.flare import messages
from site_agent.federated.engines.flare.asking import Answers, Questions, ask_sites
from site_agent.federated.engines.flare.flare_process import end_with_parent
from site_agent.federated.engines.flare.messages import RoundReport
from site_agent.federated.plan import read_plan

FEWEST_CONTRIBUTIONS = 2
"""The mean of one site's contribution would be the contribution itself."""


class RoundsController(Controller):  # type: ignore[misc]
    """Holds a block of rounds.

    It ends before its last round when a site is missing, so that the site can take part in the next
    block, or when too few sites contribute.

    Parameters
    ----------
    plan : mapping
        As ``FederationPlan.model_dump()`` gives it.
    sites : sequence of str
        All sites of the federation.
    base : str
        File of the network in the job's configuration; a state may lie beside it.
    run : str
        Name of the folder in which the server keeps the contributions.
    first_round, rounds : int
    round_limit_s : float
        How long a site may train.
    """

    def __init__(
        self,
        *,
        plan: Mapping[str, Any],
        sites: Sequence[str],
        base: str,
        run: str,
        first_round: int,
        rounds: int,
        round_limit_s: float,
    ) -> None:
        super().__init__()
        # FLARE would load torch at the end of a job, which takes seconds, to clear away downloads
        # of a kind that there are none of here.
        sys.modules.setdefault("nvflare.app_opt.pt.tensor_downloader", None)  # type: ignore[arg-type]
        self._plan, self._sites, self._base, self._run = read_plan(plan), sites, base, run
        self._numbers = range(first_round, first_round + rounds)
        self._round_limit_s = round_limit_s
        self._reports: list[RoundReport] = []
        end_with_parent()

    def start_controller(self, fl_ctx: Any) -> None:
        """Prepare nothing."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Clear nothing away."""

    def process_result_of_unknown_task(self, *_arguments: Any, **_named: Any) -> None:
        """Drop what a site sends too late."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Answer the submitter's question how far the rounds are."""
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            collector.set_info(messages.RESULTS, {"done": [asdict(each) for each in self._reports]})

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Hold the rounds of this block."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        results = Path(workspace.get_run_dir(job)) / messages.RESULTS
        results.mkdir()
        kept = Path(workspace.get_root_dir()) / "contributions" / self._run
        base = Path(workspace.get_app_config_dir(job)) / self._base
        present = {client.name for client in engine.get_clients()}
        questions = Questions(fl_ctx)
        for number in self._numbers:
            began_s = time.monotonic()
            wanted = self._plan.sites_in(number, self._sites)
            asked = [site for site in wanted if site in present]
            answers = ask_sites(
                self,
                self._task(number, base),
                asked,
                limit_s=self._round_limit_s,
                questions=questions,
                fl_ctx=fl_ctx,
                abort_signal=abort_signal,
            )
            if abort_signal.triggered or len(answers.contributions) < FEWEST_CONTRIBUTIONS:
                self.logger.info(f"round {number} ended without a network: {_words(answers)}")
                return
            try:
                base = self._combine(
                    number,
                    base,
                    wanted=wanted,
                    answers=answers,
                    folder=kept / f"round-{number:04d}",
                    results=results,
                    began_s=began_s,
                )
            except AggregatorError as error:
                self.logger.error(f"round {number} cannot be combined: {error}")
                return
            if answers.lost or present < set(self._sites):
                return

    def _task(self, number: int, base: Path) -> Shareable:
        content = Shareable()
        content[messages.BASE], content[messages.ROUND] = base.read_bytes(), number
        content[messages.TRAINING] = self._plan.training.model_dump(mode="json")
        return content

    def _combine(
        self,
        number: int,
        base: Path,
        *,
        wanted: Sequence[str],
        answers: Answers,
        folder: Path,
        results: Path,
        began_s: float,
    ) -> Path:
        """Write the network of a round with its report, and return its file."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {site: folder / f"{site}.contribution" for site in answers.contributions}
        for site, path in files.items():
            write_whole(path, answers.contributions[site], mode=0o600)
        output, state = results / messages.model_name(number), state_path(base)
        given = state if state.is_file() else None
        merged = combine_files(self._plan, base, given, files, output)
        report = RoundReport(
            number,
            {site: file_digest(path) for site, path in files.items()},
            tuple(site for site in wanted if site not in files),
            str(merged.digest),
            round(time.monotonic() - began_s, 2),
            merged.warnings,
        )
        self._reports.append(report)
        write_whole(results / messages.REPORT, messages.write_reports(self._reports))
        self.logger.info(
            f"round {number}: {_words(answers)}; {report.seconds:.1f} s, {report.digest[:12]}"
        )
        return output


def _words(answers: Answers) -> str:
    refused = [f"{site} refused ({reason})" for site, reason in answers.refusals.items()]
    lost = [f"{site} is lost" for site in answers.lost]
    return ", ".join([f"{len(answers.contributions)} contributions", *refused, *lost])
