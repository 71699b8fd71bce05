"""Combining the contributions of a round with its base: only the pool reads them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggregators.methods.registry import find_method
from pool_server.database.records import RoundRecord
from pool_server.errors import FormatRefusedError
from pool_server.http.session import ServerParts
from pool_server.jobs.limited import run_limited
from pool_server.rounds.describing import address_of, files_to_combine
from pool_server.rounds.methods import find_round_method
from pool_server.transfers.checking import check_limits


def combine_contributions(parts: ServerParts, found: RoundRecord, result: Path) -> dict[str, Any]:
    """Write the model that base and contributions make to `result`, and its state beside it.

    In another process, for contributions are strangers' bytes.

    Returns
    -------
    dict
        The ``digest`` and ``recipe`` of the model.
    """
    base = found.base_version
    files: list[tuple[str, str, str | None]]
    files = [(base.digest, base.file_name, address_of(base))]
    contributions = files_to_combine(found)
    size_bytes = base.size_bytes + sum(each.size_bytes for each in contributions)
    before = found.predecessor
    if before is not None and before.state_digest is not None:
        files.append((before.state_digest, f"{before.key}.state", None))
        size_bytes += before.state_size_bytes or 0
    files += [(each.digest, each.file_name, None) for each in contributions]
    possible = find_method(found.method).output_formats
    with ExitStack() as stack:
        inputs = [
            {
                "path": str(stack.enter_context(parts.storage.content_file(digest))),
                "file_name": file_name,
                "address": address,
                "weight": 1.0,
            }
            for digest, file_name, address in files
        ]
        plan: dict[str, Any] = {
            "method": found.method,
            "options": find_round_method(found.method).merge_options(found.options),
            "format": base.format if base.format in possible else possible[0],
            "result": str(result),
            "inputs": inputs,
            "promised_digest": None,
            "successor_of": None,
        }
        answer = run_limited(
            "pool_server.merges.merge_program",
            plan,
            replace(
                check_limits(parts.settings, size_bytes),
                output_bytes=parts.settings.max_model_bytes,
            ),
            activity=f"combining the contributions of round {found.key}",
        )
    if not answer["accepted"]:
        raise FormatRefusedError(
            f"the contributions of round {found.key} cannot be combined: {answer['message']}"
        )
    return answer
