"""Events and the audit of a pool are listed and filtered by command."""

from pathlib import Path

import pytest

from aggregators.formats import write_model
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.site_agent.live_pool import LivePool


def upload(member: Run, name: str, seed: int) -> str:
    write_model(make_detector(seed), Path("logged.svm"))
    return str(member("upload", "logged.svm", "-n", name, "--json").data["version"]["address"])


def withdraw(member: Run, address: str) -> None:
    arguments = ("models", "withdraw", address, "--reason", "quality", "--explanation", "blurred")
    assert member(*arguments, "-y").code == 0


def test_events_are_listed_and_filtered(member: Run) -> None:
    first, second = upload(member, "log-1", 501), upload(member, "log-2", 502)
    withdraw(member, first)
    listed = member("log", "--json").data
    kinds = [(event["kind"], event["subject"]) for event in listed["items"]]
    assert ("version.withdrawn", first) in kinds
    only = member("log", "--kind", "version.withdrawn", "site-a/log-1", "--json").data["items"]
    assert [event["subject"] for event in only] == [first]
    assert "blurred" in member("log", "--kind", "version.withdrawn", "--long").out
    assert member("log", "--since", "2999-01-01").out.strip() == "no events"
    assert not [
        kind for kind, subject in kinds if kind == "version.withdrawn" and second in subject
    ]


def test_the_audit_says_who_did_what(
    member: Run, pool: LivePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = upload(member, "log-3", 503)
    withdraw(member, address)
    monkeypatch.setenv("POOL_TOKEN", pool.admin_token)
    entries = member("log", "--audit", "--kind", "version.withdraw", "--json").data["items"]
    assert [entry["subject"] for entry in entries][:1] == [address.removeprefix("pool://")]
    assert entries[0]["actor"].startswith("site-a")
    shown = member("log", address, "--audit").out
    assert "version.withdraw" in shown
