"""Tasks in every format: folders, rows, files of rows, and a task that a client sends to a pool server."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from protocol.errors import UserError
from sandbox.http.json_structure import JsonStructure, TooMuchStructureError
from sandbox.http.task_codec import TaskRefused, decode_task, encode_task
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.file_tree import FileTree, TreeFile, path_problem, read_tree
from sandbox.tasks.formats.code_rows import find_missing_modules, find_uncrossable_usage
from sandbox.tasks.formats.folders import FolderFormat, encode_task_folder, read_task_tree
from sandbox.tasks.formats.generated.generator import make_task
from sandbox.tasks.formats.registry import FOLDER_FORMATS, ROW_FORMATS, TaskFormat, load_tasks
from sandbox.tasks.formats.rows import PointerFormat, RowFormat, encode_row, read_row
from sandbox.tasks.formats.swe_bugs.bug_rows import find_bug
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_containers import ImageBuild, SharedFolder, TaskHealthcheck, TaskService
from sandbox.tasks.task_grading import GradingLevel, StepsReward
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.fuzz.folder_text import join_folder, split_folder
from tests.fuzz.fuzz_target import FuzzFindingError, FuzzTarget, InputKind
from tests.support.tasks.bug_rows import bug_row, image_bug_row
from tests.support.tasks.task_files import write_tasks

_DATASETS = Path("sandbox/datasets")
_UNEXPECTED = re.compile(r"\w*([Ee]rror|Exception): ")
"""Begins the reason of a problem whose error the loader does not know."""
_NAME = "task-1"


def _check(loaded: LoadedTask) -> None:
    """Raise for a problem that names no reason that a user could understand."""
    for problem in loaded.problems:
        if _UNEXPECTED.match(problem.why):
            raise FuzzFindingError(f"{problem.what}: {problem.why}")
        str(problem).encode()


def _folder(form: FolderFormat, data: bytes) -> None:
    files = {path: file for path, file in split_folder(data).items() if not path_problem(path)}
    problems = TaskProblems(Path(_NAME))
    task = None
    with problems.collecting_errors():
        task = read_task_tree(form, _NAME, FileTree(files), problems)
    loaded = problems.loaded(task)
    _check(loaded)
    if loaded.task is not None:
        encode_task_folder(form, loaded.task)
        _check_sent(loaded.task)


def _row(form: RowFormat, data: bytes) -> None:
    try:
        row = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if not isinstance(row, dict):
        return
    problems = TaskProblems(Path("rows.jsonl:1"))
    task = None
    with problems.collecting_errors():
        task = read_row(form, row, problems)
    loaded = problems.loaded(task)
    _check(loaded)
    if loaded.task is not None:
        encode_row(form, loaded.task)
        list(find_uncrossable_usage(loaded.task))
        list(find_missing_modules(loaded.task))
        find_bug(loaded.task)
        _check_sent(loaded.task)


def _check_sent(task: Task) -> None:
    """Raise if a task that was loaded is another after it was sent."""
    sent = encode_task(task)
    try:
        received = decode_task(sent)
    except TaskRefused:
        return
    if received != task:
        raise FuzzFindingError("a task is another after it was sent")


def _sent_task(data: bytes) -> None:
    try:
        JsonStructure().add(data)
        value = json.loads(data)
    except (ValueError, RecursionError, TooMuchStructureError):
        return
    try:
        task = decode_task(value)
    except TaskRefused:
        return
    if decode_task(encode_task(task)) != task:
        raise FuzzFindingError("a task is another after it was sent")


@cache
def _root() -> Path:
    """Return a folder of tasks at which rows can point, which stays for the process's life."""
    root = Path(tempfile.mkdtemp(prefix="longshore-fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_tasks([_full_task(), make_task("sort", 1, TaskSplit.TRAIN)], TaskFormat.HARBOR, root / "tasks")
    return root


def _rows_file(suffix: str, data: bytes) -> None:
    """Load a file of rows, whose format is detected."""
    path = _root() / f"rows{suffix}"
    path.write_bytes(data)
    try:
        found = load_tasks(path)
    except UserError:
        return
    for problem in found.problems:
        _check(LoadedTask(None, (problem,)))


def _full_task() -> Task:
    """Return a task with something in every field."""
    build = ImageBuild({"Dockerfile": b"FROM a\nCOPY x /x\nRUN <<A\nmake\nA\n", "x": b"x"}, args={"B": "c"}, target="")
    shared = SharedFolder("kept", "/kept")
    service = TaskService(
        *(
            "db",
            "postgres:16",
            None,
            ("postgres", "-c", "a=b"),
            {"PASSWORD": "x"},
            "pg_isready",
            512,
            0.5,
            64,
            ("/run",),
        ),
        (shared,),
        ("docker-entrypoint.sh",),
        "999:999",
        "/var/lib",
        (ProcessLimit("nofile", 1024, 65536),),
        "db-1",
    )
    return Task(
        _NAME,
        "Make it work.",
        family="systems",
        setup="true\n",
        files={"/app/a.txt": b"a", "/app/b.bin": b"\xff\0"},
        tests={"test_outputs.py": b"def test_a():\n    assert True\n", "data/x": b"x"},
        run_tests="pytest /tests/test_outputs.py -rA\n",
        expected_tests=("test_outputs.py::test_a",),
        weights={"test_outputs.py::test_a": 2.0},
        reports=("/logs/verifier/ctrf.json", "/logs/verifier/reward.txt"),
        solution="touch /app/done\n",
        solution_files={"part": b"1"},
        foils={"cheat": "true\n"},
        build=build,
        services=(service, TaskService("web", "", build, env={"A": "$b"}, healthcheck="curl -f localhost")),
        network=TaskNetwork(agent=NetworkMode.PROXY, verify=NetworkMode.FULL, allowed_hosts=("a.example:80",)),
        grading=GradingLevel.ARTIFACTS,
        artifacts=("/app/out",),
        env={"LANG": "C.UTF-8"},
        agent_env={"B": "${c}"},
        test_env={"A": "${B:-c}"},
        solution_env={"D": "e"},
        agent_user="bob",
        tests_user="root",
        healthcheck=TaskHealthcheck("test -f /ready"),
        metadata={"tags": '["a", 1]', "author_name": "x", "harbor.task": '{"a": 2}'},
        workdir="/app",
        tmpfs=("/cache:size=64m",),
        ulimits=(ProcessLimit("stack", -1, -1),),
        volumes=(shared,),
    )


def _stepped_task() -> Task:
    step = TaskStep(
        "one",
        "First.",
        files={"setup.sh": b"true\n", "bin/run": b"#!/bin/sh\n"},
        executable=frozenset({"bin/run"}),
        healthcheck=TaskHealthcheck("true"),
        tests={"test_a.py": b"def test_a(): pass\n"},
        run_tests="pytest /tests/test_a.py\n",
        solution="true\n",
        artifacts=("/app/x",),
        test_env={"A": "b"},
        min_rewards={"reward": 0.5},
    )
    return Task(
        _NAME,
        "First.\n\nThen.",
        grading=GradingLevel.LIVE,
        reports=("/logs/verifier/reward.txt",),
        steps=(step, replace(step, name="two", instruction="Then.", grading=GradingLevel.ARTIFACTS)),
        steps_reward=StepsReward.FINAL,
    )


def _folder_corpus(form: TaskFormat) -> list[bytes]:
    written = FOLDER_FORMATS[form]
    tasks = [_full_task(), make_task("unpack", 1, TaskSplit.TRAIN)]
    tasks += [_stepped_task()] if form is TaskFormat.HARBOR else []
    found = [join_folder(encode_task_folder(written, task)) for task in tasks]
    if form is TaskFormat.HARBOR:
        folders = sorted(path.parent for path in _DATASETS.glob("*/*/task.toml"))
        found += [join_folder(read_tree(folder).files) for folder in folders[::8]]
    else:
        found.append(join_folder({path: TreeFile(text) for path, text in _TERMINAL_BENCH.items()}))
    return found


def _row_corpus(form: TaskFormat) -> list[bytes]:
    return [orjson.dumps(row) for row in [*_OWN_ROWS.get(form, list)(), *_written_rows(form)]]


def _written_rows(form: TaskFormat) -> list[dict[str, Any]]:
    """Return rows of tasks from other formats."""
    tasks = [make_task("sort", 1, TaskSplit.TRAIN)] + ([] if form is TaskFormat.GENERATED else [_full_task()])
    found = ROW_FORMATS[form]
    return [found.write(each) if isinstance(found, PointerFormat) else encode_row(found, each) for each in tasks]


def _dataset_rows(name: str, count: int) -> list[dict[str, Any]]:
    with (_DATASETS / name).open("rb") as file:
        return [orjson.loads(line) for line in islice(file, 0, 9 * count, 9)]


def _code_rows() -> list[dict[str, Any]]:
    truths: list[object] = [
        {"inputs": ["1\n"], "outputs": ["2\n"]},
        json.dumps({"inputs": [[1, "a"]], "outputs": [[2]], "fn_name": "f"}),
        ["assert f(1) == 2", "def test_a():\n    assert f(2)\n"],
        "import math\n\ndef check(candidate):\n    assert candidate(1) == math.pi\n",
        "42",
        7,
    ]
    prompt = [{"role": "system", "content": "x"}, {"role": "user", "content": "Write f."}]
    return [
        {
            "data_source": "a/code" if number < 4 else "math",
            "prompt": prompt if number % 2 else "Write f.",
            "ability": "x",
            "reward_model": {"ground_truth": truth, "style": "rule"},
            "extra_info": {"index": number, "entry_point": "f"},
        }
        for number, truth in enumerate(truths)
    ]


def _swe_synth_rows() -> list[dict[str, Any]]:
    extra = {
        "problem_statement": "It adds.",
        "swe_instance_id": "i",
        "bug_types": ["a"],
        "fix_patch": "diff",
        "all_passed": True,
        "conversation": [{"role": "user", "content": "x"}],
    }
    return [{"task_id": 7, "score": 1.0, "model": "m", "latency_ms": 1, "extra": extra}]


_OWN_ROWS = {
    TaskFormat.CODE: _code_rows,
    TaskFormat.SWE_SYNTH: _swe_synth_rows,
    TaskFormat.SWE_BUG: lambda: [bug_row(), image_bug_row()],
    TaskFormat.LIVEWEB: lambda: _dataset_rows("longshore_web/tasks.jsonl", 8),
}
_TERMINAL_BENCH = {
    "task.yaml": b"instruction: base\ndescriptions:\n  - {key: base, description: Do it.}\nauthor_name: x\n"
    b"tags: [a, 1]\nparser_name: pytest\nmax_agent_timeout_sec: 180.0\nrun_tests_in_same_shell: false\n",
    "Dockerfile": b"FROM debian\nCOPY protected/a /a\nWORKDIR /srv\n",
    "protected/a": b"a",
    ".dockerignore": b"*.log\n!a.log\n**/x[0-9]\n",
    "docker-compose.yaml": b"services:\n  client:\n    build: {dockerfile: Dockerfile}\n"
    b"    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}\n    command: [sh, -c, sleep infinity]\n"
    b"    environment: [TEST_DIR=$T_BENCH_TEST_DIR]\n    volumes: ['./data:/data']\n",
    "data/b": b"b",
    "run-tests.sh": b"cd $TEST_DIR && uv run pytest $TEST_DIR/test_outputs.py -rA\n",
    "tests/test_outputs.py": b"import socket\ndef test_a():\n    socket.create_connection(('localhost', 80))\n",
    "solution.yaml": b"- command: touch a\n  min_timeout_sec: 1.0\n",
}


def _file_corpus() -> list[bytes]:
    rows = [row for form in ROW_FORMATS for row in _row_corpus(form)]
    return [*rows, b"\n".join(rows[:3]), b"[%s]" % b",".join(rows[-3:])]


def _sent_corpus() -> list[bytes]:
    return [json.dumps(encode_task(task)).encode() for task in (_full_task(), _stepped_task())]


TARGETS = [
    *(
        FuzzTarget(f"task-{name}", InputKind.FOLDER, partial(_folder, form), partial(_folder_corpus, name))
        for name, form in FOLDER_FORMATS.items()
    ),
    *(
        FuzzTarget(f"task-{name}", InputKind.JSON, partial(_row, form), partial(_row_corpus, name))
        for name, form in ROW_FORMATS.items()
        if isinstance(form, RowFormat)
    ),
    FuzzTarget("task-rows", InputKind.JSON, partial(_rows_file, ".jsonl"), _file_corpus),
    FuzzTarget("sent-task", InputKind.JSON, _sent_task, _sent_corpus),
]
