"""A study: the files of all its sessions together, and learning over them."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from site_agent.errors import ConditioningError, MissingExtraError, StudyFolderError, writing_to
from site_agent.eyeblink.batch.record import SessionRecord
from site_agent.eyeblink.conditioning.summary import SessionSummary
from site_agent.eyeblink.session_folder import find_output, study_folders
from site_agent.eyeblink.study.criteria import CriteriaComparison, Criterion
from site_agent.eyeblink.study.learning_curve import (
    CHANGE_UNITS,
    MEASURE_UNITS,
    LearningCurve,
    LearningMeasure,
    fit_learning_curve,
    group_difference,
    learning_points,
    sessions_to_criterion,
)
from site_agent.eyeblink.study.session_pictures import draw_sessions
from site_agent.eyeblink.study.study_trials import StudyTrials
from site_agent.pictures import plot_style
from site_agent.plain_json import plain, write_json
from site_agent.tables import Column, Table, columns_of
from site_agent.text_tables import read_table
from site_agent.wording import count_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_CURVE_FILES = ("learning_curve.csv", "learning_curve.json", "learning_curve.png")
_MOST_NAMED = 10


@dataclass(frozen=True)
class StudySummary:
    """The files of the whole study, and its curves."""

    files: Mapping[str, Path]
    curves: Mapping[str, tuple[LearningCurve, ...]]
    """By group."""
    remarks: tuple[str, ...]


def write_study(
    study: Path, records: Sequence[SessionRecord], sessions: Collection[str] = ()
) -> StudySummary:
    """Write ``sessions.csv`` and, where sessions have trials and numbers, the learning curve.

    `sessions`: The names of all sessions of the study, with those that failed this time.
    """
    files = {"sessions": study / "sessions.csv"}
    write_sessions_table(files["sessions"], records)
    with_trials = [record for record in records if record.conditioning is not None]
    if with_trials:
        files["trials"] = study / "all_trials.csv"
        write_trials_table(files["trials"], study, with_trials)
    curves, differences, remarks = _fit(records)
    there = {folder.name for folder in study_folders(study)}
    if others := sorted(there - {record.name for record in records} - set(sessions)):
        remarks.append(
            f"the study holds results of {count_words(len(others), 'session')} that are not among "
            f"these ({', '.join(others[:_MOST_NAMED])}): compare-criteria, report --reviewed and "
            "learn count them, too; delete the folders that no longer belong to it"
        )
    (study / "models.csv").unlink(missing_ok=True)
    if with_trials:
        trials = StudyTrials.read(files["trials"])
        files["participants"] = study / "participants.csv"
        write_participants_table(files["participants"], trials, with_trials)
        if draw_sessions(study / "sessions.png", study, with_trials):
            files["sessions_picture"] = study / "sessions.png"
        if trials.can_be_modelled:
            remarks += _write_models(study / "models.csv", trials)
        if (study / "models.csv").is_file():
            files["models"] = study / "models.csv"
    if not curves:
        for name in _CURVE_FILES:  # of an earlier run with other sessions
            (study / name).unlink(missing_ok=True)
        return StudySummary(files, {}, tuple(remarks))
    table, description, picture = (study / name for name in _CURVE_FILES)
    write_curve_table(table, curves)
    plain = {group: [curve.to_dict() for curve in fitted] for group, fitted in curves.items()}
    write_json(description, {"groups": plain, "differences": differences, "remarks": remarks})
    draw_learning_curves(picture, curves)
    files |= {"learning_curve": table, "learning_fit": description, "learning_picture": picture}
    return StudySummary(files, curves, tuple(remarks))


def _write_models(path: Path, trials: StudyTrials) -> list[str]:
    """Write the terms of mixed models; return why some or all are left out."""
    try:
        from site_agent.eyeblink.study.mixed_models import model_terms

        terms, left_out = model_terms(trials)
    except (MissingExtraError, ConditioningError) as error:
        return [f"no mixed models: {error}"]
    rows = [[getattr(term, column.name) for column in _MODEL_COLUMNS] for term in terms]
    write_table(path, _MODEL_COLUMNS, rows)
    return [*left_out]


def _fit(
    records: Sequence[SessionRecord],
) -> tuple[dict[str, tuple[LearningCurve, ...]], list[dict[str, object]], list[str]]:
    """Return the curves by group, the differences between two groups, and remarks."""
    with_trials = [record for record in records if record.conditioning is not None]
    if not with_trials:
        return {}, [], []
    usable = [
        record for record in with_trials if record.participant and math.isfinite(record.number)
    ]
    remarks = []
    if len(usable) < len(with_trials):
        remarks.append(
            f"{len(with_trials) - len(usable)} of {len(with_trials)} sessions with trials have no "
            "participant or session_number and are not in the learning curve"
        )
    curves: dict[str, tuple[LearningCurve, ...]] = {}
    for group in sorted({record.group for record in usable}):
        members = [record for record in usable if record.group == group]
        sessions = _join_runs(members)
        fitted = []
        for measure in MEASURE_UNITS:
            try:
                fitted.append(fit_learning_curve(learning_points(sessions, measure), measure))
            except ConditioningError as error:
                where = f" of {group}" if group else ""
                remarks.append(f"no learning curve{where} ({measure}): {error}")
        if fitted:
            curves[group] = tuple(fitted)
    differences: list[dict[str, object]] = []
    for measure in MEASURE_UNITS:
        with suppress(ConditioningError):  # most studies have one group
            points = learning_points(_join_runs(usable), measure)
            effect, groups, pairs = group_difference(points)
            facts = {"measure": measure, "groups": groups, "participants_in_both": pairs}
            differences.append({**facts, **effect.to_dict()})
    return curves, differences, remarks


def _join_runs(records: Iterable[SessionRecord]) -> list[tuple[str, float, str, Mapping[str, Any]]]:
    """Return the sessions of learning curves; those of a day with labels `run` are one.

    Shares and means of the runs are weighted by their trials.
    """
    runs: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        single = () if record.labels.get("run") else (record.name,)
        key = (record.participant, record.number, record.group, *single)
        runs.setdefault(key, []).append(record.conditioning or {})
    return [(*key[:3], _join(summaries)) for key, summaries in runs.items()]


def _join(summaries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(summaries) == 1:
        return summaries[0]
    counts = ("n_cr", "n_cs_valid")
    joined: dict[str, Any] = {name: sum(item[name] for item in summaries) for name in counts}
    joined["withheld"] = all(item.get("withheld") for item in summaries)
    for measure in MEASURE_UNITS:
        counted = counts[measure != "amplitude_cr"]
        known = [(item[measure], item[counted]) for item in summaries if item[measure] is not None]
        trials = sum(count for _, count in known)
        joined[measure] = sum(value * count for value, count in known) / trials if trials else None
    return joined


_SESSION_COLUMNS = columns_of("session participant session_number group", ".7g")
_BLINK_COLUMNS = columns_of(
    "frames seconds face_found_pct valid_pct blinks closures perclos_pct blinks_per_minute "
    "open_ear closed_ear",
    ".7g",
)
# Everything but the counts by name, which have no fixed columns.
_TRIAL_COLUMNS = columns_of(
    (
        name
        for name in SessionSummary.__dataclass_fields__
        if name not in {"trials_by_type", "rejected_by_reason"}
    ),
    ".7g",
)
_CURVE_COLUMNS = columns_of(
    "measure unit group kind participant session_number value standard_error low high n", ".7g"
)


_PARTICIPANT_COLUMNS = columns_of(
    "participant group sessions sessions_to_criterion trials_to_criterion", ".7g"
)
_MODEL_COLUMNS = columns_of(
    "model term estimate standard_error low high p_value n_trials n_participants", ".7g"
)


def write_participants_table(
    path: Path, trials: StudyTrials, records: Sequence[SessionRecord]
) -> None:
    """Write when each participant had learned; empty for one that had not."""
    rows = []
    for participant in sorted({record.participant for record in records if record.participant}):
        sessions = [record for record in records if record.participant == participant]
        points = learning_points(_join_runs(sessions))
        rows.append(
            [
                participant,
                " ".join(sorted({record.group for record in sessions})),
                len(sessions),
                sessions_to_criterion(points),
                trials.to_criterion(participant),
            ]
        )
    write_table(path, _PARTICIPANT_COLUMNS, rows)


def write_sessions_table(path: Path, records: Sequence[SessionRecord]) -> None:
    """Write ``sessions.csv``: blinks and, where there are trials, conditioning by session."""
    trials = _TRIAL_COLUMNS if any(record.conditioning for record in records) else ()
    rows = [
        [
            record.name,
            record.participant,
            record.number,
            record.group,
            *(record.summary.get(column.name) for column in _BLINK_COLUMNS),
            *((record.conditioning or {}).get(column.name) for column in trials),
            "; ".join(record.warnings),
        ]
        for record in records
    ]
    columns = (*_SESSION_COLUMNS, *_BLINK_COLUMNS, *trials, Column("warnings"))
    write_table(path, columns, rows)


def write_trials_table(path: Path, study: Path, records: Sequence[SessionRecord]) -> None:
    """Write ``all_trials.csv``: every trial of the study, with the laboratory's own columns.

    An own column with the name of another one gets ``_listed`` appended.
    """
    tables = [read_table(find_output(study / record.name, "trials.csv")) for record in records]
    measured = list(dict.fromkeys(name for table in tables for name in table.columns))
    reserved = {column.name for column in _SESSION_COLUMNS} | set(measured)
    labels = list(dict.fromkeys(name for record in records for name in record.labels))
    listed = list(
        dict.fromkeys(
            name for record in records for trial in record.trials for name, _ in trial.others
        )
    )
    names: list[str] = []
    for label in (*labels, *listed):
        name = label
        while name in reserved:
            name += "_listed"
        reserved.add(name)
        names.append(name)
    rows: list[list[object]] = []
    for record, table in zip(records, tables, strict=True):
        head = [record.name, record.participant, record.number, record.group]
        by_trial = {trial.trial: dict(trial.others) for trial in record.trials}
        for row in table.rows:
            others = by_trial.get(row.cells.get("trial", ""), {})
            rows.append(
                [
                    *head,
                    *(row.cells.get(name, "") for name in measured),
                    *(record.labels.get(name, "") for name in labels),
                    *(others.get(name, "") for name in listed),
                ]
            )
    columns = (*_SESSION_COLUMNS, *map(Column, (*measured, *names)))
    write_table(path, columns, rows)


def write_curve_table(path: Path, curves: Mapping[str, Sequence[LearningCurve]]) -> None:
    """Write ``learning_curve.csv``; `curves` by group.

    `kind` is ``participant`` (`n`: trials), ``mean`` (over `n` participants, with its standard
    error) or ``line`` (the fitted line, `low` and `high` its 95 % band).
    """
    rows: list[list[object]] = []
    for group, fitted in curves.items():
        for curve in fitted:
            head = [curve.measure, MEASURE_UNITS[curve.measure], group]
            for item in curve.points:
                cells = ["participant", item.participant, item.position, item.value]
                rows.append([*head, *cells, "", "", "", item.n_trials])
            for mean in curve.observed:
                cells = ["mean", "", mean.position, mean.mean, mean.standard_error]
                rows.append([*head, *cells, "", "", mean.n_participants])
            line = zip(curve.positions, curve.mean, curve.low, curve.high, strict=True)
            rows += [
                [*head, "line", "", *map(float, (position, value)), "", float(low), float(high), ""]
                for position, value, low, high in line
            ]
    write_table(path, _CURVE_COLUMNS, rows)


def write_table(path: Path, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, whole or not at all; cells of unknown values are empty."""
    # An infinite end of an interval says no more than none, and would spoil a reader's axes.
    known = (
        [None if isinstance(value, float) and math.isinf(value) else value for value in row]
        for row in rows
    )
    Table(path.stem, tuple(columns)).write_csv(path, known)


_TITLES: Mapping[LearningMeasure, str] = {
    "cr_percent": "CR (% of valid trials)",
    "amplitude_all": "CR amplitude, all valid trials (FEC)",
    "amplitude_cr": "CR amplitude, trials with a CR (FEC)",
}


def draw_learning_curves(path: Path, curves: Mapping[str, Sequence[LearningCurve]]) -> None:
    """Draw each measure: every participant, the mean with its standard error, line and band."""
    fitted = {curve.measure for group in curves.values() for curve in group}
    measures = [measure for measure in MEASURE_UNITS if measure in fitted]
    figure = plot_style.new_figure(5.2 * len(measures), 4.8)
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    for axis, measure in zip(axes, measures, strict=True):
        for place, (group, group_curves) in enumerate(curves.items()):
            for curve in group_curves:
                if curve.measure == measure:
                    _draw_curve(axis, curve, group, place, several=len(curves) > 1)
        axis.set_xlabel("session")
        axis.set_ylabel(_TITLES[measure])
        plot_style.draw_grid(axis)
        if measure == "cr_percent":
            axis.set_ylim(-3, 103)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(
            fontsize=plot_style.LEGEND_PT,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            frameon=False,
        )
    figure.suptitle(
        "Thin: participants; marks with bars: mean and standard error;\n"
        "thick: fitted line with its 95 % band",
        fontsize=plot_style.TITLE_PT,
    )
    plot_style.save_png(figure, path)


def _draw_curve(
    axis: "Axes", curve: LearningCurve, group: str, place: int, *, several: bool
) -> None:
    line = plot_style.DASHES[place % len(plot_style.DASHES)]
    people = sorted({point.participant for point in curve.points})
    for number, person in enumerate(people):
        points = [point for point in curve.points if point.participant == person]
        axis.plot(
            [point.position for point in points],
            [point.value for point in points],
            color=plot_style.SOFT,
            linewidth=0.9,
            linestyle=line,
            marker=plot_style.MARKS[number % len(plot_style.MARKS)],
            markersize=5,
            markerfacecolor="white" if place % 2 == 0 else plot_style.SOFT,
        )
    axis.fill_between(
        curve.positions,
        curve.low,
        curve.high,
        facecolor="0.5",
        alpha=0.22,
        edgecolor="0.3",
        hatch=plot_style.HATCHES[place % len(plot_style.HATCHES)],
        linewidth=0.5,
    )
    change = f"{curve.slope.estimate:+.3g} {CHANGE_UNITS[curve.measure]} a session"
    change = f"{change} (95 %: {curve.slope.interval})".replace("-", "−")
    name = f"{group}: " if group else ""
    axis.plot(
        curve.positions,
        curve.mean,
        color=plot_style.BLACK,
        linewidth=2.2,
        linestyle=line,
        label=f"{name}{change}, {curve.method}",
    )
    # Side by side where groups would cover each other.
    shift = 0.04 * (2 * place - 1) if several else 0.0
    axis.errorbar(
        [mean.position + shift for mean in curve.observed],
        [mean.mean for mean in curve.observed],
        yerr=[0.0 if math.isnan(m.standard_error) else m.standard_error for m in curve.observed],
        color=plot_style.BLACK,
        linestyle="none",
        marker="s" if place % 2 == 0 else "o",
        markersize=7,
        markerfacecolor=plot_style.BLACK if place % 2 == 0 else "white",
        capsize=4,
        zorder=5,
    )


COLUMNS = columns_of(
    "criterion cr_rule cr_threshold cr_needs_onset onset_floor_ms reject_rules n_valid n_rejected "
    "n_cr cr_percent estimate low high p_value verdict agrees problem",
    ".7g",
)


def write_criteria(
    folder: Path, comparison: CriteriaComparison, criteria: Sequence[Criterion]
) -> dict[str, Path]:
    """Write table and JSON of a comparison; the study's own criterion comes first."""
    files = {name: folder / f"criteria.{name}" for name in ("csv", "json")}
    rows = []
    for row, criterion in zip(comparison.rows, criteria, strict=True):
        settings, effect = criterion.settings, row.effect
        rule = [settings.cr_rule, settings.cr_threshold, settings.cr_needs_onset]
        onset = settings.onset_floor_ms if settings.cr_needs_onset else None
        counts = [row.n_valid, row.n_rejected, row.n_cr, row.cr_percent]
        numbers: list[object] = [None] * 5
        if effect is not None:
            numbers = [effect.estimate, effect.low, effect.high, effect.p_value, effect.verdict]
        rejecting = " ".join(settings.reject_rules)
        head = [row.criterion, *rule, onset, rejecting]
        rows.append([*head, *counts, *numbers, row.agrees, row.problem])
    with writing_to(folder, StudyFolderError):
        folder.mkdir(parents=True, exist_ok=True)
        write_table(files["csv"], COLUMNS, rows)
        described = comparison.to_dict() | {
            "criteria": [{"name": item.name, "settings": plain(item.settings)} for item in criteria]
        }
        write_json(files["json"], described)
    return files
