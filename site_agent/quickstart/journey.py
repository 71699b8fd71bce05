"""The whole journey on faces drawn here: train, share, merge, evaluate, find blinks.

Everything is done as a site would do it, through the same functions and a running pool; only
the faces are drawn. `run_journey` needs the address of a pool and an admin's token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from pool_server.wire.names import ModelAddress
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.quickstart.at_once import SharedProgress, run_two_at_once
from site_agent.quickstart.records import QuickstartResult, QuickstartSettings, Reporter
from site_agent.quickstart.scoring import compare_blinks, score_models

DETECTOR_NAME = "face"
LANDMARKS_NAME = "eyes"
_BLINK_VIDEO_SECONDS = 20.0
_ROUNDS = 3
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
    "Train a face detector and a landmark model of the eyes at each site",
    "Upload the sub-models",
    "Download what the pool has that can be merged",
    "Merge: MWMA for detectors, WBA for landmark models",
    "Upload the merged models with their lineage",
    "Refine the merged landmark model in {rounds} rounds: each site sends sums over its faces only",
    "Evaluate sub-models, merged and refined models on persons nobody trained on",
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
            base = self._share(pool, merged)
            self._begin()
            refined = self._refine(pool, base, sites)
        self._begin()
        scored_detectors, scored_landmarks = score_models(
            {**dict.fromkeys(detectors, "trained"), merged["mwma"]: "mwma"},
            {
                **dict.fromkeys(landmarks, "trained"),
                merged["wba-cascade"]: "wba-cascade",
                refined: "refined",
            },
            test_dataset,
            self.reporter,
        )
        self._begin()
        blinks = compare_blinks(
            video, merged["mwma"], refined, self.consumer_folder / "blinks", self.reporter
        )
        result = QuickstartResult(
            folder=str(self.folder),
            detectors=scored_detectors,
            landmarks=scored_landmarks,
            blinks=blinks,
            video=str(video),
            blink_folder=str(self.consumer_folder / "blinks"),
            merged_detector=str(merged["mwma"]),
            merged_landmarks=str(merged["wba-cascade"]),
            refined_landmarks=str(refined),
            test_dataset=str(test_dataset),
        )
        text = json.dumps(result.to_dict(), indent=2) + "\n"
        (self.folder / "summary.json").write_text(text, encoding="utf-8")
        return result

    def _begin(self) -> None:
        title = _STEPS[self._begun].format(sites=self.settings.sites, rounds=_ROUNDS)
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
        from site_agent.training import HogSvmSettings, train_ert, train_hog_svm
        from site_agent.training.ert import FOR_BLINKS

        settings = self.settings
        hog = HogSvmSettings(threads=1)
        ert = replace(
            FOR_BLINKS,
            cascade_depth=settings.ert_levels,
            num_trees_per_cascade_level=settings.ert_trees,
            oversampling_amount=settings.ert_oversampling,
            tree_depth=4,
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

    def _share(self, pool: PoolClient, merged: Mapping[str, Path]) -> ModelAddress:
        """Upload the merged models; return the address of the landmark model."""
        from aggregators import read_recipe, recipe_path

        names = {"mwma": DETECTOR_NAME, "wba-cascade": LANDMARKS_NAME}
        for method, path in merged.items():
            recipe = read_recipe(recipe_path(path))
            pool.upload(
                path,
                ModelAddress("our-lab", names[method]),
                description=f"{method} of {len(recipe.inputs)} sites",
                labels={"population": "synthetic"},
                recipe=recipe.model_dump(mode="json", by_alias=True),
            )
        base = ModelAddress("our-lab", LANDMARKS_NAME)
        lineage = pool.models.lineage(base)
        parents = sorted(
            address for node in lineage.nodes if node.depth < 0 for address in node.addresses
        )
        self.reporter.done(f"{base} descends from {', '.join(parents)}")
        return base

    def _refine(self, pool: PoolClient, base: ModelAddress, sites: Sequence[_Site]) -> Path:
        """Let the sites refine the merged model in rounds; return the downloaded result."""
        from site_agent.rounds.contract import ContributionRules
        from site_agent.rounds.contributing import contribute_to_round
        from site_agent.rounds.finishing import finish_round

        names = [site.name for site in sites]
        rules = ContributionRules(trusted=frozenset(names))
        with ExitStack() as stack:
            clients = [stack.enter_context(self._client_of(site)) for site in sites]
            started = clients[0].rounds.start(
                str(base), names, deadline=datetime.now(UTC) + timedelta(days=1), rounds=_ROUNDS
            )
            key = started.round_id
            for number in range(_ROUNDS):
                for index, (client, site) in enumerate(zip(clients, sites, strict=True)):
                    done = (number * len(sites) + index) / (_ROUNDS * len(sites))
                    self.reporter.progress(done, f"round {number + 1}, {site.name}")
                    contribute_to_round(client, key, site.dataset, rules=rules)
                finished = finish_round(clients[0], key)
                key = finished.round.successor or ""
        refined = self.consumer_folder / "refined.dat"
        pool.cache.copy_to(pool.fetch(finished.version).version.digest, refined)
        self.reporter.done(f"{finished.version.address}, combined by the pool")
        return refined

    def _client_of(self, site: _Site) -> PoolClient:
        return PoolClient(self.endpoint, site.token, cache=ModelCache(site.folder / "cache"))


def _site_name(index: int) -> str:
    return f"site-{chr(ord('a') + index)}"
