"""``poolctl refine``: fit the leaves of a merged landmark model to the faces of all sites."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from aggregators.methods.refitting import RefitSettings
from aggregators.models import ShapePredictor
from cli.frame import options
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import require_free
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.data import ImagesOption, PartsOption, part_words, read_face_file, reading_from
from site_agent.datasets.records import FaceDataset, dataset_digest, face_marks
from site_agent.datasets.soundness import require_sound
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import (
    CROP_MARGIN,
    RefinementPlan,
    SiteSource,
    load_site,
    read_base,
    refine_sites,
    write_contributions,
)
from site_agent.tasks.merging import local_copies, require_not_withdrawn
from site_agent.training.overlap import training_overlap
from site_agent.training_record import remember_learned
from site_agent.wording import count_words, size_words

app = options.single()

REFINEMENT_SETTINGS = CommandSettings(RefitSettings(), leave_out=("level", "seed"))
SeedOption = Annotated[int, options.Option("Seed of the starting shapes.", min=0)]
ThreadsOption = Annotated[int, options.Option("Number of threads; 0: one for each core.", min=0)]


@options.command(
    app,
    "refine",
    "refine siteA.xml siteB.xml --base merged.dat -o refined.dat --rounds 3",
    "refine siteA.xml siteB.xml --base merged.dat -o r.dat --set thin=500 --test test.xml",
    "refine mine.xml --base merged.dat --contributions sent/",
    "merge leaf-refit merged.dat sent/*.contribution -o refined.dat",
)
def refine(
    invocation: Invocation,
    files: Annotated[
        list[Path], options.Argument("Annotations, one data set for each site.", "FACES...")
    ],
    *,
    base: Annotated[str, options.Option("The merged model.", "FILE|ADDRESS")],
    output: Annotated[Path | None, options.Option("The refined model (.dat, .forest).")] = None,
    rounds: Annotated[
        int, options.Option("Number of exchanges of contributions.", min=1, max=100)
    ] = 1,
    parts: PartsOption = "",
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    test: Annotated[
        Path | None, options.Option("Show the error on these faces before and after.", "FACES")
    ] = None,
    contributions: Annotated[
        Path | None,
        options.Option("For what each site would send. Default: OUTPUT.contributions.", "FOLDER"),
    ] = None,
    despite_findings: options.DespiteFindingsOption = False,
    despite_withdrawal: options.DespiteWithdrawalOption = False,
    force: options.ForceOption = False,
    images: ImagesOption = None,
    changes: SettingsOptions,
) -> Reply:
    """Refine a merged landmark model: fit its leaves again to data sets on this machine.

    Sites that keep their faces at home refine a model by 'poolctl rounds'.

    The base is usually the result of 'merge wba-cascade --option step=1.1'. Every site computes
    changes of the leaves from its own faces, and contributes only these and the sample counts. The
    result is an ordinary model of the same size. The contributions stay next to it, where 'merge
    --replay' finds them. With --contributions instead of --output, only they are written; 'merge
    leaf-refit' combines them.
    """
    settings = REFINEMENT_SETTINGS.read(changes, RefitSettings(seed=seed))
    if output is None and contributions is None:
        raise UsageError("give --output FILE, or --contributions FOLDER")
    if output is None and (rounds > 1 or test is not None):
        raise UsageError("--rounds and --test need --output FILE")
    if output is None and settings.mode != "one-shot":
        raise UsageError("--contributions needs the mode one-shot")
    if output is not None:
        require_free(output, force=force)
        contributions = contributions or output.with_name(f"{output.name}.contributions")
    plan = RefinementPlan(settings, rounds=rounds, threads=threads, keep_in=contributions)
    read_as = reading_from(images)
    missing = [str(path) for path in [*files, *([test] if test else [])] if not path.exists()]
    if missing:
        raise InputMissingError(f"{', '.join(missing)}: no such file")
    merged = invocation.model_files([base], to_merge=True)
    require_not_withdrawn(invocation, local_copies(merged), despite=despite_withdrawal)
    base_file = merged[0].path
    forest = read_base(base_file)
    part_names = part_words(parts)
    datasets = [read_face_file(file, read_as) for file in files]
    checks = [require_sound(item, despite_findings=despite_findings) for item in datasets]
    sources = _sources(invocation, datasets, forest, settings, part_names)
    if output is None:
        learned = [
            face_marks([dataset], check.details)
            for dataset, check in zip(datasets, checks, strict=True)
        ]
        return _write_contributions(invocation, forest, learned, sources, plan)
    trial = None if test is None else _Trial(test, read_face_file(test, read_as), part_names)
    return _refine(
        invocation, base_file, forest, sources, plan,
        datasets=datasets, despite=[fault for check in checks for fault in check.despite],
        output=output, trial=trial,
    )  # fmt: skip


def _sources(
    invocation: Invocation,
    datasets: Sequence[FaceDataset],
    forest: ShapePredictor,
    settings: RefitSettings,
    parts: Sequence[str],
) -> list[SiteSource]:
    sources: list[SiteSource] = []
    names: list[str] = []
    for dataset in datasets:
        file = dataset.path or Path("faces")
        with invocation.progress(f"read {file.name}") as report:
            site = load_site(
                dataset,
                forest.part_count,
                parts=parts,
                initial_shape=forest.initial_shape,
                margin=CROP_MARGIN + settings.jitter,
                progress=report,
            )
        if site.left_out:
            line, text = site.left_out[0]
            invocation.warn(
                f"{file}: {count_words(len(site.left_out), 'face')} left out (line {line}: {text})"
            )
        names.append(file.stem)
        copies = names.count(file.stem)
        name = file.stem if copies == 1 else f"{file.stem}-{copies}"
        sources.append(SiteSource(name, site))
    return sources


def _write_contributions(
    invocation: Invocation,
    forest: ShapePredictor,
    learned: Sequence[dict[str, Any]],
    sources: Sequence[SiteSource],
    plan: RefinementPlan,
) -> Reply:
    assert plan.keep_in is not None
    with invocation.progress("contribute") as report:
        paths = write_contributions(forest, sources, plan.keep_in, plan, report)
    sizes = [path.stat().st_size for path in paths]
    digests = [file_digest(path) for path in paths]
    for path, digest, sources_of in zip(paths, digests, learned, strict=True):
        remember_learned(digest, {"name": path.name, **sources_of})
    items = [
        {"path": path, "digest": digest, "size_bytes": size}
        for path, digest, size in zip(paths, digests, sizes, strict=True)
    ]
    text = [f"{path}  ({size_words(size)})" for path, size in zip(paths, sizes, strict=True)]
    return Reply(
        {"contributions": items, "sites": _site_facts(sources)}, text, list(map(str, paths))
    )


@dataclass(frozen=True)
class _Trial:
    """The faces on which errors before and after are shown."""

    path: Path
    faces: FaceDataset
    parts: tuple[str, ...]

    def mean_error(self, model: ShapePredictor, report: Any) -> float:
        scores = evaluate_landmarks(model, self.faces, parts=self.parts, progress=report)
        return scores.metrics["mean_error"]


def _refine(
    invocation: Invocation,
    base_file: Path,
    forest: ShapePredictor,
    sources: Sequence[SiteSource],
    plan: RefinementPlan,
    *,
    datasets: Sequence[FaceDataset],
    despite: Sequence[str],
    output: Path,
    trial: _Trial | None,
) -> Reply:
    started = time.monotonic()
    with invocation.progress("refine") as report:
        refined = refine_sites(base_file, sources, output, plan, base=forest, progress=report)
    details = {"despite_findings": ", ".join(despite)} if despite else {}
    remember_learned(refined.digest, {"name": output.name, **face_marks(datasets, details)})
    duration_s = round(time.monotonic() - started, 1)
    size_bytes = output.stat().st_size
    faces = sum(source.site.faces.face_count for source in sources)
    data: dict[str, Any] = {
        "output": output,
        "digest": refined.digest,
        "size_bytes": size_bytes,
        "recipe_file": recipe_path(output),
        "sites": _site_facts(sources),
        "settings": plan.settings.model_dump(mode="json"),
        "rounds": plan.rounds,
        "despite_findings": despite,
        "duration_s": duration_s,
        "contributions": refined.contributions,
    }
    text = [
        f"{output}  ({count_words(faces, 'face')} of {count_words(len(sources), 'site')}, "
        f"{size_words(size_bytes)}, "
        f"{duration_s} s)",
        f"sha256 {refined.digest}",
        f"recipe {recipe_path(output)}",
        _contribution_words(refined.contributions),
    ]
    if trial is not None:
        with invocation.progress("test") as report:
            before, after = (trial.mean_error(model, report) for model in (forest, refined.model))
        if overlap := training_overlap(output, trial.faces, dataset_digest(trial.faces)):
            invocation.warn(f"--test {trial.path}: {overlap.words}")
        data["test"] = {"dataset": trial.path, "error_before": before, "error_after": after}
        change = f"{100 * (after / before - 1):+.1f} %" if before > 0 else "no error before"
        text.append(
            f"mean error on {trial.path}: {before:.4f} before, {after:.4f} after ({change})"
        )
    return Reply(data, text, [str(output)])


def _contribution_words(paths: Sequence[Path]) -> str:
    size = size_words(sum(path.stat().st_size for path in paths))
    return f"contributions {paths[0].parent}  ({size}; 'merge --replay' needs them)"


def _site_facts(sources: Sequence[SiteSource]) -> list[dict[str, Any]]:
    return [
        {
            "name": source.name,
            "dataset_digest": source.site.dataset_digest,
            "faces": source.site.faces.face_count,
            "left_out": len(source.site.left_out),
        }
        for source in sources
    ]
