"""``poolctl rounds contribute|trust``: contributions of a site to rounds."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Annotated

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import (
    Argument,
    DespiteFindingsOption,
    DespiteWithdrawalOption,
    DryRunOption,
    Option,
    SiteOption,
    YesOption,
    command,
    single,
)
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.frame.values import site_names
from cli.merge.refine import SeedOption, ThreadsOption
from cli.options import data as data_options
from cli.options.data import LeastOthersOption, MaxHoursOption
from pool_server.wire.rounds import ROUND_KEY_PATTERN, RoundResponse
from site_agent.datasets.network_data import NetworkData, open_network_data
from site_agent.datasets.records import FaceDataset
from site_agent.errors import BaseNotAcceptedError
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import host_of
from site_agent.pool.trust import set_trusted_sites, trusted_sites
from site_agent.rounds.contract import ContributionRules, DataChoice, site_rules
from site_agent.rounds.contributing import Contributed, PreparedContribution, prepare_contribution
from site_agent.rounds.kinds import find_site_part
from site_agent.tasks.model_files import whole_id
from site_agent.wording import count_words, size_words

app = single()

RULES = CommandSettings(
    ContributionRules(),
    ("trusted", "approved", "least_others", "max_hours", "full", "most_epsilon"),
)
"""The rules that a settings file can change; the others are options."""

RoundArgument = Annotated[
    str, Argument("As 'poolctl rounds ls' shows it, or its first letters.", "ROUND")
]


def whole_round(pool: PoolClient, word: str) -> str:
    """Return the full number of a round from its first letters."""
    if re.fullmatch(ROUND_KEY_PATTERN, word):
        return word
    known = (round_.round_id for round_ in pool.rounds.list())
    return whole_id(word, known, "round", "poolctl rounds ls")


@dataclass(frozen=True)
class RoundDataOptions:
    """The data of a contribution, and how they are read."""

    data: Annotated[
        Sequence[Path],
        Option("Your annotated faces (repeatable: one data set), or your gaze data.", "DATA"),
    ]
    parts: data_options.PartsOption = ""
    persons: Annotated[
        str, Option("Persons of the gaze data. Default: all of them.", "A,B,...")
    ] = ""
    seed: SeedOption = 0
    threads: ThreadsOption = 0
    images: data_options.ImagesOption = None
    despite_findings: DespiteFindingsOption = False

    def choice(self) -> DataChoice:
        """Return the choice as the method of a round takes it."""
        return DataChoice(
            data_options.part_words(self.parts),
            data_options.part_words(self.persons),
            self.seed,
            self.threads,
            self.despite_findings,
        )

    def read(self, round_: RoundResponse) -> FaceDataset | NetworkData:
        """Read the data for the method of a round."""
        if find_site_part(round_.method).data == "faces":
            if self.persons:
                raise UsageError(
                    f"--persons is for gaze data; the round is held by {round_.method}"
                )
            return data_options.read_joined_faces(
                self.data, data_options.reading_from(self.images), same_parts=not self.parts
            )
        if self.parts or self.images is not None:
            raise UsageError(
                f"--parts and --images are for faces; the round is held by {round_.method}"
            )
        if len(self.data) > 1:
            raise UsageError(
                "--data: expected one folder with gaze data; --persons chooses from it"
            )
        if not self.data[0].exists():
            raise InputMissingError(f"{self.data[0]}: no such folder; expected gaze data")
        return open_network_data(self.data[0])


@dataclass(frozen=True)
class RuleOptions:
    """The rules of the site that are options."""

    accept: Annotated[
        str,
        Option(
            "Accept this base, once and for all, although it cannot be accounted for.",
            "SHA256|SITE/NAME@N",
        ),
    ] = ""
    least_others: LeastOthersOption = 2
    max_hours: MaxHoursOption = 4.0
    full: Annotated[
        bool, Option("Add a secure sum up again here; its servers are not believed.")
    ] = False
    most_epsilon: data_options.MostEpsilonOption = None

    def read(self, pool: PoolClient, changes: SettingsOptions) -> ContributionRules:
        """Return the rules, with those of a settings file."""
        rules = replace(
            site_rules(pool.endpoint, self.least_others),
            approved=self.accept,
            max_hours=self.max_hours,
            full=self.full,
            most_epsilon=self.most_epsilon,
        )
        return RULES.read(changes, rules)


@command(
    app,
    "contribute",
    "rounds contribute 4f1d2c3b4a596877 --data faces.xml",
    "rounds contribute 4f1d2c3b4a596877 --data faces.xml --dry-run",
    "rounds contribute 4f1d2c3b4a596877 --data faces.xml --parts 36,37,38,39,40,41",
    "rounds contribute 4f1d2c3b4a596877 --data eyes/ --persons p01,p02 --set clip_norm=1",
)
def contribute(
    invocation: Invocation,
    round_id: RoundArgument,
    *,
    site: SiteOption = "",
    data: RoundDataOptions,
    rules: RuleOptions,
    changes: SettingsOptions,
    wait: Annotated[
        bool, Option("In a secure round, wait for the others until it is summed.")
    ] = False,
    despite_withdrawal: DespiteWithdrawalOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Fit the round's model to your faces or gaze data, and send the changes.

    Only changes of the model and sample counts are sent, never images. A base built for the purpose
    could make even these show your data; so it must be made of models of your own and of sites
    that you trust ('poolctl rounds trust'). At a terminal you see a summary before sending, and are
    asked; with --dry-run everything is computed, and nothing sent. After an interruption, run the
    command again to continue. In a secure round run it again until it says that you have
    contributed: first it shares the changes among the servers, then it tags them, and at last it
    verifies the sum. Further rules of your site are settings, such as --set min_faces=8 or --set
    secure_only=true; 'poolctl settings rounds contribute' explains them.
    """
    with invocation.pool() as pool:
        round_id = whole_round(pool, round_id)
        round_ = pool.rounds.get(round_id)
        if rules.accept:
            invocation.warn(find_site_part(round_.method).danger(round_))
            invocation.confirm(f"Approve {rules.accept}?", assume_yes=yes or dry_run)
        prepared = _prepare(
            invocation, pool, round_, data, rules.read(pool, changes), site=site,
            despite_withdrawal=despite_withdrawal, may_ask=sys.stdin.isatty() and not dry_run,
        )  # fmt: skip
        contributed = prepared.contributed
        preview = _describe_sending(contributed, pool.endpoint, rules.least_others)
        if sys.stdin.isatty() and not (yes or dry_run or prepared.is_taken):
            invocation.note("\n".join(preview))
            invocation.confirm("Send it?", assume_yes=False)
        if not dry_run:
            with invocation.progress("send") as report:
                contributed = prepared.send(wait=wait, progress=report)
    if contributed.left_out:
        line, problem = contributed.left_out[0]
        faces_words = count_words(len(contributed.left_out), "face")
        invocation.warn(
            f"{data_options.words_of(data.data)}: {faces_words} left out (line {line}: {problem})"
        )
    if not dry_run:
        text = _describe_result(contributed)
    elif prepared.is_taken:
        size = size_words(contributed.size_bytes)
        text = [f"{contributed.site} has contributed {size} already; nothing more would be sent"]
    else:
        text = preview
    return Reply(contributed, text, [contributed.digest])


def _prepare(
    invocation: Invocation,
    pool: PoolClient,
    round_: RoundResponse,
    data: RoundDataOptions,
    rules: ContributionRules,
    *,
    site: str,
    despite_withdrawal: bool,
    may_ask: bool,
) -> PreparedContribution:
    """Compute a contribution; at a terminal ask about a base that the rules do not accept."""
    faces_or_gaze = data.read(round_)
    try:
        with invocation.progress("contribute") as report:
            return prepare_contribution(
                pool, round_.round_id, faces_or_gaze, data.choice(), site=site, rules=rules,
                despite_withdrawal=despite_withdrawal, progress=report,
            )  # fmt: skip
    except BaseNotAcceptedError as error:
        if not may_ask:
            raise
        invocation.warn(str(error))
        invocation.confirm("Accept this base for all rounds?", assume_yes=False)
        return _prepare(
            invocation, pool, round_, data, replace(rules, approved=error.digest), site=site,
            despite_withdrawal=despite_withdrawal, may_ask=may_ask,
        )  # fmt: skip


@command(app, "trust", "rounds trust", "rounds trust site-b site-c")
def trust(
    invocation: Invocation,
    sites: Annotated[Sequence[str], Argument("Sites to trust.", "SITE...")] = (),
    *,
    remove: Annotated[bool, Option("Trust these sites no longer.")] = False,
) -> Reply:
    """List or extend the sites that may have trained models in a base you contribute to.

    Trust a site if you believe that it trains its models as usual, and does not build one that
    photographs your faces. Nobody is trusted at first, not even the pool.
    """
    if remove and not sites:
        raise UsageError("--remove: name the sites")
    sites = site_names(sites, "SITE") if sites else ()
    with invocation.pool() as pool:
        host = host_of(pool.endpoint)
        for site in () if remove else sites:
            pool.signatures.keys(site)  # a site that the pool does not know is an error
    known = trusted_sites(host)
    chosen = sorted(known - {*sites} if remove else known | {*sites})
    if sites:
        set_trusted_sites(host, chosen)
    text = f"bases made by {', '.join(chosen)} are trusted" if chosen else "you trust no other site"
    return Reply({"pool": host, "sites": chosen}, text, chosen)


def _describe_sending(sent: Contributed, endpoint: str, least_others: int) -> list[str]:
    if sent.round.secure is not None:
        servers = ", ".join(sent.round.secure.servers)
        return [f"would share among {servers}: {sent.summary}", "nobody sees them but in the sum"]
    fewest = max(least_others, sent.round.least_others)
    rule = "your own rule" if least_others > sent.round.least_others else "the round's rule"
    return [
        f"would send {size_words(sent.size_bytes)} to the pool {endpoint}: {sent.summary}",
        "the pool reads them and combines those of all sites; the other sites get the result",
        f"it is combined only with those of at least {count_words(fewest, 'other site')} ({rule})",
    ]


def _describe_result(sent: Contributed) -> list[str]:
    round_ = sent.round
    size, sent_size = size_words(sent.size_bytes), size_words(sent.sent_bytes)
    if sent.phase not in {"", "complete"}:
        return [
            f"{sent.site} takes part in the secure sum {sent.session[:16]}: {sent.phase}",
            f"waiting for {', '.join(sent.waiting) or 'the servers'}; then run the command again",
        ]
    waiting = ", ".join(round_.sites("waiting"))
    next_step = f"all sites have contributed; combine with: poolctl rounds finish {round_.round_id}"
    if round_.state not in {"open", "closed"}:
        next_step = f"the round is {round_.state}; see: poolctl rounds ls {round_.round_id}"
    elif waiting:
        until = f"{round_.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        next_step = f"waiting for {waiting} until {until}"
    if not sent.sent_bytes:
        size += " (the pool had it)"
    elif sent_size != size:
        size += f" ({sent_size} of it sent now)"
    return [
        f"{sent.site} has contributed {size}",
        *([sent.summary] if sent.summary else []),
        next_step,
    ]
