"""A joint study by secure sums: its results, its refusals, and the files of a lab."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.datasets.synthetic.conditioning import write_drawn_trials
from site_agent.datasets.synthetic.settings import TrialsDrawing
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.eyeblink.study.joint_model import JointDesign, LabTrials
from site_agent.eyeblink.study.study_trials import StudyTrials
from site_agent.joint_study import JointStudy, StudyVisit, check_design, read_design, read_trials
from site_agent.secure.charter import accept_charter, create_charter
from tests.site_agent.eyeblink.drawn_studies import draw_study_trials
from tests.site_agent.secure.parties import Parties, create_parties

DESIGN = JointDesign(models=("logistic",), sessions=(1, 8))


def plain(design: JointDesign) -> dict[str, object]:
    return design.model_dump(mode="json")


@pytest.fixture
def parties(folder: Path) -> Parties:
    return create_parties(folder, servers=2, study=plain(DESIGN), least_labs=3)


def study_of(parties: Parties, number: int, trials: StudyTrials | None = None) -> JointStudy:
    lab = parties.lab(f"lab-{number}")
    drawn = draw_study_trials(number) if trials is None else trials
    return JointStudy(lab, LabTrials.count(drawn, read_design(lab.charter)))


def under_another_charter(
    parties: Parties, labs: Sequence[str], design: JointDesign = DESIGN
) -> Parties:
    """Return the same parties with a second charter."""
    keys = {name: parties.key(name).public.text for name in [*parties.charter.servers, *labs]}
    servers = {name: keys[name] for name in parties.charter.servers}
    charter = create_charter(
        "second", servers, {name: keys[name] for name in labs}, study=plain(design)
    )
    for name in keys:
        accept_charter(parties.folder / name, charter, charter.digest)
    return replace(parties, charter=charter)


def hold(parties: Parties, studies: Sequence[JointStudy], sums: int = 1000) -> list[StudyVisit]:
    """Let labs and servers act in turn, until the labs have this number of sums or results."""
    while True:
        visits = [study.visit() for study in studies]
        if all(visit.results is not None or visit.sums >= sums for visit in visits):
            return visits
        for session in parties.board.sessions():
            if parties.board.descriptor(session).find(parties.charter.digest.encode()) > 0:
                parties.serve(session)


def test_all_labs_get_the_same_results_and_keep_what_is_theirs(parties: Parties) -> None:
    studies = [study_of(parties, number) for number in range(4)]
    preview = studies[0].preview()
    assert list(preview) == ["trials", "animals", "score session", "information session, session"]
    assert not parties.board.sessions()
    visits = hold(parties, studies)
    assert all(visit == visits[0] for visit in visits)
    assert visits[0].results is not None
    assert visits[0].results.animals == 24
    # A lab keeps the numbers that it gave; the board has shares, and sums of them.
    [kept] = studies[0].folder.glob("00-*.own.json")
    assert json.loads(kept.read_text())["numbers"] == preview
    assert kept.stat().st_mode & 0o077 == 0
    entry = studies[0].lab.ledger.find("study")[0]
    assert (entry["labs"], len(entry["facts"]["animals"])) == (sorted(parties.charter.labs), 6)
    # A lab whose sums are lost gets them again, and gives nothing new.
    shutil.rmtree(studies[0].folder)
    assert study_of(parties, 0).visit() == visits[0]


def test_trials_cannot_change_in_the_middle_of_a_study(parties: Parties) -> None:
    hold(parties, [study_of(parties, number) for number in range(4)], sums=1)
    changed = draw_study_trials(0)
    changed.cr[0] = 1.0 - changed.cr[0]
    with pytest.raises(ConflictError, match="not those with which this study began"):
        study_of(parties, 0, changed).visit()


def test_a_lab_that_drops_out_ends_the_study_for_the_others(parties: Parties) -> None:
    studies = [study_of(parties, number) for number in range(4)]
    hold(parties, studies, sums=1)
    for _ in range(3):
        visits = [study.visit() for study in studies[:3]]
        for session in parties.board.sessions():
            parties.serve(session)
    assert visits[0].waiting is not None
    parties.clock.pass_hours(49)  # the roster closes without the fourth lab
    parties.serve(parties.board.sessions()[-1])
    with pytest.raises(ConflictError, match="this lab insists on lab-3"):
        studies[0].visit()
    assert not studies[0].lab.has_said(parties.board.sessions()[-1], "tag")


ONE_ANIMAL_FEWER: Callable[[StudyTrials], StudyTrials] = lambda trials: StudyTrials(  # noqa: E731
    *(getattr(trials, name)[trials.participant > 0] for name in ("participant", "session")),
    [group for group, number in zip(trials.group, trials.participant, strict=True) if number > 0],
    trials.cr[trials.participant > 0],
    trials.amplitude[trials.participant > 0],
    trials.names,
)


@pytest.mark.parametrize(
    ("labs", "design", "change"),
    [
        (3, DESIGN, lambda trials: trials),
        (4, DESIGN.model_copy(update={"least_animals": 4}), lambda trials: trials),
        (4, DESIGN, ONE_ANIMAL_FEWER),
    ],
    ids=["one lab fewer", "another least number of animals", "one animal fewer"],
)
def test_a_study_whose_difference_to_another_shows_one_lab_is_refused(
    parties: Parties, labs: int, design: JointDesign, change: Callable[[StudyTrials], StudyTrials]
) -> None:
    names = [f"lab-{number}" for number in range(labs)]
    hold(parties, [study_of(parties, number) for number in range(4)], sums=1)
    second = under_another_charter(parties, names, design)
    before = len(parties.board.sessions())
    with pytest.raises(ConflictError, match="the difference would show one lab or animal"):
        study_of(second, 0, change(draw_study_trials(0))).visit()
    assert len(parties.board.sessions()) == before
    # Other animals may be in any study.
    assert study_of(second, 0, draw_study_trials(77)).visit().waiting is not None


def test_the_same_labs_may_ask_another_question_of_the_same_animals(parties: Parties) -> None:
    hold(parties, [study_of(parties, number) for number in range(4)], sums=1)
    meta = DESIGN.model_copy(update={"models": ("meta-analysis",)})
    second = under_another_charter(parties, [*parties.charter.labs], meta)
    visits = hold(second, [study_of(second, number) for number in range(4)])
    assert visits[0].results is not None
    assert {item.lab for item in visits[0].results.estimates} == {"", *parties.charter.labs}


def test_a_charter_without_a_study_or_with_a_wrong_one_is_refused(folder: Path) -> None:
    charter = create_parties(folder, servers=2).charter
    with pytest.raises(InvalidInputError, match="is of no joint study"):
        read_design(charter)
    with pytest.raises(InvalidInputError, match=r"study.toml: least_animals"):
        check_design({"least_animals": 1}, "study.toml")


def test_a_table_of_trials_is_taken_where_the_criterion_is_as_listed(tmp_path: Path) -> None:
    path = write_drawn_trials(tmp_path / "trials.csv", TrialsDrawing(seed=1)).path
    listed = DESIGN.model_copy(update={"criterion": "as-listed"})
    assert read_trials([path], listed).of.sum() == 6 * 8 * 12
    with pytest.raises(InvalidInputError, match="expected one table of trials"):
        read_trials([tmp_path], listed)
