"""The order in which uploaded files are checked, and the lease of work."""

import asyncio
import threading
from functools import partial

import pytest

from pool_server.errors import DatabaseUnavailableError, ServerBusyError
from pool_server.jobs.background import keep_renewed
from pool_server.jobs.check_slots import LARGE_BYTES, CheckSlots
from pool_server.settings import PoolSettings


def test_a_site_never_has_the_last_slot_and_the_one_with_fewest_is_next() -> None:
    begun: list[str] = []
    gates: dict[str, threading.Event] = {}

    def check(name: str) -> str:
        begun.append(name)
        assert gates.setdefault(name, threading.Event()).wait(540)
        return name

    async def until(count: int) -> None:
        while len(begun) < count:
            await asyncio.sleep(0.01)

    async def run() -> None:
        slots = CheckSlots(3)
        checks = {}

        def start(site: str, number: int) -> None:
            name = f"{site}{number}"
            gates[name] = threading.Event()
            checks[name] = asyncio.create_task(slots.run(site, partial(check, name)))

        for number in range(4):
            start("a", number)
        await until(2)
        start("b", 0)
        await until(3)
        assert sorted(begun) == ["a0", "a1", "b0"]
        start("c", 0)
        gates["a0"].set()
        await until(4)
        assert begun[3] == "c0"
        for gate in gates.values():
            gate.set()
        assert await asyncio.gather(*checks.values()) == list(checks)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_who_waits_for_too_long_is_asked_to_come_again() -> None:
    gate = threading.Event()
    wait = partial(gate.wait, 60)

    async def run() -> None:
        slots = CheckSlots(2, longest_wait_s=0.05)
        first = asyncio.create_task(slots.run("a", wait))
        await asyncio.sleep(0)  # it has the slot then
        with pytest.raises(ServerBusyError) as refused:
            await slots.run("a", wait)
        assert refused.value.details["retry_after_s"] > 0
        gate.set()
        assert await first
        assert await slots.run("a", wait)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_small_file_waits_behind_no_large_ones_of_others() -> None:
    begun: list[str] = []
    gates = {site: threading.Event() for site in "abcdefg"}

    def check(name: str) -> None:
        begun.append(name)
        assert gates[name].wait(60)

    async def until(count: int) -> None:
        while len(begun) < count:
            await asyncio.sleep(0.01)

    async def run() -> None:
        slots = CheckSlots(3)
        sizes = dict.fromkeys("abcd", LARGE_BYTES + 1) | {"e": 3, "f": 2, "g": 1}
        checks = []
        for site, size in sizes.items():
            check_of_site = slots.run(site, partial(check, site), size)
            checks.append(asyncio.create_task(check_of_site))
            await asyncio.sleep(0)  # it has asked then
        await until(3)
        assert sorted(begun) == ["a", "b", "e"], "a slot is left for small files"
        gates["e"].set()
        await until(4)
        assert begun[3] == "g", "the smallest first"
        for gate in gates.values():
            gate.set()
        await asyncio.gather(*checks)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_lease_is_renewed_also_after_a_failure() -> None:
    renewed = threading.Semaphore(0)
    first = True

    def renew() -> None:
        nonlocal first
        renewed.release()
        if first:
            first = False
            raise DatabaseUnavailableError("the database does not answer")

    with keep_renewed(PoolSettings.model_construct(lease_s=0.03), "a test", renew):
        for _ in range(3):
            assert renewed.acquire(timeout=540)
