"""The trials of a study in columns, read from its table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from site_agent.eyeblink.conditioning.analysis import analyse_conditioning
from site_agent.eyeblink.records import Float64, Int64
from site_agent.eyeblink.study.criteria import Criterion, RecordedSession
from site_agent.eyeblink.study.learning_curve import FEWEST_PARTICIPANTS, trials_to_criterion


@dataclass(frozen=True, eq=False)
class StudyTrials:
    """Valid trials with a CS of a study, one entry each."""

    participant: Int64
    """Number of each in `names`."""
    session: Float64
    group: Sequence[str]
    cr: Float64
    amplitude: Float64
    names: Sequence[str] = ()

    @classmethod
    def read(cls, path: Path) -> "StudyTrials":
        """Read a table such as ``all_trials.csv``."""
        import pandas

        table = pandas.read_csv(path, dtype={"participant": str, "group": str})
        used = table["valid"] & table["cr"].notna() & table["session_number"].notna()
        table = table[used & table["participant"].notna()]
        numbers, names = pandas.factorize(table["participant"])
        return cls(
            numbers,
            table["session_number"].to_numpy(np.float64),
            table["group"].fillna("").tolist(),
            table["cr"].astype(bool).to_numpy(np.float64),
            table["cr_amplitude"].to_numpy(np.float64),
            names.tolist(),
        )

    @classmethod
    def judge(cls, sessions: Iterable[RecordedSession], criterion: Criterion) -> "StudyTrials":
        """Measure and judge the trials of sessions by one criterion."""
        rows = [
            (session.participant, session.session, session.group, trial.cr, trial.measures)
            for session in sessions
            for trial in analyse_conditioning(
                session.timestamps_s, criterion.fec(session), session.trials, criterion.settings
            ).trials
            if trial.cr is not None and session.participant
        ]
        names = list(dict.fromkeys(row[0] for row in rows))
        return cls(
            np.array([names.index(row[0]) for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.float64),
            [row[2] for row in rows],
            np.array([row[3] for row in rows], dtype=np.float64),
            np.array([row[4].cr_amplitude for row in rows], dtype=np.float64),
            names,
        )

    @property
    def can_be_modelled(self) -> bool:
        """True for three participants and two sessions at least."""
        animals = len(np.unique(self.participant))
        return animals >= FEWEST_PARTICIPANTS and bool(np.ptp(self.session) > 0)

    def to_criterion(self, participant: str) -> int | None:
        """Return the count of a participant's trials up to the criterion of learning, or None."""
        if participant not in self.names:
            return None
        trials = self.participant == self.names.index(participant)
        order = np.argsort(self.session[trials], kind="stable")
        return trials_to_criterion((self.cr[trials][order] > 0).tolist())
