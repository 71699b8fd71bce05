"""``poolctl app``: its start and its second start."""

from pathlib import Path

from tests.cli.conftest import Run, first_answer, start_process


def test_a_second_start_opens_the_running_app_with_a_ticket_of_its_own(
    poolctl: Run, tmp_path: Path
) -> None:
    arguments = ("app", "--no-browser", "--json", "--port", 0, "--results", tmp_path)
    process = start_process(*arguments)
    try:
        first = first_answer(process)["url"]
        second = poolctl(*arguments).data["url"]
    finally:
        process.terminate()
        process.wait()
    assert first.partition("#")[0] == second.partition("#")[0]
    assert first != second
    assert "127.0.0.1" in first
