"""One study under many criteria."""

import json
from dataclasses import replace

import numpy as np
import pytest

from site_agent.datasets.synthetic.conditioning import ConditioningDesign, draw_conditioning_session
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning import ConditioningSettings, CrRule
from site_agent.eyeblink.conditioning.analysis import analyse_conditioning
from site_agent.eyeblink.study.criteria import (
    Criterion,
    RecordedSession,
    compare_criteria,
    default_criteria,
    read_criteria,
)


def recorded(
    person: str, number: int, probability: float, *, seed: int, group: str = "", **changes: object
) -> RecordedSession:
    design = replace(ConditioningDesign(n_trials=12, cr_probability=(probability,) * 2), **changes)
    drawn = draw_conditioning_session(seed, 60, design)
    return RecordedSession(
        person, float(number), drawn.timestamps_s, drawn.fec, drawn.trials, group
    )


def learners(rise: float, persons: int = 3) -> list[RecordedSession]:
    return [
        recorded(f"p{person}", number, 0.5 + rise * (number - 2), seed=10 * person + number)
        for person in range(persons)
        for number in (1, 2, 3)
    ]


def test_a_strong_effect_holds_under_every_criterion() -> None:
    told: list[float] = []
    comparison = compare_criteria(
        iter(learners(0.4, 5)), progress=lambda share, text: told.append(share)
    )
    assert comparison.holds
    assert comparison.share_agreeing == 1.0
    assert (
        comparison.conclusion
        == f"cr_percent rises over sessions; all {len(comparison.rows)} criteria agree"
    )
    assert comparison.rows[0].criterion.startswith("own: amplitude >= 0.10 FEC; rejecting missing")
    assert len(comparison.rows) == len(default_criteria()) == 32
    assert len({row.criterion for row in comparison.rows}) == 32
    assert all(0 <= row.cr_percent <= 100 for row in comparison.rows)
    kept = [row for row in comparison.rows if row.criterion.endswith("rejecting nothing")]
    assert all(row.n_rejected == 0 for row in kept)
    assert told[-1] == 1.0
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_a_conclusion_that_depends_on_the_criterion_is_reported() -> None:
    # Responses grow from 0.06 to 0.2 FEC: a criterion below them all sees no learning.
    sessions = [
        recorded(
            f"p{person}",
            number,
            0.9,
            seed=10 * person + number,
            cr_amplitude=(level, level + 0.01),
            least_in_window=level - 0.05,
            cr_peak_sd_ms=5.0,
            cr_peak_ms=0.0,
            noise_fec=0.005,
            weak_share=0.0,
            blinks_per_min=0.0,
        )
        for person in range(5)
        for number, level in ((1, 0.075), (2, 0.12), (3, 0.2))
    ]
    settings = ConditioningSettings()
    criteria = [
        Criterion("own", settings),
        Criterion("low", replace(settings, cr_threshold=0.05)),
        Criterion("share", replace(settings, cr_rule=CrRule.UR_SHARE, cr_threshold=0.10)),
    ]
    comparison = compare_criteria(sessions, criteria)
    assert [row.agrees for row in comparison.rows] == [True, False, True]
    assert comparison.share_agreeing == pytest.approx(2 / 3)
    assert not comparison.holds
    assert "this depends on the criterion: 2 of 3 agree" in comparison.conclusion


def test_sessions_with_few_valid_trials_are_left_out_and_named() -> None:
    sessions = learners(0.4)
    # The last session of a person shows the eyes in two trials, both without a response.
    blind = recorded("p2", 3, 0.0, seed=23)
    unseen = blind.timestamps_s > blind.trials[1].reference_s + 2.0
    sessions[-1] = replace(blind, fec=np.where(unseen, np.nan, blind.fec))
    without, kept = (
        compare_criteria(sessions, [Criterion("own", ConditioningSettings(least_valid_trials=n))])
        for n in (5, 1)
    )
    assert without.conclusion.startswith("cr_percent rises over sessions (1 of 9 sessions left out")
    assert kept.rows[0].effect.estimate < without.rows[0].effect.estimate
    assert "left out" not in kept.conclusion


def test_calibration_is_a_criterion_too() -> None:
    # Lids that the calibration takes for half shut, so that responses seem half as large.
    sessions = [replace(session, fec=session.fec / 2.0) for session in learners(0.4)]
    study_own, by_puffs = read_criteria(["closed_from=air-puffs"], ConditioningSettings())
    assert np.nanmax(study_own.fec(sessions[0])) < 0.7
    assert np.nanmax(by_puffs.fec(sessions[0])) > 0.95
    compared = compare_criteria(sessions, [study_own, by_puffs], measure="amplitude_all").rows
    seen, calibrated = (row.effect.estimate for row in compared if row.effect is not None)
    assert calibrated == pytest.approx(2.0 * seen, rel=0.1)
    assert "closed_from air-puffs" in compared[1].criterion


def test_groups_are_named_in_the_conclusion() -> None:
    sessions = [
        recorded(f"{group}{person}", 1, probability, seed=person + shift, group=group)
        for group, probability, shift in (("control", 0.9, 0), ("patient", 0.2, 50))
        for person in range(4)
    ]
    comparison = compare_criteria(sessions, default_criteria()[:3], question="groups")
    assert comparison.holds
    assert "is higher in 'control' than in 'patient'" in comparison.conclusion


def test_a_second_judgement_equals_a_whole_analysis() -> None:
    sessions = learners(0.2)
    for criterion in default_criteria()[::14]:
        whole = [
            analyse_conditioning(
                session.timestamps_s, session.fec, session.trials, criterion.settings
            ).summary
            for session in sessions
        ]
        (row,) = compare_criteria(sessions, [criterion], measure="amplitude_all").rows
        assert row.n_cr == sum(summary.n_cr for summary in whole)
        assert row.n_valid == sum(summary.n_cs_valid for summary in whole)


def test_a_comparison_needs_sessions_with_responses() -> None:
    with pytest.raises(ConditioningError, match="0 sessions"):
        compare_criteria([])
    alone = [recorded("p1", number, 0.4 * number, seed=number) for number in (1, 2)]
    blind = replace(alone[0], session=1.0, fec=np.full_like(alone[0].fec, np.nan))
    with pytest.raises(ConditioningError, match="2 sessions of 1 participant are too few or"):
        compare_criteria(alone, default_criteria()[:1])
    with pytest.raises(ConditioningError, match="under the criterion 'own"):
        compare_criteria([blind, replace(blind, session=2.0)])
