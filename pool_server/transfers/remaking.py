"""Making a merge again from its recipe, to see whether that gives the bytes that somebody sent."""

from __future__ import annotations

from contextlib import ExitStack

from sqlalchemy.orm import Session

from aggregators.methods import Recipe
from pool_server.database.records import ModelVersionRecord, UploadRecord
from pool_server.errors import FormatRefusedError
from pool_server.http.session import ServerParts
from pool_server.jobs.merging import merge_by_recipe
from pool_server.models.access import readable, rights_of_site
from pool_server.models.registry.repository import whole_versions
from pool_server.models.registry.sql import among
from pool_server.models.states import AVAILABLE
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.descriptions import read_recipe


def remake(parts: ServerParts, upload: UploadRecord) -> bool:
    """Return whether the recipe of an upload makes its bytes out of models in the pool.

    False also where the pool may not or cannot make it: an input is not there, or not for the
    site to merge, or they are larger than the pool merges.
    """
    settings = parts.settings
    recipe = read_recipe(dict(upload.recipe or {}), upload.digest)
    with parts.database.read() as session:
        inputs = _find_inputs(session, upload, recipe)
    size_bytes = sum(inputs.values())
    is_complete = all(each.digest in inputs for each in recipe.inputs)
    if not settings.central_merges or not is_complete or size_bytes > settings.merge_input_bytes:
        return False
    with ScratchFolder(settings.scratch_folder).room() as folder, ExitStack() as stack:
        paths = {
            digest: stack.enter_context(parts.storage.content_file(digest)) for digest in inputs
        }
        activity = f"{upload.file_name}: making it again"
        try:
            made = merge_by_recipe(settings, recipe, paths, folder / "result", activity=activity)
        except FormatRefusedError:
            return False
    return bool(made["accepted"])


def _find_inputs(session: Session, upload: UploadRecord, recipe: Recipe) -> dict[str, int]:
    """Return the size of each input that the site may merge, by digest; never the file itself."""
    versions = session.scalars(
        whole_versions().where(
            among(ModelVersionRecord.digest, "digests"), readable(upload.site_id, curates=False)
        ),
        {"digests": sorted(set(recipe.input_digests) - {upload.digest})},
    )
    return {each.digest: each.size_bytes for each in versions if _may_merge(upload.site_id, each)}


def _may_merge(site_id: int, version: ModelVersionRecord) -> bool:
    is_there = version.state == AVAILABLE or version.model.site_id == site_id
    return is_there and "merge" in rights_of_site(site_id, version.model)
