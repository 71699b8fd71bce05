"""Check an uploaded model file in a limited child process.

Reading untrusted bytes may crash or take much memory; only the child process ends then. It needs
no network, no database and no secret. `run` is its program.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from pool_server.errors import FormatRefusedError, UploadBusyError
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, run_limited

if TYPE_CHECKING:
    from pool_server.settings import PoolSettings

_HINT = "`poolctl inspect FILE` reads the file in the same way on your machine."


@dataclass(frozen=True)
class CheckedModel:
    """What the check found in a file.

    `remade` says that the pool has made the very bytes by the recipe that came with them.
    """

    kind: str
    format: str
    fingerprint: dict[str, Any]
    merge_keys: dict[str, str]
    remade: bool = False

    @property
    def fingerprint_columns(self) -> dict[str, dict[str, Any]]:
        """The fingerprint as a version has it: single values and, apart from them, lists."""
        lists = {
            key: each for key, each in self.fingerprint.items() if isinstance(each, list | dict)
        }
        single = {key: each for key, each in self.fingerprint.items() if key not in lists}
        return {"fingerprint": single, "fingerprint_lists": lists}


def run_check(
    path: Path, file_name: str, size_bytes: int, settings: "PoolSettings"
) -> CheckedModel:
    """Check a file in a process of its own."""
    answer = run_limited(
        "pool_server.transfers.checking",
        {"path": str(path), "name": file_name},
        check_limits(settings, size_bytes),
        activity=f"{file_name}: reading the file",
    )
    if not answer["accepted"]:
        raise FormatRefusedError(str(answer["message"]), hint=_HINT)
    return CheckedModel(
        kind=answer["kind"],
        format=answer["format"],
        fingerprint=answer["fingerprint"],
        merge_keys=answer["merge_keys"],
    )


def check_limits(settings: "PoolSettings", size_bytes: int) -> Limits:
    """Return what a program may use that reads files of `size_bytes` together."""
    memory_bytes = settings.check_memory_bytes + MEMORY_FACTOR * size_bytes
    return Limits(memory_bytes, settings.check_time_s)


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the model file `path` of any known format; messages call it `name`.

    The answer is one of::

        {"accepted": true, "kind": ..., "format": ..., "fingerprint": {...}, "merge_keys": {...}}
        {"accepted": false, "message": "what was found and what was expected"}
    """
    from aggregators.errors import AggregatorError, FormatError
    from aggregators.formats import fingerprint, read_model, recognise
    from aggregators.formats.safetensors_file import require_shareable
    from aggregators.methods import merge_keys

    path, name = Path(plan["path"]), plan["name"]
    try:
        format_name = recognise(path).name
        model = read_model(path, max_bytes=path.stat().st_size)
        require_shareable(model, name)
        described = fingerprint(model, format_name)
        return {
            "accepted": True,
            "kind": described["kind"],
            "format": described["format"],
            "fingerprint": described,
            "merge_keys": merge_keys(described),
        }
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return {"accepted": False, "message": f"{name}: {error}"}


LEAST_AT_ONCE = 4
LONGEST_WAIT_S = 30.0
RETRY_AFTER_S = 5

P = ParamSpec("P")
T = TypeVar("T")


class CheckSlots:
    """Work that takes a processor for seconds or minutes, in threads of its own.

    Waiting for a slot takes no thread, so that short requests go on meanwhile; a request that has
    waited for too long is refused, to be sent again. A free slot goes to the site that has the
    fewest, and the last one never to a site that has all others. There is one for each processor,
    and at least `LEAST_AT_ONCE`.
    """

    def __init__(self, count: int = 0, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._count = count or max(LEAST_AT_ONCE, os.cpu_count() or 1)
        self._longest_wait_s = longest_wait_s
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._threads = anyio.CapacityLimiter(self._count)

    async def run(self, site: str, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `act` in a thread once there is a slot for `site`, and return what it returns."""
        async with self._slot(site):
            return await anyio.to_thread.run_sync(
                lambda: act(*args, **kwargs), limiter=self._threads
            )

    @asynccontextmanager
    async def _slot(self, site: str) -> AsyncIterator[None]:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((site, turn))
        self._give_out()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(turn), self._longest_wait_s)
            if not turn.done():
                raise UploadBusyError(
                    "the pool is checking other files at this moment",
                    hint="Ask for it again in a moment.",
                    details={"retry_after_s": RETRY_AFTER_S},
                )
            yield
        finally:
            if turn.done():
                self._taken[site] -= 1
            else:
                self._waiting.remove((site, turn))
            self._give_out()

    def _give_out(self) -> None:
        """Give free slots to those who wait."""
        while self._waiting and self._taken.total() < self._count:
            first = min(self._waiting, key=lambda each: self._taken[each[0]])
            site, turn = first
            if self._taken[site] and self._taken[site] >= self._count - 1:
                return
            self._waiting.remove(first)
            self._taken[site] += 1
            turn.set_result(None)


async def check_slots(request: Request) -> CheckSlots:
    return cast("CheckSlots", request.app.state.check_slots)


Checks = Annotated[CheckSlots, Depends(check_slots)]
