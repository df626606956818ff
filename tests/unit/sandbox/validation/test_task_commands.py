"""If these fail, ``tasks validate`` misses a problem, a task's network need, or a changed data set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UserError
from sandbox.tasks.__main__ import COMMAND
from sandbox.tasks.code_runner.shared_state import find_shared_state
from sandbox.tasks.code_runner.tests_parser import candidate_names, parse_test_code
from sandbox.tasks.dataset import Dataset, dataset_checksum
from sandbox.tasks.dataset_catalog import load_labelled_dataset
from sandbox.tasks.dataset_split import DatasetSplit, TaskSplit, take_split
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.generated.generator import held_out_tasks
from sandbox.tasks.formats.registry import TaskFormat
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_containers import ImageBuild, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import ONLINE, NetworkMode, TaskNetwork
from sandbox.tasks.task_selection import filter_dataset, read_patterns
from sandbox.validation.commands import report_dataset
from sandbox.validation.dataset_report import build_report
from sandbox.validation.live_answers import describe_live_answer
from sandbox.validation.network_needs import TaskPhase, find_network_needs, find_unmet_needs
from sandbox.validation.network_requests import find_network_requests
from sandbox.validation.task_warnings import find_task_warnings
from tests.support.commands import call_json
from tests.support.tasks import code_rows
from tests.support.tasks.task_files import write_tasks

ASKS = "requests.get('http://localhost:5000')"


def tasks_output(capfd: pytest.CaptureFixture[str], code: int, *arguments: object) -> dict[str, Any]:
    """Return the JSON object of a command with this exit code."""
    done = call_json(capfd, "sandbox.tasks", *arguments)
    assert done.exit_code == code, done.stderr
    return done.output


def test_a_data_set_is_generated_validated_converted_and_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    source, other = str(tmp_path / "a"), str(tmp_path / "b.jsonl")
    assert COMMAND.call(["generate", source, "--count", "3", "--held-out", "1"]) == 0
    assert COMMAND.call(["validate", source]) == 0
    assert COMMAND.call(["convert", source, "--to", "miles", "--output", other]) == 0
    assert f"{3 + len(FAMILIES)} tasks can be used, 0 cannot" in capfd.readouterr().out
    assert tasks_output(capfd, 0, "list", source)["checksum"] == tasks_output(capfd, 0, "list", other)["checksum"]
    chosen = tasks_output(capfd, 0, "list", source, "--only", "sort-*", "--only", "!*-train-*")
    assert [row["task"] for row in chosen["tasks"]] == ["sort-held_out-00000000"]
    assert COMMAND.call(["report", source, "--only", "sort-held_out-*"]) == 0
    assert "\n1 task can be used, 1 of them" in f"\n{capfd.readouterr().out}"
    assert COMMAND.call(["list", source, "--only", "sort-held_out-*"]) == 0
    assert "\n1 task, 0 that cannot be used, checksum" in capfd.readouterr().out


def test_the_option_that_a_refused_host_names_allows_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    network = TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("pypi.example", "localhost", "10.1.2.3:8080"))
    write_tasks([Task("t", "do", run_tests="true", network=network)], "miles", tasks := tmp_path / "t.jsonl")
    validate = ("validate", tasks, "--network", "task")
    problems = tasks_output(capfd, 1, *validate)["problems"]
    assert [each["what"] for each in problems] == ["allowed_hosts: 'localhost'", "allowed_hosts: '10.1.2.3:8080'"]
    options = [each["why"].partition("sandbox.allow_hosts or ")[2].split() for each in problems]
    assert tasks_output(capfd, 1, *validate, *options[0])["unusable"] == 1
    assert tasks_output(capfd, 0, *validate, *options[0], *options[1])["tasks"] == 1
    assert tasks_output(capfd, 0, "validate", tasks, "--network", "none")["tasks"] == 1


def test_problems_exit_with_1_and_user_errors_with_2_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    COMMAND.call(["generate", str(tmp_path / "a"), "--count", "1"])
    (tmp_path / "a/bad").mkdir()
    (tmp_path / "empty").mkdir()
    assert COMMAND.call(["validate", str(tmp_path / "a")]) == 1
    assert COMMAND.call(["validate", str(tmp_path / "a"), "--only", "!bad"]) == 0
    assert COMMAND.call(["convert", str(tmp_path / "a"), "--to", "harbor", "--output", str(tmp_path / "h")]) == 1
    out = capfd.readouterr().out
    assert "bad: task.yaml or task.toml is missing" in out
    assert "1 task can be used, 1 cannot" in out
    assert "1 task written" in out
    missing = "task.yaml or task.toml is missing"
    problem = {"place": str(tmp_path / "a/bad"), "what": missing, "why": "it describes the task"}
    assert tasks_output(capfd, 1, "validate", tmp_path / "a")["problems"] == [problem]
    assert tasks_output(capfd, 1, "list", tmp_path / "a")["problems"] == [problem]
    assert COMMAND.call(["list", str(tmp_path / "a")]) == 1
    assert "bad: task.yaml or task.toml is missing" in capfd.readouterr().out
    for wrong, says in (
        *(
            ([verb, str(tmp_path / "empty")], "name a folder of task folders")
            for verb in ("validate", "list", "report")
        ),
        *(
            ([verb, str(tmp_path / "a"), "--only", "zzz*"], r"--only zzz\*: .*a has no such task")
            for verb in ("validate", "list", "report")
        ),
        (["validate", str(tmp_path / "none")], "is not a folder, file or label"),
        (["convert", str(tmp_path / "a"), "--to", "harbor", "--output", str(tmp_path / "h")], "exists already"),
        (["convert", str(tmp_path / "a"), "--to", "harbour", "--output", "x"], "harbor, openclaw"),
        (["generate", "x", "--to", "harbour"], "harbor, openclaw"),
        (["list", "longshore-bnch"], "longshore-web, longshore-swe; did you mean 'longshore-bench'"),
        (["list", "my/datasets.toml"], "give one of the labels, with --datasets my/datasets.toml"),
    ):
        with pytest.raises(UserError, match=says):
            COMMAND.call(wrong)


TOML = """
[some]
path = "some"
filter = ["*-held_out-*", "!sort-*"]
split = {{part = "{part}", held_out = 0.5, seed = 3}}
checksum = "{checksum}"
"""


def test_a_label_selects_the_same_tasks_until_the_data_changes(tmp_path: Path):
    some = held_out_tasks(0, 1)
    write_tasks(some, TaskFormat.HARBOR, tmp_path / "some")
    toml, right = tmp_path / "datasets.toml", dataset_checksum(tuple(reversed(some)))
    sides: dict[str, set[str]] = {}
    for part in TaskSplit:
        toml.write_text(TOML.format(part=part, checksum=right))
        sides[part] = {task.id for task in load_labelled_dataset(toml, "some").tasks}
    assert sides[TaskSplit.TRAIN] | sides[TaskSplit.HELD_OUT] == {task.id for task in some if task.family != "sort"}
    assert not sides[TaskSplit.TRAIN] & sides[TaskSplit.HELD_OUT]
    assert len(sides[TaskSplit.HELD_OUT]) == (len(FAMILIES) - 1) // 2
    (tmp_path / "some" / some[0].id / "instruction.md").write_text("Something else.\n")
    with pytest.raises(UserError, match=r"differs from .*: its tasks have the checksum sha256:"):
        load_labelled_dataset(toml, "some")
    with pytest.raises(UserError):
        COMMAND.call(["list", "some", "--datasets", str(toml)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\npath = 'x'\nfitler = []\n", "a.fitler"),
        ("[a\n", "not readable TOML"),
        ("[b]\npath = 'x'\n", "choose one of b"),
    ],
)
def test_a_wrong_datasets_file_is_an_error_that_names_the_key(tmp_path: Path, text: str, message: str):
    (tmp_path / "datasets.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_labelled_dataset(tmp_path / "datasets.toml", "a")


def test_a_filter_may_be_a_file_of_names_and_a_split_is_stable(tmp_path: Path):
    some = tuple(held_out_tasks(0, 1))
    (tmp_path / "names").write_text("sort-held_out-00000000\nfix-*\n")
    assert [
        task.family for task in filter_dataset(Dataset(some, ()), read_patterns(str(tmp_path / "names"))).tasks
    ] == ["sort", "fix"]
    with pytest.raises(UserError, match="filter"):
        read_patterns(str(tmp_path / "none"))
    wanted = DatasetSplit(part=TaskSplit.HELD_OUT)
    assert take_split(some, wanted) == take_split(some[::-1], wanted)[::-1] != ()


RUN = """#!/bin/bash
# apt-get install nothing
apt-get update && apt-get install -y --no-install-recommends curl libpq-dev=1.2
curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
uv add "pytest==8.4.1" 'pandas>=2' ; uv pip install -r requirements.txt numpy
uvx -p 3.13 -w pytest==8.4.1 \\
  -w requests --with pytest-json-ctrf==0.3.4 pytest --ctrf /x /tests/test_outputs.py
wget http://localhost:8080/x; git clone https://example.org/a.git
"""


def test_network_needs_not_met_by_the_toolchain_are_named_by_phase():
    tests = {
        "test_outputs.py": b"requests.get('http://127.0.0.1:5000')\n# https://no.example\nURL = 'https://data.example/x.csv'\n"
    }
    build = ImageBuild(
        {"Dockerfile": b'FROM a\nRUN <<EOF\napt-get install -y nginx\nEOF\nENTRYPOINT ["x"]\nUSER bob\nWORKDIR /srv\n'}
    )
    task = Task(
        "a",
        "b",
        run_tests=RUN,
        tests=tests,
        build=build,
        services=(TaskService("db"),),
        solution="npm install left-pad\n",
    )
    found = {(need.phase, need.what) for need in find_network_needs(task)}
    assert found == {
        (TaskPhase.BUILD, "apt-get install nginx"),
        (TaskPhase.ORACLE, "npm install left-pad"),
        (TaskPhase.VERIFY, "apt-get install libpq-dev"),
        (TaskPhase.VERIFY, "uv install pandas"),
        (TaskPhase.VERIFY, "uv install -r requirements.txt numpy"),
        (TaskPhase.VERIFY, "uvx -w requests pytest-json-ctrf==0.3.4"),
        (TaskPhase.VERIFY, "https://example.org/a.git"),
        (TaskPhase.VERIFY, "https://data.example/x.csv"),
    }
    assert {need.phase for need in find_unmet_needs(task)} == {TaskPhase.ORACLE, TaskPhase.VERIFY}
    (image_s,) = find_task_warnings(task)
    assert "replaced, because of `apt-get install -y --no-install-recommends curl" in image_s
    assert len(list(find_task_warnings(replace(task, grading=GradingLevel.ARTIFACTS, artifacts=("/app",))))) == 0


@pytest.mark.parametrize(
    ("tests", "level", "says"),
    [
        ("x = 1", GradingLevel.SAME, ""),
        (
            "x = 1",
            GradingLevel.LIVE,
            "its tests run beside the agent's processes, which can answer them (grading: live)",
        ),
        (ASKS, GradingLevel.LIVE, "(grading: live), because of `requests.get('http://localhost:5000')` in test_a.py"),
        (ASKS, GradingLevel.SAME, "its tests look for running programs (`requests.get('http://localhost:5000')` in"),
        (ASKS, GradingLevel.ARTIFACTS, "runs when they start: write `grading: live` in its longshore.yaml"),
        (ASKS, GradingLevel.SIBLING, ""),
        (f"Popen(['a'])\n{ASKS}", GradingLevel.SAME, "and start some: if those are not the same, write"),
        (f"Popen(['a'])\n{ASKS}", GradingLevel.ARTIFACTS, ""),
    ],
)
def test_a_task_with_a_running_answer_is_reported_with_its_grading_level(tests: str, level: GradingLevel, says: str):
    task = Task("a", "b", run_tests="pytest /tests/test_a.py\n", tests={"test_a.py": tests.encode()}, grading=level)
    described = describe_live_answer(task)
    assert says in described
    assert bool(says) == bool(described)


@pytest.mark.parametrize(
    ("level", "says"),
    [(GradingLevel.SAME, "who can replace files"), (GradingLevel.LIVE, "live processes can see them")],
)
def test_programs_that_tests_start_as_another_user_are_warned_about(level: GradingLevel, says: str):
    tests = {"test_a.py": b"subprocess.run(['/app/x'], user=65534)\n"}
    task = Task("a", "b", run_tests="#!/bin/sh\ntrue\n", tests=tests, solution="true", grading=level)
    (warning,) = find_task_warnings(task)
    assert says in warning


def test_a_clean_container_without_artifacts_is_warned_about():
    task = Task("a", "b", run_tests="#!/bin/sh\ntrue\n", solution="true", grading=GradingLevel.ARTIFACTS)
    (warning,) = find_task_warnings(task)
    assert warning.startswith("its tests run in a clean container, but it declares no artifacts")
    assert not list(find_task_warnings(replace(task, artifacts=("/app",))))


def test_a_warning_about_several_tasks_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    row = {"reward_model": {"ground_truth": ["assert f(1) == 1"]}}
    rows = [{"prompt": [{"role": "user", "content": str(number)}], **row} for number in range(5)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    assert COMMAND.call(["validate", str(tmp_path / "rows.jsonl")]) == 0
    (line,) = [each for each in capfd.readouterr().out.splitlines() if "it has no oracle" in each]
    assert line.endswith(" and 2 more: it has no oracle")


def notes_on(capfd: pytest.CaptureFixture[str], code: str, path: Path, word: str) -> list[str]:
    """Return the warnings of validate that contain this text, for a row with this test code."""
    row = {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": [code]}}
    path.write_text(json.dumps(row))
    return [note["what"] for note in tasks_output(capfd, 0, "validate", path)["notes"] if word in note["what"]]


UNCROSSING = {
    "class Node:\n    pass\nassert f(Node()) == 1": "create objects of their class Node",
    "import numpy as np\nassert (f(np.zeros(2)) == np.ones(2)).all()": "import numpy",
    "def test_a():\n    import pandas.testing\n    from torch import nn\n    assert f(1) == 1": "import pandas, torch",
    "import asyncio\nassert asyncio.run(f(1)) == 2": "import asyncio",
    "class Bad(ValueError): pass\nimport math, pytest\nfrom solution import f\nassert math.isclose(f(1), 2)": "",
}


@pytest.mark.parametrize("code", UNCROSSING)
def test_a_code_row_with_values_that_cannot_be_sent_to_the_answer_is_warned_about(
    tmp_path: Path, code: str, capfd: pytest.CaptureFixture[str]
):
    notes = notes_on(capfd, code, tmp_path / "c.jsonl", "not cross")
    assert len(notes) == bool(UNCROSSING[code])
    assert all(f"its tests (case_0) {UNCROSSING[code]}" in note for note in notes)


def unshared_of(code: str) -> list[str]:
    tree = parse_test_code(code)
    return list(find_shared_state(tree, candidate_names(tree) | {"candidate"}))


UNSHARED = {
    "import random\nrandom.seed(4)\nassert f(3) == [6, 1, 1]": "random.seed",
    "import os\nos.environ['MODE'] = 'x'\nassert f() == 'x'": "os.environ",
    "from os import environ\nenviron.pop('MODE')\nassert f() == 'x'": "os.environ",
    "import os\nos.chdir('/tmp')\nassert f() == '/tmp'": "os.chdir",
    "import sys\nsys.argv = ['x']\nassert f() == 1": "sys.argv",
    "import warnings as w\nwith w.catch_warnings(record=True) as l:\n    f()\n    assert l": "warnings.catch_warnings",
    "import pytest\ndef test_a():\n    with pytest.warns(UserWarning):\n        assert f()": "pytest.warns",
    "from unittest.mock import patch\nwith patch('builtins.input'):\n    assert f()": "unittest.mock.patch",
    "from unittest import mock\nwith mock.patch.dict('os.environ', a='b'):\n    assert f()": "unittest.mock.patch.dict",
    "import inspect\nassert inspect.isgeneratorfunction(f)": "inspect.isgeneratorfunction",
    "def check(candidate):\n    import inspect as i\n    assert i.signature(candidate)": "inspect.signature",
    "import types\nassert isinstance(f(2), (list, types.GeneratorType))": "types.GeneratorType",
    "from typing import Generator\nassert isinstance(f(2), Generator)": "typing.Generator",
}


def test_a_code_row_with_tests_that_rely_on_shared_state_is_warned_about(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    (note,) = notes_on(capfd, "import random\nrandom.seed(4)\nassert f(3) == [6, 1]", tmp_path / "c.jsonl", " use ")
    assert note.startswith("its tests (case_0) use random.seed, which does not affect the answer")


@pytest.mark.parametrize("code", UNSHARED)
def test_state_not_shared_by_two_processes_is_named(code: str):
    (warning,) = unshared_of(code)
    assert warning.startswith(f"{UNSHARED[code]}, ")


SHARED = [
    "import os\nassert f(os.path.join('a', 'b')) == 'a/b' and os.environ.get('HOME') != f('x')",
    "import tempfile\nwith tempfile.TemporaryDirectory() as d:\n    assert f(d) == 0",
    "open('in.txt', 'w').close()\nassert f('in.txt') == 0",
    "import random\nrandom.seed(4)\nxs = [random.random() for _ in range(9)]\nassert f(xs) == sorted(xs)",
    "import warnings\nwarnings.filterwarnings('ignore')\nwith warnings.catch_warnings():\n    assert f(1) == 1",
    "import inspect\ndef own(a): pass\nassert f(1) == len(inspect.signature(own).parameters)",
    "import sys, types\nsys.setrecursionlimit(9999)\nassert f(sys.maxsize) == 1 and isinstance(f(1), int)",
    "from collections.abc import Iterator\nassert isinstance(f(2), Iterator)",
    *(row.tests for row in code_rows.ROWS.values()),
]


@pytest.mark.parametrize("code", SHARED)
def test_state_used_only_by_the_tests_is_not_named(code: str):
    assert unshared_of(code) == []


LACKING = {
    "import math, unittest\nfrom dataclasses import field\nassert f(1) == 1": "import dataclasses, unittest",
    "assert statistics.mean(f(1)) == 1": "import statistics",
    "def test_a():\n    import pytest\n    assert f(1) == 1": "import pytest",
    "from __future__ import annotations\nimport math, _thread, numpy\nfrom solution import f\nassert f(1) == 1": "",
}


@pytest.mark.parametrize("code", LACKING)
def test_a_code_row_with_imports_missing_in_the_base_image_is_warned_about(
    tmp_path: Path, code: str, capfd: pytest.CaptureFixture[str]
):
    notes = notes_on(capfd, code, tmp_path / "c.jsonl", "lacks")
    assert len(notes) == bool(LACKING[code])
    assert all(f"its tests (case_0) {LACKING[code]}, which" in note for note in notes)


WANTS = {
    "uv run --with requests --with pytest==8.4.1 pytest /tests/test_outputs.py": ["uv run -w requests"],
    "uv run pytest --with x": [],
    "pip3 install pytest 2>/dev/null": [],
    "bash <(curl -s https://a.org/install.sh)": ["https://a.org/install.sh"],
    "pip install 'pytest>=99'": ["pip install pytest>=99"],
    "pip install numpy >> /tmp/log 2>&1 < /dev/null": ["pip install numpy"],
    "pip install -r /tests/requirements.txt": ["pip install -r /tests/requirements.txt"],
    "uv sync --frozen && true": ["uv sync"],
    "npm ci; npm install": ["npm ci", "npm install"],
    "npx -y playwright@1.2 install": ["npx playwright"],
    "npx -p left-pad run": ["npx left-pad"],
    "uvx --from ruff-lsp ruff; uv tool install mypy": ["uv install mypy", "uvx -w ruff-lsp"],
    "curl -o out.d/x.tgz -L example.com/file.tgz": ["example.com/file.tgz"],
    "wget -qO out.d/x 'example.com:8080/a'": ["example.com:8080/a"],
    "curl -sS localhost:80/x; wget db/x; curl -d a.com/x": [],
    "curl -LsSf astral.sh/uv/install.sh | sh": [],
    "git clone git@github.com:a/b.git": ["git@github.com:a/b.git"],
    "git clone --depth 1 https://example.org/a": ["https://example.org/a"],
    "cd a && yarn --frozen-lockfile; yarn test; corepack enable yarn": ["yarn"],
    'URL=https://a.example\nwget -q "$URL/x"': ["https://a.example/x"],
    "BASE=http://localhost:80\ncurl ${BASE}/health; curl -o $OUT $BASE/x": [],
    'wget ${DATA_URL}; git clone "$repo_url" x': ["wget ${DATA_URL}", "git clone $repo_url"],
}


@pytest.mark.parametrize("line", WANTS)
def test_network_requests_are_found_in_a_scripts_commands(line: str):
    assert list(find_network_requests(f"#!/bin/sh\n{line}\n")) == WANTS[line]


def test_packages_of_a_scripts_inline_metadata_are_needs() -> None:
    script = '# /// script\n# dependencies = [\n#   "left-pad==1", "pytest",\n# ]\n# ///\nprint()\n'
    task = Task("a", "b", run_tests="uv run check.py\n", tests={"check.py": script.encode()})
    assert [each.what for each in find_network_needs(task)] == ["uv run -w left-pad"]
    assert not find_network_needs(replace(task, run_tests="python3 check.py\n"))


def test_a_need_covered_by_the_tasks_network_is_not_unmet():
    task = Task("a", "b", run_tests="pip install x\n", network=TaskNetwork(verify=NetworkMode.PROXY))
    assert find_network_needs(task)
    assert not find_unmet_needs(task)


def test_a_report_counts_kinds_of_warnings_and_the_grading_levels_of_steps() -> None:
    """What a warning quotes, counts and locates differs from task to task."""
    imports = "from shop.cart import total\n"
    tests = [imports, f"\n{imports}", f"{imports}from shop.basket import add\n"]
    plain = Task("t", "do", run_tests="pytest /tests/test_a.py", solution="true")
    tasks = [replace(plain, id=f"t{number}", tests={"test_a.py": text.encode()}) for number, text in enumerate(tests)]
    warned = {warning for task in tasks for warning in find_task_warnings(task)}
    assert len(warned) > 1
    steps = (
        TaskStep("one", "do", tests=tasks[0].tests, run_tests=plain.run_tests, solution="true"),
        TaskStep("two", "do", run_tests="true", solution="true", grading=GradingLevel.SAME),
    )
    report = build_report(Dataset((*tasks, Task("s", "do", steps=steps)), ()))
    exposed, replaceable = report.warnings.values()
    assert (exposed, replaceable) == (4, 3), report.warnings
    assert report.grading == {"same": 4, "live": 1}


def test_a_long_warning_is_wrapped_beside_its_count() -> None:
    lines: list[str] = []
    report_dataset(Dataset((Task("t", "do"),), ()), lambda line: lines.extend(line.splitlines()), 34)
    at = next(number for number, line in enumerate(lines) if line.startswith("warning") and "no tests" in line)
    assert lines[at : at + 2] == ["warning  1  it has no tests: it", "            cannot be graded"]


def test_a_report_counts_usable_tasks_and_the_problems_of_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compose = "services:\n  main: {image: debian, ports: ['80:80']}\n"
    for name, toml in (("one", "[environment]\ncpus = 8"), ("two", ""), ("gpu", "[environment]\ngpus = 1")):
        for path, text in {
            "task.toml": toml,
            "instruction.md": "Do it.",
            "environment/docker-compose.yaml": compose,
            "tests/test.sh": "pip install pandas\n",
        }.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    report = tasks_output(capfd, 1, "report", tmp_path)
    assert (report["usable"], report["unusable"], list(report["unusable_by_reason"].values())) == (2, 1, [1])
    assert (report["usable_offline"], report["warnings"]["it has no oracle"]) == (0, 2)
    assert (report["network"], report["hardware"]) == ({"agent full, tests full": 2}, {"more than 4 CPUs": 1})
    assert (report["offline_needs"], list(report["remarks_by_reason"].values())) == ({"verify": 2}, [2])
    assert COMMAND.call(["report", str(tmp_path)]) == 1
    assert "may need a network  2  verify" in capfd.readouterr().out
    assert COMMAND.call(["validate", str(tmp_path / "two")]) == 0
    assert COMMAND.call(["validate", str(tmp_path / "two"), "--strict"]) == 1


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (Task("t", "do", run_tests="true", solution="true", test_env={"PATH": "/opt:/bin"}), 1),
        (Task("t", "do", run_tests="uvx -p 3.12 pytest", solution="true"), 1),
        (Task("t", "do", run_tests="true"), 0),
    ],
)
def test_strict_fails_on_what_a_task_says_and_does_not_get(tmp_path: Path, task: Task, code: int):
    write_tasks([task], "miles", tasks := tmp_path / "t.jsonl")
    assert COMMAND.call(["validate", str(tasks)]) == 0
    assert COMMAND.call(["validate", str(tasks), "--strict"]) == code


def test_a_task_whose_tests_cannot_ask_their_judge_is_unusable(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    judged = Task("t", "do", run_tests="rewardkit /tests", tests={"q.toml": b"[judge]\n"}, network=ONLINE)
    write_tasks([judged, Task("u", "do", run_tests="true")], "miles", tasks := tmp_path / "t.jsonl")
    assert tasks_output(capfd, 0, "validate", tasks, "--network", "task")["tasks"] == 2
    [problem] = tasks_output(capfd, 1, "validate", tasks)["problems"]
    assert problem["what"] == "tests/q.toml asks a judge of rewardkit"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"env": {"NO_PROXY": "localhost,127.0.0.1"}}, ""),
        ({"env": {"NO_PROXY": "localhost, db,box"}}, ""),
        ({"env": {"NO_PROXY": "10.0.0.0/8"}}, "its NO_PROXY does not count"),
        ({"agent_env": {"no_proxy": "*"}}, "its no_proxy does not count"),
        ({"test_env": {"HTTPS_PROXY": "http://proxy.example"}}, "its HTTPS_PROXY does not count"),
        ({"build": ImageBuild({"Dockerfile": b"FROM a\nENV http_proxy=http://p"})}, "its http_proxy does not count"),
        ({"network": TaskNetwork(), "env": {"NO_PROXY": "*"}}, ""),
        (
            {"network": TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("127.0.0.1:80",))},
            "127.0.0.1:80 is the sand",
        ),
        ({"network": TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("10.0.0.1:80",))}, ""),
    ],
)
def test_what_a_task_says_of_proxies_in_vain_is_said(task: dict[str, Any], said: str):
    behind = Task("t", "do", run_tests="true", solution="true", network=TaskNetwork(agent=NetworkMode.PROXY))
    named = replace(behind, hostname="box", services=(TaskService("db"),), **task)
    found = [each for each in find_task_warnings(named) if "proxy" in each.lower()]
    assert len(found) == bool(said)
    assert all(said in each for each in found)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("[ -f /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt", "-f /logs/verifier/reward.txt"),
        ('if test ! -e "$LOGS/reward.json"; then echo 0 > $LOGS/reward.txt; fi', '-e "$LOGS/reward.json'),
        ("set -C\necho 1 > /logs/verifier/reward.txt", "set -C"),
        ("mv -n /tmp/reward.txt /logs/verifier/", "mv -n"),
        ("[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt", ""),
        ("rm -f /logs/verifier/reward.txt; [ -s /logs/verifier/reward.txt ]", ""),
        ("[[ -n $A && -f /logs/verifier/reward.txt ]]", "-f /logs/verifier/reward.txt"),
        ("# [ -f reward.txt ]\nmv /tmp/reward.txt /logs/verifier/; [ -f /app/out.txt ]", ""),
    ],
)
def test_scripts_that_go_by_whether_there_is_a_report_are_named(script: str, shown: str) -> None:
    task = Task("a", "b", run_tests=f"#!/bin/bash\n{script}\n", reports=("/logs/verifier/reward.txt",))
    said = [each for each in find_task_warnings(task) if "report files exist, empty" in each]
    assert [shown in each for each in said] == [True] * bool(shown)
    assert not any("report files exist" in each for each in find_task_warnings(replace(task, reports=())))


def test_tests_that_read_what_harbor_records_of_them_are_named() -> None:
    task = Task("a", "b", run_tests="grep -q passed /logs/verifier/test-stdout.txt\n")
    assert any("test-stdout.txt, Harbor's record" in each for each in find_task_warnings(task))
