"""A site's part in live rounds: it trains the network that it gets on its own data."""

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from aggregators.errors import AggregatorError
from aggregators.formats import decode_model
from aggregators.methods.merging import encode_input
from aggregators.models import StateDict
from site_agent.errors import SiteAgentError
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.engines.flare import messages
from site_agent.federated.engines.flare.site_rules import SiteRules
from site_agent.federated.local_training import Privacy
from site_agent.federated.personal import PersonalStore
from site_agent.federated.plan import FederationPlan, digest_run, read_plan
from site_agent.federated.rounds import SiteGuards, train_in_round
from site_agent.federated.tasks import Task, task_of_network
from site_agent.pool.profiles import personal_folder, privacy_folder
from site_agent.work.processes import end_with


class SiteExecutor(Executor):  # type: ignore[misc]
    """Answers each task with a contribution, or with the type of the error that prevents it."""

    def __init__(self) -> None:
        super().__init__()
        # FLARE starts it from a thread that ends before the job.
        end_with(os.getppid())
        self._rules = SiteRules.from_environment(os.environ)
        # A job has one base, so that its task stays the same.
        self._read: Any = None

    def _samples(self, task: Task) -> Any:
        if self._read is None:
            self._read = task.read(self._rules.data, self._rules.persons)
        return self._read

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Answer from now on when the server asks whether this site is still there."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(
                messages.PRESENT, lambda **_: make_reply(ReturnCode.OK)
            )
            engine.register_aux_message_handler(messages.REPLY, self._take_reply)

    def _take_reply(self, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:  # noqa: ARG002
        """Keep the round's reply to this site, which has a part of it if it trained."""
        try:
            store = _store_of(read_plan(request[messages.PLAN]), request)
            number = int(request[messages.ROUND])
            store.take_reply(fl_ctx.get_identity_name(), number, request[messages.REPLY])
        except (SiteAgentError, ValueError, KeyError, TypeError, OSError) as error:
            self.logger.warning(f"no reply was kept: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        return make_reply(ReturnCode.OK)

    def execute(
        self, task_name: str, shareable: Mapping[str, Any], fl_ctx: Any, _abort_signal: Any
    ) -> Shareable:
        """Train the network of a task."""
        if task_name != messages.TRAIN:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        number = int(shareable[messages.ROUND])
        try:
            content, samples, least_others = self._contribute(
                number, shareable, fl_ctx.get_identity_name()
            )
        except (AggregatorError, SiteAgentError, ValueError, OSError) as error:
            self.logger.warning(f"round {number}: no contribution: {error}")
            reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            # Its message may name persons and files of the site.
            reply[messages.REFUSAL] = type(error).__name__
            return reply
        self.logger.info(f"round {number}: trained on {samples} samples")
        reply = make_reply(ReturnCode.OK)
        reply[messages.CONTRIBUTION] = content
        reply[messages.LEAST_OTHERS] = least_others
        return reply

    def _contribute(
        self, number: int, task: Mapping[str, Any], site: str
    ) -> tuple[bytes, int, int]:
        content = task[messages.BASE]
        plan, digest = read_plan(task[messages.PLAN]), sha256(content).hexdigest()
        base = cast("StateDict", decode_model(content))
        samples = self._samples(task_of_network(base))
        first_base = str(task[messages.FIRST_BASE])
        least_others = self._rules.admit(plan, first_base, number, base, digest, site=site)
        seed = ContributionLedger(self._rules.ledger).order_seed(
            site, digest_run(plan, first_base), digest
        )
        privacy = Privacy(privacy_folder(), self._rules.most_epsilon)
        contribution = train_in_round(
            base,
            digest,
            samples,
            plan.method,
            plan.split,
            parts=_store_of(plan, task),
            site=site,
            number=number,
            guards=SiteGuards(f"{number} of this job", privacy, seed, self._rules.max_hours),
        )
        return bytes(encode_input(contribution)), contribution.samples, least_others


def _store_of(plan: FederationPlan, content: Mapping[str, Any]) -> PersonalStore:
    """Return where this site keeps its parts of the rounds that a message is about."""
    series = f"live-{digest_run(plan, str(content[messages.FIRST_BASE]))[:16]}"
    return PersonalStore(personal_folder() / series)
