"""Checks of a job by server and sites before FLARE reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from aggregators import write_model
from site_agent.errors import InvalidInputError
from site_agent.federated.engines.flare.jobs import check_job, write_job
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network


@pytest.fixture
def job(tmp_path: Path) -> Path:
    base = tmp_path / "base.safetensors"
    write_model(new_network("gaze-lenet", 1), base)
    write_job(
        tmp_path / "job",
        make_plan("fedadam", {}, rounds=3),
        ["site-0", "site-1"],
        base,
        first_base="0123456789abcdef" * 4,
        first_round=2,
        rounds=2,
        round_limit_s=60.0,
    )
    return tmp_path / "job"


def test_jobs_of_ours_are_taken(job: Path) -> None:
    check_job(job / "server", "server")
    check_job(job / "site", "client")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base", "../../../startup/server.key"),
        ("base", "/etc/passwd.safetensors"),
        ("base", "..safetensors"),
        ("first_base", "../../../elsewhere"),
        ("first_base", "{WORKSPACE}12"),
        ("sites", ["site-0", "../site-1"]),
        ("first_round", 0),
        ("round_limit_s", 1e12),
        ("plan", {"method": "fedavg", "rounds": 1, "code": "x"}),
        ("more", 1),
    ],
)
def test_arguments_that_name_other_things_are_refused(job: Path, name: str, value: Any) -> None:
    place = job / "server" / "config" / "config_fed_server.json"
    content = json.loads(place.read_text())
    content["workflows"][0]["args"][name] = value
    place.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match=name if name != "more" else "more"):
        check_job(job / "server", "server")


def test_further_entries_and_components_are_refused(job: Path) -> None:
    place = job / "site" / "config" / "config_fed_client.json"
    content = json.loads(place.read_text())
    for change in (
        {"components": [{"id": "x", "path": "subprocess.Popen", "args": {}}]},
        {"executors": []},
        {"task_data_filters": []},
    ):
        place.write_text(json.dumps(content | change))
        with pytest.raises(InvalidInputError, match="found entries"):
            check_job(job / "site", "client")


@pytest.mark.parametrize(
    "name",
    ["config_fed_client.conf", "config_fed_client.yml", "comm_config.json", "../custom/own.py"],
)
def test_further_files_and_other_formats_are_refused(job: Path, name: str) -> None:
    place = job / "site" / "config" / name
    (job / "site" / "custom").mkdir()
    place.write_text('include url("http://127.0.0.1:9/x")')
    with pytest.raises(InvalidInputError, match="no part of a block"):
        check_job(job / "site", "client")


def test_a_link_is_refused(job: Path) -> None:
    base = job / "server" / "config" / "base.safetensors"
    base.unlink()
    base.symlink_to("/etc/hostname")
    with pytest.raises(InvalidInputError, match="no part of a block"):
        check_job(job / "server", "server")


def test_a_job_without_json_is_refused(job: Path) -> None:
    place = job / "site" / "config" / "config_fed_client.json"
    place.rename(place.with_suffix(".conf"))
    with pytest.raises(InvalidInputError, match="in JSON only"):
        check_job(job / "site", "client")
    place.write_text("[" * 5000)
    with pytest.raises(InvalidInputError, match="not the configuration"):
        check_job(job / "site", "client")
