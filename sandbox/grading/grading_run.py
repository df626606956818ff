"""One run of the tests, from their output and report files to a grade; independent of the kind of sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sandbox.grading.canaries import CanaryRecord, CanaryVerdict
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.report_files import MAX_REPORT_BYTES, read_report
from sandbox.grading.results.verdict import (
    GradingReport,
    GradingVerdict,
    are_spotless,
    find_contradiction,
    judge_reports,
)
from sandbox.grading.suspicions import find_suspicions
from sandbox.session.files import FileTooLarge
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel, ResultsFormat
from sandbox.toolchain.in_container.session_outcome import SessionOutcome


@dataclass(slots=True)
class GradingRun:
    """A run of the tests, as far as it got."""

    verdict: GradingVerdict | None = None
    """None if the run is void; ``note`` gives the reason."""
    log: str = ""
    note: str = ""
    timed_out: bool = False
    removed_links: str = ""
    """Sentence about links to the tests that were removed before."""
    spotless: bool = False
    """True if pytest's reports name no failure, and every test passed, or the reward file that stands for all."""
    reward_alone: GradingVerdict | None = None
    """The verdict of the reward file; None if there is none, or a report names a test."""
    canaries: CanaryVerdict = CanaryVerdict.TRUE

    def with_canaries(self, record: CanaryRecord, *, trusts_reward: bool) -> GradingRun:
        """Return this run: void unless the canaries told the truth, by its reward if they prove that tests passed.

        ``trusts_reward``: the reward file counts alone without proof, because nothing of the agent's runs in the tests.
        """
        said, proven = record.verdict, trusts_reward or record.proves_passes
        if self.spotless and not (self.reward_alone and proven):
            if record.outcomes == (SessionOutcome.FAILED,):
                said = CanaryVerdict.UNREPORTED
            elif self.reward_alone and record.outcomes == (SessionOutcome.OPEN,):
                said = CanaryVerdict.UNPROVEN
        if said is not CanaryVerdict.TRUE:
            return replace(self, verdict=None, note=self.note or said.value, canaries=said)
        return self.by_reward() if proven else self

    def by_reward(self) -> GradingRun:
        """Return this run with the verdict of its reward file if no report names a test, and it is not void.

        A script may run pytest so that it names no test that passed. Whoever silences it gets that far too: this is for
        runs in which that is ruled out, or nothing is.
        """
        return replace(self, verdict=self.reward_alone) if self.verdict and self.reward_alone else self

    def result(
        self, task: Task, commands: Sequence[str], level: GradingLevel, isolation: Isolation, ms: float
    ) -> GradeResult:
        """Return the grade. In a void run every expected test has failed. ``commands``: what the agent ran."""
        tests, rewards = self.verdict or judge_reports(task.expected_tests, task.weights, ())
        passed = bool(tests) and all(test.passed for test in tests)
        return GradeResult(
            tests,
            rewards,
            self.log + "".join(f"\n[{each}]\n" for each in (self.removed_links, self.note) if each),
            level,
            isolation,
            self.timed_out,
            ms,
            find_suspicions(commands, task) if passed else (),
            self.canaries,
        )


async def judge_run(
    task: Task,
    output: GradingReport,
    read_file: Callable[[str, int], Awaitable[bytes]],
    log: str,
    *,
    exit_code: int,
    signalled: bool,
) -> GradingRun:
    """Judge tests that have ended, by what they printed, their report files and their exit.

    ``read_file`` reads a report file up to a maximum of bytes. Raises what it raises except OSError and FileTooLarge.
    """
    reports, why_void = await _read_reports(task.reports, read_file) if task.reports else ((), "")
    texts = (task.run_tests.encode(), *task.tests.values())
    has_xfail = any(word in each for each in texts for word in (b"xfail", b"expectedFailure"))
    reports = (*reports, output)
    verdict = judge_reports(task.expected_tests, task.weights, reports, xfails=has_xfail)
    fails_by_exit = task.results_format is ResultsFormat.PYTEST
    note = find_contradiction(exit_code, signalled, verdict, fails_by_exit=fails_by_exit) or why_void or output.fault
    if note:
        return GradingRun(None, log, note)
    names_tests = any(each.tests or each.spare_passes for each in reports)
    return GradingRun(
        verdict,
        log,
        spotless=fails_by_exit and are_spotless(verdict, reports),
        reward_alone=judge_reports((), {}, reports) if verdict.rewards and not names_tests else None,
    )


async def _read_reports(
    paths: Sequence[str], read_file: Callable[[str, int], Awaitable[bytes]]
) -> tuple[tuple[GradingReport, ...], str]:
    """Return the reports, and the reason if the run is void: no report could be read, one is too long, or has a fault.

    Links and empty files do not count as reports.
    """
    found: list[GradingReport] = []
    for path in paths:
        try:
            report = read_report(path, await read_file(path, MAX_REPORT_BYTES))
        except FileTooLarge as error:
            return (), str(error)
        except OSError:
            continue
        if report.fault:
            return (), report.fault
        if report.tests or report.reward is not None:
            found.append(report)
    return tuple(found), "" if found else f"the tests wrote none of {', '.join(paths)}"
