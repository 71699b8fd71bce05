"""Settings of a privacy study: persons, rounds and the budget that all leaks share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivacySettings:
    """Numbers of persons, samples, rounds and steps; the same for every leak.

    Attributes
    ----------
    victims : int
        Sites under attack, of one person each.
    public : int
        Persons of whom the attacker has pictures: for the prior, and as shadow sites.
    outsiders : int
        Persons who take part in nothing: those who are not members.
    judges : int
        Persons with whom the embedding is trained that judges reconstructed pictures.
    train_samples, other_samples : int
        Of each person: those that train, and others of the same sessions, which the attacker has.
    session_samples : int
        Of a session of which nothing trains.
    judged_samples : int
        Members, and others, of each person, whose membership is attacked.
    sweep : tuple of int
        Numbers of sites in a sum.
    steps, restarts : int
        Of the search for pictures.
    """

    victims: int = 15
    public: int = 45
    outsiders: int = 15
    judges: int = 40
    train_samples: int = 100
    other_samples: int = 30
    session_samples: int = 20
    judged_samples: int = 20
    architecture: str = "gaze-lenet"
    rounds: int = 5
    epochs: int = 2
    batch_size: int = 16
    learning_rate: float = 0.01
    seeds: int = 3
    sweep: tuple[int, ...] = (1, 3, 5, 15)
    steps: int = 60
    restarts: int = 5

    @property
    def samples_per_person(self) -> int:
        return self.train_samples + self.other_samples + self.session_samples


def make_privacy_settings(*, quick: bool) -> PrivacySettings:
    """Return the settings of the study, or of a smaller one."""
    if not quick:
        return PrivacySettings()
    return PrivacySettings(
        public=20, judges=20, train_samples=60, other_samples=20, session_samples=10,
        judged_samples=10, rounds=2, steps=20, restarts=3,
    )  # fmt: skip
