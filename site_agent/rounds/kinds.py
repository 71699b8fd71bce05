"""A site's part in a round, for each kind of contribution that a method declares.

`LeafRefitPart` fits the base's leaves to the site's faces; `NetworkPart` trains the base on its
gaze data or clips. An aggregation method names its kind (`aggregators.methods.contract`), so a new
method of a known kind needs nothing here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from aggregators.formats import read_model
from aggregators.methods.contract import ContributionKind
from aggregators.methods.networks import read_network_contribution, write_network_contribution
from aggregators.methods.refitting import (
    RefitSettings,
    find_untrained_features,
    read_contribution,
    refit_settings,
    thin_base,
    write_contribution,
)
from aggregators.methods.refitting import contribute as fit_contribution
from aggregators.methods.registry import METHODS, list_round_methods
from aggregators.methods.round_options import (
    LocalTraining,
    describe_protection,
    protection_of,
    split_options,
)
from aggregators.models import StateDict
from pool_server.wire.rounds import RoundResponse, RoundTerms
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.network_data import NetworkData, digest_data, open_network_data
from site_agent.datasets.records import FaceDataset, dataset_digest, face_marks
from site_agent.datasets.soundness import Soundness, require_sound
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated.contribution_ledger import ContributionLedger, RoundOfSeries, most_step
from site_agent.federated.personal import PersonalStore
from site_agent.networks.files import read_network
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import personal_folder, privacy_folder, rounds_folder, secure_folder
from site_agent.refinement import CROP_MARGIN, load_site, read_base
from site_agent.rounds.contract import (
    ContributionFacts,
    ContributionRules,
    DataChoice,
    DataKind,
    SiteData,
    SitePart,
)
from site_agent.rounds.finishing import take_reply
from site_agent.rounds.secure import RoundSums
from site_agent.rounds.terms import find_first
from site_agent.secure.charter import require_accepted
from site_agent.secure.sums import (
    SumVisit,
    encode_leaf_presence,
    encode_leaf_sums,
    encode_network_file,
    read_presence,
)
from site_agent.work import Progress, part_of

_READING = 0.1
"""Share of the progress up to which images are read."""

_DANGER = (
    "The base of a round decides which sums over your faces are sent. A base that somebody built "
    "for the purpose makes these sums say how bright single pixels of single faces are: whoever "
    "reads the contribution can then put together the pictures and the landmarks. No check of this "
    "program finds a base that was built with care. Approve a base only if you know who made it "
    "and how"
)


@dataclass(frozen=True, eq=False)
class LeafRefitPart(SitePart):
    """The changes of leaves, and the numbers of samples that they rest on."""

    data: ClassVar[DataKind] = "faces"
    shows_origin: ClassVar[bool] = True

    round_: RoundResponse
    faces: FaceDataset
    settings: RefitSettings
    choice: DataChoice
    soundness: Soundness

    @classmethod
    def prepare(
        cls,
        _pool: PoolClient,
        round_: RoundResponse,
        _site: str,
        data: SiteData,
        choice: DataChoice,
    ) -> "LeafRefitPart":
        faces = read_faces(data) if isinstance(data, Path) else cast("FaceDataset", data)
        sound = require_sound(faces, despite_findings=choice.despite_findings)
        seed = choice.seed + round_.number - 1
        method_options = METHODS[round_.method].take_own(round_.options)
        fit = {name: value for name, value in round_.options.items() if name not in method_options}
        return cls(round_, faces, refit_settings(**{**fit, "seed": seed}), choice, sound)

    @staticmethod
    def danger(_round: RoundResponse) -> str:
        return _DANGER

    @staticmethod
    def same_origin(base: Path, result: Path) -> bool:
        """Return whether a refined landmark model has the trees of its (thinned) base."""
        refined = read_base(result)
        forest = thin_base(read_base(base), int(refined.trees_per_level.max()))
        return refined.leaves.shape == forest.leaves.shape and all(
            np.array_equal(getattr(forest, item.name), getattr(refined, item.name))
            for item in fields(forest)
            if item.name != "leaves"
        )

    def inputs(self, rules: ContributionRules) -> list[Any]:
        settings = self.settings.model_dump(mode="json")
        # Another floor may refuse what this one lets through.
        floor = rules.faces_per_leaf
        return [dataset_digest(self.faces), settings, list(self.choice.parts), floor]

    def objections(self, rules: ContributionRules) -> list[str]:
        return rules.objections_to_options(self.settings)

    def compute(
        self, base: Path, output: Path, rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        model = read_base(base)
        if oddities := find_untrained_features(model):
            reasons = [f"the base is not as training makes models: {oddity}" for oddity in oddities]
            raise ContributionWithheldError(self.round_.round_id, reasons)
        site = load_site(
            self.faces,
            model.part_count,
            parts=self.choice.parts,
            initial_shape=model.initial_shape,
            margin=CROP_MARGIN + self.settings.jitter,
            progress=part_of(progress, 0.0, _READING),
        )
        contribution = fit_contribution(
            model,
            site.faces,
            self.settings,
            threads=self.choice.threads,
            progress=part_of(progress, _READING, 1.0),
        )
        if not contribution.counts.any():
            raise ContributionWithheldError(
                self.round_.round_id,
                [
                    f"none of the {len(contribution.counts)} leaves of the base is reached by "
                    f"{self.settings.min_faces} of your faces: there is nothing to send"
                ],
            )
        # After the fit, as the number of leaves that are sent is known only then.
        if objections := rules.objections_to_sums(contribution, model, site.faces.face_count):
            raise ContributionWithheldError(self.round_.round_id, objections)
        write_contribution(contribution, output)
        return site.left_out

    def learned(self, base: Path) -> dict[str, Any]:  # noqa: ARG002
        return face_marks([self.faces], self.soundness.details)

    @staticmethod
    def take_part(sums: RoundSums, contribution: Path, _base: Path, target: Path) -> SumVisit:
        """Count the labs by leaf in a first sum, and add the changes in a second.

        A leaf that few labs reach would show their changes, so the second leaves it out.
        """
        counted = target.with_suffix(".presence")
        first = sums.take_part(encode_leaf_presence(contribution, sums.budget), counted)
        if first.total is None:
            return first
        encoded = encode_leaf_sums(
            contribution, read_presence(counted), sums.least_labs, sums.budget
        )
        return sums.take_part(encoded, target)

    def describe(
        self,
        path: Path,
        *,
        accounted: bool = True,  # noqa: ARG002
    ) -> ContributionFacts:
        counts = read_contribution(path).counts
        sent = counts[counts > 0]
        if not len(sent):
            text = f"of {len(counts)} leaves none is reached by enough of your faces"
            return ContributionFacts(text, leaves=len(counts))
        text = (
            f"changes of {len(sent)} of {len(counts)} leaves, each a sum over at least "
            f"{self.round_.options['min_faces']} faces"
        )
        return ContributionFacts(text, len(counts), len(sent), int(sent.min()))


@dataclass(frozen=True, eq=False)
class NetworkPart(SitePart):
    """The differences of a network after local training, and the number of samples."""

    data: ClassVar[DataKind] = "gaze"

    round_: RoundResponse
    site: str
    dataset: NetworkData
    persons: tuple[str, ...]
    settings: LocalTraining
    soundness: Soundness
    series: str = ""

    @classmethod
    def prepare(
        cls, pool: PoolClient, round_: RoundResponse, site: str, data: SiteData, choice: DataChoice
    ) -> "NetworkPart":
        dataset = open_network_data(data) if isinstance(data, Path) else cast("NetworkData", data)
        sound = require_sound(
            dataset, persons=choice.persons, despite_findings=choice.despite_findings
        )
        settings = split_options(round_.method, round_.options).training
        series = ""
        if METHODS[round_.method].personal:
            series = find_first(pool, round_).round_id
        if METHODS[round_.method].replies:
            take_reply(pool, round_, site)
            if round_.predecessor is not None:
                take_reply(pool, pool.rounds.get(round_.predecessor), site)
        return cls(round_, site, dataset, tuple(choice.persons), settings, sound, series)

    @staticmethod
    def danger(round_: RoundResponse) -> str:
        secure = round_.secure is not None
        return protection_of(round_.method, round_.options, secure=secure)

    def admit(
        self,
        base: Path,
        terms: RoundTerms,
        first: Callable[[], Path],
        *,
        approved: bool,
        record: bool,
    ) -> int:
        if self.settings.dp_epsilon is not None:
            return 0  # the noise bounds each release, and the ledger of privacy counts it
        network = read_network(base)
        options = split_options(self.round_.method, self.round_.options)
        step = most_step(self.round_.method, options)
        about = RoundOfSeries(
            self.round_.round_id,
            terms.first_round,
            self.round_.number,
            self.site,
            terms.sites,
            math.inf if approved else step,
        )
        return ContributionLedger(rounds_folder()).admit(
            about, network, self.round_.base_digest, lambda: read_network(first()), record=record
        )

    @property
    def _honest_labs(self) -> int:
        from site_agent.federated.local_training import count_honest

        if self.round_.secure is None:
            return 1
        return count_honest(self.round_.participants, self._least_summed)

    @property
    def _least_summed(self) -> int:
        """Fewest labs that a secure round sums: no session completes below the charter's number."""
        assert self.round_.secure is not None, "a round without a sum"
        charter = require_accepted(secure_folder(), self.round_.secure.charter)
        return charter.terms.least_labs

    def inputs(self, rules: ContributionRules) -> list[Any]:
        return [digest_data(self.dataset, self.persons), self.settings.shared(), rules.clip_norm]

    def compute(
        self, base: Path, output: Path, rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        from site_agent.federated.local_training import Privacy, clip_update
        from site_agent.federated.rounds import SiteGuards, train_in_round
        from site_agent.federated.tasks import task_of_network

        network = cast("StateDict", read_model(base))
        samples = task_of_network(network).read(self.dataset, self.persons)
        round_ = self.round_
        seed = ContributionLedger(rounds_folder()).order_seed(
            self.site, round_.round_id, round_.base_digest
        )
        privacy = Privacy(privacy_folder(), rules.most_epsilon, self._honest_labs)
        progress(None, f"training on {len(samples)} samples")
        contribution = train_in_round(
            network,
            round_.base_digest,
            samples,
            round_.method,
            split_options(round_.method, round_.options),
            parts=PersonalStore(personal_folder() / (self.series or "none")),
            site=self.site,
            number=round_.number,
            guards=SiteGuards(round_.round_id, privacy, seed, rules.max_hours),
        )
        if rules.clip_norm is not None:
            contribution = clip_update(contribution, rules.clip_norm)
        write_network_contribution(contribution, output)
        return ()

    def learned(self, base: Path) -> dict[str, Any]:
        from site_agent.federated.tasks import task_of_network

        task = task_of_network(read_network(base))
        learned = task.learned(task.read(self.dataset, self.persons))
        learned["details"] |= self.soundness.details
        return learned

    @staticmethod
    def take_part(sums: RoundSums, contribution: Path, base: Path, target: Path) -> SumVisit:
        mean = sums.round_.options.get("mean", "samples")
        return sums.take_part(
            encode_network_file(contribution, base, sums.budget, mean=mean), target
        )

    def describe(self, path: Path, *, accounted: bool = True) -> ContributionFacts:
        from site_agent.federated.leak_checks import warn_of_few, warn_of_span
        from site_agent.federated.private_training import most_told_by, noise_words, plan_privacy

        made = read_network_contribution(path)
        samples = made.samples
        text = (
            f"differences of the network after training on {samples} samples, and this number; "
            "rows that would show single samples are kept back"
        )
        verified = accounted and self.round_.secure is not None
        protection = describe_protection(self.settings, secure=verified)
        if self.settings.dp_epsilon is not None:
            numbers = sum(int(np.count_nonzero(tensor)) for tensor in made.network.tensors.values())
            noise = noise_words(
                self.settings, samples, numbers, len(self.round_.participants), self._honest_labs
            )
            text = f"differences of the network with noise, and their weight {samples}; {noise}"
            plan = plan_privacy(self.settings, samples, self._honest_labs)
            told = most_told_by(plan, self.settings.dp_rounds)
            protection += f"; by the noise of this training at most {told:.0%}"
            if self.round_.secure is not None and self.settings.dp_unit == "person":
                text += (
                    f"; this assumes that {self._honest_labs} of at least {self._least_summed} "
                    "labs that are summed add their noise"
                )
        else:
            warnings = warn_of_few(self.settings, samples), warn_of_span(made.network, samples)
            text += "".join(f". Warning: {warning}" for warning in warnings if warning)
        text += f". Protection: {protection}"
        if made.shared:
            kept = sum(int((~mask).sum()) for mask in made.shared.values())
            infos = made.network.infos.values()
            total = sum(math.prod(info.shape) for info in infos if info.dtype.startswith("F"))
            text += (
                f"; {kept / total:.0%} of the numbers stay here ('poolctl personal ls'), and the "
                "round sees which ones"
            )
        if made.statistics is not None:
            counts = made.statistics.counts
            text += (
                f"; how many look in each of {len(counts)} directions ({int(counts.sum())} in "
                f"{int((counts > 0).sum())}, a histogram of your labels) with their mean features. "
                "The pool reads all this; other sites get means of it, and last layers that yours "
                "is mixed into: with few sites, nearly yours"
            )
        return ContributionFacts(text, samples=samples)


_BY_CONTRIBUTION: Mapping[ContributionKind, type[SitePart]] = {
    "leaf-changes": LeafRefitPart,
    "network-update": NetworkPart,
}


def find_site_part(name: str) -> type[SitePart]:
    """Return a site's part in rounds of a method, or raise `InvalidInputError`."""
    method = METHODS.get(name)
    if method is None or method.contribution is None:
        raise InvalidInputError(
            f"the round is held by {name}; this program knows {', '.join(list_round_methods())}"
        )
    return _BY_CONTRIBUTION[method.contribution]
