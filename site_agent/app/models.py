"""The pages of models: those of this lab, those of the pool, one of them, sharing and merging."""

import getpass
import json
import math
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from aggregators import find_method
from aggregators.errors import AggregatorError
from aggregators.formats import file_digest, read_model
from aggregators.formats.fingerprints import fingerprint
from aggregators.methods.registry import merge_keys
from pool_server.wire.models import ModelQuery, ModelVersionResponse
from site_agent import own_folders
from site_agent.app.pages import Lab
from site_agent.app.rendering import redirect
from site_agent.errors import InvalidInputError, NotFoundError, SiteAgentError, StalePreviewError
from site_agent.jobs.folder import JobView
from site_agent.pool.cache import ModelCache
from site_agent.pool.restrictions import warning_of
from site_agent.pool.sent import read_sent
from site_agent.pool.sidecars import Sidecars, find_terms_file
from site_agent.pool.signing import kind_of
from site_agent.tasks.caller import NotedCaller
from site_agent.tasks.merging import plan_merge
from site_agent.tasks.model_files import SUFFIX_OF_FORMAT
from site_agent.tasks.uploading import describe_upload
from site_agent.training.ert import kept_starter
from site_agent.training_record import beside, read_beside
from site_agent.work.files import portable_name

_SUFFIXES = {".dat", ".svm", ".forest", ".safetensors"}
_METHODS = ("mwma", "wba-cascade", "wba-final", "fedavg")
"""Methods that a page offers, the most sensible first."""
_MOST_IN_POOL = 60


@dataclass(frozen=True)
class OwnModel:
    """A model file on this machine."""

    path: Path
    digest: str
    kind: str
    shape: str
    """Landmarks and levels, window size, or architecture, in words."""
    keys: Mapping[str, str]
    """The merge key for each method; models with an equal key fit together."""
    version: ModelVersionResponse | None = None
    origin: str = "file"
    labels: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    used_by: tuple[str, ...] = ()
    """The videos of the study that were analysed with it."""
    warning: str = ""
    """Why it should not be used."""

    @property
    def id(self) -> str:
        return self.digest[:16]

    @property
    def name(self) -> str:
        return (
            self.path.name if self.version is None else self.version.address.removeprefix("pool://")
        )

    @property
    def score(self) -> str:
        """The result of the last test on the lab's own faces, in words."""
        return score_words(self.scores)

    @property
    def is_own(self) -> bool:
        """True for a file of the lab, false for a copy from the pool."""
        return self.version is None and self.origin != "starter"


def score_words(scores: Mapping[str, float]) -> str:
    """Return the score that says most about a model; empty if there is none."""
    if "mean_error" in scores:
        lids = f", lids {100 * scores['ear_range']:.0f} %" if "ear_range" in scores else ""
        return f"off by {100 * scores['mean_error']:.1f} %{lids}"
    return f"finds {100 * scores['recall']:.0f} % of faces" if "recall" in scores else ""


def _shape_words(facts: Mapping[str, Any]) -> str:
    if facts["kind"] == "hog-svm":
        return f"{facts['window_width_px']} × {facts['window_height_px']} window"
    if facts["kind"] == "ert":
        return f"{facts['parts']} points, {facts['levels']} levels"
    return f"{facts.get('architecture') or 'network'}"


def _state(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_mtime_ns, status.st_size


class Models:
    """The pages of models."""

    kinds: Mapping[str, str] = {"ert": "Landmarks", "hog-svm": "Detector", "network": "Network"}

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._digests: dict[tuple[str, int, int], str] = {}
        self._read: dict[str, tuple[str, str, Mapping[str, str]]] = {}

    @cached_property
    def folder(self) -> Path:
        """The folder in which trained and merged models are written."""
        return self.lab.studies.first().place.with_name("models")

    # The models of this machine
    def own(self, views: Sequence[JobView]) -> list[OwnModel]:
        """Return the models of this machine, the used ones first."""
        study = self.lab.studies.current()
        used: dict[str, list[str]] = {}
        for row in study.recordings():
            if row.landmarks:
                used.setdefault(row.landmarks, []).append(row.file_name)
        ours = {
            item.facts["digest"]: f"Your lab has withdrawn it from {item.pool}"
            for item in read_sent() if item.title == "Model" and item.gone
        }  # fmt: skip
        withdrawn = {**ours, **self.lab.watch.withdrawn}
        tested: dict[str, Mapping[str, float]] = {}
        for view in views:
            if view.job.kind == "evaluate":
                tested |= view.result.get("scores", {})
        models: dict[str, OwnModel] = {}
        for path, origin_, version in self._files(used):
            try:
                digest, kind, facts, keys = self._facts(path)
            except (OSError, AggregatorError):
                continue
            if digest in models:
                continue
            sidecars = Sidecars.read(path, digest)
            labels: Mapping[str, str] = sidecars.labels if version is None else version.labels
            if version is not None:
                terms = [f"{term.label} ({term.code})" for term in version.terms]
            else:
                file = find_terms_file(path)
                terms = file.read_text("utf-8").split("\n") if file else []
            origin = origin_
            if origin == "file":
                is_trained = read_beside(path, "training", digest) is not None
                origin = "trained here" if is_trained else "your file"
                origin = "merged here" if sidecars.recipe else origin
            warning = warning_of(version) if version else ""
            inputs = (sidecars.recipe or {}).get("inputs", ())
            for part in (digest, *(entry["digest"] for entry in inputs)):
                warning = warning or withdrawn.get(part, "")
            models[digest] = OwnModel(
                path, digest, kind, facts, keys, version, origin, labels,
                tuple(filter(None, terms)), tested.get(digest) or sidecars.metrics,
                tuple(used.get(str(path), ())), warning,
            )  # fmt: skip
        return sorted(
            models.values(), key=lambda model: (-len(model.used_by), model.origin, model.name)
        )

    def _files(
        self, used: Iterable[str]
    ) -> Iterator[tuple[Path, str, ModelVersionResponse | None]]:
        cache = ModelCache()
        for entry in cache.entries():
            path = cache.path_of(entry.digest)
            if entry.complete and entry.addresses:
                self._digests[_state(path)] = entry.digest
                versions = cache.versions_of_size(entry.size_bytes)
                known = [version for version in versions if version["digest"] == entry.digest]
                if known:
                    yield path, "downloaded", ModelVersionResponse.model_validate(known[-1])
        starter = kept_starter(own_folders.cache_folder())
        if starter.is_file():
            yield starter, "starter", None
        for folder in (self.folder, *map(Path, self.lab.studies.current().added)):
            with suppress(OSError):
                for path in sorted(folder.iterdir()):
                    if path.suffix in _SUFFIXES and path.is_file() and kind_of(path):
                        yield path, "file", None
        for name in used:
            path = Path(name)
            if path.is_file() and path != starter and not path.is_relative_to(cache.folder):
                yield path, "file", None

    def _facts(self, path: Path) -> tuple[str, str, str, Mapping[str, str]]:
        state = _state(path)
        digest = self._digests.setdefault(state, self._digests.get(state) or file_digest(path))
        if digest not in self._read:
            facts = fingerprint(read_model(path))
            keys = {name: key for name, key in merge_keys(facts).items() if name in _METHODS}
            self._read[digest] = facts["kind"], _shape_words(facts), keys
        return digest, *self._read[digest]

    def find(self, number: str) -> OwnModel:
        """Return a model of this machine by the beginning of its digest."""
        for model in self.own(self.lab.jobs.views()):
            if model.id == number:
                return model
        raise NotFoundError("this model is no longer on this machine")

    def show(self, request: Request) -> Response:
        """List the models of this machine, or those of the pool."""
        views = self.lab.jobs.views()
        models, query = self.own(views), request.query_params
        text = query.get("text", "").casefold()
        in_pool: list[ModelVersionResponse] = []
        problem = ""
        if query.get("where") == "pool":
            try:
                with self.lab.pool() as pool:
                    versions = pool.models.find(ModelQuery(text=query.get("text", ""), latest=True))
                    in_pool = list(islice(versions, _MOST_IN_POOL))
            except SiteAgentError as error:
                problem = str(error)
        measured = [model for model in models if "mean_error" in model.scores]
        best = min(measured, key=lambda model: model.scores["mean_error"], default=None)
        binned = [
            (name, next((self._bin / name).glob("*"), self._bin).name) for name in self.binned()
        ]
        shown = [m for m in models if text in f"{m.name} {' '.join(m.labels.values())}".casefold()]
        return self.lab.page(
            request, "models.html", views=views, shown=shown, total=len(models), best=best,
            in_pool=in_pool, where=query.get("where", ""), text=query.get("text", ""),
            problem=problem, here={model.digest for model in models}, kinds=self.kinds,
            withdrawn=[model for model in models if model.warning], score_words=score_words,
            faces=self.lab.faces(), deleted=bool(binned) and "deleted" in query, binned=binned,
            jobs=[v for v in views if v.job.group == "models" and not v.ended],
        )  # fmt: skip

    def one(self, request: Request) -> Response:
        """Show one model: its origin, its scores, its terms, and the recordings that used it."""
        model = self.find(request.path_params["model"])
        recipe = Sidecars.read(model.path, model.digest).recipe or {}
        rows = [
            row for row in self.lab.studies.current().recordings()
            if row.landmarks == str(model.path)
        ]  # fmt: skip
        return self.lab.page(
            request, "model.html", model=model, recipe=recipe, rows=rows, kinds=self.kinds,
            size=model.path.stat().st_size, faces=self.lab.faces(),
        )  # fmt: skip

    def change(self, request: Request) -> Response:
        """Download, test or delete a model, or bring back the one that was deleted last."""
        form = {name: values[0] for name, values in request.scope["form"].items()}
        action = request.path_params["action"]
        if action == "download":
            address = form.get("address", "")
            self._ask("download", f"Download {address.removeprefix('pool://')}", address=address)
        elif action == "test":
            faces = self.lab.keep_faces(form.get("faces", "")) or self.lab.faces()
            if faces is None:
                raise InvalidInputError("choose the annotated faces to test on")
            chosen = [self.find(number) for number in request.scope["form"].get("model", [])]
            if not chosen:
                raise InvalidInputError("no model is chosen; tick at least one")
            paths = {model.name: str(model.path) for model in chosen}
            title = f"Test of {', '.join(paths)} on {faces.name}"
            keep = all(model.is_own for model in chosen)
            self._ask("evaluate", title, models=paths, faces=str(faces), keep=keep)
        elif action == "merge":
            chosen_ids = filter(str.isalnum, request.scope["form"].get("model", []))
            query = "&".join(f"model={number}" for number in chosen_ids)
            return redirect(request, f"/models/merge?{query}")
        elif action == "delete":
            self._delete(self.find(form.get("model", "")))
            return redirect(request, "/models?deleted=1")
        elif action == "restore":
            self._restore(form.get("deleted") or max(self.binned(), default=""))
        else:
            raise NotFoundError(f"models cannot be asked to {action!r}")
        return redirect(request, "/models")

    def _ask(self, kind: str, title: str, **asked: Any) -> None:
        self.lab.ask(kind, title, "models", **asked)

    def new_file(self, name: str, suffix: str) -> Path:
        """Return the path of a new model of the lab; refuse a name that cannot be one."""
        if not re.fullmatch(r"[\w][\w .-]{0,80}", name):
            raise InvalidInputError(f"{name!r} cannot be the name of a file")
        path = self.folder / portable_name(f"{name.removesuffix(suffix)}{suffix}")
        made = [view.job.request.get("output") for view in self.lab.jobs.views() if not view.ended]
        if path.exists() or str(path) in made:
            state = "there" if path.exists() else "being made"
            raise InvalidInputError(f"{path.name} is {state} already; choose another name")
        return path

    def _delete(self, model: OwnModel) -> None:
        """Move the lab's own file into the bin; remove a pool copy, which can be fetched again."""
        if model.version is not None:
            ModelCache().remove(model.digest)
            return
        if not model.path.is_relative_to(self.folder):
            raise InvalidInputError(
                f"{model.name} lies in a folder of yours and stays there; delete it there"
            )
        bin_folder = self._bin / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%f")
        bin_folder.mkdir(parents=True)
        for path in (model.path, *(beside(model.path, what) for what in ("recipe", "training", "evaluation"))):  # noqa: E501 # fmt: skip
            if path.is_file():
                shutil.move(path, bin_folder / path.name)

    @property
    def _bin(self) -> Path:
        return self.folder / ".bin"

    def binned(self) -> list[str]:
        """Return the folders of the deletions of the last 30 days, the latest at the end."""
        oldest = (datetime.now(UTC) - timedelta(days=30)).strftime("%Y-%m-%d")
        names = sorted(path.name for path in self._bin.glob("*T*")) if self._bin.is_dir() else []
        for name in names:
            if name < oldest:
                shutil.rmtree(self._bin / name)
        return [name for name in names if name >= oldest]

    def _restore(self, name: str) -> None:
        if name not in self.binned():
            raise NotFoundError("this model is no longer in the bin")
        for path in (self._bin / name).iterdir():
            if (self.folder / path.name).exists():
                raise InvalidInputError(f"{path.name} is there already; delete that one first")
        for path in list((self._bin / name).iterdir()):
            shutil.move(path, self.folder / path.name)
        (self._bin / name).rmdir()

    # Share
    def share(self, request: Request) -> Response:
        """Show the preview of an upload; nothing is sent."""
        model = self.find(request.path_params["model"])
        form = dict(request.query_params)
        if "name" not in form:
            stem = re.sub(r"[^a-z0-9._-]+", "-", model.path.stem.lower()).strip("-._") or "model"
            form["name"] = stem
        return self._share(request, model, form)

    def _share(
        self, request: Request, model: OwnModel, form: Mapping[str, str], problem: str = "",
        status: int = 200,
    ) -> Response:  # fmt: skip
        caller, prepared, vocabulary, endpoint = NotedCaller(), None, None, ""
        try:
            with self.lab.pool() as pool:
                endpoint = pool.endpoint
                vocabulary = pool.models.vocabulary()
                prepared = describe_upload(caller, pool, model.path, form)
        except (SiteAgentError, AggregatorError) as error:
            problem = problem or str(error)
        content = "" if prepared is None else json.dumps(json.loads(prepared.content), indent=2)
        labels = [] if vocabulary is None else [
            label for label in vocabulary.labels
            if label.key in ("population", "illumination", "camera", "modality", "images")
        ]  # fmt: skip
        return self.lab.page(
            request, "share.html", status=status, model=model, form=form, prepared=prepared,
            content=content, labels=labels, problem=problem, endpoint=endpoint,
            known_terms=() if vocabulary is None else vocabulary.terms, notes=caller.notes,
            doubts=self._doubts(form), size=model.path.stat().st_size,
        )  # fmt: skip

    def _doubts(self, form: Mapping[str, str]) -> list[str]:
        """Return words of a form that could identify a person, a path or this machine."""
        text = " ".join(value for name, value in form.items() if name != "csrf").casefold()
        people = {row.participant for row in self.lab.studies.current().recordings()}
        names = {"the code of a participant": people - {""}}
        with suppress(OSError, KeyError):
            names["your user name"] = {getpass.getuser()}
        names["the name of this machine"] = {platform.node()} - {""}
        doubts = [
            f"{what}: {name}" for what, several in names.items() for name in sorted(several)
            if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text)
        ]  # fmt: skip
        return doubts + (["a path"] if re.search(r"[a-z]:\\|/\w+/\w", text) else [])

    def send(self, request: Request) -> Response:
        """Send the content of the preview, and refuse anything else."""
        model = self.find(request.path_params["model"])
        form = {name: values[0] for name, values in request.scope["form"].items()}
        preview = form.pop("preview", "")
        form.pop("csrf", None)
        try:
            with self.lab.pool() as pool:
                describe_upload(NotedCaller(), pool, model.path, form).require(preview)
        except StalePreviewError as error:
            text = f"{error}. Nothing was sent; look at it again"
            return self._share(request, model, form, text, status=409)
        except SiteAgentError as error:
            return self._share(request, model, form, str(error), status=422)
        self._ask("upload", f"Share {model.name}", file=str(model.path), form=form, preview=preview)
        return redirect(request, "/sent")

    # Merge
    def merge_form(
        self, request: Request, chosen: Sequence[str] | None = None, problem: str = ""
    ) -> Response:
        """Show whether models fit together, their weights, and the terms of the result."""
        chosen = request.query_params.getlist("model") if chosen is None else chosen
        models = self.own(self.lab.jobs.views())
        inputs = [model for model in models if model.id in chosen]
        method, caller = common_method(inputs), NotedCaller()
        if len(inputs) > 1 and method and not problem:
            try:
                plan_merge(
                    caller, method, [str(m.path) for m in inputs], self.folder / "merged.dat"
                )
            except (SiteAgentError, AggregatorError) as error:
                problem = str(error)
        return self.lab.page(
            request, "merge.html", status=422 if problem else 200, inputs=inputs, method=method,
            models=models, problem=problem, notes=caller.notes + caller.warnings,
            terms=sorted({term for model in inputs for term in model.terms}),
            form={name: values[0] for name, values in request.scope.get("form", {}).items()},
        )  # fmt: skip

    def merge(self, request: Request) -> Response:
        """Merge the chosen models on this machine."""
        form = request.scope["form"]
        inputs = [self.find(number) for number in form.get("model", [])]
        method = common_method(inputs)
        name = form.get("name", [""])[0].strip()
        try:
            weights = [
                float(form.get(f"weight-{model.id}", ["1"])[0].replace(",", "."))
                for model in inputs
            ]
            if not all(0 < weight < math.inf for weight in weights):
                raise InvalidInputError(
                    "a weight is not positive, expected a number such as 1 or 2"
                )
            if not method or len(inputs) < 2:
                raise InvalidInputError("choose at least two models that fit together")
            suffix = SUFFIX_OF_FORMAT[find_method(method).output_formats[0]]
            output = self.new_file(name, suffix)
            paths = [str(model.path) for model in inputs]
            plan_merge(NotedCaller(), method, paths, output, weights=weights)
        except (SiteAgentError, AggregatorError, ValueError) as error:
            text = "a weight is no number" if type(error) is ValueError else str(error)
            return self.merge_form(request, form.get("model", []), text)
        self._ask(
            "merge", f"Merge {' and '.join(m.name for m in inputs)} into {output.name}",
            method=method, inputs=paths, weights=weights, output=str(output),
        )  # fmt: skip
        return redirect(request, "/models")


def common_method(models: Sequence[OwnModel]) -> str:
    """Return the method that merges all models; empty if they do not fit together."""
    for method in _METHODS:
        keys = {model.keys.get(method) for model in models}
        if len(keys) == 1 and None not in keys:
            return method
    return ""
