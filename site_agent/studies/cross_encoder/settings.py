"""Settings of a study of cross-encoders, and its runs.

Each seed leaves other persons out. The rest are sites, one each, that train an encoder without
labels; a head is fitted to few labelled shots of a left-out person, and tested on other sessions
of hers. The baselines see the same shots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import require_kind
from site_agent.studies.gaze.settings import DrawnSettings
from site_agent.training.settings import require_number, require_whole

FEDERATED = "cross-encoder"
METHODS: Mapping[str, str] = {
    FEDERATED: "federated cross-encoder",
    "centralised": "cross-encoder, centralised",
    "auto-encoder": "federated auto-encoder",
    "random": "random encoder",
    "pca": "PCA-12",
    "supervised": "supervised on the shots",
    "head-pose": "head pose only",
    "mean-gaze": "mean gaze",
}
"""Names for people; the federated cross-encoder is what the others stand beside."""
COMPARED: Mapping[str, str] = {"random": "a random encoder", "pca": "PCA-12"}
"""What the federated cross-encoder has to be better than, as sentences call it."""
VERDICT_SHOTS = 100


@dataclass(frozen=True)
class CrossEncoderStudySettings:
    """Everything that is chosen in a study, besides its data.

    Attributes
    ----------
    architecture : str
        cross-encoder-small or cross-encoder.
    methods : tuple of str
        cross-encoder, centralised, auto-encoder, random, pca, supervised, head-pose, mean-gaze.
    seeds : int
        How often everything is repeated, with other starts and other persons left out.
    left_out : int
        Persons that a seed leaves out.
    shots : tuple of int
        Numbers of labelled samples to which heads are fitted.
    draws : int
        How often the shots of a person are drawn.
    test_share : float
        Share of a left-out person's sessions that test the heads; shots are of the others.
    federation : str
        How updates are combined: fedavg, or another aggregation method for networks.
    rounds : int
        All sites take part in each.
    epochs : int
        Passes of a site in a round. In one place there are rounds times epochs.
    batch_size : int
        Patches in a step of a site.
    learning_rate : float
        Of sites, for SGD with Nesterov's momentum.
    central_batch_size : int
        Patches in a step in one place.
    central_learning_rate : float
        In one place, for AdamW.
    supervised_steps : int
        Of the network that learns from the shots alone; 16 of them in each.
    site_frames : int
        Frames of a site that are used, spread over sessions; 0: all.
    first_seed : int
        Of the drawn persons, too.
    """

    architecture: str = "cross-encoder-small"
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: int = 5
    left_out: int = 3
    shots: tuple[int, ...] = (5, 10, 20, 50, 100, 200)
    draws: int = 5
    test_share: float = 0.4
    federation: str = "fedavgm"
    rounds: int = 40
    epochs: int = 2
    batch_size: int = 8
    learning_rate: float = 0.03
    central_batch_size: int = 32
    central_learning_rate: float = 0.002
    supervised_steps: int = 500
    site_frames: int = 0
    first_seed: int = 0
    drawn: DrawnSettings = field(
        default_factory=lambda: DrawnSettings(drawn_persons=15, frames=400, amount=2)
    )

    def __post_init__(self) -> None:
        for name in ("seeds", "left_out", "draws", "rounds", "epochs", "supervised_steps"):
            require_whole(name, getattr(self, name), 1, 10_000)
        require_whole("batch_size", self.batch_size, 4, 65_536)
        require_whole("central_batch_size", self.central_batch_size, 4, 65_536)
        require_whole("site_frames", self.site_frames, 0, 1_000_000)
        require_number("test_share", self.test_share, above=0, most=0.9)
        require_number("learning_rate", self.learning_rate, above=0, most=10)
        require_number("central_learning_rate", self.central_learning_rate, above=0, most=10)
        require_kind(self.architecture, "representation", "architecture")
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )
        if FEDERATED not in self.methods:
            raise InvalidInputError(f"methods: expected {FEDERATED} among them")
        if not self.shots or min(self.shots) < 1:
            raise InvalidInputError(f"shots: {self.shots}; expected numbers from 1")


QUICK = CrossEncoderStudySettings(
    seeds=3,
    left_out=2,
    rounds=12,
    supervised_steps=150,
    site_frames=120,
    drawn=DrawnSettings(drawn_persons=8, frames=200, amount=1),
)
"""A study of some ten minutes on one core."""


def make_cross_encoder_settings(*, quick: bool = False) -> CrossEncoderStudySettings:
    """Return the settings of a study as it is held without further choices."""
    return QUICK if quick else CrossEncoderStudySettings()


@dataclass(frozen=True)
class Run:
    """One encoder, or what stands in its place, with the heads on it.

    Attributes
    ----------
    train, test : tuple of str
        Persons: the sites, and those left out.
    """

    method: str
    seed: int
    train: tuple[str, ...]
    test: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of its result's file, without the ending."""
        return f"{self.method}_seed{self.seed}"


def plan_runs(persons: Sequence[str], settings: CrossEncoderStudySettings) -> tuple[Run, ...]:
    """Return all runs of a study: all of the first seed, then of the next one.

    Raises
    ------
    InvalidInputError
        Fewer than 2 persons are left to train with.
    """
    if len(persons) < settings.left_out + 2:
        raise InvalidInputError(
            f"{len(persons)} persons; expected at least {settings.left_out + 2}: "
            f"{settings.left_out} are left out, and 2 or more are sites"
        )
    runs = []
    for place in range(settings.seeds):
        first = place * settings.left_out
        test = {persons[(first + each) % len(persons)] for each in range(settings.left_out)}
        train = tuple(name for name in persons if name not in test)
        seed = settings.first_seed + place
        runs += [Run(name, seed, train, tuple(sorted(test))) for name in settings.methods]
    return tuple(runs)
