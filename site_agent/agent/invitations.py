"""Contribute once to each round that the site is invited to."""

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from aggregators.errors import AggregatorError
from aggregators.methods.registry import list_round_methods
from pool_server.wire.rounds import RoundResponse
from site_agent import errors
from site_agent.agent.config import RoundSettings
from site_agent.agent.workspace import CycleContext, RoundNote
from site_agent.datasets.conversion import join_datasets, read_faces
from site_agent.datasets.gaze.records import join_digests
from site_agent.datasets.network_data import (
    NetworkData,
    digest_data,
    is_network_data,
    open_network_data,
)
from site_agent.datasets.records import FaceDataset, dataset_digest
from site_agent.plain_json import plain
from site_agent.pool.profiles import host_of
from site_agent.pool.trust import trusted_sites
from site_agent.rounds.contract import DataChoice
from site_agent.rounds.contributing import prepare_contribution
from site_agent.rounds.finishing import finish_round
from site_agent.rounds.kinds import find_site_part

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
_TAKEN_BACK = "its contribution was taken back"


@dataclass(frozen=True)
class Invitation:
    """A round that waits for the site, and the reason for refusing it; empty for none."""

    round: RoundResponse
    reason: str


@dataclass
class RoundsRun:
    """The work on rounds in one cycle."""

    settings: RoundSettings
    context: CycleContext
    contributions: int = 0
    failures: list[tuple[str, Exception]] = field(default_factory=list)

    def invitations(self) -> list[Invitation]:
        """Return the open rounds that wait for the site, oldest first."""
        waiting = [
            Invitation(round_, self._obstacle(round_) or self._earlier_refusal(round_))
            for round_ in self.context.pool.rounds.list("open")
            if self.context.site in round_.sites("waiting")
        ]
        return waiting[::-1]

    def run(self) -> None:
        """Contribute to the rounds that wait for the site, and finish those that are ready."""
        for invitation in self.invitations():
            if invitation.reason:
                # An obstacle may disappear; a contribution that was taken back is never sent again.
                condition = "" if invitation.reason == _TAKEN_BACK else "obstacle"
                self._refuse(invitation.round.round_id, invitation.reason, condition)
            else:
                self._answer(invitation.round)
        if self.settings.finish:
            self._finish_ready()

    @cached_property
    def _trusted(self) -> frozenset[str]:
        return trusted_sites(host_of(self.context.pool.endpoint)) | {self.context.site}

    @cached_property
    def _data(self) -> dict[str, FaceDataset | NetworkData]:
        """The data by their kind: ``faces``, ``gaze``."""
        paths = [Path(file) for file in self.settings.data]
        gaze_paths = [path for path in paths if is_network_data(path)]
        face_paths = [path for path in paths if path not in gaze_paths]
        if len(gaze_paths) > 1:
            raise errors.InvalidInputError("rounds.data: expected one folder with gaze data")
        data: dict[str, FaceDataset | NetworkData] = {}
        if face_paths:
            data["faces"] = join_datasets(list(map(read_faces, face_paths)))
        if gaze_paths:
            data["gaze"] = open_network_data(gaze_paths[0])
        return data

    @cached_property
    def _condition(self) -> str:
        """The data and rules under which a round is refused; others may let it pass."""
        digests = [
            dataset_digest(data)
            if isinstance(data, FaceDataset)
            else join_digests(digest_data(data))
            for data in self._data.values()
        ]
        return json.dumps([*digests, sorted(self._trusted), plain(self.settings)])

    def _obstacle(self, round_: RoundResponse) -> str:
        if round_.method not in list_round_methods():
            known = ", ".join(list_round_methods())
            return f"is held by {round_.method}; this program knows {known}"
        kind = find_site_part(round_.method).data
        if kind not in self._data:
            return f"is held by {round_.method} and needs {kind}, which rounds.data does not name"
        if round_.base_warning:
            return f"its base is {round_.base_warning}"
        starter = round_.created_by.partition("/")[0]
        if starter not in self._trusted:
            return f"was started by {starter}; to trust that site: poolctl rounds trust {starter}"
        return ""

    def _earlier_refusal(self, round_: RoundResponse) -> str:
        note = self.context.state.rounds.get(round_.round_id)
        if note is None:
            return ""
        # A round that waits for the site again had its contribution taken back by somebody.
        if not note.reason:
            return _TAKEN_BACK
        return note.reason if note.condition in {"", self._condition} else ""

    def _answer(self, round_: RoundResponse) -> None:
        key = round_.round_id
        try:
            self._contribute(round_)
        except _FINAL as error:
            self._refuse(key, str(error), self._condition)
        except (errors.PoolUnreachableError, errors.NotLoggedInError):
            raise
        except (errors.SiteAgentError, OSError) as error:
            self.failures.append((key, error))

    def _contribute(self, round_: RoundResponse) -> None:
        journal = self.context.journal
        key, kind = round_.round_id, find_site_part(round_.method).data
        journal.write("contributing", round=key, base=round_.base, deadline=round_.deadline)
        persons = self.settings.persons if kind == "gaze" else ()
        contribution = prepare_contribution(
            self.context.pool,
            key,
            self._data[kind],
            DataChoice(persons=persons, threads=self.context.threads),
            site=self.context.site,
            rules=replace(self.settings.rules, trusted=self._trusted),
        ).send()
        if contribution.phase not in {"", "complete"}:
            return  # a secure sum goes on in the next cycle
        self.contributions += 1
        self.context.state.rounds[key] = RoundNote(reason="")
        self.context.save()
        journal.write(
            "contributed",
            round=key,
            digest=contribution.digest,
            size_bytes=contribution.size_bytes,
            sent_bytes=contribution.sent_bytes,
        )

    def _finish_ready(self) -> None:
        """Ask the pool to combine complete rounds; one of several sites is enough."""
        rounds = self.context.pool.rounds
        waiting = [round_ for state in ("open", "closed") for round_ in rounds.list(state)]
        for round_ in waiting:
            is_ours = self.context.site in round_.contributions()
            if not round_.ready or not is_ours or round_.base_warning:
                continue
            try:
                outcome = finish_round(self.context.pool, round_.round_id)
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

    def _refuse(self, key: str, reason: str, condition: str) -> None:
        """Note a refusal, and report it once."""
        earlier = self.context.state.rounds.get(key)
        if earlier is not None and earlier.reason == reason:
            return
        self.context.state.rounds[key] = RoundNote(reason=reason, condition=condition)
        self.context.save()
        self.context.journal.write("round_refused", round=key, reason=reason)
