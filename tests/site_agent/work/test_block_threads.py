"""Threads of a block: waited for, except after Ctrl-C."""

import threading

import pytest

from site_agent.pool.storage_connection import BlockThreads


def test_a_block_waits_for_its_threads_and_tells_them_to_stop() -> None:
    ended = []
    with BlockThreads("test") as threads:
        for number in range(3):

            def work(number: int = number) -> None:
                threads.stopped.wait(10)
                ended.append((number, threads.stopped.is_set()))

            threads.start(work)
    assert sorted(ended) == [(0, True), (1, True), (2, True)]


def test_an_interrupted_block_waits_for_nobody() -> None:
    silent = threading.Event()
    threads = BlockThreads("test")
    threads.start(lambda: assert_set(silent))
    try:
        with pytest.raises(KeyboardInterrupt), threads:
            raise KeyboardInterrupt
        assert threads.stopped.is_set()
        assert [thread for thread in threading.enumerate() if thread.name == "test-0"]
    finally:
        silent.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(540)


def test_results_come_in_the_order_of_the_items() -> None:
    second = threading.Event()
    told = []

    def work(item: int) -> int:
        if item == 2:
            second.set()
        elif item == 1:
            assert_set(second)
        return item * item

    with BlockThreads("test") as threads:
        assert threads.run(work, [1, 2, 3], 2, lambda: told.append(None)) == [1, 4, 9]
    assert len(told) >= 3


def test_the_first_error_stops_what_has_not_begun() -> None:
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("item 1")
        assert threads.stopped.wait(540)

    threads = BlockThreads("test")
    with pytest.raises(ValueError, match="item 1"), threads:
        threads.run(work, range(10), 2)
    assert set(begun) <= {0, 1}
