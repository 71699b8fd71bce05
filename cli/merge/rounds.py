"""``poolctl rounds``: sites train one model together, each on data that stay at home."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from aggregators.methods.round_options import protection_of
from aggregators.methods.sub_models import cap_samples
from cli.frame.errors import UsageError
from cli.frame.options import (
    Argument,
    DespiteWithdrawalOption,
    LimitOption,
    Option,
    SiteOption,
    YesOption,
    command,
    group,
)
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.frame.values import read_moment, site_names
from cli.merge import contributions
from cli.merge.contributions import RoundArgument, whole_round
from cli.options.data import ProtectionOption
from cli.options.merging import MethodOption, method_options
from pool_server.wire.rounds import RoundResponse, RoundState, RoundTerms, SecureTerms
from site_agent.pool.profiles import secure_folder
from site_agent.rounds.finishing import finish_round, moment_words, round_verdict
from site_agent.rounds.kinds import find_site_part
from site_agent.rounds.terms import sign_terms, start_round
from site_agent.secure.charter import read_charter, require_accepted
from site_agent.wording import age_words, count_words, size_words

app = group("Refine or train a model together with other sites.")


@dataclass(frozen=True)
class RoundOptions:
    """The method of a round, and its series."""

    method: Annotated[str, Option("The method that combines the contributions.")] = "leaf-refit"
    rounds: Annotated[
        int, Option("Number of rounds; each finished round opens the next.", min=1, max=100)
    ] = 1
    protection: ProtectionOption = None
    least_others: Annotated[
        int, Option("Combine each contribution with at least N others.", min=1, max=199)
    ] = 1
    option: MethodOption = ()
    description: Annotated[str, Option("A description.")] = ""


@command(
    app,
    "start",
    "rounds start --base site-a/merged-68 --sites site-a,site-b,site-c --deadline 7d",
    "rounds start --base site-a/merged-68@3 --sites site-a,site-b --deadline 2026-12-01 "
    "--rounds 3 --option starts=20",
    "rounds start --base site-a/gaze --sites site-a,site-b,site-c --deadline 1d --rounds 30 "
    "--method fedadam --option eta=2 --option epochs=2",
)
def start(
    invocation: Invocation,
    *,
    base: Annotated[str, Option("The model to train.", "ADDRESS")],
    sites: Annotated[Sequence[str], Option("The sites of the round, including your own.", "A,B,C")],
    deadline: Annotated[
        str, Option("Time to contribute: 7d, 12h, or the last day (UTC).", "SPAN|DATE")
    ],
    how: RoundOptions,
    secure: Annotated[
        Path | None,
        Option(
            "Have the servers of this charter (a file that all of you accepted) sum the "
            "changes up, so that nobody sees those of one site.",
            "CHARTER",
        ),
    ] = None,
) -> Reply:
    """Ask sites to train a model: each fits it to its own data and sends the changes.

    With leaf-refit, ADDRESS is usually the result of 'poolctl merge wba-cascade'. The other
    methods, such as fedavg, fedadam or median, train gaze networks. --option sets the method
    (starts, thin) and the training (epochs, batch_size, learning_rate ...). Private rounds train
    the base's last layer, by an epsilon of all rounds together: dp_epsilon=8 by default (more:
    dp_unit=person, dp_delta, dp_clip, dp_layers=all). When all sites have contributed, or the
    deadline has passed, any site runs 'poolctl rounds finish'.
    """
    names = site_names(sites)
    options = method_options(how.option)
    terms = None if secure is None else _secure_terms(secure, names)
    moment = read_moment(deadline, "--deadline", datetime.now(UTC), ahead=True)
    with invocation.pool() as pool:
        # A deadline by the clock of this machine could have passed at the pool.
        moment = read_moment(deadline, "--deadline", pool.now(), ahead=True)
        started = start_round(
            pool,
            base,
            names,
            moment,
            method=how.method,
            options=options,
            rounds=how.rounds,
            least_others=how.least_others,
            description=how.description,
            secure=terms,
            protection=how.protection,
        )
    _warn_of_terms(invocation, started)
    text = (
        f"round {started.round_id} is open until {moment_words(started.deadline)}\n"
        f"each site: poolctl rounds contribute {started.round_id} --data "
        f"{find_site_part(started.method).data.upper()}\n"
        f"{protection_of(started.method, started.options, secure=secure is not None)}"
    )
    return Reply(started, text, [started.round_id])


def _warn_of_terms(invocation: Invocation, started: RoundResponse) -> None:
    """Warn of rounds in which sites see or outweigh others."""
    if len(started.participants) == 2:
        invocation.warn(
            "with 2 sites each can compute the other's contribution, and sites "
            "contribute to no such round unless they give --least-others 1"
        )
    if started.secure is not None and started.options.get("mean") == "samples":
        invocation.warn(
            "mean=samples: nobody sees how many samples a site of a secure round states, so each "
            "can give itself the weight of all others"
        )


@command(app, "ls", "rounds ls", "rounds ls --state open -q", "rounds ls 4f1d2c3b4a596877")
def ls(
    invocation: Invocation,
    round_id: Annotated[str, Argument("Show this round only.", "[ROUND]")] = "",
    *,
    state: Annotated[RoundState | None, Option("Only rounds in this state.")] = None,
    limit: LimitOption = 50,
) -> Reply:
    """List the rounds that your site takes part in, newest first, or show one with its sites."""
    with invocation.pool() as pool:
        if round_id:
            return _show(invocation, pool.rounds.get(whole_round(pool, round_id)))
        listed = invocation.first_of(pool.rounds.list(state or ""), limit)
    columns = ["round", "state", "base", "until", "sites", "age"]
    return listing(listed, columns, _row, empty="no rounds found")


def _show(invocation: Invocation, round_: RoundResponse) -> Reply:
    if round_.base_warning:
        invocation.warn(
            f"{round_.base} is {round_.base_warning}: 'contribute' and 'finish' need "
            "--despite-withdrawal"
        )
    return Reply(round_, _description(round_), [round_.round_id])


@command(app, "sign", "rounds sign 4f1d2c3b4a596877")
def sign(invocation: Invocation, round_id: RoundArgument, *, yes: YesOption = False) -> Reply:
    """Sign the terms of a round that your site started on a page of the pool.

    Other sites that know your site's key contribute only to rounds with signed terms. Run this on
    the machine that has the key; it shows the terms first.
    """
    with invocation.pool() as pool:
        round_id = whole_round(pool, round_id)
        round_ = pool.rounds.get(round_id)
        terms = RoundTerms.of(round_)
        invocation.note(f"address of the base: {round_.base}")
        for name, value in terms.model_dump(mode="json").items():
            invocation.note(f"{name.replace('_', ' ')}: {value}")
        invocation.confirm(f"Sign these terms of round {round_id}?", assume_yes=yes)
        signed = sign_terms(pool, round_)
    if signed is None:
        raise UsageError(
            f"no key of site {terms.started_by!r} on this machine, expected the key that signs its "
            "uploads; run this where it is, or make one with: poolctl keys create"
        )
    return Reply(signed, f"signed the terms of round {round_id}", [round_id])


@command(app, "take-back", "rounds take-back 4f1d2c3b4a596877 -y")
def take_back(
    invocation: Invocation,
    round_id: RoundArgument,
    *,
    site: SiteOption = "",
    yes: YesOption = False,
) -> Reply:
    """Take your contribution back; the pool deletes it.

    This works until the round is finished. While the round is open, you may contribute again.
    """
    with invocation.pool() as pool:
        round_id = whole_round(pool, round_id)
        site = site or pool.whoami().site
        invocation.confirm(
            f"Take the contribution of {site} to round {round_id} back?", assume_yes=yes
        )
        round_ = pool.rounds.take_back(round_id, site)
    text = f"the contribution of {site} to round {round_id} is deleted"
    return Reply({"round": round_}, text, [round_id])


@command(
    app,
    "finish",
    "rounds finish 4f1d2c3b4a596877 --name site-a/refined-68",
    "rounds finish 4f1d2c3b4a596877 --early",
)
def finish(
    invocation: Invocation,
    round_id: RoundArgument,
    *,
    name: Annotated[
        str,
        Option("Name of the result. Default: the starter's site, the base's name.", "[SITE/]NAME"),
    ] = "",
    early: Annotated[
        bool, Option("Do not wait for missing sites (only for the site that started the round).")
    ] = False,
    despite_withdrawal: DespiteWithdrawalOption = False,
) -> Reply:
    """Have the pool combine the contributions and publish the result with its lineage.

    Any site of the round can do this; the first one ends the round. Sites that did not contribute
    in time are listed and left out. Only the pool reads contributions. If you have a key, the
    result is signed with it.
    """
    with invocation.pool() as pool, invocation.progress(f"round {round_id}") as report:
        address = pool.address(name) if name else ""
        round_id = whole_round(pool, round_id)
        finished = finish_round(
            pool,
            round_id,
            upload_to=address,
            early=early,
            despite_withdrawal=despite_withdrawal,
            progress=report,
        )
    by_whom = "" if finished.ended_here else f" (finished by {finished.round.ended_by})"
    text = [f"round {round_id} made {finished.version.address}{by_whom}"]
    text.append(f"sha256 {finished.version.digest}")
    if finished.left_out:
        text.append(f"left out: {', '.join(finished.left_out)}")
    if finished.round.terms is not None and finished.version.signed_by is None:
        signer = finished.version.site
        text.append(
            f"not signed yet: {signer} signs it by this command, after 'poolctl keys create'"
        )
    if finished.round.successor:
        text.append(f"the next round is {finished.round.successor}")
    else:
        address = finished.version.address.removeprefix("pool://")
        text.append(f"download it with: poolctl download {address}")
    return Reply(finished, text, [finished.version.address])


@command(app, "cancel", "rounds cancel 4f1d2c3b4a596877 -y")
def cancel(invocation: Invocation, round_id: RoundArgument, *, yes: YesOption = False) -> Reply:
    """Cancel a round (the site that started it, and admins)."""
    with invocation.pool() as pool:
        round_id = whole_round(pool, round_id)
        there = len(pool.rounds.get(round_id).contributions())
        invocation.confirm(f"Cancel round {round_id} with {there} contributions?", assume_yes=yes)
        round_ = pool.rounds.cancel(round_id)
    return Reply({"round": round_}, f"round {round_id} is cancelled", [round_id])


app.add_typer(contributions.app)


def _secure_terms(file: Path, sites: list[str]) -> SecureTerms:
    charter = read_charter(file)
    require_accepted(secure_folder(), charter.digest, file)
    if strange := sorted(set(sites) - set(charter.labs)):
        raise UsageError(f"--secure {file}: the charter names no lab {', '.join(strange)}")
    return SecureTerms(charter=charter.digest, servers=[*charter.servers])


def _row(round_: RoundResponse) -> list[str]:
    return [
        round_.round_id,
        f"{round_.state}, ready" if round_.ready else round_.state,
        round_.base,
        f"{round_.deadline:%Y-%m-%d %H:%M}",
        f"{len(round_.contributions())} of {len(round_.participants)}",
        age_words(round_.created_at),
    ]


def _shares(round_: RoundResponse) -> dict[str, str]:
    """Return how much each contribution counts, where sites weigh by their samples."""
    stated = {
        site: int(contribution.summary["samples"])
        for site, contribution in round_.contributions().items()
        if "samples" in contribution.summary
    }
    cap, by_samples = round_.options.get("weight_cap"), round_.options.get("mean") != "sites"
    if cap is None or not by_samples or not any(stated.values()) or round_.secure is not None:
        return {}
    most = cap_samples(list(stated.values()), float(cap))
    counted = {site: min(samples, most) for site, samples in stated.items()}
    total = sum(counted.values())
    return {
        site: f"{number / total:.0%}{' (capped)' if number < stated[site] else ''}"
        for site, number in counted.items()
    }


def _description(round_: RoundResponse) -> list[str | TableText]:
    secure = round_.secure is not None
    set_options = {key: value for key, value in round_.options.items() if value is not None}
    options = " ".join(f"{key}={value}" for key, value in set_options.items())
    rows = [
        ["round", f"{round_.round_id} ({round_.number} of {round_.rounds_total})"],
        ["base", round_.base],
        ["method", f"{round_.method}, {round_.mode}"],
        ["options", options],
        ["started", f"{moment_words(round_.created_at)} by {round_.created_by}"],
        ["until", moment_words(round_.deadline)],
    ]
    optional = [
        ("description", round_.description),
        ("terms", f"signed by {round_.created_by.partition('/')[0]}" if round_.terms else ""),
        ("combined with", f"at least {count_words(round_.least_others, 'other site')}"),
        ("protection", protection_of(round_.method, round_.options, secure=secure)),
        ("secure sum", round_.secure and ", ".join(round_.secure.servers)),
        (
            "ended",
            f"{moment_words(round_.ended_at)} by {round_.ended_by}" if round_.ended_at else "",
        ),
        ("result", round_.result),
        ("optimiser's state", f"sha256 {round_.state_digest}" if round_.state_digest else ""),
        ("after round", round_.predecessor),
        ("next round", round_.successor),
    ]
    rows += [[name, value] for name, value in optional if value]
    shares = _shares(round_)
    sites = [
        [
            participant.site,
            participant.state,
            shares.get(participant.site, ""),
            *_contribution_words(participant.contribution),
        ]
        for participant in round_.participants
    ]
    return [
        round_verdict(round_, finish=f"poolctl rounds finish {round_.round_id}"),
        TableText(["what", "value"], rows),
        TableText(["site", "state", "weight", "size", "since", "digest"], sites),
    ]


def _contribution_words(contribution: Any) -> list[str]:
    if contribution is None:
        return ["", "", ""]
    return [
        size_words(contribution.size_bytes),
        f"{contribution.created_at:%Y-%m-%d %H:%M}",
        contribution.digest[:16],
    ]
