"""The commands of a study's protocol: a run is a process, and its JSON the results."""

import json
import shlex
import subprocess
import sys
from typing import Any

from site_agent.errors import SiteAgentError
from site_agent.studies.protocol_file import StepJob, parameters
from site_agent.work import Progress
from site_agent.work.processes import describe_end, start, stop


def run_command(job: StepJob, progress: Progress) -> Any:
    """Run the command of a step; return the scalars of its JSON, or the step's measures.

    ``poolctl`` is this program, and prints JSON.
    """
    known = {
        **parameters(job.settings), **job.step.factors,
        "folder": job.folder, "data": job.data, "study": job.study,
    }  # fmt: skip
    command = [word.format_map(known) for word in shlex.split(job.step.options["command"])]
    progress(0.0, shlex.join(command))
    if command[0] == "poolctl":
        command = [sys.executable, "-P", "-m", "cli", *command[1:], "--json", "--no-progress"]
    process = start(command, stderr=subprocess.PIPE)
    try:
        output, complaints = process.communicate()
    finally:
        stop(process)
    if process.returncode:
        text = (complaints or output).decode(errors="replace").strip()
        raise SiteAgentError(f"{shlex.join(command)} {describe_end(process.returncode)}: {text}")
    content = json.loads(output) if output.strip() else {}
    row = _scalars(content.get("data", content) if isinstance(content, dict) else content)
    if missing := [name for name in job.step.options["measures"] if name not in row]:
        raise SiteAgentError(
            f"{shlex.join(command)}: its JSON has no {missing[0]}; expected one of {', '.join(row)}"
        )
    return {name: row[name] for name in job.step.options["measures"] or row}


def _scalars(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return the numbers and texts of JSON by their names; a list of one stands for its item."""
    if not isinstance(content, dict):
        is_scalar = prefix and (content is None or isinstance(content, int | float | str))
        return {prefix: content} if is_scalar else {}
    row: dict[str, Any] = {}
    for key, item in content.items():
        if isinstance(item, list) and len(item) == 1:
            row |= _scalars(item[0], prefix)
        else:
            row |= _scalars(item, f"{prefix}_{key}" if prefix else key)
    return row
