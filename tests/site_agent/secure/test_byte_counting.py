"""A relay counts every byte, and changes none."""

import os
import socket
import threading

from tests.benchmarks.counting_relay import CountingRelay


def test_a_relay_passes_everything_on_and_counts_it() -> None:
    sent, answer = os.urandom(1_500_000), os.urandom(700_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arrived: list[bytes] = []

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as reading:
                    arrived.append(reading.read())
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with CountingRelay(f"http://127.0.0.1:{listener.getsockname()[1]}") as relay:
            port = int(relay.url.rsplit(":", 1)[1])
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", port)) as party:
                    party.sendall(sent)
                    party.shutdown(socket.SHUT_WR)
                    with party.makefile("rb") as reading:
                        assert reading.read() == answer
        thread.join()
    assert arrived == [sent, sent]
    assert (relay.sent_bytes, relay.received_bytes) == (2 * len(sent), 2 * len(answer))
