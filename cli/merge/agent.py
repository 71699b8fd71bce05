"""``poolctl agent``: merging and refining with the pool, unattended."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cli.frame.errors import InputMissingError
from cli.frame.options import Option, command, group
from cli.frame.output import Invocation, Reply
from cli.live import terminated_as_interrupted
from site_agent.agent.agent import run_agent
from site_agent.agent.config import AgentConfig, example_toml, read_config
from site_agent.agent.workspace import Journal

app = group("Merge and refine automatically with the pool.")

_DEFAULT_FILE = Path("agent.toml")

_ConfigOption = Annotated[
    Path, Option("The configuration; 'poolctl settings agent run' prints an example.")
]


def example_settings() -> Reply:
    """Return an example of a configuration with every setting explained."""
    text = example_toml()
    return Reply({"toml": text}, text.rstrip(), [])


@command(app, "run", "agent run --config agent.toml", "agent run --once")
def run(
    invocation: Invocation,
    *,
    config: _ConfigOption = _DEFAULT_FILE,
    once: Annotated[bool, Option("Run one cycle and exit, for cron.")] = False,
) -> None:
    """Keep the merged models of your site up to date, and take part in rounds, until stopped.

    Each cycle downloads new sub-models that the configuration subscribes to, merges them with your
    own, scores the result on your validation faces, and uploads it if it is better by a margin.
    Then it contributes to the rounds that your site is invited to. Only models, scores and
    contributions leave this machine, never images. You can kill the agent at any moment; the next
    start continues its work.

    Each event is one line: a sentence in a terminal; of JSON with --json, in a file or a pipe.
    With --quiet, only warnings and errors.

    With --once the exit code is 0 on success, 8 if the pool did not answer, 3 if it does not accept
    the token, 7 if another agent uses the workspace, 2 for a mistake in the configuration.
    Otherwise it is that of the first failure; everything else was still done.
    """
    chosen = _read(config)
    conventions = invocation.conventions
    journal = Journal(
        sys.stdout,
        "warning" if conventions.quiet else "info",
        for_people=sys.stdout.isatty() and not conventions.as_json,
    )
    # A run without an end can only be ended so; an interrupted cycle is no success.
    ending = () if once else (KeyboardInterrupt,)
    with suppress(*ending), terminated_as_interrupted():
        report = run_agent(chosen, journal, once=once, profile=invocation.profile)
        if report.failures:
            raise report.failures[0][1]


def _read(path: Path) -> AgentConfig:
    if not path.is_file():
        raise InputMissingError(
            f"{path}: no such file; expected settings, as 'poolctl settings agent run' prints"
        )
    return read_config(path)
