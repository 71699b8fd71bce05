"""``poolctl merge --replay``: the same merge again, exactly, or without something that is in it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aggregators import Merged, Recipe, parse_recipe, read_recipe, recipe_path, replay
from aggregators.errors import RecipeError
from aggregators.methods.networks import state_path
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import require_free
from cli.frame.output import Invocation, Reply
from cli.options.merging import MergeHere, MergeOptions
from pool_server.wire.models import ROUND_FILES, SECURE_SUM
from site_agent.errors import InvalidInputError
from site_agent.pool.client import PoolClient
from site_agent.pool.rebuilding import (
    Family,
    RebuildPlan,
    Rebuilt,
    RecipeSources,
    Step,
    carry_out,
    plan_rebuild,
)
from site_agent.pool.restrictions import LocalFile
from site_agent.tasks.merging import InputFinder, require_not_withdrawn
from site_agent.tasks.model_files import SUFFIX_OF_FORMAT, is_address
from site_agent.wording import count_words, size_words

_SHORTEST_DIGEST = 4


def replay_merge(
    invocation: Invocation,
    places: Sequence[str],
    how: MergeOptions,
    here: MergeHere,
    *,
    despite_withdrawal: bool,
) -> Reply:
    """Make a merged model again, after those of its inputs that must be made again.

    `places`: Files and addresses in which to look for inputs.
    """
    with invocation.pool() as pool:
        recipe, folder = _find_recipe(pool, how.replay)
        target = choose_target(here.output, recipe.output.format if recipe.output else "")
        beside = [Path(word).parent for word in places if Path(word).is_file()]
        sources = RecipeSources([folder, *beside], pool.models)
        family = Family.collect(recipe, sources) if how.without else Family(recipe)
        finder = InputFinder(invocation, folder, places, family, sources=sources, pool=pool)
        if how.without:
            left_out = _digests_to_leave_out(family, sources, pool, how.without)
            plan = plan_rebuild(family, left_out)
            kept = [digest for step in plan.steps for digest in step.kept]
            _require_inputs(invocation, family, kept, despite=despite_withdrawal)
            if sources.silence:
                invocation.note(f"only recipes on this machine were used: {sources.silence}")
            names = _Names(target, plan, sources)
            return _rebuild(invocation, plan, finder, names, force=here.force)
        _require_inputs(invocation, family, recipe.input_digests, despite=despite_withdrawal)
        require_free(target, force=here.force)
        with invocation.progress(f"replay {recipe.method.name}") as report:
            merged = replay(recipe, finder.find, target, progress=report)
        return merged_reply(invocation, merged, target)


def _rebuild(
    invocation: Invocation, plan: RebuildPlan, finder: InputFinder, names: "_Names", *, force: bool
) -> Reply:
    for step in plan.steps:
        require_free(names.path_of(step), force=force)
    with invocation.progress(f"replay {plan.steps[-1].recipe.method.name}") as report:
        made = carry_out(plan, finder.find, names.target, name_of=names.path_of, progress=report)
    reply = merged_reply(invocation, made[-1].merged, names.target)
    return _with_story(reply, plan, made, names)


def _require_inputs(
    invocation: Invocation, family: Family, digests: Sequence[str], *, despite: bool
) -> None:
    """Ask the pool about the inputs: the cache may hold versions withdrawn since."""
    mentions = family.entries()
    files = []
    for digest in dict.fromkeys(digests):
        names = [mention.address or mention.file_name for mention in mentions.get(digest, [])]
        name = next(filter(None, names), digest[:12])
        # A path with the scheme would lose one of its slashes.
        files.append(LocalFile(Path(name.removeprefix("pool://")), digest))
    require_not_withdrawn(invocation, files, despite=despite)


def _digests_to_leave_out(
    family: Family, sources: RecipeSources, pool: PoolClient, names: Sequence[str]
) -> list[str]:
    """Return the digests that ``--without`` means: the start of one, or an address.

    Of an input of the recipe, or of anything that those were merged from.
    """
    entries = family.entries()
    left_out: list[str] = []
    for word in names:
        text = word.removeprefix("sha256:")
        is_digest = len(text) >= _SHORTEST_DIGEST
        matching = {entry for entry in entries if is_digest and entry.startswith(text)}
        if not matching and is_address(word):
            address = str(pool.address(word))
            matching = {
                digest
                for digest, mentions in entries.items()
                if address
                in {*(mention.address for mention in mentions), *sources.addresses_of(digest)}
            } or {pool.version(address).digest} & set(entries)
        if len(matching) != 1:
            known = ", ".join(
                f"{entry.digest[:12]} ({entry.address or entry.file_name})"
                for entry in family.root.inputs
            )
            raise UsageError(
                f"--without {word} names {'several' if matching else 'none'} of the recipe's "
                f"inputs and of the models that they were merged from; the inputs are: {known}"
            )
        left_out.extend(matching)
    _require_no_sum(sources, left_out)
    return list(dict.fromkeys(left_out))


def _require_no_sum(sources: RecipeSources, left_out: Sequence[str]) -> None:
    for digest in left_out:
        if sources.round_file(digest) == ROUND_FILES[SECURE_SUM]:
            raise InvalidInputError(
                f"--without {digest[:12]}: this is the sum of the updates of several labs, made so "
                "that nobody ever had the update of one; no lab's part can be taken out of it",
                hint="start a new round from the base without that lab",
            )


class _Names:
    """The names of the files that must be made before the one that was asked for."""

    def __init__(self, target: Path, plan: RebuildPlan, sources: RecipeSources) -> None:
        self.target = target
        self._sources = sources
        self._paths: dict[str, Path] = {}
        names: dict[str, str | None] = {}
        for step in plan.steps:
            names |= {entry.digest: entry.file_name for entry in step.recipe.inputs}
        used = {target}
        for number, step in enumerate(plan.steps[:-1], start=1):
            suffix = SUFFIX_OF_FORMAT.get(step.recipe.output.format if step.recipe.output else "")
            stem = Path(names.get(step.old) or step.old[:12]).name.split(".")[0]
            path = target.with_name(f"{target.stem}--{stem}{suffix or target.suffix}")
            if path in used:
                path = path.with_stem(f"{path.stem}-{number}")
            used.add(path)
            self._paths[step.old] = path

    def path_of(self, step: Step) -> Path:
        return self._paths.get(step.old, self.target)

    def old_name(self, digest: str) -> str:
        """Return the name of a file that is replaced."""
        addresses = self._sources.addresses_of(digest)
        return addresses[0] if addresses else f"sha256:{digest[:12]}..."


def _with_story(reply: Reply, plan: RebuildPlan, made: Sequence[Rebuilt], names: _Names) -> Reply:
    """Add the excluded inputs, and all intermediate models."""
    items = [
        {
            "path": entry.path,
            "digest": entry.merged.digest,
            "recipe_file": entry.recipe_file,
            "replaces": entry.step.old,
            "replaced_addresses": names.old_name(entry.step.old),
        }
        for entry in made
    ]
    left_out = [entry.address or entry.file_name or entry.digest[:12] for entry in plan.left_out]
    lines = [f"without {', '.join(left_out)}"]
    lines += [f"{entry.path} takes the place of {names.old_name(entry.step.old)}" for entry in made]
    if plan.unrefined:
        lines.append(
            "it is not refined: what sites contributed fits only the old base; after the upload, "
            "refine it again: poolctl rounds start --base ADDRESS"
        )
    if len(made) > 1:
        lines.append("upload them in this order, so that the pool links each as a successor")
    assert isinstance(reply.text, Sequence), "the text of merged_reply is a list of lines"
    data = {**reply.data, "made": items}
    data["left_out"] = [entry.model_dump() for entry in plan.left_out]
    return Reply(data, [*reply.text, *lines], [str(entry.path) for entry in made])


def merged_reply(invocation: Invocation, merged: Merged, target: Path) -> Reply:
    """Return the reply about a merge that was written to `target`."""
    for warning in merged.warnings:
        invocation.warn(warning)
    size_bytes = target.stat().st_size
    data: dict[str, Any] = {
        "output": target,
        "digest": merged.digest,
        "size_bytes": size_bytes,
        "recipe_file": recipe_path(target),
        "recipe": merged.recipe.model_dump(mode="json", by_alias=True),
        "warnings": merged.warnings,
    }
    count = len(merged.recipe.inputs)
    text = [
        f"{target}  ({count_words(count, 'model')} by {merged.recipe.method.name}, "
        f"{size_words(size_bytes)})",
        f"sha256 {merged.digest}",
        f"recipe {recipe_path(target)}",
    ]
    if merged.state is not None:
        data["state_file"] = state_path(target)
        text.append(f"state  {state_path(target)}  (an input of the next round)")
    return Reply(data, text, [str(target)])


def choose_target(output: Path | None, format_name: str) -> Path:
    """Return the file to write; by default ``merged`` with the format's suffix."""
    return output or Path(f"merged{SUFFIX_OF_FORMAT.get(format_name, '')}")


def _find_recipe(pool: PoolClient, word: str) -> tuple[Recipe, Path]:
    """Return the recipe of a file or address, and the folder in which to look for its inputs."""
    if not is_address(word):
        try:
            return read_recipe(Path(word)), Path(word).parent
        except RecipeError as error:
            beside = recipe_path(Path(word))
            if beside.is_file():
                raise RecipeError(f"{error}; its recipe is {beside}") from error
            raise
    document = pool.recipe(word)
    if document is None:
        raise InputMissingError(
            f"--replay {word}: not a merged model; the pool has no recipe of it"
        )
    return parse_recipe(json.dumps(document), subject=word), Path()
