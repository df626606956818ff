"""If these fail, a service gets other variables than from Docker Compose. The values were printed by Compose 2.40."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.container_files.compose import read_compose_file
from sandbox.tasks.container_files.compose_yaml import dump_compose_yaml, parse_compose_yaml
from sandbox.tasks.file_tree import FileTree, TreeFile
from sandbox.tasks.problems import TaskProblems


def variable(written: str) -> str:
    text = f"services:\n  main:\n    image: a\n    environment:\n      A: {written}\n"
    problems = TaskProblems(Path("task"))
    facts = read_compose_file(FileTree({"c.yaml": TreeFile(text.encode())}), ("c.yaml",), "main", {}, problems)
    assert not problems.found
    return facts.env["A"]


@pytest.mark.parametrize(
    "text", ["on", "1e6", "08", "0o17", "1:30", "12e3", "true", "~", "=", "2001-01-01", ".5", "0x"]
)
def test_a_text_is_written_so_that_it_stays_one(text: str) -> None:
    assert parse_compose_yaml(dump_compose_yaml({"command": [text]}).decode()) == {"command": [text]}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("y", "y"),
        ("No", "No"),
        ("True", "true"),
        ("FALSE", "false"),
        ('"x"', "x"),
        ("=", "="),
        ("1000:50", "1000:50"),
        ("1:30.5", "1:30.5"),
        ("0755", "493"),
        ("0o17", "15"),
        ("0x1f", "31"),
        ("0x", "0x"),
        ("0b11", "3"),
        ("1_000", "1000"),
        ("1__0", "10"),
        ("08", "8"),
        ("-0", "0"),
        ("+5", "5"),
        ("18446744073709551615", "18446744073709551615"),
        ("1.50", "1.5"),
        ("1.0", "1"),
        ("-1.0", "-1"),
        ("1.", "1"),
        (".5", "0.5"),
        ("12e3", "12000"),
        ("1e+5", "100000"),
        ("1e6", "1e+06"),
        ("123456.0", "123456"),
        ("1234567.5", "1.2345675e+06"),
        ("123456789012.0", "1.23456789012e+11"),
        ("5e21", "5e+21"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        (".inf", "+Inf"),
        ("-.inf", "-Inf"),
        (".NaN", "NaN"),
    ],
)
def test_a_variable_has_the_value_that_compose_gives_it(written: str, value: str) -> None:
    assert variable(written) == value


@pytest.mark.parametrize("driver", ["local", "nfs"])
def test_extensions_and_volumes_of_the_usual_driver_are_accepted(driver: str) -> None:
    text = f"services:\n  main: {{image: a, x-own: 1, volumes: ['kept:/k']}}\nvolumes:\n  kept: {{driver: {driver}}}\n"
    problems = TaskProblems(Path("task"))
    read_compose_file(FileTree({"c.yaml": TreeFile(text.encode())}), ("c.yaml",), "main", {}, problems)
    assert [each.what for each in problems.found] == ([] if driver == "local" else ["c.yaml: volumes.kept.driver"])
