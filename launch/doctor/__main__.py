"""``python -m launch.doctor``: whether this machine can run a recipe, and what to do about each thing that is wrong.

All checks run at once, each with a deadline, so that a Docker engine or a file system that hangs is one line among the
others.  Exit code 0 where a run would start, 1 where it would not.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

from rich.console import Console

from launch.config import RunConfig, load_recipe, recipe_names
from launch.config.command_line import format_model_overrides, format_overrides
from launch.doctor.check_runner import HostCheck, run_checks
from launch.doctor.finding import CheckName, Finding, FindingLevel, finding_from_error, ok
from launch.doctor.host_checks import HOST_CHECKS
from launch.doctor.requirements import HostRequirements, host_requirements
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.numbers import integer_between
from protocol.cli.output import error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.events import JsonValue

_RECIPE_S = 120.0
_MARKS = {FindingLevel.OK: "ok", FindingLevel.WARNING: "warn", FindingLevel.FAILED: "FAIL"}


def make_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.doctor",
        description=__doc__.partition("\n\n")[0] if __doc__ else None,
        epilog="Example: python -m launch.doctor --recipe demo --nodes 8",
    )
    add = made.add_argument
    names = ", ".join(recipe_names())
    add("--recipe", default="demo", metavar="NAME|PATH", help=f"what is to be run: {names}; or a TOML file's path")
    add("--nodes", type=integer_between(1), metavar="N", help="Ray nodes of the run")
    add("--model", metavar="FOLDER", help="Hugging Face folder of the model, as launch.cluster takes it")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, as launch.cluster does")
    add("--json", action="store_true", help="print the findings as one JSON object on standard output")
    return made


def main() -> int:
    """Look, say, and say by the exit code whether anything failed."""
    with parse_command_line(make_parser()) as (given, out):
        values = [*format_overrides({"cluster.nodes": given.nodes}), *format_model_overrides(given.model)]
        config = load_recipe(given.recipe, [*values, *given.set])
        wants = host_requirements(config)
        findings = run_checks((*HOST_CHECKS, make_recipe_check(config)), wants)
        out.set_result(findings_as_json(given.recipe, findings))
        print_findings(error_console(), findings)
        return EXIT_FAILED if any(each.level is FindingLevel.FAILED for each in findings) else EXIT_OK


def make_recipe_check(config: RunConfig) -> HostCheck:
    """What ``config`` asks for beside a machine: its model, its tasks, its rewards."""

    def find(wants: HostRequirements) -> list[Finding]:
        from launch.run.preflight import list_recipe_checks

        del wants
        found: list[Finding] = []
        for check in list_recipe_checks(config):
            try:
                check()
            except UserError as error:
                found.append(finding_from_error(CheckName.RECIPE, error))
        return found or [ok(CheckName.RECIPE, f"'{config.run.name}' has what it names")]

    silent = "look at the folders that model.path and data.path name (`df`, `ls`)"
    return HostCheck((CheckName.RECIPE,), find, _RECIPE_S, silent, quick=False)


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
    """A line for each finding, and below what is wrong the way out."""
    width = max(len(each.check) for each in findings)
    for each in findings:
        console.print(f"{_MARKS[each.level]:<5} {each.check.value:<{width}}  {each.message}")
        if each.fix:
            console.print(f"{'':<5} {'':<{width}}  → {each.fix}")
    failures = sum(each.level is FindingLevel.FAILED for each in findings)
    console.print(f"{failures} would keep a run from starting" if failures else "a run can start here")


if __name__ == "__main__":
    sys.exit(main_guard(main))
