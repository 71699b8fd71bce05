"""A site with an agent: its faces, its model, its configuration, and a pool of other models."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from string import Formatter
from typing import Any

from site_agent.agent.agent import CycleReport, run_agent
from site_agent.agent.config import read_config
from site_agent.agent.workspace import SENTENCES, Journal
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import ModelQuery, PoolClient
from site_agent.training.ert import ErtSettings, train_ert
from tests.site_agent.face_data import draw_faces
from tests.site_agent.live_pool import LivePool

LEVELS, SIZE = 3, (160, 160)


def quick_ert(levels: int = LEVELS) -> ErtSettings:
    return ErtSettings(
        num_trees_per_cascade_level=15, cascade_depth=levels, tree_depth=3,
        oversampling_amount=5, feature_pool_size=80, num_test_splits=8,
    )  # fmt: skip


def draw(folder: Path, images: int, seed: int) -> Path:
    return draw_faces(folder, images, images, seed, size=SIZE, first_person=100 * seed)


@dataclass(frozen=True)
class Materials:
    """Faces and models, made once for all tests."""

    faces: Path
    validation: Path
    mine: Path
    others: tuple[Path, ...]
    deep: Path
    """A landmark model with more levels, which cannot be merged with the others."""


def make_materials(folder: Path) -> Materials:
    faces = [draw(folder / f"faces-{seed}", images, seed) for seed, images in enumerate((4, 8, 8))]
    validation = draw(folder / "validation", 6, 9)
    models = []
    for number, xml in enumerate(faces):
        output = folder / f"model-{number}.dat"
        models.append(train_ert(read_imglab_xml(xml), output, quick_ert()).model_path)
    deep = train_ert(read_imglab_xml(faces[1]), folder / "deep.dat", quick_ert(LEVELS + 1))
    return Materials(faces[0], validation, models[0], tuple(models[1:]), deep.model_path)


class Ear(io.StringIO):
    """Listens to an agent.

    Attributes
    ----------
    said : list of dict
        Every line so far.
    on_event : callable or None
        Told the name of each event at once.
    """

    def __init__(self, on_event: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.said: list[dict[str, Any]] = []
        self.on_event = on_event

    def write(self, text: str) -> int:
        line = json.loads(text)
        assert tuple(line)[:4] == ("time", "level", "event", "cycle")
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
        names = {name for _, name, *_ in Formatter().parse(SENTENCES[line["event"]]) if name}
        assert names <= line.keys(), "all that its sentence says"
        self.said.append(line)
        if self.on_event is not None:
            self.on_event(self.said[-1]["event"])
        return len(text)

    def journal(self) -> Journal:
        return Journal(self)


@dataclass
class Lab:
    """One site's agent; `merge`, `rounds` and `rules` are tables of its settings."""

    folder: Path
    pool: LivePool
    materials: Materials
    name: str = "merged"
    merge: dict[str, Any] = field(default_factory=dict)
    rounds: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)

    @property
    def config_file(self) -> Path:
        return self.folder / "agent.toml"

    @property
    def workspace(self) -> Path:
        return self.folder / "agent"

    def write_config(self) -> Path:
        goal = {
            "validation": str(self.materials.validation),
            "own_models": [str(self.materials.mine)],
            "labels": [f"study={self.name}"],
            "margin_pct": -100.0,
            **self.merge,
        }
        tables = {
            "": {"workspace": "agent", "threads": 1, "interval_minutes": 0.003},
            "[rounds]": self.rounds,
            "[rounds.rules]": self.rules,
            f"[merge.{self.name}]": goal,
        }
        lines = []
        for heading, table in tables.items():
            lines += [heading, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text("\n".join(lines) + "\n")
        return self.config_file

    def cycle(
        self, on_event: Callable[[str], None] | None = None
    ) -> tuple[CycleReport, list[dict[str, Any]]]:
        """Run one cycle and return its journal; `said` has it, too, where the cycle fails."""
        ear = Ear(on_event)
        self.said = ear.said
        report = run_agent(read_config(self.write_config()), ear.journal(), once=True)
        assert self.pool.tokens["site-a"] not in json.dumps(self.said)
        return report, self.said

    def client(self, site: str) -> PoolClient:
        cache = ModelCache(self.folder / f"cache-of-{site}")
        return PoolClient(self.pool.url, self.pool.tokens[site], cache=cache)

    def share(self, path: Path, name: str, **labels: str) -> str:
        """Upload a model as site-b and return its address."""
        with self.client("site-b") as client:
            return client.upload(
                path, f"site-b/{self.name}-{name}", labels={"study": self.name, **labels}
            ).version.address

    def published(self) -> list[str]:
        """Addresses of the agent's uploads, oldest first."""
        with self.client("site-a") as client:
            models = list(client.models.find(ModelQuery(site="site-a", name=self.name)))
        return [version.address for version in models][::-1]

    def cancel_rounds(self) -> None:
        """Cancel the rounds that a test left open, so that no other test is invited."""
        with self.client("site-b") as client:
            for round_ in list(client.rounds.list("open")):
                client.rounds.cancel(round_.round_id)

    @property
    def state(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.workspace / "state.json").read_text())
        return content


def events(said: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [line for line in said if line["event"] in names]
