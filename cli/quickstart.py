"""``poolctl quickstart``: the whole journey, for real, on faces drawn here."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.pool_process import pool_process

if TYPE_CHECKING:
    from site_agent.quickstart import QuickstartResult, ScoredModel

app = single()

_DEFAULT_FOLDER = Path("poolctl-quickstart")


@command(
    app,
    "quickstart",
    examples=["quickstart", "quickstart --gaze", "quickstart --site-count 5 -o ~/poolctl-trial"],
)
def quickstart(
    invocation: Invocation,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A new or empty folder for all files. Default: ./poolctl-quickstart.",
        ),
    ] = None,
    site_count: Annotated[int, typer.Option(min=2, max=8, help="Number of sites that train.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic persons.")] = 1,
    gaze: Annotated[
        bool, typer.Option(help="Show gaze networks instead, trained in rounds.")
    ] = False,
) -> Reply:
    """Run the whole journey: train, share, merge, refine, evaluate, find blinks.

    Starts a pool on this machine. Sites with synthetic faces train and upload; a lab downloads,
    merges and uploads the merged models; the sites refine the merged landmark model in rounds; and
    the lab finds the blinks in a synthetic video. Takes a few minutes.

    With --gaze, each site trains a gaze network on synthetic eyes, and then all train one
    together in rounds through the pool.
    """
    from site_agent.quickstart import QuickstartSettings, run_journey

    settings = QuickstartSettings(sites=site_count, seed=seed)
    if gaze:
        import torch  # noqa: F401 (a missing package is an error before anything is drawn)

        return _gaze_quickstart(invocation, _prepared_folder(output), site_count, seed)
    folder = _prepared_folder(output)
    started_s = time.monotonic()
    reporter = _TerminalReporter(invocation)
    with reporter, pool_process(folder / "pool") as (endpoint, admin_token):
        result = run_journey(folder, endpoint, admin_token, settings, reporter)
    seconds = time.monotonic() - started_s
    return Reply(
        data=result.to_dict() | {"seconds": round(seconds, 1)},
        text=_summary(result, seconds),
        identifiers=[str(folder)],
    )


def _gaze_quickstart(invocation: Invocation, folder: Path, site_count: int, seed: int) -> Reply:
    from site_agent.quickstart.gaze_journey import run_gaze_journey

    started_s = time.monotonic()
    reporter = _TerminalReporter(invocation)
    with reporter, pool_process(folder / "pool") as (endpoint, admin_token):
        result = run_gaze_journey(
            folder, endpoint, admin_token, reporter, site_count=site_count, seed=seed
        )
    seconds = time.monotonic() - started_s
    rows = [
        [each.name, each.made_by, f"{each.error_deg:.2f}", f"{each.worst_person_deg:.2f}"]
        for each in result.networks
    ]
    poolctl = _program()
    text: list[str | TableText] = [
        "",
        TableText(
            ["network", "made by", "mean error", "worst person"],
            rows,
            title="Angular error in degrees, on persons that no site has seen:",
        ),
        "",
        f"Everything took {seconds:.0f} s and is in {folder}/.",
        "",
        "Try next:",
        f"  {poolctl} evaluate {result.network} {result.test_dataset}",
        f"  {poolctl} predict {result.test_dataset} --network {result.network} --pictures seen",
        f"  {poolctl} federated simulate {result.test_dataset} --method fedavg --method fedadam "
        "--rounds 5 -o run",
    ]
    return Reply(result.to_dict() | {"seconds": round(seconds, 1)}, text, [str(folder)])


def _prepared_folder(wanted: Path | None) -> Path:
    """Return an empty folder: the one asked for, or the first free default name."""
    from site_agent.errors import InvalidInputError

    folder = wanted or _DEFAULT_FOLDER
    number = 1
    while wanted is None and _is_taken(folder):
        number += 1
        folder = Path(f"{_DEFAULT_FOLDER}-{number}")
    if _is_taken(folder):
        raise InvalidInputError(
            f"{folder} is not an empty folder; name a new one with --output, "
            "or leave --output out for the next free name"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_taken(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


class _TerminalReporter:
    """Steps as lines on standard error, with a bar for the one under way on a terminal."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._bar: Any = None
        self._report: Any = None

    def __enter__(self) -> _TerminalReporter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_bar()

    def step(self, number: int, count: int, title: str) -> None:
        self._close_bar()
        self._invocation.note(f"[{number}/{count}] {title}")
        self._bar = self._invocation.progress("     ")
        self._report = self._bar.__enter__()
        self._started_s = time.monotonic()

    def progress(self, fraction: float | None, text: str) -> None:
        if self._report is not None and fraction is not None:
            self._report(min(fraction, 1.0), text)

    def done(self, text: str) -> None:
        self._close_bar()
        seconds = time.monotonic() - self._started_s
        self._invocation.note(f"      {text} ({seconds:.1f} s)")

    def _close_bar(self) -> None:
        bar, self._bar, self._report = self._bar, None, None
        if bar is not None:
            bar.__exit__(None, None, None)


def _summary(result: QuickstartResult, seconds: float) -> list[str | TableText]:
    folder = Path(result.folder)
    blinks = result.blinks
    poolctl = _program()
    return [
        "",
        TableText(
            ["face detector", "made by", "recall", "precision"],
            _rows(result.detectors, "{:.3f}"),
            title="On persons that no site has seen (recall and precision: 1 is best):",
        ),
        "",
        TableText(
            ["landmark model", "made by", "mean error", "EAR range"],
            _rows(result.landmarks, "{:.4f}"),
            title="Mean error in distances between the eyes; EAR range 1: follows the lids fully:",
        ),
        "",
        f"Blinks: {blinks.found} found, {blinks.true} drawn, {blinks.matched} matched.",
        f"Everything took {seconds:.0f} s and is in {folder}/ (summary.json, trace.png ...).",
        "",
        "Try next:",
        f"  {poolctl} inspect {result.merged_detector} --picture hog.png",
        f"  {poolctl} predict {result.test_dataset} --landmarks {result.refined_landmarks} "
        "--pictures seen",
        f"  {poolctl} blink {result.video} --detector {result.merged_detector} "
        f"--landmarks {result.refined_landmarks} -o blinks",
        f"  {poolctl} serve --data {folder / 'pool'}      # the pool, with all models in it",
    ]


def _program() -> str:
    """What the user has to type: the name alone where the shell finds it."""
    return "poolctl" if shutil.which("poolctl") else sys.argv[0]


def _rows(models: tuple[ScoredModel, ...], form: str) -> list[list[str]]:
    return [
        [model.name, model.made_by, form.format(model.score), f"{model.detail:.3f}"]
        for model in models
    ]
