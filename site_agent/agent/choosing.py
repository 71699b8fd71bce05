"""Choosing the inputs of a merged model; each model of the pool that is left out has a reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from aggregators.formats import file_digest, fingerprint, read_model
from aggregators.methods import merge_keys
from pool_server.wire.data_use_rules import TermsOf
from pool_server.wire.models import ModelVersionResponse
from site_agent.agent.config import MergeSettings
from site_agent.errors import InvalidInputError, TermsForbidError
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.pool.restrictions import LocalFile, check_files, require_mergeable, terms_of_version
from site_agent.training_record import read_training_metadata

_MOST_LISTED, _MOST_INPUTS = 600, 50


@dataclass(frozen=True)
class Candidate:
    """A model file of the site, or a version in the pool, that may be merged."""

    name: str
    """Path or address."""
    digest: str
    key: str | None
    """Equal for models that can be merged, see `aggregators.methods.merge_keys`."""
    labels: Mapping[str, str]
    """In the pool, or in the training record next to the file."""
    version: ModelVersionResponse | None = None
    reason: str = ""
    """The reason why it is left out."""


@dataclass(frozen=True)
class Choice:
    """The inputs of a merged model, own models first, and the models left out."""

    inputs: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...]

    def without(self, refused: Sequence[Candidate]) -> "Choice":
        """Leave out inputs that proved to be unusable."""
        digests = {candidate.digest for candidate in refused}
        kept = tuple(item for item in self.inputs if item.digest not in digests)
        return Choice(kept, (*self.left_out, *refused))


def choose(goal: MergeSettings, name: str, site: str, pool: PoolClient) -> Choice:
    """Choose the inputs of a merged model; nothing is downloaded."""
    own_models = _read_own_models(goal)
    excluded = {model.digest for model in own_models}
    own_files = [LocalFile(Path(model.name), model.digest) for model in own_models]
    withdrawn = {file.digest: file.words for file in check_files(pool.withdrawals, own_files)}
    own_models = [replace(item, reason=withdrawn.get(item.digest, "")) for item in own_models]
    query = ModelQuery(kind=goal.kind, label=[*goal.labels], latest=True)
    versions = [
        version
        for version in islice(pool.models.find(query), _MOST_LISTED)
        if _is_candidate(goal, name, site, version)
        and version.digest not in excluded
        and not (own_models and version.site == site)
    ]
    # Of several versions with the same file the newest counts.
    newest = {version.digest: version for version in reversed(versions)}
    listed = [
        Candidate(
            version.address,
            version.digest,
            merge_keys(version.fingerprint).get(goal.method),
            version.labels,
            version,
        )
        for version in reversed(newest.values())
    ]
    counts = Counter(candidate.key for candidate in listed if candidate.key)
    most_common = max(sorted(counts), key=lambda key: counts[key], default="")
    own_kept = [model for model in own_models if not model.reason]
    reference = own_kept[0].key if own_kept else most_common
    checked = [replace(item, reason=find_misfit(goal, item, reference)) for item in listed]
    fitting = [candidate for candidate in checked if not candidate.reason][:_MOST_INPUTS]
    permitted = _check_terms(fitting)
    left_out = [item for item in (*own_models, *checked, *permitted) if item.reason]
    kept = [item for item in permitted if not item.reason]
    return Choice((*own_kept, *kept), tuple(left_out))


def find_misfit(goal: MergeSettings, candidate: Candidate, reference: str | None) -> str:
    """Return why a model cannot be merged with the others; empty if it can."""
    if candidate.key is None:
        return f"cannot be merged by {goal.method} at all"
    if candidate.key != reference:
        return f"cannot be merged by {goal.method}: {candidate.key} against {reference}"
    return ""


def _is_candidate(goal: MergeSettings, name: str, site: str, version: ModelVersionResponse) -> bool:
    """Exclude versions that are withdrawn, merged, or made by this agent."""
    if version.state != "available" or version.flags or version.has_recipe:
        return False
    if version.site == site and version.name == name:
        return False
    return not goal.sites or version.site in goal.sites


def _read_own_models(goal: MergeSettings) -> list[Candidate]:
    models: dict[str, Candidate] = {}
    for file in goal.own_models:
        path = Path(file)
        record = read_training_metadata(path) or {}
        labels = {str(k): str(v) for k, v in record.get("suggested_labels", {}).items()}
        key = merge_keys(fingerprint(read_model(path))).get(goal.method)
        model = Candidate(file, file_digest(path), key, labels)
        first = next(iter(models.values()), model)
        if reason := find_misfit(goal, model, first.key):
            raise InvalidInputError(f"{file}: {reason}")
        models[model.digest] = model
    return list(models.values())


def _check_terms(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Exclude, one by one, versions with terms that forbid merging them with those before."""
    checked = []
    terms: list[TermsOf] = []
    # By address, so that the same models are left out whatever the order of the listing.
    for candidate in sorted(candidates, key=lambda candidate: candidate.name):
        assert candidate.version is not None
        own_terms = TermsOf(candidate.name, tuple(terms_of_version(candidate.version)))
        try:
            require_mergeable([*terms, own_terms])
        except TermsForbidError as error:
            reason = f"terms of use: {'; '.join(error.problems)}"
            checked.append(replace(candidate, reason=reason))
        else:
            terms.append(own_terms)
            checked.append(candidate)
    return checked
