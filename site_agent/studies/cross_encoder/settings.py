"""Settings of a study of cross-encoders, and its runs.

Each seed leaves other persons out. The rest are sites, one each, that train an encoder without
labels; a head is fitted to few labelled shots of a left-out person, and tested on other sessions
of hers. The baselines see the same shots.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import require_kind
from site_agent.settings import Settings
from site_agent.studies.eyes import DrawnSettings, MethodRun

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


class CrossEncoderStudySettings(Settings, error=InvalidInputError):
    """Everything that is chosen in a study, besides its data."""

    architecture: str = "cross-encoder-small"
    """cross-encoder-small or cross-encoder."""
    methods: tuple[str, ...] = tuple(METHODS)
    """cross-encoder, centralised, auto-encoder, random, pca, supervised, head-pose, mean-gaze."""
    seeds: int = Field(default=5, ge=1, le=10_000)
    """How often everything is repeated, with other starts and other persons left out."""
    left_out: int = Field(default=3, ge=1, le=10_000)
    """Persons that a seed leaves out."""
    shots: tuple[Annotated[int, Field(ge=1)], ...] = (5, 10, 20, 50, 100, 200)
    """Numbers of labelled samples to which heads are fitted."""
    draws: int = Field(default=5, ge=1, le=10_000)
    """How often the shots of a person are drawn."""
    test_share: float = Field(default=0.4, gt=0, le=0.9)
    """Share of a left-out person's sessions that test the heads; shots are of the others."""
    federation: str = "fedavgm"
    """How updates are combined: fedavg, or another aggregation method for networks."""
    rounds: int = Field(default=40, ge=1, le=10_000)
    """All sites take part in each."""
    epochs: int = Field(default=2, ge=1, le=10_000)
    """Passes of a site in a round. In one place there are rounds times epochs."""
    batch_size: int = Field(default=8, ge=4, le=65_536)
    """Patches in a step of a site."""
    learning_rate: float = Field(default=0.03, gt=0, le=10)
    """Of sites, for SGD with Nesterov's momentum."""
    central_batch_size: int = Field(default=32, ge=4, le=65_536)
    """Patches in a step in one place."""
    central_learning_rate: float = Field(default=0.002, gt=0, le=10)
    """In one place, for AdamW."""
    supervised_steps: int = Field(default=500, ge=1, le=10_000)
    """Of the network that learns from the shots alone; 16 of them in each."""
    site_frames: int = Field(default=0, ge=0, le=1_000_000)
    """Frames of a site that are used, spread over sessions; 0: all."""
    first_seed: int = 0
    """Of the drawn persons, too."""
    drawn: DrawnSettings = Field(
        default_factory=lambda: DrawnSettings(drawn_persons=15, frames=400, amount=2)
    )

    def __post_init__(self) -> None:
        require_kind(self.architecture, "representation", "architecture")
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )
        if FEDERATED not in self.methods:
            raise InvalidInputError(f"methods: expected {FEDERATED} among them")
        if not self.shots:
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


def plan_runs(persons: Sequence[str], settings: CrossEncoderStudySettings) -> tuple[MethodRun, ...]:
    """Return all runs of a study: all of the first seed, then of the next one.

    Raises `InvalidInputError`: fewer than 2 persons are left to train with.
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
        runs += [MethodRun(name, seed, train, tuple(sorted(test))) for name in settings.methods]
    return tuple(runs)
