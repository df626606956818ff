"""Writes and prints the results of a run: the summary with its failed checks, and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import orjson

from launch.control.step_hooks import StopReason
from launch.evaluation.held_out.held_out_evaluations import EvaluationResults
from launch.monitor.reports.run_report import write_run_report
from launch.run.docker_leaks import RunLeaks
from launch.run.ending import raise_if_disk_full
from launch.run.summary import SummaryFacts, list_failed_checks, summarise_run
from launch.run_records.metrics_log import read_metrics
from launch.run_records.run_context import RunContext
from protocol.cli.output import display_path, output_console
from protocol.events import JsonValue
from protocol.journal import JournalAccounting
from protocol.run_directory.layout import SUMMARY_FILE


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The end of a run that trained to its last step or a stop condition."""

    accounting: JournalAccounting
    evaluations: EvaluationResults
    stop_reason: StopReason | None


def make_summary(run: RunContext, outcome: RunOutcome, *, seconds: float, leaks: RunLeaks) -> dict[str, JsonValue]:
    """Return the summary, with ``ok`` and the checks that failed."""
    config, evaluations = run.config, outcome.evaluations
    facts = SummaryFacts(
        recipe=config.run.name,
        mode=config.run.mode.value,
        negative_control=config.run.negative_control.value,
        nodes=config.cluster.nodes,
        placement=config.cluster.placement.value,
        seed=config.run.seed,
        max_staleness=config.staleness.max_staleness,
        seconds=seconds,
        evaluations=evaluations.attempts,
        online_evaluations=evaluations.online,
        best=evaluations.best,
        held_out_families=run.held_out_families,
        accounting=outcome.accounting,
        leaked=len(leaks.of_run),
        leak_removal=leaks.removal,
        finished=True,
        ending=outcome.stop_reason.value if outcome.stop_reason is not None else "",
    )
    summary = summarise_run(run.directory.path, facts)
    failed = list_failed_checks(facts, read_metrics(run.directory.path))
    summary |= {"ok": not failed, "failed_checks": [*failed]}
    return orjson.loads(orjson.dumps(summary))


def write_results(run: RunContext, summary: dict[str, JsonValue]) -> None:
    """Write summary and report; print the failed checks and both paths.  Raises UserError if there is no space for
    them."""
    try:
        run.directory.write_json(SUMMARY_FILE, summary)
        report = write_run_report(run.directory.path)
    except OSError as error:
        raise_if_disk_full(run.directory, error)
        raise
    console = output_console()
    for line in cast("list[str]", summary["failed_checks"]):
        console.print(f"check failed: {line}")
    console.print(f"summary: {display_path(run.directory.path / SUMMARY_FILE)}\nreport:  {display_path(report)}")
