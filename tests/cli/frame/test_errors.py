"""The exit-code table, and what the user is told."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import aggregators
import cli
import cli.transfers.cache
import site_agent
from aggregators.errors import AggregatorError
from cli.frame.errors import ERROR_TABLE, CliError, ExitCode, outcome_of, report_failure
from site_agent.errors import PoolUnreachableError, SiteAgentError
from tests.cli.conftest import Run, run_process

PRODUCT_TABLE = {
    0: "done",
    1: "unexpected",
    2: "usage",
    3: "not_allowed",
    4: "not_found",
    5: "integrity",
    6: "incompatible",
    7: "conflict",
    8: "network",
    130: "interrupted",
}


def leaves(root: type[BaseException]) -> Iterator[type[BaseException]]:
    """Yield the classes below `root` that packages of ours define and nobody derives from."""
    below = root.__subclasses__()
    if not below and root.__module__.split(".")[0] in {"aggregators", "site_agent", "cli"}:
        yield root
    for kind in below:
        yield from leaves(kind)


def load_everything() -> None:
    for package in (aggregators, site_agent, cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            if not module.name.endswith("__main__"):
                import_module(module.name)


def test_exit_codes_are_those_of_the_product_table() -> None:
    assert {int(code): code.name.lower() for code in ExitCode} == PRODUCT_TABLE


def test_every_error_has_its_line_in_the_table() -> None:
    load_everything()
    missing = [
        f"{kind.__module__}.{kind.__name__}"
        for root in (AggregatorError, SiteAgentError, CliError)
        for kind in leaves(root)
        if kind not in ERROR_TABLE and not kind.__name__.startswith("_")
    ]
    assert missing == []


def test_codes_for_programs_are_words() -> None:
    for kind, outcome in ERROR_TABLE.items():
        assert outcome.code.replace("_", "").isalpha(), kind
        assert outcome.exit_code != ExitCode.DONE, kind


def test_a_derived_error_gets_the_line_of_its_nearest_ancestor() -> None:
    class NearerError(PoolUnreachableError):
        pass

    assert outcome_of(NearerError("gone")).exit_code == ExitCode.NETWORK


@pytest.mark.parametrize("kind", [kind for kind in ERROR_TABLE if kind is not KeyboardInterrupt])
def test_every_line_gives_its_code(
    kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    if any("__str__" in vars(ancestor) for ancestor in kind.__mro__[:-3]):
        pytest.skip("has a text of its own; tested with its package")
    error = kind.__new__(kind)
    BaseException.__init__(error, "what was found")
    assert report_failure(error, []) == ERROR_TABLE[kind].exit_code
    assert "Error:" in capsys.readouterr().err


def test_an_unexpected_error_is_no_traceback(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("something nobody thought of")

    monkeypatch.setattr(cli.transfers.cache, "_cache", broken)
    shown = poolctl("cache", "ls")
    assert shown.code == 1
    assert "Traceback" not in shown.err
    assert "something nobody thought of" in shown.err
    assert "--debug" in shown.err
    assert "Traceback" in poolctl("cache", "ls", "--debug").err
    told = poolctl("cache", "ls", "--json")
    assert told.error["code"] == "unexpected"
    monkeypatch.setenv("POOL_DEBUG", "1")
    assert "Traceback" in poolctl("cache", "ls").err


def test_an_interruption_is_code_130(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.transfers.cache, "_cache", interrupted)
    assert poolctl("cache", "ls").code == 130
    assert poolctl("cache", "ls", "--json").error["code"] == "interrupted"


def test_a_missing_library_names_the_extra(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.setattr(cli.transfers.cache, "_cache", lacking)
    shown = poolctl("cache", "ls")
    assert shown.code == 2
    assert 'pip install "poolctl[server]"' in shown.err


def test_without_a_login_the_hint_says_how(poolctl: Run) -> None:
    shown = poolctl("models", "ls")
    assert shown.code == 3
    assert "poolctl auth login" in shown.err
    assert poolctl("models", "ls", "--json").error["code"] == "not_logged_in"


def test_a_pool_that_is_not_there_is_code_8(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("POOL_TOKEN", "secret-of-nobody")
    shown = poolctl("auth", "whoami", "--json")
    assert shown.code == 8
    assert shown.error["code"] == "pool_unreachable"
    assert "http://127.0.0.1:9" in shown.error["message"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["inspect", "no-such-file.dat"], 4),
        (["inspect", "."], 4),
        (["download", "Not An Address"], 2),
        (["merge", "mwma"], 2),
        (["merge", "no-such-method", "a.svm", "b.svm"], 2),
        (["merge", "--without", "abc"], 2),
        (["upload", "no-such-file.dat", "--name", "x"], 4),
        (["cache", "rm", "0123456789ab"], 4),
        (["cache", "prune"], 2),
        (["cache", "prune", "--max-size", "many"], 2),
        (["auth", "login"], 2),
        (["auth", "switch", "nobody"], 2),
        (["env", "--profile", "nobody"], 2),
        (["dataset", "check", "no-such.xml"], 4),
        (["train", "hog-svm", "no-such.xml"], 4),
        (["train", "ert", "no-such.xml", "--tree-depth", "99"], 2),
    ],
)
def test_mistakes_have_their_codes(words: list[str], code: int, poolctl: Run) -> None:
    shown = poolctl(*words, "--json")
    assert shown.code == code, shown.out + shown.err
    assert shown.error["message"]
    plain = poolctl(*words)
    assert plain.code == code
    assert plain.err.startswith("Error: ")
    assert plain.out == ""


def test_a_stranger_file_is_code_5(tmp_path: Path, poolctl: Run) -> None:
    stranger = tmp_path / "letter.dat"
    stranger.write_text("Dear colleague, the model is on its way.\n" * 20)
    shown = poolctl("inspect", stranger, "--json")
    assert shown.code == 5
    assert "letter.dat" in shown.error["message"]


def test_a_half_written_file_is_called_by_its_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unfinished = tmp_path / ".merged.dat.1f3a.partial"
    assert report_failure(OSError(28, "No space left on device", str(unfinished)), []) == 1
    assert f"the folder {tmp_path}: No space left on device" in capsys.readouterr().err


def test_nothing_is_printed_twice_by_a_process() -> None:
    shown = run_process("models", "ls", "--json")
    assert shown.code == 3
    assert shown.err == ""
    assert shown.error["code"] == "not_logged_in"
