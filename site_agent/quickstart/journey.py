"""The whole journey on faces drawn here: train, share, merge, evaluate, find blinks.

Everything is done as a site would do it, through the same functions and a running pool; only
the faces are drawn. `run_journey` needs the address of a pool and an admin's token.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pool_server.wire.names import ModelAddress
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.quickstart.at_once import SharedProgress, run_two_at_once
from site_agent.quickstart.records import (
    BlinkResult,
    QuickstartResult,
    QuickstartSettings,
    Reporter,
    ScoredModel,
)

DETECTOR_NAME = "face"
LANDMARKS_NAME = "face-68"
_BLINK_VIDEO_SECONDS = 20.0
_BOX_JITTER = 0.1
# Sub-models hold back a little; on photographs, too, their mean does best a tenth enlarged.
_CASCADE_STEP = 1.1


@dataclass(frozen=True)
class _Site:
    name: str
    folder: Path
    token: str
    dataset: Path

    @property
    def detector(self) -> Path:
        return self.folder / f"{self.name}.svm"

    @property
    def landmarks(self) -> Path:
        return self.folder / f"{self.name}.dat"


_STEPS = (
    "Draw faces for {sites} sites, and a test set and a video of other persons",
    "Register the sites with the pool",
    "Train a face detector and a landmark model at each site",
    "Upload the sub-models",
    "Download what the pool has that can be merged",
    "Merge: MWMA for detectors, WBA for landmark models",
    "Evaluate sub-models and merged models on persons nobody trained on",
    "Upload the merged models with their lineage",
    "Find the blinks in the video and compare them with the drawn ones",
)


def run_journey(
    folder: Path,
    endpoint: str,
    admin_token: str,
    settings: QuickstartSettings,
    reporter: Reporter,
) -> QuickstartResult:
    """Go through the journey with a running pool.

    Data, models, results and ``summary.json`` are kept in `folder`, which is empty.

    Raises
    ------
    SiteAgentError, AggregatorError
        From whichever step fails; finished files stay in `folder`.
    """
    return _Journey(folder, endpoint, admin_token, settings, reporter).run()


@dataclass
class _Journey:
    folder: Path
    endpoint: str
    admin_token: str
    settings: QuickstartSettings
    reporter: Reporter
    _begun: int = 0
    _addresses: dict[Path, str] = field(default_factory=dict)

    @property
    def consumer_folder(self) -> Path:
        return self.folder / "our-lab"

    def run(self) -> QuickstartResult:
        self._begin()
        datasets, test_dataset, video = self._draw()
        self._begin()
        sites, consumer_token = self._register(datasets)
        self._begin()
        self._train(sites)
        self._begin()
        self._upload(sites)
        with PoolClient(
            self.endpoint, consumer_token, cache=ModelCache(self.consumer_folder / "cache")
        ) as pool:
            self._begin()
            detectors, landmarks = self._download(pool)
            self._begin()
            merged = self._merge(detectors, landmarks)
            self._begin()
            scored_detectors, scored_landmarks = self._evaluate(
                [*detectors, merged["mwma"]],
                [*landmarks, merged["wba-final"], merged["wba-cascade"]],
                test_dataset,
            )
            self._begin()
            self._share(pool, merged, scored_detectors + scored_landmarks)
        self._begin()
        blinks = self._blink(video, merged["mwma"], merged["wba-cascade"])
        result = QuickstartResult(
            folder=str(self.folder),
            detectors=scored_detectors,
            landmarks=scored_landmarks,
            blinks=blinks,
            video=str(video),
            blink_folder=str(self.consumer_folder / "blinks"),
            merged_detector=str(merged["mwma"]),
            merged_landmarks=str(merged["wba-cascade"]),
            test_dataset=str(test_dataset),
        )
        text = json.dumps(result.to_dict(), indent=2) + "\n"
        (self.folder / "summary.json").write_text(text, encoding="utf-8")
        return result

    def _begin(self) -> None:
        title = _STEPS[self._begun].format(sites=self.settings.sites)
        self._begun += 1
        self.reporter.step(self._begun, len(_STEPS), title)

    def _draw(self) -> tuple[list[Path], Path, Path]:
        from site_agent.datasets.synthetic import SITE_STYLES, write_blink_video, write_face_dataset

        settings = self.settings
        # Sites differ in who comes and how the room is lit; the test set is of all kinds.
        styles = [name for name in SITE_STYLES if name != "mixed"]
        per_site = settings.persons_per_site
        jobs: list[Callable[[], Path]] = []
        shares = SharedProgress(settings.sites + 2, self.reporter.progress)
        for index in range(settings.sites):
            name = _site_name(index)
            jobs.append(
                partial(
                    write_face_dataset,
                    self.folder / name,
                    images=per_site * settings.pictures_per_person,
                    persons=per_site,
                    first_person=index * per_site,
                    seed=settings.seed + index,
                    style=styles[index % len(styles)],
                    progress=shares.of(index),
                )
            )
        jobs.append(
            partial(
                write_face_dataset,
                self.folder / "test",
                images=settings.test_persons,
                persons=settings.test_persons,
                first_person=settings.sites * per_site,
                seed=settings.seed + 1000,
                style="mixed",
                progress=shares.of(settings.sites),
            )
        )
        video = self.consumer_folder / "session.mp4"
        jobs.append(
            partial(
                write_blink_video,
                video,
                seconds=_BLINK_VIDEO_SECONDS,
                seed=settings.seed,
                who=settings.sites * per_site + settings.test_persons,
                progress=shares.of(settings.sites + 1),
            )
        )
        *datasets, test, _ = run_two_at_once(jobs)
        pictures = settings.sites * per_site * settings.pictures_per_person
        self.reporter.done(
            f"{pictures} training pictures of {settings.sites * per_site} persons, "
            f"{settings.test_persons} test pictures, {_BLINK_VIDEO_SECONDS:.0f} s of video"
        )
        return list(datasets), test, video

    def _register(self, datasets: Sequence[Path]) -> tuple[list[_Site], str]:
        sites = []
        with PoolClient(self.endpoint, self.admin_token) as pool:
            for index, dataset in enumerate(datasets):
                name = _site_name(index)
                pool.sites.create(name, display_name=f"Training site {index + 1}")
                token = pool.tokens.create(name, "quickstart").secret
                sites.append(_Site(name, dataset.parent, token, dataset))
            pool.sites.create("our-lab", display_name="The lab that merges")
            consumer_token = pool.tokens.create("our-lab", "quickstart").secret
        self.reporter.done(f"{', '.join(site.name for site in sites)} and our-lab")
        return sites, consumer_token

    def _train(self, sites: Sequence[_Site]) -> None:
        from site_agent.datasets import read_imglab_xml
        from site_agent.training import ErtSettings, HogSvmSettings, train_ert, train_hog_svm

        settings = self.settings
        hog = HogSvmSettings(threads=1)
        ert = ErtSettings(
            cascade_depth=settings.ert_levels,
            num_trees_per_cascade_level=settings.ert_trees,
            oversampling_amount=settings.ert_oversampling,
            tree_depth=4,
            # Detectors put their boxes on a coarse grid; faces are shown to the training at
            # such offsets, or the landmarks would be good on hand-drawn boxes only.
            oversampling_translation_jitter=_BOX_JITTER,
            threads=1,
        )
        shares = SharedProgress(2 * len(sites), self.reporter.progress)
        jobs: list[Callable[[], object]] = []
        for index, site in enumerate(sites):
            dataset = read_imglab_xml(site.dataset)
            jobs.append(
                partial(
                    train_hog_svm,
                    # Persons take turns. For a detector another picture of the same one is
                    # hardly another face, and training it takes most of the time.
                    replace(dataset, images=dataset.images[: settings.detector_pictures]),
                    site.detector,
                    hog,
                    shares.of(2 * index),
                    training_scores=False,
                )
            )
            jobs.append(
                partial(
                    train_ert,
                    dataset,
                    site.landmarks,
                    ert,
                    shares.of(2 * index + 1),
                    training_scores=False,
                )
            )
        run_two_at_once(jobs)
        sizes = ", ".join(f"{site.landmarks.stat().st_size / 1e6:.1f} MB" for site in sites)
        self.reporter.done(f"{len(sites)} detectors and {len(sites)} landmark models ({sizes})")

    def _upload(self, sites: Sequence[_Site]) -> None:
        settings = self.settings
        images = settings.persons_per_site * settings.pictures_per_person
        labels = {"population": "synthetic"}
        for index, site in enumerate(sites):
            with PoolClient(self.endpoint, site.token) as pool:
                for path, name, seen in (
                    (site.detector, DETECTOR_NAME, settings.detector_pictures),
                    (site.landmarks, LANDMARKS_NAME, images),
                ):
                    address = f"{site.name}/{name}"
                    pool.upload(path, address, labels={**labels, "images": str(seen)})
            self.reporter.progress((index + 1) / len(sites), site.name)
        self.reporter.done(f"{2 * len(sites)} models, each checked by the pool before it is shown")

    def _download(self, pool: PoolClient) -> tuple[list[Path], list[Path]]:
        models_folder = self.consumer_folder / "downloaded"
        models_folder.mkdir(parents=True, exist_ok=True)
        found: list[list[Path]] = []
        for kind in ("hog-svm", "ert"):
            newest = next(iter(pool.models.find(ModelQuery(kind=kind, latest=True))))
            query = ModelQuery(kind=kind, latest=True, mergeable_with=newest.address)
            versions = [newest, *pool.models.find(query)]
            files = []
            for version in sorted(versions, key=lambda version: version.site):
                fetched = pool.fetch(version)
                target = models_folder / version.file_name
                pool.cache.copy_to(fetched.version.digest, target)
                files.append(target)
                self._addresses[target] = version.address
            found.append(files)
        self.reporter.done(f"{sum(map(len, found))} models in {models_folder}")
        return found[0], found[1]

    def _merge(self, detectors: Sequence[Path], landmarks: Sequence[Path]) -> dict[str, Path]:
        from aggregators import merge

        merged = {
            "mwma": self.consumer_folder / "merged.svm",
            "wba-final": self.consumer_folder / "merged-final.forest",
            "wba-cascade": self.consumer_folder / "merged.dat",
        }
        for index, (method, output) in enumerate(merged.items()):
            inputs = detectors if method == "mwma" else landmarks
            self.reporter.progress(index / len(merged), method)
            merge(
                method,
                list(inputs),
                options={"step": _CASCADE_STEP} if method == "wba-cascade" else None,
                addresses=[self._addresses[path] for path in inputs],
                output=output,
            )
        self.reporter.done(", ".join(f"{path.name} ({method})" for method, path in merged.items()))
        return merged

    def _evaluate(
        self, detectors: Sequence[Path], landmarks: Sequence[Path], test_dataset: Path
    ) -> tuple[tuple[ScoredModel, ...], tuple[ScoredModel, ...]]:
        from site_agent.datasets import read_imglab_xml
        from site_agent.evaluation import evaluate_detector, evaluate_landmarks

        dataset = read_imglab_xml(test_dataset)
        shares = SharedProgress(len(detectors) + len(landmarks), self.reporter.progress)
        jobs: list[Callable[[], ScoredModel]] = []

        def score_detector(path: Path, index: int) -> ScoredModel:
            scores = evaluate_detector(path, dataset, resamples=0, progress=shares.of(index))
            return ScoredModel(
                path.name, _made_by(path), scores.recall, scores.precision, str(path)
            )

        def score_landmarks(path: Path, index: int) -> ScoredModel:
            scores = evaluate_landmarks(
                path, dataset, resamples=0, workers=1, progress=shares.of(index)
            )
            return ScoredModel(
                path.name, _made_by(path), scores.mean_error, scores.failure_rate_at_10, str(path)
            )

        for index, path in enumerate(detectors):
            jobs.append(partial(score_detector, path, index))
        for index, path in enumerate(landmarks, start=len(detectors)):
            jobs.append(partial(score_landmarks, path, index))
        scored = run_two_at_once(jobs)
        self.reporter.done(f"{len(scored)} models on {len(dataset.images)} pictures")
        return tuple(scored[: len(detectors)]), tuple(scored[len(detectors) :])

    def _share(
        self, pool: PoolClient, merged: Mapping[str, Path], scored: Sequence[ScoredModel]
    ) -> None:
        from aggregators import read_recipe, recipe_path

        names = {"mwma": "face", "wba-final": "face-68-final", "wba-cascade": "face-68"}
        metric = {"mwma": "recall", "wba-final": "mean_error", "wba-cascade": "mean_error"}
        scores = {Path(model.file): model.score for model in scored}
        for method, path in merged.items():
            recipe = read_recipe(recipe_path(path))
            pool.upload(
                path,
                ModelAddress("our-lab", names[method]),
                description=f"{method} of {len(recipe.inputs)} sites",
                labels={"population": "synthetic"},
                metrics={metric[method]: scores[path]},
                recipe=recipe.model_dump(mode="json", by_alias=True),
            )
        lineage = pool.models.lineage(ModelAddress("our-lab", names["wba-cascade"]))
        parents = sorted(
            address for node in lineage.nodes if node.depth < 0 for address in node.addresses
        )
        self.reporter.done(f"our-lab/face-68 descends from {', '.join(parents)}")

    def _blink(self, video: Path, detector: Path, landmarks: Path) -> BlinkResult:
        from site_agent.eyeblink.blinks.matching import match_blinks
        from site_agent.eyeblink.pipeline import run_blink_analysis

        session = run_blink_analysis(
            video,
            detector=detector,
            landmarks=landmarks,
            out_dir=self.consumer_folder / "blinks",
            progress=self.reporter.progress,
        )
        with session.files["blinks"].open(encoding="utf-8", newline="") as file:
            found = [row for row in csv.DictReader(file) if row["kind"] == "blink"]
        truth_file = video.with_name(f"{video.stem}_truth.json")
        truth = json.loads(truth_file.read_text(encoding="utf-8"))["blinks"]
        match = match_blinks(
            [(float(blink["onset_s"]), float(blink["offset_s"])) for blink in found],
            [(blink["onset_s"], blink["offset_s"]) for blink in truth],
        )
        self.reporter.done(
            f"{match.found} found, {match.true} drawn, {len(match.pairs)} of them matched"
        )
        return BlinkResult(match.true, match.found, len(match.pairs))


def _site_name(index: int) -> str:
    return f"site-{chr(ord('a') + index)}"


def _made_by(path: Path) -> str:
    from aggregators import read_recipe, recipe_path

    sidecar = recipe_path(path)
    return read_recipe(sidecar).method.name if sidecar.exists() else "trained"
