"""A study of conditioning over labs that cannot share trials, by secure sums.

The charter of the labs has the design, the criterion and the models (`JointDesign`). Each lab
answers one question after another (`site_agent.eyeblink.study.joint_model`); its answers leave it
as shares of a secure sum, and every lab gets the same sums, and from them the same next question.

Two sums over nearly the same labs or animals would differ by the share of one lab or animal, and so
show it. So all sums of a study are over the labs of the first, and a lab's ledger remembers which
animals were summed with which labs: another study of these animals has the same labs and animals.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aggregators.errors import first_problem
from aggregators.secure_sum.layout import SumLayout, SumNumber, encode_numbers
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.eyeblink.conditioning import ConditioningSettings
from site_agent.eyeblink.study.criteria import read_criteria
from site_agent.eyeblink.study.joint_model import (
    AS_LISTED,
    JointDesign,
    JointResults,
    LabTrials,
    Numbers,
    Question,
    answer_question,
    joint_fit,
    list_numbers,
)
from site_agent.eyeblink.study.sessions import read_study
from site_agent.eyeblink.study.study_trials import StudyTrials
from site_agent.plain_json import write_json
from site_agent.secure.charter import Charter, json_digest
from site_agent.secure.lab import Lab, RosterPolicy
from site_agent.secure.session import Session
from site_agent.secure.sums import EncodedContribution, SecureSums, SumVisit, visit_until_summed
from site_agent.work import Progress, no_progress


def read_design(charter: Charter) -> JointDesign:
    """Return the design that a charter has; raise `InvalidInputError` where it has none."""
    if not charter.terms.study:
        raise InvalidInputError(
            f"the charter {charter.terms.name} is of no joint study",
            hint="poolctl secure charter create NAME --study STUDY.toml",
        )
    return check_design(charter.terms.study, f"the study of the charter {charter.terms.name}")


def check_design(content: dict[str, Any], source: str) -> JointDesign:
    """Return the design in a table of TOML; raise `InvalidInputError` for a wrong one."""
    try:
        design = JointDesign.model_validate(content)
    except ValidationError as error:
        raise InvalidInputError(f"{source}: {first_problem(error)}") from error
    if design.criterion != AS_LISTED:
        read_criteria([design.criterion], ConditioningSettings())
    return design


def read_trials(places: Sequence[Path], design: JointDesign) -> LabTrials:
    """Return the trials of a lab's study, judged by the criterion of the design."""
    if design.criterion == AS_LISTED:
        if len(places) != 1 or not places[0].is_file():
            raise InvalidInputError(
                f"found {', '.join(map(str, places))}, expected one table of trials: the labs' "
                "criterion is as-listed"
            )
        return LabTrials.count(StudyTrials.read(places[0]), design)
    criterion = read_criteria([design.criterion], ConditioningSettings())[-1]
    return LabTrials.count(StudyTrials.judge(read_study(places), criterion), design)


@dataclass(frozen=True)
class StudyVisit:
    """The state of a joint study after a visit of one lab."""

    sums: int
    """Verified sums up to now."""
    waiting: SumVisit | None
    """The sum that is waited for, if the study is not finished."""
    results: JointResults | None = None
    labs: tuple[str, ...] = ()
    """The labs that are summed."""


@dataclass(frozen=True)
class _SameLabsPolicy(RosterPolicy):
    """Refuses rosters that would show one lab or animal by the difference of two sums."""

    require_same: Callable[[str, Collection[str]], None] = lambda _session, _labs: None

    def require(self, view: Session) -> None:
        super().require(view)
        self.require_same(view.session, view.roster)


class JointStudy:
    """One lab's part in a joint study.

    `lab`: Under a charter with a design. `trials`: The lab's own, which never leave it.
    """

    def __init__(self, lab: Lab, trials: LabTrials, progress: Progress = no_progress) -> None:
        self.lab, self.trials, self.progress = lab, trials, progress
        self.design = read_design(lab.charter)
        # Exists once this lab has given numbers.
        self.folder = lab.folder / "studies" / lab.charter.digest
        contents = [trials.hits, trials.of, trials.design, trials.animal]
        self._facts: dict[str, Any] = {
            "animals": sorted(trials.names),
            "least_animals": self.design.least_animals,
        }
        self._trials = json_digest([*(item.tolist() for item in contents), trials.names])

    def preview(self) -> dict[str, float]:
        """Return this lab's first summands; nothing is sent."""
        labs = tuple(self.lab.charter.labs)
        self._require_same_labs(labs)
        return self._answer(next(joint_fit(self.design, labs)), labs)

    def visit(self, *, wait: bool = False) -> StudyVisit:
        """Take all steps that are possible now, or, with `wait`, all until the end.

        Raises
        ------
        ConflictError
            An earlier study summed some of these animals with other labs or other animals.
        ConditioningError
            The trials or their sums have no fit.
        SecureSumError
            A sum cannot go on.
        """
        labs = tuple(self.lab.charter.labs)
        self._require_same_labs(labs)
        fit = joint_fit(self.design, labs)
        question, number, before = next(fit), 0, ""
        while True:
            target = self.folder / f"{number:02d}-{question.kind}.sum.json"
            if not target.is_file():
                visit = self._sum(question, labs, before, target, wait=wait)
                if visit.total is None:
                    return StudyVisit(number, visit, labs=labs)
            content = target.read_text(encoding="utf-8")
            verified = json.loads(content)
            # The labs of the first sum are those of all.
            labs, before, number = tuple(verified["labs"]), json_digest(content), number + 1
            try:
                question = fit.send(verified["sums"])
            except StopIteration as finished:
                return StudyVisit(number, None, finished.value, labs)

    def _sum(
        self, question: Question, labs: tuple[str, ...], before: str, target: Path, *, wait: bool
    ) -> SumVisit:
        """Take part in one sum; `before`: the digest of the sum before."""
        charter = self.lab.charter
        asked = {"question": question.kind, "point": list(question.point)}
        layout = SumLayout(
            kind="numbers",
            base_digest=json_digest([charter.digest, before, asked]),
            settings=asked,
            numbers=tuple(
                SumNumber(name=name, bits=bits)
                for name, bits in list_numbers(question.kind, self.design, [*charter.labs]).items()
            ),
        )
        answer = self._kept_answer(question, target.with_suffix("").with_suffix(".own.json"))
        numbers = encode_numbers(layout, answer, charter.budget)
        policy = _SameLabsPolicy(
            insists_on=frozenset(labs) if before else frozenset(),
            require_same=self._require_same_roster,
        )
        sums = SecureSums(self.lab, labs, "joint study", policy, progress=self.progress)
        self.progress(None, f"sum of {len(answer)} numbers: {question.kind}")
        return visit_until_summed(
            lambda: sums.take_part(EncodedContribution(layout, numbers), target),
            wait=wait,
            progress=self.progress,
        )

    def _answer(self, question: Question, labs: Sequence[str]) -> dict[str, float]:
        return answer_question(question, self.trials, self.design, self.lab.name, labs)

    def _kept_answer(self, question: Question, path: Path) -> Numbers:
        """Return this lab's numbers, from disk where it gave them before.

        Another run may round otherwise, and a second vector in a sum is refused.
        """
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["trials"] != self._trials:
                raise ConflictError(
                    f"{path}: the trials are not those with which this study began",
                    hint="go on with the same trials; the next study can have others",
                    code="trials_changed",
                )
        else:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            answer = self._answer(question, [*self.lab.charter.labs])
            kept = {"trials": self._trials, "numbers": answer}
            write_json(path, kept, mode=0o600)
        numbers: Numbers = kept["numbers"]
        return numbers

    def _require_same_labs(self, labs: Collection[str]) -> None:
        with self.lab.ledger.at_work():
            self._require_same_facts(labs)

    def _require_same_facts(self, labs: Collection[str]) -> None:
        study = self.lab.charter.digest
        for entry in self.lab.ledger.find("study"):
            shared = set(entry["facts"]["animals"]) & set(self._facts["animals"])
            if not shared or self.lab.is_void(entry["session"]):
                continue
            same = entry["facts"] == self._facts
            if same and (set(entry["labs"]) == set(labs) or entry["study"] == study):
                continue
            raise ConflictError(
                f"{sorted(shared)[0]} and in all {len(shared)} of these animals were summed with "
                f"{', '.join(entry['labs'])} (at least {entry['facts']['least_animals']} animals "
                f"a lab, {len(entry['facts']['animals'])} of this one); found "
                f"{', '.join(sorted(labs))} (at least {self.design.least_animals}, "
                f"{len(self._facts['animals'])}): the difference would show one lab or animal",
                hint="take the same labs and animals, or only animals that were in no study",
                code="animals_summed_before",
            )

    def _require_same_roster(self, session: str, roster: Collection[str]) -> None:
        """Compare with the ledger, and write this roster into it before the tag is given."""
        self._require_same_facts(roster)
        if not self.lab.ledger.find("study", session=session):
            self.lab.ledger.append(
                {
                    "kind": "study",
                    "study": self.lab.charter.digest,
                    "session": session,
                    "labs": sorted(roster),
                    "facts": self._facts,
                }
            )
