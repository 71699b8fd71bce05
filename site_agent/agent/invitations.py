"""Rounds that a site is invited to: contributed to once, with data that stay at home."""

from dataclasses import dataclass

from aggregators.errors import AggregatorError
from aggregators.methods.registry import list_round_methods
from pool_server.wire.rounds import RoundResponse
from site_agent import errors
from site_agent.agent.config import RoundsConfig
from site_agent.agent.workspace import CycleContext, RoundNote
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.gaze.records import join_digests
from site_agent.datasets.network_data import NetworkData, digest_data, open_network_data
from site_agent.datasets.records import FaceDataset, dataset_digest
from site_agent.pool.client import PoolClient
from site_agent.rounds import contract, contributing, finishing
from site_agent.rounds.kinds import find_site_part

_MOST_NOTES = 1000

# Another attempt with the same data and rules would end in the same way.
_FINAL = (
    errors.ConflictError,
    errors.ContributionWithheldError,
    errors.ForbiddenError,
    errors.PoolRefusedFileError,
    errors.PoolRefusedRequestError,
    errors.TrainingDataError,
    errors.UnsoundDataError,
    AggregatorError,
)


@dataclass(frozen=True)
class Invitation:
    """A round that waits for the site, and why it is not taken part in (empty where it is)."""

    round: RoundResponse
    obstacle: str


def invitations(pool: PoolClient, site: str, config: RoundsConfig) -> list[Invitation]:
    """Return the open rounds that wait for the site, oldest first."""
    invitations = []
    for round_ in pool.rounds.list("open"):
        if site in round_.sites("waiting"):
            invitations.append(Invitation(round_, _obstacle(round_, config)))
    return invitations[::-1]


def refusal_condition(config: RoundsConfig) -> str:
    """Return the data and rules under which a round is refused; others may let it pass."""
    names = {
        "started_by",
        "trust",
        "min_starts",
        "min_faces",
        "faces_per_leaf",
        "secure_only",
        "least_others",
        "max_hours",
        "persons",
    }
    digests = []
    if config.data is not None:
        digests.append(dataset_digest(read_faces(config.data, config.reading)))
    if config.gaze is not None:
        digests.append(join_digests(digest_data(open_network_data(config.gaze))))
    return f"{' '.join(digests)} {config.model_dump_json(include=names)}"


class RoundsRun:
    """The work on rounds in one cycle."""

    def __init__(self, config: RoundsConfig, context: CycleContext) -> None:
        self.config, self.context = config, context
        self.pool, self.notes = context.pool, context.state.rounds
        self.failures: list[tuple[str, Exception]] = []
        self.contributions = 0

    def run(self) -> None:
        """Contribute to the rounds that wait for the site, and finish those that are ready."""
        data = ""
        for invitation in invitations(self.pool, self.context.site, self.config):
            data = data or refusal_condition(self.config)
            key = invitation.round.round_id
            note = self.notes.get(key)
            # A round that waits for the site again had its contribution taken back by somebody.
            if note is not None and note.outcome == "contributed":
                self._refuse(key, "its contribution was taken back", "")
            elif note is None or note.outcome != "refused" or note.data not in {"", data}:
                self._answer(invitation, data)
        if self.config.finish:
            self._finish_ready()
        for key in list(self.notes)[:-_MOST_NOTES]:
            del self.notes[key]

    def _data(self, round_: RoundResponse) -> FaceDataset | NetworkData:
        if find_site_part(round_.method).data == "faces" and self.config.data is not None:
            return read_faces(self.config.data, self.config.reading)
        assert self.config.gaze is not None, "_obstacle() lets no other round pass"
        return open_network_data(self.config.gaze)

    def _answer(self, invitation: Invitation, data: str) -> None:
        key = invitation.round.round_id
        if invitation.obstacle:
            self._refuse(key, invitation.obstacle, data)
            return
        try:
            self._contribute(invitation.round)
        except _FINAL as error:
            self._refuse(key, str(error), data)
        except (errors.PoolUnreachableError, errors.NotLoggedInError):
            raise
        except (errors.SiteAgentError, OSError) as error:
            self.failures.append((key, error))
        else:
            self.notes[key] = RoundNote(outcome="contributed")
            self.contributions += 1
            self.context.save()

    def _contribute(self, round_: RoundResponse) -> None:
        self.context.journal.write(
            "contributing", round=round_.round_id, base=round_.base, deadline=round_.deadline
        )
        contribution = contributing.contribute_to_round(
            self.pool,
            round_.round_id,
            self._data(round_),
            contract.DataChoice(
                parts=tuple(self.config.parts),
                persons=tuple(self.config.persons),
                seed=self.config.seed,
                threads=self.context.threads,
            ),
            site=self.context.site,
            rules=self.config.rules,
        )
        if contribution.phase not in {"", "complete"}:
            return  # a secure sum goes on in the next cycle
        self.context.journal.write(
            "contributed",
            round=round_.round_id,
            digest=contribution.digest,
            size_bytes=contribution.size_bytes,
            sent_bytes=contribution.sent_bytes,
        )

    def _finish_ready(self) -> None:
        """Ask the pool to combine complete rounds; one of several sites is enough."""
        waiting = [
            round_ for state in ("open", "closed") for round_ in self.pool.rounds.list(state)
        ]
        for round_ in waiting:
            if not round_.ready or self.context.site not in round_.contributions():
                continue
            if round_.base_warning:
                continue
            try:
                outcome = finishing.finish_round(self.pool, round_.round_id)
            except (
                errors.ConflictError,
                errors.PoolRefusedRequestError,
                errors.ForbiddenError,
            ) as error:
                self.failures.append((round_.round_id, error))
                continue
            self.context.journal.write(
                "round_finished", round=round_.round_id, result=outcome.version.address
            )

    def _refuse(self, key: str, reason: str, data: str) -> None:
        self.notes[key] = RoundNote(outcome="refused", reason=reason, data=data)
        self.context.save()
        self.context.journal.write("round_refused", round=key, reason=reason)


def _obstacle(round_: RoundResponse, config: RoundsConfig) -> str:
    if round_.method not in list_round_methods():
        known = ", ".join(list_round_methods())
        return f"is held by {round_.method}; this program knows {known}"
    kind, key = (
        ("faces", "data")
        if find_site_part(round_.method).data == "faces"
        else ("gaze data", "gaze")
    )
    if getattr(config, key) is None:
        return f"is held by {round_.method} and needs {kind}, which '{key}' would name"
    if round_.base_warning:
        return f"its base is {round_.base_warning}"
    starter = round_.created_by.partition("/")[0]
    if starter not in config.started_by:
        return f"was started by {starter}, and 'started_by' names {', '.join(config.started_by)}"
    return ""
