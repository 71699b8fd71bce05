"""``poolctl refine``: fit the leaves of a merged landmark model to the faces of all sites."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from aggregators.methods import recipe_path
from aggregators.methods.refitting import RefitSettings
from aggregators.models import ShapePredictor
from cli.frame import options
from cli.frame.errors import InputMissingError
from cli.frame.existing_files import require_free
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.data import ImagesOption, PartsOption, part_words, read_face_file, reading_from
from site_agent.datasets.records import FaceDataset, face_marks
from site_agent.datasets.soundness import require_sound
from site_agent.refinement import (
    CROP_MARGIN,
    LoadedSite,
    RefinementPlan,
    load_site,
    read_base,
    refine_sites,
)
from site_agent.tasks.merging import local_copies, require_not_withdrawn
from site_agent.training_record import remember_learned
from site_agent.wording import count_words, size_words

app = options.single()

REFINEMENT_SETTINGS = CommandSettings(RefitSettings(), leave_out=("mode", "level", "seed"))
SeedOption = Annotated[int, options.Option("Seed of the starting shapes.", min=0)]
ThreadsOption = Annotated[int, options.Option("Number of threads; 0: one for each core.", min=0)]


@options.command(
    app,
    "refine",
    "refine siteA.xml siteB.xml --base merged.dat -o refined.dat --rounds 3",
    "refine siteA.xml siteB.xml --base merged.dat -o r.dat --set thin=500",
)
def refine(
    invocation: Invocation,
    files: Annotated[
        list[Path], options.Argument("Annotations, one data set for each site.", "FACES...")
    ],
    *,
    base: Annotated[str, options.Option("The merged model.", "FILE|ADDRESS")],
    output: Annotated[Path, options.Option("The refined model (.dat, .forest).")],
    rounds: Annotated[
        int, options.Option("Number of exchanges of contributions.", min=1, max=100)
    ] = 1,
    parts: PartsOption = "",
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
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
    result is an ordinary model of the same size; 'poolctl evaluate' compares both. The
    contributions stay in OUTPUT.contributions, where 'merge --replay' finds them.
    """
    settings = REFINEMENT_SETTINGS.read(changes, RefitSettings(seed=seed))
    require_free(output, force=force)
    contributions = output.with_name(f"{output.name}.contributions")
    plan = RefinementPlan(settings, rounds=rounds, threads=threads, keep_in=contributions)
    read_as = reading_from(images)
    missing = [str(path) for path in files if not path.exists()]
    if missing:
        raise InputMissingError(f"{', '.join(missing)}: no such file")
    merged = invocation.model_files([base], to_merge=True)
    require_not_withdrawn(invocation, local_copies(merged), despite=despite_withdrawal)
    base_file = merged[0].path
    forest = read_base(base_file)
    part_names = part_words(parts)
    datasets = [read_face_file(file, read_as) for file in files]
    checks = [require_sound(item, despite_findings=despite_findings) for item in datasets]
    sites = _load_sites(invocation, datasets, forest, settings, part_names)
    despite = [fault for check in checks for fault in check.despite]
    started = time.monotonic()
    with invocation.progress("refine") as report:
        refined = refine_sites(base_file, sites, output, plan, base=forest, progress=report)
    details = {"despite_findings": ", ".join(despite)} if despite else {}
    remember_learned(refined.digest, {"name": output.name, **face_marks(datasets, details)})
    duration_s = round(time.monotonic() - started, 1)
    size_bytes = output.stat().st_size
    faces = sum(site.faces.face_count for site in sites.values())
    data: dict[str, Any] = {
        "output": output,
        "digest": refined.digest,
        "size_bytes": size_bytes,
        "recipe_file": recipe_path(output),
        "sites": _site_facts(sites),
        "settings": plan.settings.model_dump(mode="json"),
        "rounds": plan.rounds,
        "despite_findings": despite,
        "duration_s": duration_s,
        "contributions": refined.contributions,
    }
    sent = size_words(sum(path.stat().st_size for path in refined.contributions))
    text = [
        f"{output}  ({count_words(faces, 'face')} of {count_words(len(sites), 'site')}, "
        f"{size_words(size_bytes)}, "
        f"{duration_s} s)",
        f"sha256 {refined.digest}",
        f"recipe {recipe_path(output)}",
        f"contributions {contributions}  ({sent}; 'merge --replay' needs them)",
    ]
    return Reply(data, text, [str(output)])


def _load_sites(
    invocation: Invocation,
    datasets: Sequence[FaceDataset],
    forest: ShapePredictor,
    settings: RefitSettings,
    parts: Sequence[str],
) -> dict[str, LoadedSite]:
    sites: dict[str, LoadedSite] = {}
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
        sites[file.stem if copies == 1 else f"{file.stem}-{copies}"] = site
    return sites


def _site_facts(sites: Mapping[str, LoadedSite]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "dataset_digest": site.dataset_digest,
            "faces": site.faces.face_count,
            "left_out": len(site.left_out),
        }
        for name, site in sites.items()
    ]
