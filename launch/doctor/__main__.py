"""``longshore doctor [RECIPE]``: check whether this machine can run a recipe.

All checks run at once, each with a deadline, so a hanging Docker engine or file system is one line among the others.
Exit code 0 if a run would start, otherwise 1.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

from rich.console import Console

from launch.config import RunConfig
from launch.config.command_line import (
    DEFAULT_RECIPE,
    ModelFolder,
    NodeCount,
    RecipeName,
    format_model_overrides,
    key_overrides,
)
from launch.config.recipe_environment import load_recipe_in
from launch.doctor.check_runner import HostCheck, run_checks
from launch.doctor.finding import CheckName, Finding, FindingLevel, finding_from_error, ok
from launch.doctor.host_checks import HOST_CHECKS
from launch.doctor.requirements import HostRequirements, host_requirements
from protocol.cli.arguments import CommandArguments, JsonFlag, Overrides
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from protocol.events import JsonValue

_RECIPE_S = 120.0
_MARKS = {FindingLevel.OK: "ok", FindingLevel.WARNING: "warn", FindingLevel.FAILED: "FAIL"}


class DoctorArguments(CommandArguments):
    """Check whether this machine can run a recipe, and name a fix for every problem.

    Example: longshore doctor demo --nodes 8
    """

    recipe: RecipeName = DEFAULT_RECIPE
    nodes: NodeCount = None
    model: ModelFolder = None
    overrides: Overrides = ()
    as_json: JsonFlag = False


def run(given: DoctorArguments, out: JsonOutput) -> int:
    """Run all checks, print the findings, and return 1 if one would prevent a run from starting."""
    values = [*key_overrides(given), *format_model_overrides(given.model)]
    config, remarks = load_recipe_in(os.environ, given.recipe, [*values, *given.overrides])
    for remark in remarks:
        output_console().print(f"remark: {remark}")
    findings = run_checks((*HOST_CHECKS, make_recipe_check(config)), host_requirements(config))
    out.set_result(findings_as_json(given.recipe, findings))
    print_findings(output_console(), findings)
    return EXIT_FAILED if any(each.level is FindingLevel.FAILED for each in findings) else EXIT_OK


def make_recipe_check(config: RunConfig) -> HostCheck:
    """Return the check of what ``config`` needs besides a machine: its model, tasks and rewards."""

    def find(requirements: HostRequirements) -> list[Finding]:
        from launch.run.preflight import find_judge_warnings, list_recipe_checks

        del requirements
        found: list[Finding] = []
        for check in list_recipe_checks(config):
            try:
                check()
            except UserError as error:
                found.append(finding_from_error(CheckName.RECIPE, error))
        if not found:
            found = [ok(CheckName.RECIPE, f"model, tasks and rewards of '{config.run.name}' are there")]
            found += find_judge_warnings(config)
        return found

    timeout_fix = "check the folders of model.path and data.path (`df`, `ls`)"
    return HostCheck((CheckName.RECIPE,), find, _RECIPE_S, timeout_fix, quick=False)


def findings_as_json(recipe: str, findings: Sequence[Finding]) -> dict[str, JsonValue]:
    failures = sum(each.level is FindingLevel.FAILED for each in findings)
    return {
        "ok": not failures,
        "host": platform.node(),
        "recipe": recipe,
        "failed": failures,
        "warnings": sum(each.level is FindingLevel.WARNING for each in findings),
        "findings": [each.as_json() for each in findings],
    }


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print a line per finding, with the fix below each problem."""
    width = max(len(each.check) for each in findings)
    for each in findings:
        console.print(f"{_MARKS[each.level]:<5} {each.check.value:<{width}}  {each.message}")
        if each.fix:
            console.print(f"{'':<5} {'':<{width}}  → {each.fix}")
    failures = sum(each.level is FindingLevel.FAILED for each in findings)
    problems = "1 problem prevents" if failures == 1 else f"{failures} problems prevent"
    console.print(f"{problems} a run from starting" if failures else "a run can start here")


COMMAND = Command("doctor", DoctorArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
