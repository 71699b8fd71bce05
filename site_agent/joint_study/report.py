"""The report of a joint study: tables with the verdict first, and a forest plot."""

import math
from collections.abc import Sequence
from pathlib import Path

from site_agent.errors import ConditioningError
from site_agent.eyeblink.study.joint_model import (
    Estimate,
    JointDesign,
    JointResults,
    LabTrials,
    estimate_alone,
)
from site_agent.eyeblink.study.learning_curve import Effect
from site_agent.pictures import plot_style
from site_agent.tables import Table, Tables, columns_of, write_tables
from site_agent.wording import count_words

_ESTIMATES = Table(
    "estimates",
    columns_of("model term lab estimate standard_error low high", ".6g"),
    "Coefficients (log odds of a CR; those of sessions for one session)",
)
_SUMS = Table("sums", columns_of("model sums log_likelihood", ".10g"), "Secure sums by model")
_NOTES = """Every lab of the study gets these numbers, and made them from sums that the servers
signed: nobody saw a lab's summand, but in a meta-analysis, in which the labs agreed to show their
estimates. Each lab has an intercept of its own, which is nobody else's. The logistic model has
errors of the sandwich over animals; the mixed model has a level and a slope for each animal, by
Laplace's approximation. Intervals are 95 % by the normal distribution; with few animals they are
too narrow."""


def describe_verdict(results: JointResults, design: JointDesign, labs: Sequence[str]) -> list[str]:
    """Return the change over sessions, and how groups differ in it, by the most careful model."""
    changes = {item.model: item for item in results.estimates if item.term == "session"}
    order = ("mixed", "logistic", "random effects", "fixed effects")
    model = next((name for name in order if name in changes), None)
    low, high = changes[model].interval if model else (math.nan, math.nan)
    if model is None or math.isnan(low):
        return ["The labs' trials do not tell how CRs change over sessions."]
    change = {
        "positive": "become more frequent over sessions",
        "negative": "become less frequent over sessions",
        "unclear": "show no clear change over sessions",
    }[Effect(changes[model].estimate, low, high, 0.0).verdict]
    counts = f"{count_words(len(labs), 'lab')}"
    if results.animals:
        counts += f", {count_words(results.animals, 'animal')}, {results.trials:,} trials"
    where = f" in {design.groups[0]}" if design.groups else ""
    verdict = (
        f"CRs {change}{where}: log odds {changes[model].estimate:+.3g} a session, 95 % "
        f"{low:+.3g} to {high:+.3g} ({model}; {counts})."
    )
    differences = [
        f"{item.term.removeprefix('session x ')}: {item.estimate:+.3g} a session more, 95 % "
        f"{item.interval[0]:+.3g} to {item.interval[1]:+.3g}"
        for item in results.estimates
        if item.model == model and item.term.startswith("session x ")
    ]
    return [verdict, *differences]


def own_estimates(trials: LabTrials, design: JointDesign, lab: str) -> list[Estimate]:
    """Return the estimates from a lab's own trials, unless all labs get them."""
    if "meta-analysis" in design.models:
        return []
    try:
        return estimate_alone(trials, design, lab)
    except ConditioningError:
        return []


def write_report(
    folder: Path,
    name: str,
    design: JointDesign,
    results: JointResults,
    labs: Sequence[str],
    *,
    alone: Sequence[Estimate],
    repeat: Sequence[str],
) -> list[Path]:
    """Write ``table.md``, CSV files and ``forest.png``; return the files.

    `alone`: This lab's estimates from its own trials, which are for its own eyes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    estimates = [*results.estimates, *alone]
    rows = [
        [item.model, item.term, item.lab, item.estimate, item.standard_error, *item.interval]
        for item in estimates
    ]
    sums = [
        [model, count, results.log_likelihoods.get(model)]
        for model, count in results.rounds.items()
    ]
    findings = [
        *describe_verdict(results, design, labs),
        f"the labs are {', '.join(labs)}; responses by {design.criterion}; sessions "
        f"{design.sessions[0]:g} to {design.sessions[1]:g}",
        *(
            ["your lab's own estimates are in this report alone: no other lab has them"]
            * bool(alone)
        ),
    ]
    tables: Tables = [(_ESTIMATES, rows), (_SUMS, sums)]
    written = write_tables(folder, name, tables, findings, _NOTES, repeat=repeat)
    _draw_forest(folder / "forest.png", estimates)
    return [*written, folder / "forest.png"]


def _draw_forest(path: Path, estimates: Sequence[Estimate]) -> None:
    shown = [item for item in estimates if math.isfinite(item.interval[0])]
    terms = list(dict.fromkeys(item.term for item in shown))
    most = max(sum(item.term == term for item in shown) for term in terms)
    figure = plot_style.new_figure(3.6 * len(terms) + 1.0, 1.2 + 0.34 * most)
    for axis, term in zip(figure.subplots(1, len(terms), squeeze=False)[0], terms, strict=True):
        rows = [item for item in shown if item.term == term]
        for place, item in enumerate(rows):
            low, high = item.interval
            of_all = not item.lab
            colour = plot_style.BLACK if of_all else plot_style.SOFT
            axis.plot([low, high], [place, place], color=colour, linewidth=2.0 if of_all else 1.2)
            axis.plot(item.estimate, place, "D" if of_all else "s", color=colour)
        axis.axvline(0.0, color=plot_style.REFERENCE, linestyle=":")
        names = [item.lab or item.model for item in rows]
        axis.set_yticks(range(len(rows)), names, fontsize=plot_style.SMALL_PT)
        axis.set_title(term, fontsize=plot_style.PANEL_PT)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlabel("log odds" + (" a session" if "session" in term else ""))
        plot_style.draw_grid(axis, "x")
    plot_style.save_png(figure, path)
