"""If these fail, a text of a task's author is refused without a reason that could be understood, or takes minutes or
hours of the process that loads the task.  A fuzzer found them (docs/security.md, Fuzzing)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.grading.isolation.directed_commands import find_directed_commands
from sandbox.grading.shell_scripts.executed_text import executed_text
from sandbox.grading.shell_scripts.parser import parse_script
from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.container_files.dockerfile import find_environment, parse_instructions, read_statements
from sandbox.tasks.container_files.ignored_paths import parse_ignore_rule
from sandbox.tasks.container_files.named_images import find_named_images
from sandbox.tasks.container_files.variables import BrokenVariableError, expand_variables
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.field_encoding import apply_fields
from sandbox.tasks.file_tree import FileTree, TreeFile
from sandbox.tasks.formats.code_rows import parse_cases
from sandbox.tasks.formats.folders import read_task_tree
from sandbox.tasks.formats.registry import FOLDER_FORMATS, ROW_FORMATS, TaskFormat, load_tasks
from sandbox.tasks.formats.rows import RowFormat, encode_row, read_row
from sandbox.tasks.live_evidence import find_live_evidence
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.yaml_text import YamlError, parse_yaml

LONG = 60_000
"""Characters of a text for which the square of its length would be felt."""
TERMINAL_BENCH = {"task.yaml": "instruction: a", "Dockerfile": "FROM a\nRUN b\n", "run-tests.sh": "pytest\n"}
HARBOR = {"instruction.md": "a", "environment/Dockerfile": "FROM a\n", "tests/test.sh": "pytest\n"}


def repeated(text: str) -> str:
    return text * (LONG // len(text))


def problems_of(form: TaskFormat, files: dict[str, str]) -> list[str]:
    problems = TaskProblems(Path("t"))
    tree = FileTree({path: TreeFile(text.encode()) for path, text in files.items()})
    with problems.collecting_errors():
        read_task_tree(FOLDER_FORMATS[form], "t", tree, problems)
    return [str(each) for each in problems.found]


def test_a_line_that_only_continues_is_no_instruction():
    assert [each.name for each in parse_instructions("FROM a\n\\\n")] == ["FROM"]
    assert [each.name for each in parse_instructions("\\")] == []


def test_a_url_that_cannot_be_split_is_refused():
    with pytest.raises(UnsupportedSyntaxError, match="no URL"):
        to_classic(ImageBuild({"Dockerfile": b"FROM a\nADD http://[ /x\n"}), "amd64")


@pytest.mark.parametrize("rule", ["[", "[^]", "[]a]", "a\\", "!", "a[z-b]", "a**b**c**d**e**f"])
def test_a_rule_of_dockerignore_that_is_no_pattern_is_named(rule: str):
    (problem,) = problems_of(TaskFormat.TERMINAL_BENCH, {**TERMINAL_BENCH, ".dockerignore": f"x\n{rule}\n"})
    assert f".dockerignore: {rule!r} is not a pattern" in problem


@pytest.mark.parametrize(
    ("rule", "path", "is_ignored"),
    [
        ("*.log", "a/b.log", False),
        ("**/*.log", "a/b.log", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b/z", True),
        ("**b", "x/b", True),
        ("**b", "x/ab", True),
        ("**.pyc", "src/a.pyc", True),
        ("**b*", "xb", False),
        ("a***b", "axb", True),
        (r"my\ file", "my file", True),
        (r"\#notes", "#notes", True),
        (r"\!keep", "!keep", True),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        ("//a", "a", True),
        (" #x", "#x", True),
        ("a**b", "ab", True),
        ("a**b", "ax/y/b", True),
        ("a**b", "axb", False),
        ("a**", "ax/y", True),
        ("x[0-9]?/[^a]*", "x1y/b", True),
        ("x[0-9]?/[^a]*", "x1y/a", False),
        ("[[|]", "|", True),
        ("*a*b*c", "xaxbxc", True),
        ("*a*b*c", "xaxcxb", False),
        ("**/" * 12 + "x", "a/" * 120 + "y", False),
        ("*a" * 12 + "*b", "a" * 250, False),
        ("**/a*/" * 6 + "b", "a/" * 120 + "y", False),
    ],
)
def test_a_rule_of_dockerignore_matches_as_in_docker(rule: str, path: str, *, is_ignored: bool):
    """The last ones would take for ever where each star is tried at each place."""
    found = parse_ignore_rule(rule)
    assert found is not None
    assert found.matches(path) is is_ignored


@pytest.mark.parametrize(
    "text",
    [
        "RUN a" + repeated(" \\\na"),
        "RUN cat" + repeated(" <<A") + "\n" + repeated("x\n"),
        repeated("RUN cat <<A\nB\n"),
        repeated("ADD $A /x\n"),
        "ENV A=" + repeated("${A:-"),
    ],
    ids=["continued", "heredocs", "heredocs-without-end", "adds", "variables"],
)
def test_a_long_dockerfile_is_read_in_time(text: str):
    build = ImageBuild({"Dockerfile": f"FROM a\n{text}\n".encode(), **{f"{n}": b"x" * 600 for n in range(100)}})
    to_classic(build, "amd64")
    find_environment(parse_instructions(text), {})


@pytest.mark.parametrize("base", ["s0", "s{}"], ids=["of-one", "of-the-last"])
def test_thousands_of_stages_that_inherit_variables_are_refused(base: str):
    """Each would have a copy of them: tens of gigabytes for a file of a megabyte."""
    variables = "".join(f"ENV a{number}=1\n" for number in range(10_000))
    stages = "".join(f"FROM {base.format(number)} AS s{number + 1}\n" for number in range(20_000))
    text = f"FROM a AS s0\n{variables}{stages}"
    (problem,) = problems_of(TaskFormat.TERMINAL_BENCH, {**TERMINAL_BENCH, "Dockerfile": text})
    assert "Dockerfile: FROM s" in problem
    assert "its stages inherit more than 100000 variables" in problem
    assert len(find_environment(parse_instructions(text), {})) == 10_000


def test_a_stage_inherits_from_the_last_one_of_that_name_before_it():
    text = "FROM a AS x\nENV a=1\nFROM b AS x\nENV b=1\nFROM x AS y\nENV c=1\nFROM b AS x\nENV d=1\nFROM y\n"
    assert find_environment(parse_instructions(text), {}) == {"b": "1", "c": "1"}


def test_variables_that_double_are_refused():
    text = "FROM a\nENV a=0123456789\n" + "ENV a=$a$a\n" * 60
    (problem,) = problems_of(TaskFormat.TERMINAL_BENCH, {**TERMINAL_BENCH, "Dockerfile": text})
    assert "longer than 65535 characters" in problem


def test_an_argument_that_doubles_names_no_image_that_is_known():
    text = "ARG a=0123456789\n" + "ARG a=$a$a\n" * 60 + "FROM r.example/$a\n"
    (name,) = find_named_images(ImageBuild({"Dockerfile": text.encode()}))
    assert "$" in name


def test_options_of_a_program_name_no_image():
    text = b"FROM a\nHEALTHCHECK --interval=5s CMD curl --from=http://x/y\nCOPY --chown=a --from=b/c /d /e\n"
    assert find_named_images(ImageBuild({"Dockerfile": text})) == {"b/c"}


def test_heredocs_end_where_their_lines_do():
    text = "COPY <<A <<-B /x\nB\nA\n\ta\n\tB\nRUN <<A\nA\n"
    found = [[each.text for each in statement.heredocs] for statement in read_statements(text)]
    assert found == [["B\n", "a\n"], [""]]


def test_deeply_nested_variables_are_broken():
    assert expand_variables("${A:-" * 50 + "x" + "}" * 50, {}).text == "x"
    with pytest.raises(BrokenVariableError):
        expand_variables("${A:-" * 2000 + "}" * 2000, {})


@pytest.mark.parametrize(
    "script",
    ["((", "python -m ", "python -a ", "python <<A\n", "python -c '\n", "\n", "sudo a/", "$A", "tmux -a b "],
)
def test_a_long_test_script_is_read_in_time(script: str):
    text = repeated(script)
    find_live_evidence(f"A={'x' * 200}\n{text}", {"test_outputs.py": text.encode()}, "")
    find_expected_tests(text, {})


@pytest.mark.parametrize("code", ["x=" + "-" * 100_000 + "1", "if a: pass\n" + "elif a: pass\n" * 10_000])
def test_python_that_is_nested_too_deeply_is_no_python(code: str):
    assert not find_live_evidence("", {"test_outputs.py": code.encode()}, "")
    assert find_expected_tests("pytest tests/test_outputs.py", {"test_outputs.py": code.encode()}) == ()
    assert parse_cases(code) == []


def test_many_asserts_and_functions_are_read_in_time():
    cases = parse_cases("".join(f"def test_{n}():\n    assert f({n})\n" for n in range(3000)))
    assert len(cases) == 1


@pytest.mark.parametrize("number", ["1" + ":1" * 100_000, "1" * 100_000, "0x" + "f" * 100_000])
def test_a_number_of_yaml_without_end_is_refused(number: str):
    with pytest.raises(YamlError, match="digits"):
        parse_yaml(f"a: {number}")
    assert parse_yaml(f"a: '{number}'") == {"a": number}


@pytest.mark.parametrize("text", ["3082abcdef" * 150, "." * 1200])
def test_a_long_text_that_yaml_does_not_read_as_a_number_is_a_text(text: str):
    assert parse_yaml(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("a." * 100_000 + "b = 1", "more than 100 parts"),
        ("a = " + "9" * 100_000, "not readable TOML"),
        ('[[steps]]\nname = "a"\n' * 1001, "at most 1000"),
    ],
)
def test_a_task_toml_without_measure_is_refused(toml: str, reason: str):
    assert any(reason in each for each in problems_of(TaskFormat.HARBOR, {**HARBOR, "task.toml": toml}))


@pytest.mark.parametrize(
    "compose",
    [
        "services: {" + ", ".join(f"s{n}: {{image: a}}" for n in range(101)) + "}",
        "services: {client: {image: a, volumes: [" + ", ".join(f"'./d{n}:/d'" for n in range(101)) + "]}}",
    ],
    ids=["services", "volumes"],
)
def test_a_compose_file_without_measure_is_refused(compose: str):
    found = problems_of(TaskFormat.TERMINAL_BENCH, {**TERMINAL_BENCH, "docker-compose.yaml": compose})
    assert any("at most 100" in each for each in found)


def test_a_file_that_is_neither_text_nor_base64_is_named():
    problems = TaskProblems(Path("t"))
    apply_fields(Task("t", "a"), {"files": {"/a": "base64:é"}}, problems, "longshore.yaml")
    (problem,) = problems.found
    assert problem.what == "longshore.yaml: files"
    assert problem.why.startswith("neither text nor base64")


@pytest.mark.parametrize(
    ("form", "row"),
    [
        (TaskFormat.LIVEWEB, {"task_id": "a", "question": "b", "start_url": "", "longshore": {}}),
        (TaskFormat.CODE, {"prompt": "a", "reward_model": {"ground_truth": ""}, "longshore": {}}),
    ],
)
def test_a_row_that_says_nothing_of_its_grading_is_refused(form: TaskFormat, row: dict[str, object]):
    read, problems = ROW_FORMATS[form], TaskProblems(Path("r:1"))
    assert isinstance(read, RowFormat)
    read_row(read, row, problems)
    assert problems.found


def test_a_generated_task_of_a_negative_seed_is_written_as_it_was_read():
    form, row = ROW_FORMATS[TaskFormat.GENERATED], {"family": "sort", "seed": -1, "split": "train"}
    assert isinstance(form, RowFormat)
    assert encode_row(form, read_row(form, row, TaskProblems(Path("r:1")))) == row


def test_a_row_that_points_at_a_path_that_is_too_long_is_a_problem_with_a_reason(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"task": {"task_name": "a", "task_path": "x" * 5000}}))
    (problem,) = load_tasks(path).problems
    assert problem.why == "the row points at it: File name too long"


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        (repeated("echo a\n"), LONG // 7),
        (repeated("f() { a; }\n"), LONG // 11),
        (repeated("if a; then b; fi\n"), LONG // 17 * 2),
        (repeated("cat|") + "cat", LONG // 4 + 1),
        ("while a; do\n" + repeated("b\n") + "done <c", LONG // 2 + 1),
        ("if a; then\n" + repeated("b\n") + "fi", LONG // 2 + 1),
        ("a" + repeated(" <b"), 1),
        ("{\n" + "a\n" * (LONG // 4) + "}" + " >b" * (LONG // 6), LONG // 4),
        ("a" + repeated(" <(b)"), LONG // 5 + 1),
    ],
    ids=["lines", "functions", "branches", "pipe", "loop", "branch", "redirections", "redirected", "substitutions"],
)
def test_a_test_script_of_very_many_commands_is_read_in_time(script: str, commands: int):
    assert len(parse_script(script).commands) == commands
    list(find_directed_commands(script, {}))


@pytest.mark.parametrize(
    "script", [repeated("echo a\n"), "$(echo " * 5000 + ")" * 5000, repeated("grep a b\n"), "echo '" + repeated("a\n")]
)
def test_the_commands_of_a_hostile_script_are_found_in_time(script: str):
    assert len(executed_text(script)) <= len(script)
