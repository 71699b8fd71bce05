"""``poolctl secure try``: a secure sum on this machine, with processes that share nothing."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.addresses import size_words
from cli.frame.errors import VerificationError
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.pool_process import pool_process

if TYPE_CHECKING:
    from site_agent.secure.trial import TrialResult

app = single()

_LARGEST_DIFFERENCE = 1e-7


@command(
    app,
    "try",
    examples=["secure try", "secure try --servers 3 --sites 5 --parameters 1000000 --json"],
)
def try_out(
    invocation: Invocation,
    *,
    servers: Annotated[int, typer.Option(min=2, max=16, help="Number of servers.")] = 3,
    sites: Annotated[int, typer.Option(min=3, max=32, help="Number of labs.", metavar="N")] = 5,
    parameters: Annotated[
        int, typer.Option(min=1, max=50_000_000, help="Length of each lab's vector.")
    ] = 1_000_000,
    full: Annotated[
        bool, typer.Option(help="Have the labs add up all openings themselves.")
    ] = False,
) -> Reply:
    """Sum up vectors of several labs on this machine, and check the result.

    Starts a pool, the servers and the labs, each as a process of its own, and counts the bytes at
    their sockets. The integer sum must be exact, the mean within 1e-7 of the one in float64, and
    the file the same at every lab.
    """
    from site_agent.secure.trial import TrialSettings, run_trial

    settings = TrialSettings(servers, sites, parameters, full)
    with (
        tempfile.TemporaryDirectory(prefix="poolctl-secure-") as scratch,
        invocation.progress("secure sum") as report,
        pool_process(Path(scratch) / "pool") as (endpoint, admin_token),
    ):
        result = run_trial(
            Path(scratch) / "parties",
            endpoint,
            admin_token,
            settings,
            server_command=[sys.executable, "-m", "cli", "secure", "serve"],
            progress=report,
        )
    if not (
        result.integer_sum_is_exact
        and result.same_bytes
        and result.largest_difference <= _LARGEST_DIFFERENCE
    ):
        raise VerificationError(
            f"the sum is wrong: exact {result.integer_sum_is_exact}, the same file at all labs "
            f"{result.same_bytes}, mean off by {result.largest_difference:.3g}"
        )
    return Reply(result.to_dict(), _describe_result(result, parameters))


def _describe_result(result: TrialResult, parameters: int) -> list[str | TableText]:
    plain_bytes = 4 * parameters
    rows = [
        [
            each.name,
            size_words(each.sent_bytes),
            f"{each.sent_bytes / plain_bytes:.3f}",
            size_words(each.received_bytes),
            f"{each.received_bytes / plain_bytes:.3f}",
            "" if each.seconds is None else f"{each.seconds:.1f}",
        ]
        for each in result.parties
    ]
    return [
        f"{result.processes} processes, {result.seconds:.1f} s for a sum of {result.labs} vectors "
        f"of {parameters:,} numbers",
        TableText(["party", "sent", "/ float32", "received", "/ float32", "seconds"], rows),
        "the integer sum is exact",
        f"the mean differs from that in float64 by at most {result.largest_difference:.2g}",
        "every lab has the same file",
    ]
