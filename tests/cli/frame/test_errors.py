"""The exit-code table, and the messages to the user."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import aggregators
import cli
import cli.transfers.download
import site_agent
from aggregators.errors import AggregatorError
from cli.frame.errors import ERROR_TABLE, CliError
from site_agent.errors import SiteAgentError
from tests.cli.conftest import Run


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
            if not module.name.endswith("__main__"):
                import_module(module.name)


def test_every_error_has_its_line_in_the_table() -> None:
    load_everything()
    missing = [
        f"{kind.__module__}.{kind.__name__}"
        for root in (AggregatorError, SiteAgentError, CliError)
        for kind in leaves(root)
        if kind not in ERROR_TABLE and not kind.__name__.startswith("_")
    ]
    assert missing == []


def test_an_unexpected_error_is_no_traceback(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("something nobody thought of")

    monkeypatch.setattr(cli.transfers.download, "ModelCache", broken)
    shown = poolctl("cache", "ls")
    assert shown.code == 1
    assert "Traceback" not in shown.err
    assert "something nobody thought of" in shown.err
    assert "--debug" in shown.err
    assert "Traceback" in poolctl("cache", "ls", "--debug").err
    assert poolctl("cache", "ls", "--json").error["code"] == "unexpected"
    monkeypatch.setenv("POOL_DEBUG", "1")
    assert "Traceback" in poolctl("cache", "ls").err


def test_an_interruption_is_code_130(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.transfers.download, "ModelCache", interrupted)
    assert poolctl("cache", "ls").code == 130
    assert poolctl("cache", "ls", "--json").error["code"] == "interrupted"


def test_a_missing_library_names_the_extra(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.setattr(cli.transfers.download, "ModelCache", lacking)
    poolctl("cache", "ls").fails(2, 'pip install "poolctl[server]"')


def test_without_a_login_the_hint_says_how(poolctl: Run) -> None:
    poolctl("models", "ls").fails(3, "poolctl auth login")
    assert poolctl("models", "ls", "--json").error["code"] == "not_logged_in"


def test_a_pool_that_is_not_there_is_code_8(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("POOL_TOKEN", "secret-of-nobody")
    poolctl("auth", "whoami", "--json").fails(8, "pool_unreachable", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["inspect", "no-such-file.dat"], 4),
        (["download", "Not An Address"], 2),
        (["merge", "no-such-method", "a.svm", "b.svm"], 2),
        (["merge", "--without", "abc"], 2),
        (["upload", "no-such-file.dat", "--name", "x"], 4),
        (["cache", "rm", "0123456789ab"], 4),
        (["cache", "rm"], 2),
        (["env", "--profile", "nobody"], 2),
        (["train", "hog-svm", "no-such.xml"], 4),
        (["train", "ert", "no-such.xml", "--set=tree_depth=99"], 2),
    ],
)
def test_mistakes_have_their_codes(arguments: list[str], code: int, poolctl: Run) -> None:
    shown = poolctl(*arguments, "--json")
    assert shown.code == code, shown.out + shown.err
    assert shown.error["message"]
    plain = poolctl(*arguments)
    assert plain.code == code
    assert plain.err.startswith("Error: ")
    assert plain.out == ""


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--test-share", 20), "--test-share 20: expected 0 to 0.99; 20 % is 0.2"),
        (("--test-share", -1), "--test-share -1: expected 0 to 0.99"),
        (("--site-count", 0), "--site-count 0: expected at least 1"),
        (("--seed",), "Option '--seed' requires an argument"),
    ],
)
def test_options_with_a_wrong_number_or_none_are_named(
    poolctl: Run, option: tuple[str | float, ...], message: str
) -> None:
    refused = poolctl("dataset", "split", "faces.xml", *option)
    hint = "Hint: see poolctl dataset split --help"
    assert (refused.code, refused.err.splitlines()) == (2, [f"Error: {message}", hint])
