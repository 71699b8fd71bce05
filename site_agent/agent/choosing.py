"""Choosing sub-models of the pool for a merge; each one that is left out has a reason."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from aggregators.errors import AggregatorError
from aggregators.formats import file_digest, fingerprint, read_model
from aggregators.methods import merge_keys
from pool_server.wire.data_use_rules import TermsOf
from pool_server.wire.models import ModelVersionResponse
from site_agent.agent.config import OWN, MergeGoal
from site_agent.agent.workspace import GoalState, Refusal
from site_agent.errors import InvalidInputError, TermsForbidError
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.pool.restrictions import require_mergeable, terms_of_version
from site_agent.training_record import read_training_metadata


@dataclass(frozen=True)
class OwnModel:
    """A model file of the site."""

    path: Path
    digest: str
    key: str
    """Equal for models that can be merged, see `aggregators.methods.merge_keys`."""
    labels: Mapping[str, str]
    """From the training record next to the file."""


@dataclass(frozen=True)
class Choice:
    """The inputs of a merged model."""

    own_models: tuple[OwnModel, ...]
    chosen: tuple[ModelVersionResponse, ...]
    refused: Mapping[str, Refusal]
    """By digest: those that are refused now and were not before."""
    refused_before: int
    asked: int
    """Versions that are asked for, refused ones among them."""
    key: str

    @property
    def digests(self) -> list[str]:
        """Digests of everything, own models first."""
        return [model.digest for model in self.own_models] + [v.digest for v in self.chosen]

    def weights(self, goal: MergeGoal) -> list[float] | None:
        """Return a weight for each of `digests`, None where all are alike."""
        if not goal.weight_by and not goal.weights:
            return None
        weights = [
            goal.weights.get(OWN, 1.0) * _own_label(model, goal.weight_by)
            for model in self.own_models
        ]
        for version in self.chosen:
            number = _label_number(version.labels, goal.weight_by)
            assert number is not None  # else it would have been refused
            weights.append(goal.weights.get(version.site, 1.0) * number)
        return weights


def read_own_models(goal: MergeGoal) -> tuple[OwnModel, ...]:
    """Look at the site's own models of a ``[[merge]]`` table."""
    models: list[OwnModel] = []
    for path in goal.own_models:
        key = merge_keys(fingerprint(read_model(path))).get(goal.method_name)
        if key is None:
            raise InvalidInputError(f"{path}: cannot be merged by {goal.method_name}")
        if models and key != (first := models[0]).key:
            raise InvalidInputError(
                f"{path}: cannot be merged with {first.path.name}: {key} against {first.key}"
            )
        record = read_training_metadata(path) or {}
        labels = {str(k): str(v) for k, v in record.get("suggested_labels", {}).items()}
        models.append(OwnModel(path, file_digest(path), key, labels))
    unique = {model.digest: model for model in models}
    return tuple(unique.values())


def list_versions(pool: PoolClient, goal: MergeGoal) -> list[ModelVersionResponse]:
    """List the pool's versions that match a ``[[merge]]`` table, newest first."""
    query = ModelQuery(
        kind=goal.kind, label=[*goal.labels], metric=[*goal.metrics], text=goal.text, latest=True
    )
    # Those that are left out below must not use up what may be taken.
    return list(islice(pool.models.find(query), 10 * goal.most + 100))


def choose(
    goal: MergeGoal,
    site: str,
    own_models: Sequence[OwnModel],
    versions: Iterable[ModelVersionResponse],
    state: GoalState,
    *,
    conditions: Collection[str] = (),
) -> Choice:
    """Decide which versions are merged with the own models; nothing is downloaded.

    `conditions`: Those that hold now: a model that was refused under one of these stays refused.
    """
    asked = [version for version in versions if _is_meant(goal, site, own_models, version)]
    # Of several versions with the same file the newest counts.
    asked = list({version.digest: version for version in reversed(asked)}.values())[::-1]
    keys = {version.digest: merge_keys(version.fingerprint).get(goal.method_name)
            for version in asked}  # fmt: skip
    counts = Counter(key for key in keys.values() if key)
    most_common = max(sorted(counts), key=lambda key: counts[key], default="")
    reference = own_models[0].key if own_models else most_common
    held = {"", _method_words(goal, reference), *conditions}
    refused: dict[str, Refusal] = {}
    chosen: list[ModelVersionResponse] = []
    before = 0
    for version in asked:
        known = state.refused.get(version.digest)
        if known is not None and known.against in {*held, _label_words(goal, version)}:
            before += 1
            continue
        why = _obstacle(goal, version, keys[version.digest], reference)
        if why is not None:
            refused[version.digest] = why
        elif len(chosen) < goal.most:
            chosen.append(version)
    # By address, so that the same models are left out whatever the order of the listing.
    permitted = _leave_out_forbidden(
        goal, sorted(chosen, key=lambda version: version.address), refused
    )
    return Choice(tuple(own_models), tuple(permitted), refused, before, len(asked), reference)


def check_downloaded(goal: MergeGoal, path: Path, address: str, key: str) -> Refusal | None:
    """Return why a downloaded file cannot be merged; None if it can.

    The pool's description of it is not trusted.
    """
    try:
        found_key = merge_keys(fingerprint(read_model(path))).get(goal.method_name)
    except AggregatorError as error:
        return Refusal(address=address, reason=str(error))
    return None if found_key == key else _misfit(goal, address, found_key, key)


def today() -> str:
    """Return the condition of refusals that may no longer hold tomorrow."""
    return f"day {datetime.now(UTC):%Y-%m-%d}"


def _is_meant(
    goal: MergeGoal, site: str, own_models: Sequence[OwnModel], version: ModelVersionResponse
) -> bool:
    """Exclude versions that are withdrawn, made by this agent, or already here."""
    if version.state != "available" or version.flags:
        return False
    if version.has_recipe and not goal.merged_too:
        return False
    if version.site == site and (own_models or version.name == goal.name):
        return False
    if version.digest in {model.digest for model in own_models}:
        return False
    return not goal.sites or version.site in goal.sites


def _leave_out_forbidden(
    goal: MergeGoal, versions: Sequence[ModelVersionResponse], refused: dict[str, Refusal]
) -> list[ModelVersionResponse]:
    """Exclude, one by one, versions with terms that forbid merging them with those before."""
    kept: list[ModelVersionResponse] = []
    terms: list[TermsOf] = []
    for version in versions:
        version_terms = TermsOf(version.address, tuple(terms_of_version(version)))
        try:
            require_mergeable([*terms, version_terms], goal.use)
        except TermsForbidError as error:
            reason = "terms of use: " + "; ".join(error.problems)
            # Time limits and moratoria end.
            refusal = Refusal(address=version.address, reason=reason, against=today())
            refused[version.digest] = refusal
            continue
        kept.append(version)
        terms.append(version_terms)
    return kept


def _obstacle(
    goal: MergeGoal, version: ModelVersionResponse, key: str | None, reference: str
) -> Refusal | None:
    if key is None or key != reference:
        return _misfit(goal, version.address, key, reference)
    if _label_number(version.labels, goal.weight_by) is None:
        weight = version.labels.get(goal.weight_by, "nothing")
        reason = f"label {goal.weight_by!r} is {weight!r}, expected a number above 0 to weigh it by"
        return Refusal(address=version.address, reason=reason, against=_label_words(goal, version))
    return None


def _misfit(goal: MergeGoal, address: str, key: str | None, reference: str) -> Refusal:
    difference = f": {key} against {reference}" if key else " at all"
    return Refusal(
        address=address,
        reason=f"cannot be merged by {goal.method_name}{difference}",
        against=_method_words(goal, reference),
    )


def _method_words(goal: MergeGoal, reference: str) -> str:
    return f"method {goal.method_name} {reference}"


def _label_words(goal: MergeGoal, version: ModelVersionResponse) -> str:
    """Return the condition of a refusal for a label, until its site corrects that."""
    return f"label {goal.weight_by}={version.labels.get(goal.weight_by, '')}"


def _own_label(model: OwnModel, label: str) -> float:
    number = _label_number(model.labels, label)
    if number is None:
        raise InvalidInputError(
            f"{model.path}: has no label {label!r} with a number above 0 in its training record, "
            "and 'weight_by' asks for it"
        )
    return number


def _label_number(labels: Mapping[str, str], label: str) -> float | None:
    if not label:
        return 1.0
    try:
        number = float(labels.get(label, ""))
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
