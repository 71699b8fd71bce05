"""``poolctl upload``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import sidecars
from cli.addresses import size_words
from cli.errors import InputMissingError, UsageError
from cli.options import DryRunOption, LabelOption, command, key_value_pairs, single
from cli.output import Invocation, Reply

if TYPE_CHECKING:
    from site_agent.pool_client import PoolClient, Uploaded

app = single()


@dataclass
class _Description:
    """What will be said of the file, and where that comes from."""

    labels: dict[str, str]
    metrics: dict[str, float]
    recipe: dict[str, Any] | None = None
    sources: list[str] = field(default_factory=list)


@command(
    app,
    "upload",
    examples=[
        "upload siteA.dat --name site-a/face-68 --label population=infant --label images=1111",
        "upload siteA.svm --name face --metric recall=0.88 --description 'Hose in view'",
        "upload merged.dat --name merged-68",
    ],
)
def upload(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model file of any known format.")],
    *,
    name: Annotated[
        str,
        typer.Option("--name", "-n", metavar="[SITE/]NAME", help="Your own site when left out."),
    ],
    label: LabelOption = [],  # noqa: B006 (typer wants the default itself)
    metric: Annotated[
        list[str],
        typer.Option("--metric", "-m", metavar="KEY=NUMBER", help="What you measured."),
    ] = [],  # noqa: B006
    description: Annotated[str, typer.Option(help="A sentence for people.")] = "",
    recipe: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a merged model; FILE.recipe.json when left out."),
    ] = None,
    sidecars_read: Annotated[
        bool,
        typer.Option(
            "--sidecars/--no-sidecars",
            help="Take labels, metrics and recipe from the files that lie beside the model.",
        ),
    ] = True,
    sign: Annotated[
        bool,
        typer.Option("--sign/--no-sign", help="Sign it, where you have a key for the site."),
    ] = True,
    dry_run: DryRunOption = False,
) -> Reply:
    """Send a model file to the pool as the next version of a model.

    The pool checks digest and format before anybody sees the version. The same file sent again
    gives the version that is there; an interrupted upload goes on where it stopped when the
    command is run again. Images never leave this machine, only the file named.
    """
    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file"
        raise InputMissingError(f"{file}: {found}; expected a model file")
    given = _Description(key_value_pairs(label, "--label"), _numbers(metric))
    from aggregators.formats import file_digest, recognise

    model_format = recognise(file)
    if recipe is not None or sidecars_read:
        _add_sidecars(given, file, file_digest(file), recipe, sidecars_read=sidecars_read)
    for source in given.sources:
        invocation.note(f"taken from {source}")
    with invocation.pool() as pool:
        address = model_address(pool, name)
        if dry_run:
            size = size_words(file.stat().st_size)
            data = {"address": address, "uploaded": False, "format": model_format.name}
            data |= {"labels": given.labels, "metrics": given.metrics, "recipe": given.recipe}
            return Reply(data, f"would upload {file} ({model_format.name}, {size}) as {address}")
        with invocation.progress(f"upload {file.name}") as report:
            done = pool.upload(
                file,
                address,
                description=description,
                labels=given.labels,
                metrics=given.metrics,
                recipe=given.recipe,
                sign=sign,
                progress=report,
            )
    return _reply(file, done)


def _reply(file: Path, done: Uploaded) -> Reply:
    version = done.version
    sent = f"{size_words(done.sent_bytes)} sent" if done.sent_bytes else "the pool had it already"
    data = {"uploaded": True, "sent_bytes": done.sent_bytes, "version": version}
    signed = ", signed" if version.signed_by is not None else ""
    return Reply(data, f"{file} is {version.address} ({sent}{signed})", [version.address])


def model_address(pool: PoolClient, name: str) -> str:
    """Return the full address; the site is one's own where it is left out."""
    from site_agent.pool_client import parse_address

    if "/" not in name:
        name = f"{pool.whoami().site}/{name}"
    address = parse_address(name)
    if address.reference:
        raise UsageError(f"--name {name}: the pool counts versions itself; leave @... out")
    return str(address)


def _numbers(words: list[str]) -> dict[str, float]:
    metrics = {}
    for key, text in key_value_pairs(words, "--metric").items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"--metric {key}={text}: expected a finite number")
        metrics[key] = value
    return metrics


def _add_sidecars(
    given: _Description, file: Path, digest: str, recipe: Path | None, *, sidecars_read: bool
) -> None:
    """Add what lies beside the file; what the command line says goes before it."""
    if recipe is not None:
        from aggregators.methods import read_recipe

        promised = read_recipe(recipe)
        if promised.output is not None and promised.output.digest != digest:
            raise UsageError(
                f"--recipe {recipe}: makes a file with the digest {promised.output.digest}, "
                f"but {file} has {digest}"
            )
        given.recipe = promised.model_dump(mode="json", by_alias=True)
    if not sidecars_read:
        return
    found = sidecars.recipe_beside(file, digest)
    if given.recipe is None and found is not None:
        given.recipe = found[1]
        given.sources.append(f"{found[0]}: the recipe")
    labels = sidecars.labels_beside(file, digest)
    if new := {key: value for key, value in labels.items() if key not in given.labels}:
        given.labels |= new
        words = " ".join(f"{key}={value}" for key, value in new.items())
        given.sources.append(f"{sidecars.beside(file, 'training')}: {words}")
    metrics = sidecars.metrics_beside(file, digest)
    if measured := {key: value for key, value in metrics.items() if key not in given.metrics}:
        given.metrics |= measured
        words = " ".join(f"{key}={value:.6g}" for key, value in measured.items())
        given.sources.append(f"{sidecars.beside(file, 'evaluation')}: {words}")
