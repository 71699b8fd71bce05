"""``poolctl jobs``: the queue as a person with a terminal sees and changes it."""

from site_agent.jobs.folder import JobFolder
from tests.cli.conftest import Run


def test_the_queue_is_listed_done_repeated_and_forgotten(poolctl: Run) -> None:
    assert "no jobs" in poolctl("jobs", "ls").out
    queue = JobFolder()
    first, second = (
        queue.add("study", name, {"study": "/nowhere"}, group="both") for name in ("one", "two")
    )
    assert "2 waiting" in poolctl("jobs", "ls").out
    poolctl("jobs", "cancel", second.id)
    assert poolctl("jobs", "run").code == 0
    listed = poolctl("jobs", "ls", "both", "--json").data["items"]
    assert [item["state"]["state"] for item in listed] == ["failed", "cancelled"]
    outcome = poolctl("jobs", "wait", "both")
    assert outcome.code == 5
    assert "1 of 2 jobs failed" in outcome.err
    assert "asked for by command line" in poolctl("jobs", "ls", first.id[:6]).out
    assert poolctl("jobs", "rm", second.id, "--json").data["jobs"] == [second.id]
    assert poolctl("jobs", "ls", second.id).code == 4
