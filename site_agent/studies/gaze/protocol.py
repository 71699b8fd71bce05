"""The protocol of a gaze study: the persons on which each network is trained and tested.

A study is a table of runs that need nothing of each other. ``person-specific`` holds out whole
sessions of each person, ``person-independent`` whole persons; the network of one person alone
(``individual``) gives both, by its own held-out sessions and by the other persons. ``noise`` and
``hostile`` have a fixed number of persons as sites, all in every round, and test on the others.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from site_agent.errors import InvalidInputError
from site_agent.studies.gaze import settings as study_settings
from site_agent.wording import count_words

Protocol = Literal["individual", "person-specific", "person-independent", "noise", "hostile"]

HELD_OUT_SHARE = 0.2
"""Share of the sessions that person-specific holds out."""
_TUNING_STEP = 3
_FOLD_STREAM, _SESSION_STREAM, _SITE_STREAM, _NOISY_STREAM = 0xF01D, 0x5E55, 0x517E, 0x0153


@dataclass(frozen=True)
class Run:
    """One network that is trained and tested."""

    protocol: Protocol
    method: str
    """One of `METHODS`; of ``hostile`` one of the settings' `rules`."""
    group: str
    """With protocol, method and seed the name of the run: a fold, a person, a share, an attack."""
    seed: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    """Persons. Where a person is in both, whole sessions of hers are held out."""
    training: study_settings.TrainingSettings
    noisy: tuple[str, ...] = ()
    hostile: tuple[str, ...] = ()
    """Those of `train` with noisy training images, or with hostile updates."""
    attack: str = "none"

    @property
    def key(self) -> str:
        """The name of its result's file, without the ending."""
        return f"{self.protocol}_{self.method}_{self.group}_seed{self.seed}"


def plan_runs(
    persons: Sequence[str], settings: study_settings.GazeStudySettings
) -> tuple[Run, ...]:
    """Return all runs of a study: all of the first seed, then of the next one."""
    planner = _Planner(tuple(persons), settings)
    runs: list[Run] = []
    for place in range(max(settings.seeds, settings.robust_seeds)):
        seed = settings.first_seed + place
        if "persons" in settings.protocols and place < settings.seeds:
            runs += [*planner.independent(seed), *planner.specific(seed), *planner.individual(seed)]
        if "noise" in settings.protocols and place < settings.robust_seeds:
            runs += planner.noise(seed)
        if "hostile" in settings.protocols and place < settings.robust_seeds:
            runs += planner.hostile(seed)
    return tuple(runs)


def plan_tuning(
    persons: Sequence[str], settings: study_settings.GazeStudySettings
) -> tuple[Run, ...]:
    """Return the runs that compare the candidates of each method, person-independent.

    All candidates of all methods have the same test persons, one fold, and the same training
    persons; of the networks of one person alone, those of every third person.
    """
    test = folds_of(persons, settings.folds, settings.first_seed)[0]
    train = tuple(name for name in persons if name not in test)
    runs = []
    for method in reversed(study_settings.METHODS):
        for number, values in enumerate(study_settings.CANDIDATES[method]):
            training = study_settings.TrainingSettings(**values)
            run = Run("person-independent", method, f"candidate{number}", settings.first_seed,
                      train, test, training)  # fmt: skip
            if method != "individual":
                runs.append(run)
                continue
            runs += [
                replace(run, protocol="individual", group=f"{run.group}-{name}", train=(name,))
                for name in train[::_TUNING_STEP]
            ]
    return tuple(runs)


@dataclass(frozen=True)
class _Planner:
    persons: tuple[str, ...]
    settings: study_settings.GazeStudySettings

    def individual(self, seed: int) -> Iterator[Run]:
        for name in self.persons:
            yield Run("individual", "individual", name, seed, (name,), self.persons,
                      self.settings.training.of("individual"))  # fmt: skip

    def specific(self, seed: int) -> Iterator[Run]:
        for method in study_settings.METHODS[1:]:
            yield Run("person-specific", method, "all", seed, self.persons, self.persons,
                      self.settings.training.of(method))  # fmt: skip

    def independent(self, seed: int) -> Iterator[Run]:
        for number, test in enumerate(folds_of(self.persons, self.settings.folds, seed), 1):
            train = tuple(name for name in self.persons if name not in test)
            for method in study_settings.METHODS[1:]:
                yield Run("person-independent", method, f"fold{number}", seed, train, test,
                          self.settings.training.of(method))  # fmt: skip

    def noise(self, seed: int) -> Iterator[Run]:
        sites, test = self._sites(seed)
        order = _shuffle(sites, _NOISY_STREAM, seed)
        for share in self.settings.noise_shares:
            noisy = tuple(sorted(order[: round(share * len(sites))]))
            for method in study_settings.FEDERATED:
                yield Run("noise", method, f"{100 * share:g}percent", seed, sites, test,
                          self.settings.training.of(method), noisy=noisy)  # fmt: skip

    def hostile(self, seed: int) -> Iterator[Run]:
        sites, test = self._sites(seed)
        training = self.settings.training.of("fedavg")
        hostile = tuple(sorted(_shuffle(sites, _NOISY_STREAM, seed)[: self.settings.hostile_sites]))
        for attack in study_settings.ATTACKS:
            for rule in self.settings.rules:
                yield Run("hostile", rule, attack, seed, sites, test, training,
                          hostile=() if attack == "none" else hostile, attack=attack)  # fmt: skip

    def _sites(self, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        count = self.settings.robust_sites
        if len(self.persons) <= count:
            raise InvalidInputError(
                f"{len(self.persons)} persons; expected more than {count} for noise and hostile "
                "(robust_sites), since the others are the test"
            )
        order = _shuffle(self.persons, _SITE_STREAM, seed)
        return tuple(sorted(order[:count])), tuple(sorted(order[count:]))


def folds_of(persons: Sequence[str], folds: int, seed: int) -> tuple[tuple[str, ...], ...]:
    """Cut persons into folds of about equal size, at random; 0: one fold for each person."""
    count = folds or len(persons)
    if len(persons) < 3 or not 2 <= count <= len(persons):
        raise InvalidInputError(
            f"folds is {folds} and the data have {count_words(len(persons), 'person')}; expected "
            "at least 3 persons, and 2 folds or more, at most one for each person (0: exactly that)"
        )
    order = _shuffle(persons, _FOLD_STREAM, seed)
    return tuple(tuple(sorted(order[number::count])) for number in range(count))


def held_out_sessions(person: str, sessions: Sequence[str], seed: int) -> tuple[str, ...]:
    """Draw the sessions of a person that are held out: a fifth of them, at least one."""
    if len(sessions) < 2:
        raise InvalidInputError(f"person {person} has one session; expected at least 2")
    count = max(1, round(HELD_OUT_SHARE * len(sessions)))
    number = int.from_bytes(hashlib.sha256(person.encode()).digest()[:4], "big")
    random = np.random.default_rng([_SESSION_STREAM, seed, number])
    return tuple(sorted(str(name) for name in random.choice(sorted(sessions), count, False)))


def _shuffle(names: Sequence[str], stream: int, seed: int) -> list[str]:
    order = np.random.default_rng([stream, seed]).permutation(len(names))
    return [names[place] for place in order]
