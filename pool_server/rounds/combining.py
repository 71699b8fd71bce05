"""The pool itself combines the contributions of a round, for whoever asks it to.

What it makes is brought in by the same steps, and under the same checks, as a result that a
participant combined at home; the bytes are the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggregators.methods.registry import find_method
from pool_server.database.records import RoundRecord
from pool_server.errors import FormatRefusedError, RefusedError
from pool_server.http.identity import Caller, look_again
from pool_server.http.session import ServerParts
from pool_server.jobs.limited import run_limited
from pool_server.rounds import repository, service
from pool_server.rounds.finishing import announce_result, complete_result
from pool_server.settings import PoolSettings
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.checking import check_limits
from pool_server.transfers.parts import store_parts
from pool_server.wire.rounds import FinishRequest, ResultRequest, RoundResponse


def finish_round(
    parts: ServerParts, caller: Caller, key: str, request: FinishRequest
) -> RoundResponse:
    """Combine what has been contributed, publish the result, and end the round.

    A round that is finished already is returned as it is.

    Raises
    ------
    NotAuthenticatedError, NotAllowedError
        The caller was shut out while the pool combined.
    RefusedError
        The pool demands signatures, and cannot sign the result for the site. A draft will not
        do here: all sites of the round go on with the result.
    """
    caller.require_upload_to(request.site)
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
        finished = found.state == repository.FINISHED
        if not finished:
            service.require_finishable(found)
            _require_unsigned_taken(parts.settings, key)
    if not finished:
        with ScratchFolder(parts.settings.scratch_folder).room() as folder:
            _combine_and_publish(parts, caller, found, request, folder)
    with parts.database.read() as session:
        return service.describe_round(service.get_round(session, caller, key))


def _require_unsigned_taken(settings: PoolSettings, key: str) -> None:
    if settings.require_signatures:
        raise RefusedError(
            "this pool takes only signed versions, and cannot sign the result of a round for "
            "your site",
            code="signature_required",
            hint=f"Combine at home: `poolctl rounds finish {key}` makes the same bytes and "
            "signs them.",
        )


def _combine_and_publish(
    parts: ServerParts, caller: Caller, found: RoundRecord, request: FinishRequest, folder: Path
) -> None:
    result = folder / "result"
    made = _run_combination(parts, found, result)
    caller = _look_again(parts, caller, request.site)
    upload, _ = announce_result(
        parts,
        caller,
        found.key,
        ResultRequest(
            site=request.site,
            name=request.name,
            size_bytes=result.stat().st_size,
            digest=made["digest"],
            file_name=found.base_version.file_name,
            description=f"Round {found.number} of {found.rounds_total} ({found.key})",
            recipe=made["recipe"],
        ),
    )
    if upload.state == "receiving":
        store_parts(parts, caller, upload, result)
        caller = _look_again(parts, caller, request.site)
        complete_result(parts, caller, found.key, upload.upload_id)


def _look_again(parts: ServerParts, caller: Caller, site: str) -> Caller:
    """Return what who asked may now: a token revoked while minutes passed ends no round."""
    with parts.database.read() as session:
        caller = look_again(session, caller)
    caller.require_upload_to(site)
    return caller


def _run_combination(parts: ServerParts, found: RoundRecord, result: Path) -> dict[str, Any]:
    """Combine in another process, for contributions are strangers' bytes."""
    base = found.base_version
    size_bytes = base.size_bytes + sum(each.size_bytes for each in found.contributions)
    possible = find_method(found.method).output_formats
    with ExitStack() as stack:
        inputs = [
            {
                "path": str(stack.enter_context(parts.storage.content_file(digest))),
                "file_name": file_name,
                "address": address,
                "weight": 1.0,
            }
            for digest, file_name, address in [
                (base.digest, base.file_name, service.address_of(base)),
                *((each.digest, each.file_name, None) for each in found.contributions),
            ]
        ]
        plan: dict[str, Any] = {
            "method": found.method,
            "options": {},
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
