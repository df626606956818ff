"""Derives the texts and figures of the report from a view and a summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from launch.monitor.reports.guarantees import GuaranteeCheck, check_guarantees, count_trajectories
from launch.monitor.run_state.model import EvaluationScore
from launch.monitor.run_state.view import RunView
from protocol.cli.formatting import (
    MISSING,
    format_count,
    format_difference,
    format_duration,
    format_percent,
    format_score,
    format_stderr,
    humanize_name,
)
from protocol.run_directory.json_fields import (
    Event,
    get_integer,
    get_list,
    get_mapping,
    get_number,
    get_numbers,
    get_text,
)
from protocol.run_directory.run_status import RunStatus


class ReportFigure(NamedTuple):
    """A figure of the headline."""

    label: str
    value: str
    note: str = ""


_ISOLATION = {
    "toolchain": "tests on longshore's programs",
    "shared": "tests that import or start code of the agent",
    "image": "tests on programs of the image",
    "live": "tests beside processes of the agent",
}
"""Texts for :class:`sandbox.grading.isolation.decision.Isolation`."""
_OFFLINE_EVALUATIONS = {"before", "after"}
"""Names of the evaluations before and after training."""


@dataclass(slots=True)
class ReportFacts:
    """Everything that the report shows besides curves and recordings."""

    run: str
    status: RunStatus
    subtitle: list[str]
    source: str
    steps: int
    max_staleness: float | None
    headline: list[ReportFigure] = field(default_factory=list[ReportFigure])
    guarantees: list[GuaranteeCheck] = field(default_factory=list[GuaranteeCheck])
    marks: list[dict[str, str | float | None]] = field(default_factory=list[dict[str, str | float | None]])
    evaluation_rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    evaluation_total: tuple[str, ...] | None = None
    held_out_rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    step_rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Rows of the online evaluations: step, pass@1, greedy, episodes, and whether its checkpoint is the best."""
    drops: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    grading: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Rows of isolation, graded episodes and their share, and the number of episodes with signs of cheating."""
    machines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def collect_report_facts(
    view: RunView,
    status: RunStatus,
    summary: Event | None,
    config: Event | None = None,
    families: Event | None = None,
) -> ReportFacts:
    """Return the facts, given the run's status, summary.json and config.json (None if the run has none).

    ``families`` is the table of its evaluations by task family, for a run without a summary."""
    known: Event = summary or {}
    staleness = get_mapping(known, "staleness")
    bound = get_number(staleness, "max_staleness")
    facts = ReportFacts(
        run=view.run.id,
        status=status,
        subtitle=_subtitle(view, known),
        source="summary, events and metrics" if summary else "events and metrics (the run left no summary)",
        steps=view.step or view.run.steps,
        max_staleness=view.run.max_staleness if bound is None else bound,
    )
    accounting = count_trajectories(view, known)
    before, after = _evaluations(view, known)
    facts.headline = _headline(view, known, before, after)
    facts.guarantees = check_guarantees(view, known, config or {}, accounting, facts.max_staleness)
    facts.marks = [_mark(found, at) for found, at in ((before, "start"), (after, "end")) if found is not None]
    evaluation: Event = get_mapping(known, "evaluation") if summary is not None else {"families": families or {}}
    _fill_evaluation(facts, evaluation, before, after, held_out=get_held_out_family(config) != "")
    online, best = _online_evaluations(view, known), get_number(get_mapping(known, "best"), "step")
    facts.step_rows = [_step_row(row, best) for row in online]
    facts.marks += [_step_mark(row) for row in online]
    failures = [
        (f"{humanize_name(reason)}: issued again", format_count(n)) for reason, n in sorted(view.totals.failed.items())
    ]
    facts.drops = [
        (humanize_name(reason), format_count(n)) for reason, n in sorted(accounting.dropped.items())
    ] + failures
    facts.grading = _grading(view)
    facts.machines = _machines(view, known)
    return facts


def _subtitle(view: RunView, known: Event) -> list[str]:
    seconds = get_number(known, "seconds")
    if seconds is None and view.run.started_at is not None and view.last_event_at is not None:
        seconds = view.last_event_at - view.run.started_at
    control = get_text(known, "negative_control", "none")
    parts = [
        f"recipe {view.run.recipe}" if view.run.recipe else "",
        humanize_name(view.run.mode),
        f"negative control {control}" if control != "none" else "",
        f"{view.run.nodes} node{'s' if view.run.nodes != 1 else ''}" if view.run.nodes else "",
        f"seed {view.run.seed}" if view.run.seed is not None else "",
        f"{get_integer(known, 'steps', view.step)} steps",
        format_duration(seconds) if seconds is not None else "",
    ]
    return [part for part in parts if part]


def _evaluations(view: RunView, known: Event) -> tuple[EvaluationScore | None, EvaluationScore | None]:
    summary = get_mapping(known, "evaluation")
    found = {evaluation.name: evaluation for evaluation in view.evaluations}
    for name in ("before", "after"):
        if row := get_mapping(summary, name):
            score, spread = get_number(row, "pass_at_1") or 0.0, get_number(row, "stderr")
            found[name] = EvaluationScore(name, score, spread, get_integer(row, "n"), get_number(row, "greedy"))
    return found.get("before"), found.get("after")


def _headline(
    view: RunView, known: Event, before: EvaluationScore | None, after: EvaluationScore | None
) -> list[ReportFigure]:
    figures: list[ReportFigure] = []
    summary = get_mapping(known, "evaluation")
    if before is not None and after is not None:
        change = get_number(summary, "difference")
        change = after.pass_at_1 - before.pass_at_1 if change is None else change
        interval = get_numbers(summary, "ci95")
        note = (
            f"95 % interval {format_difference(interval[0])} to {format_difference(interval[1])}"
            if len(interval) == 2
            else ""
        )
        figures.append(ReportFigure("Change in pass@1", f"{format_difference(change)} points", note))
    figures += [
        ReportFigure(f"pass@1 {found.name}", format_percent(found.pass_at_1), _evaluation_note(found))
        for found in (before, after)
        if found is not None
    ]
    rate = get_mapping(known, "tokens_per_s")
    sampled = get_number(rate, "sampled") or view.latest.get("tokens_per_s_sampled")
    trained = get_number(rate, "trained") or view.latest.get("tokens_per_s_trained")
    figures.append(ReportFigure("Tokens sampled", f"{format_count(sampled)} /s", f"{format_count(trained)} /s trained"))
    figures.append(
        ReportFigure("Tokens trained", format_count(view.tokens.trained), f"{format_count(view.tokens.masked)} masked")
    )
    return figures


def _evaluation_note(found: EvaluationScore) -> str:
    spread = f"{format_stderr(found.stderr).lstrip()}, " if found.stderr is not None else ""
    greedy = "" if found.greedy is None else f", greedy {format_percent(found.greedy)}"
    return f"{spread}{format_count(found.n)} episodes{greedy}"


def _mark(found: EvaluationScore, at: str) -> dict[str, str | float | None]:
    label = f"evaluation {found.name} {format_percent(found.pass_at_1)}"
    return {"at": at, "value": found.pass_at_1, "stderr": found.stderr, "label": label}


def get_held_out_family(config: Event | None) -> str:
    """Return the task family that pass@1 excludes; empty if there is none."""
    return get_text(get_mapping(get_mapping(config or {}, "config"), "data"), "held_out_family")


def _fill_evaluation(
    facts: ReportFacts,
    evaluation: Event,
    before: EvaluationScore | None,
    after: EvaluationScore | None,
    *,
    held_out: bool,
) -> None:
    families = {name: row for name, row in get_mapping(evaluation, "families").items() if isinstance(row, dict)}
    for name, row in families.items():
        rows = facts.held_out_rows if row.get("held_out") is True else facts.evaluation_rows
        rows.append((name, *_scores(row)))
    if before is not None or after is not None:
        sides: Event = {side: get_mapping(evaluation, side) for side in ("before", "after")}
        for found in (before, after):
            if found is not None and not sides[found.name]:
                scores: Event = {"pass_at_1": found.pass_at_1, "stderr": found.stderr, "n": found.n}
                sides[found.name] = scores | {"greedy": found.greedy}
        change: Event = {key: evaluation[key] for key in ("difference", "difference_stderr") if key in evaluation}
        facts.evaluation_total = (
            "all but the held-out family" if held_out or facts.held_out_rows else "all",
            *_scores(sides | change),
        )
        facts.evaluation_rows = facts.evaluation_rows or [facts.evaluation_total]
        if facts.evaluation_rows == [facts.evaluation_total]:
            facts.evaluation_total = None


def _online_evaluations(view: RunView, known: Event) -> list[Event]:
    """Return the online evaluations from the summary, or else from the events."""
    if rows := [row for row in get_list(get_mapping(known, "evaluation"), "steps") if isinstance(row, dict)]:
        return rows
    found = {
        each.step: each for each in view.evaluations if each.step is not None and each.name not in _OFFLINE_EVALUATIONS
    }
    return [
        {"step": step, "pass_at_1": each.pass_at_1, "stderr": each.stderr, "n": each.n, "greedy": each.greedy}
        for step, each in sorted(found.items())
    ]


def _step_row(row: Event, best: float | None) -> tuple[str, ...]:
    step, greedy = get_number(row, "step"), get_number(row, "greedy")
    is_best = best is not None and step == best
    return (
        format_count(step),
        _score(row),
        format_percent(greedy),
        format_count(get_integer(row, "n")),
        "best" if is_best else "",
    )


def _step_mark(row: Event) -> dict[str, str | float | None]:
    value = get_number(row, "pass_at_1") or 0.0
    return {
        "at": get_number(row, "step"),
        "value": value,
        "stderr": get_number(row, "stderr"),
        "label": format_percent(value),
    }


def _scores(row: Event) -> tuple[str, ...]:
    """Return before, after, difference, greedy scores and number of episodes as text."""
    before, after = get_mapping(row, "before"), get_mapping(row, "after")
    change, spread = get_number(row, "difference"), get_number(row, "difference_stderr")
    difference = MISSING if change is None else format_difference(change) + format_stderr(spread)
    return (
        _score(before),
        _score(after),
        difference,
        _greedy(before, after),
        format_count(get_integer(after or before, "n")),
    )


def _greedy(before: Event, after: Event) -> str:
    known = [format_percent(value) for side in (before, after) if (value := get_number(side, "greedy")) is not None]
    return " → ".join(known) or MISSING


def _score(side: Event) -> str:
    value, spread = get_number(side, "pass_at_1"), get_number(side, "stderr")
    return format_score(value, None if value is None else spread)


def _grading(view: RunView) -> list[tuple[str, ...]]:
    counts, suspicious = view.totals.isolation, view.totals.suspicious
    graded = sum(counts.values())
    rows = [(_ISOLATION.get(name, name), format_count(n), format_percent(n / graded)) for name, n in counts.items()]
    return (
        [*sorted(rows), ("signs of cheating", format_count(suspicious), format_percent(suspicious / graded))]
        if rows
        else []
    )


def _machines(view: RunView, known: Event) -> list[tuple[str, str]]:
    weights, sandbox = get_mapping(known, "weights"), get_mapping(known, "sandbox")
    restarts = sum(engine.restarts for engine in view.engines)
    facts = [
        ("Engines", format_count(len(view.engines))),
        ("Weight versions published", format_count(get_integer(weights, "versions", view.published))),
        ("Weight loads", format_count(get_integer(weights, "loads", sum(engine.loads for engine in view.engines)))),
        ("Engine restarts", format_count(restarts)),
        ("Sandboxes started", format_count(get_integer(sandbox, "started", view.sandboxes.started))),
    ]
    if (leaked := get_number(sandbox, "leaked")) is not None:
        facts.append(("Sandboxes leaked", format_count(leaked)))
    facts += [
        ("Process deaths", format_count(view.totals.deaths)),
        ("Events lost", format_count(get_number(get_mapping(known, "events"), "lost"))),
        ("Messages refused", format_count(view.totals.refused_messages)),
        ("Damaged lines skipped", format_count(view.reading.get("damaged", 0))),
    ]
    return facts
