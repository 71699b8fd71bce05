"""``poolctl models export|import``: models on hubs and in registries, and from there."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

from cli.frame import options
from cli.frame.errors import OutputExistsError, UsageError
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.values import key_value_pairs
from cli.options.versions import VisibilityOption
from site_agent.pool import sent
from site_agent.releases import hub, oci
from site_agent.releases.importing import import_version
from site_agent.releases.release import read_release, receive_release, write_release
from site_agent.wording import size_words

app = options.single()

Form = Literal["hf", "oci"]
PlaceArgument = Annotated[
    str,
    options.Argument(
        "HOST/NAME[:TAG] of a registry for oci; OWNER/NAME[@REVISION] of a hub, or a folder (ends "
        "in / or exists), for hf.",
        "FOLDER|REF",
    ),
]


SiteMapOption = Annotated[
    Sequence[str],
    options.Option("The site here for the site there. Default: the same name.", "THERE=HERE"),
]


@options.command(
    app,
    "export",
    "models export site-a/face-68@2 face-68/ --to hf",
    "models export site-a/face-68@2 our-lab/face-68 --to hf",
    "models export site-a/face-68@2 registry.example.org/our-lab/face-68:2 --to oci",
)
def export(
    invocation: Invocation,
    address: Annotated[str, options.Argument("[SITE/]NAME[@VERSION].", "ADDRESS")],
    place: PlaceArgument,
    *,
    to: Annotated[Form, options.Option("Hugging Face's form, or an OCI artifact (ModelPack).")],
) -> Reply:
    """Put a model on a hub or in a registry, with card, recipe, signature, terms and citation.

    The owner must have granted the right to redistribute it, and its terms must allow it. A folder
    shows every file before you send it anywhere. New repositories of a hub are private.
    """
    _require_registry(to, place)
    with ExitStack() as stack:
        pool = stack.enter_context(invocation.pool())
        is_local = to == "hf" and _is_folder(place)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poolctl-export-")))
        folder = _empty_folder(Path(place).expanduser()) if is_local else scratch
        release = write_release(pool, address, folder)
        if not is_local:
            sent.note_release(place, release.record.digest, release.files)
        if is_local:
            digest = ""
        elif to == "hf":
            digest = hub.push_to_hub(release, place)
        else:
            digest = stack.enter_context(oci.open_registry(place)).push(release)
        files = release.files
    data = {"address": release.record.address, "place": place, "digest": digest, "files": files}
    text = [f"{name}  {size_words(file.size_bytes)}" for name, file in files.items()]
    named = [f"{place}@{digest}"] if digest else []
    return Reply(data, [*text, f"{release.record.address} is in {place}", *named])


@options.command(
    app,
    "import",
    "models import face-68/ --from hf --dry-run",
    "models import our-lab/face-68 --from hf --site-map site-a=partner-a",
    "models import registry.example.org/our-lab/face-68:2 --from oci",
)
def import_(
    invocation: Invocation,
    place: PlaceArgument,
    *,
    source: Annotated[Form, options.Option("The form that it has there.", name="--from")],
    site_map: SiteMapOption = (),
    visibility: VisibilityOption = None,
    dry_run: options.DryRunOption = False,
) -> Reply:
    """Import a model that `models export` put there, with its signature and recipe.

    All files are checked first; an export that was changed on its way changes nothing here.
    """
    sites = key_value_pairs(site_map, "--site-map")
    _require_registry(source, place)
    with ExitStack() as stack:
        pool = stack.enter_context(invocation.pool())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poolctl-import-")))
        if source == "hf":
            release = (
                read_release(Path(place).expanduser())
                if _is_folder(place)
                else receive_release(hub.HubRepository(place).pull, scratch)
            )
        else:
            registry = stack.enter_context(oci.open_registry(place))
            release = receive_release(registry.pull, scratch)
        version = import_version(
            pool,
            release.record,
            release.folder / release.record.file_name,
            site_map=sites,
            visibility=visibility,
            dry_run=dry_run,
        )
    state = "was there" if version.was_there else f"new, {size_words(version.sent_bytes)} sent"
    cells = [version.source, version.address, "would be sent" if dry_run else state]
    cells.append("yes" if version.signed else "no")
    table = TableText(["from", "here", "state", "signed"], [cells])
    return Reply({"imported": not dry_run, "items": [version]}, table, [version.address])


def _require_registry(form: str, place: str) -> None:
    if form == "oci" and _is_folder(place):
        raise UsageError(
            f"{place}: is a folder, for the form hf; expected HOST/NAME[:TAG] of a registry"
        )


def _is_folder(place: str) -> bool:
    is_path = place.endswith(("/", os.sep)) or place.startswith((".", "/", "~"))
    return is_path or Path(place).is_dir()


def _empty_folder(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder}: has something in it; expected a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
