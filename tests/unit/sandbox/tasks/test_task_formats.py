"""If these fail, tasks from other projects lose fields, a problem is not reported, or an answer is in the agent's
image."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.tasks.container_files.compose_services import ComposeFacts
from sandbox.tasks.container_files.dockerfile import find_workdir, parse_instructions, parse_plain_dockerfile
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.formats import code_rows, terminal_bench
from sandbox.tasks.formats.folders import FolderFormat, load_task_folder, write_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.formats.harbor.schema import REPORTS
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.rows import BOX_INSTRUCTION, JsonRow
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.task_containers import SharedFolder, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import ONLINE, NetworkMode, TaskNetwork
from sandbox.validation.task_warnings import find_task_warnings
from tests.support.tasks.parquet_files import write_parquet
from tests.support.tasks.public_test_scripts import PROJECT

COMPOSE = """\
x-own: 1
services:
  client:
    build: .
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    command: [sh, -c, sleep infinity]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
      - COST=5$$
      - PORT=80
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
    depends_on: {db: {condition: service_healthy}}
    mem_limit: 1.5g
  db:
    build: {context: db, args: {V: 1}}
    environment: {PASSWORD: a}
    command: postgres -c x=1
    healthcheck: {test: [CMD, pg_isready, -U, 'a b'], interval: 1s}
    deploy: {resources: {limits: {cpus: '0.5'}}}
"""
TB = {
    "task.yaml": "instruction: |-\n  Serve it.\ndifficulty: hard\nauthor_name: x\ntags: [a, b]\ncategory: web\n"
    "parser_name: pytest\nrun_tests_in_same_shell: false\n",
    "run-tests.sh": "#!/bin/bash\nuv add pytest==8.4.1 requests\nuv run pytest $TEST_DIR/test_outputs.py -rA\n",
    "solution.sh": "#!/bin/bash\nmake serve\n",
    "tests/test_outputs.py": "def test_a(): pass\nasync def test_b(): pass\ndef helper(): pass\n",
    "Dockerfile": "FROM python:3.13 AS base\nENV ROOT=/srv\nWORKDIR $ROOT\nFROM base\nWORKDIR web\n"
    "COPY --chown=1 deps/*.txt \\\n  # a comment\n  /srv/\nRUN apt-get update && apt-get install -y nginx curl\n",
    "deps/a.txt": "a",
    ".dockerignore": "*.md\n!keep.md\n**/cache\n",
    "README.md": "no",
    "keep.md": "yes",
    "deps/cache/b": "no",
    "docker-compose.yaml": COMPOSE,
    "db/Dockerfile": "FROM postgres:16\nARG V\n",
    "db/start.sh": "x",
}


def folder(parent: Path, files: dict[str, str], name: str = "a-task") -> Path:
    for path, text in files.items():
        (parent / name / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / name / path).write_text(text)
    return parent / name


def problems_of(loaded: LoadedTask) -> str:
    return "\n".join(map(str, loaded.problems))


def test_a_terminal_bench_task_with_image_and_service_is_read_completely(tmp_path: Path):
    place = folder(tmp_path, TB)
    (place / "deps/a.txt").chmod(0o755)
    task = terminal_bench.load_task(place)
    assert (task.instruction, task.family, task.workdir, task.memory_mb) == ("Serve it.", "web", "/srv/web", 1536)
    assert task.expected_tests == ("test_a", "test_b")
    assert task.env == {"COST": "5$", "PORT": "80"}
    assert task.metadata == {
        "difficulty": "hard",
        "author_name": "x",
        "tags": '["a", "b"]',
    }
    assert task.build is not None
    assert task.build.executable == {"deps/a.txt"}
    (db,) = task.services
    assert db.build is not None
    assert (set(db.build.files), db.build.args) == ({"Dockerfile", "start.sh"}, {"V": "1"})
    bare = TaskService(
        "db", "", db.build, ("postgres", "-c", "x=1"), {"PASSWORD": "a"}, "pg_isready -U 'a b'", cpus=0.5
    )
    assert db == bare


def test_neither_tests_nor_solution_nor_ignored_files_get_into_the_image(tmp_path: Path):
    task = terminal_bench.load_task(folder(tmp_path, TB | {"Dockerfile": "FROM a\nCOPY . /app\n"}))
    assert task.build is not None
    assert set(task.build.files) == {
        ".dockerignore",
        "Dockerfile",
        "keep.md",
        "deps/a.txt",
        "db/Dockerfile",
        "db/start.sh",
    }


def test_only_test_files_named_in_the_dockerfile_are_in_the_image(tmp_path: Path):
    copies = "COPY tests/data.txt /data\nCOPY tests/*.csv /data\nCOPY . /app\n"
    files = TB | {"Dockerfile": f"FROM a\n{copies}", "tests/data.txt": "x", "tests/a.csv": "y", "tests/b/c.csv": "z"}
    task = terminal_bench.load_task(folder(tmp_path, files))
    assert task.build is not None
    private = {path for path in task.build.files if path.startswith(("tests/", "solution", "run-tests"))}
    assert private == {"tests/data.txt", "tests/a.csv"}


OUTSIDE = {
    "sysctls: [a=1]": "services.client: sysctls",
    "privileged: true": "services.client: privileged",
    "cap_add: [SYS_PTRACE]": "services.client.cap_add: SYS_PTRACE",
    "cap_add: [SETFCAP, CAP_SYS_ADMIN]": "cap_add: SYS_ADMIN",
    "cap_add: [NET_RAW]": "cap_add: NET_RAW",
    "cap_add: [mknod]": "cap_add: MKNOD",
    "cap_add: [ALL]": "cap_add: ALL",
    "volumes: ['/data:/data']": "'/data' is not the task's own",
    "network_mode: host": "services.client: network_mode",
    "command: 'ngi\"nx'": "services.client.command: 'ngi",
    "depends_on: [gone]": "services.client.depends_on: gone",
    "healthcheck: {test: ls, interval: 5}": "healthcheck.interval",
    "environment: [HOME]": "HOME has no value",
    "environment: {A: '${UNKNOWN}'}": "variable UNKNOWN is unknown",
    "mem_limit: much": "'much' is not a size",
    "depends_on: {a: {condition: done}}": "depends_on.a.condition",
    "build: ..": "lies outside the task",
    "build: {context: nowhere}": "nowhere/Dockerfile is missing",
    "build: {context: ., ssh: default}": "build.ssh",
}


@pytest.mark.parametrize("line", OUTSIDE)
def test_an_unsupported_compose_key_is_a_problem_of_that_task_only(tmp_path: Path, line: str):
    folder(tmp_path, TB | {"docker-compose.yaml": f"services:\n  client:\n    {line}\n"}, "bad")
    folder(tmp_path, TB, "good")
    found = load_tasks(tmp_path, "terminal_bench")
    assert [task.id for task in found.tasks] == ["good"]
    assert OUTSIDE[line] in "\n".join(map(str, found.problems))
    assert {problem.folder.name for problem in found.problems} == {"bad"}


def test_every_problem_of_a_task_is_named_at_once(tmp_path: Path):
    files = TB | {
        "task.yaml": "instruction: x\nparser_name: mocha\nmax_test_timeout_sec: 0\nmax_agent_timeout_sec: -1\n",
        "run-tests.sh": " ",
        "Dockerfile": "FROM a\nCOPY nothing /\n",
        "longshore.yaml": "pids: many\nmemory: 1\n",
    }
    place = folder(tmp_path, files)
    (place / "tests/link").symlink_to("/etc/passwd")
    text = problems_of(load_task_folder(terminal_bench.FORMAT, place))
    for part in (
        "parser_name",
        "max_test_timeout_sec",
        "max_agent_timeout_sec",
        "run-tests.sh",
        "'nothing'",
        "pids",
        "memory_mb?",
        "tests/link",
    ):
        assert part in text


def test_recorded_commands_become_a_script_and_single_keys_are_a_problem(tmp_path: Path):
    typed = {path: text for path, text in TB.items() if path != "solution.sh"}
    commands = "- command: make\n  min_timeout_sec: 1\n- command: make test\n  block: true\n"
    assert (
        terminal_bench.load_task(folder(tmp_path, typed | {"solution.yaml": commands}, "a")).solution
        == "make\nmake test\n"
    )
    keys = folder(tmp_path, typed | {"solution.yaml": "- command: C-c\n  append_enter: false\n"}, "b")
    assert "presses single keys" in problems_of(load_task_folder(terminal_bench.FORMAT, keys))
    for name, text in (("c", "commands:\n- command: make\n"), ("d", "- make\n- command: make test\n")):
        other = folder(tmp_path, typed | {"solution.yaml": text}, name)
        assert "is no list of commands" in problems_of(load_task_folder(terminal_bench.FORMAT, other))


def test_a_recorded_command_that_is_not_waited_for_is_remarked_on(tmp_path: Path):
    """Its oracle may hang, and nobody would know why."""
    typed = {path: text for path, text in TB.items() if path != "solution.sh"}
    serve = "- command: python3 -m http.server\n  block: false\n"
    for name, commands, expected in (("a", f"{serve}- command: make\n", 1), ("b", f"- command: make\n{serve}", 0)):
        found = load_task_folder(terminal_bench.FORMAT, folder(tmp_path, typed | {"solution.yaml": commands}, name))
        assert len([each for each in found.remarks if "block: false" in each]) == expected


HARBOR_FILES = {
    "task.toml": 'version = "1.0"\n[metadata]\nauthor_name = "x"\ndifficulty = "easy"\ncategory = "data"\n'
    "[verifier]\ntimeout_sec = 900.0\n[agent]\ntimeout_sec = 3600\n"
    '[environment]\nbuild_timeout_sec = 300\ncpus = 2\nmemory = "4G"\nstorage = "10G"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /work\nCOPY data.csv .\n",
    "environment/data.csv": "1\n",
    "solution/solve.sh": "#!/bin/bash\npython3 /solution/fix.py\n",
    "solution/fix.py": "pass\n",
    "tests/test.sh": "#!/bin/bash\nuvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py -rA\n",
    "tests/test_outputs.py": "def test_x(): pass\n",
    "weights.json": '{"test_y": 0.25, "test_x": 0.75}',
}


def test_a_harbor_task_is_read_completely(tmp_path: Path):
    task = load_task_folder(HARBOR, folder(tmp_path, HARBOR_FILES)).require_task()
    assert (task.instruction, task.family, task.workdir, task.memory_mb) == ("Do it.", "data", "/work", 4096)
    assert (task.storage_mb, task.cpus, task.agent_timeout_s, task.build_timeout_s) == (10240, 2.0, 3600.0, 300.0)
    assert (task.weights, task.expected_tests) == ({"test_y": 0.25, "test_x": 0.75}, ("test_y", "test_x"))
    assert (set(task.tests), task.solution_files) == ({"test_outputs.py"}, {"fix.py": b"pass\n"})
    assert task.reports == REPORTS
    assert (task.network, task.grading) == (ONLINE, GradingLevel.SAME)
    assert task.build is not None
    assert set(task.build.files) == {"Dockerfile", "data.csv"}


ASKS = "import requests\n\ndef test_x(): assert requests.get('http://localhost:8000').ok\n"


@pytest.mark.parametrize(("form", "files"), [(terminal_bench.FORMAT, TB), (HARBOR, HARBOR_FILES)], ids=["tb", "harbor"])
def test_a_folder_with_tests_of_running_processes_is_graded_live(
    tmp_path: Path, form: FolderFormat, files: dict[str, str]
):
    given = {**files, "tests/test_outputs.py": ASKS}
    task = load_task_folder(form, folder(tmp_path / "unsaid", given)).require_task()
    assert task.grading is GradingLevel.LIVE
    said = load_task_folder(form, folder(tmp_path / "said", given | {"longshore.yaml": "grading: commit\n"}))
    assert said.require_task().grading is GradingLevel.COMMIT
    for level in GradingLevel:
        other = replace(task, grading=level)
        written = write_task_folder(form, other, tmp_path / level)
        assert load_task_folder(form, written).require_task() == other
        if level is GradingLevel.LIVE:
            assert "grading" not in "".join(each.read_text() for each in written.glob("longshore.yaml"))


def test_a_live_task_with_a_report_that_its_agent_can_write_is_a_problem(tmp_path: Path):
    extra = {"longshore.yaml": "grading: live\nreports: [/app/report.json, /logs/verifier/reward.txt]\n"}
    problems = problems_of(load_task_folder(HARBOR, folder(tmp_path, HARBOR_FILES | extra)))
    assert "reports: at grading level live an agent can write /app/report.json" in problems
    assert "reward.txt" not in problems


def test_foils_are_read_by_name_and_invalid_ones_are_named(tmp_path: Path):
    foils = {"foils/near-1.sh": "# too little\ntrue\n", "foils/cheat.sh": "# nothing\n"}
    task = load_task_folder(HARBOR, folder(tmp_path / "a", HARBOR_FILES | foils)).require_task()
    assert task.foils == {"near-1": "# too little\ntrue\n", "cheat": "# nothing\n"}
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, tmp_path / "again")).require_task() == task
    odd = {"foils/notes.txt": "x\n", "foils/deep/x.sh": "x\n", "foils/a b.sh": "x\n"}
    problems = load_task_folder(HARBOR, folder(tmp_path / "b", HARBOR_FILES | odd)).problems
    assert all(any(name in str(each) for each in problems) for name in ("notes.txt", "deep/x.sh", "'a b'"))


def test_newer_harbor_keys_are_read(tmp_path: Path):
    text = (
        'artifacts = ["/work/out.csv"]\nsource = "somewhere"\n[verifier]\nenvironment_mode = "separate"\n'
        '[environment]\ndocker_image = "python:3.13"\nmemory_mb = 512\nallow_internet = true\nenv = {A = "b"}\n'
    )
    task = load_task_folder(HARBOR, folder(tmp_path, HARBOR_FILES | {"task.toml": text})).require_task()
    assert (task.image, task.build, task.memory_mb, task.env) == ("python:3.13", None, 512, {"A": "b"})
    assert (task.grading, task.artifacts) == (GradingLevel.ARTIFACTS, ("/logs/artifacts", "/work/out.csv"))
    assert task.network == TaskNetwork(agent=NetworkMode.FULL, verify=NetworkMode.FULL)
    assert task.metadata == {"harbor.source": "somewhere"}


MEMORY_FOLDERS = """
services:
  client:
    build: .
    shm_size: 1gb
    tmpfs: /run
    volumes: ["cache:/var/cache/x", "/scratch"]
  db:
    image: postgres:16
    shm_size: 256m
    tmpfs: ["/tmp:size=64m", "/run"]
    volumes: ["data:/var/lib/postgresql:rw"]
volumes:
  cache:
  data: {}
"""


def test_folders_in_memory_and_volumes_of_one_service_are_those_of_its_container(tmp_path: Path):
    task = terminal_bench.load_task(folder(tmp_path, TB | {"docker-compose.yaml": MEMORY_FOLDERS}))
    (db,) = task.services
    assert (task.shm_mb, task.tmpfs) == (1024, ("/run",))
    assert (db.shm_mb, db.tmpfs) == (256, ("/tmp:size=64m", "/run"))
    assert terminal_bench.load_task(terminal_bench.write_task(task, tmp_path / "written")) == task


SHARED = """
services:
  client:
    build: .
    volumes: ["./data:/data", "given:/given/", "./fixed:/fixed:ro", "own:/own"]
  db:
    image: postgres:16
    volumes: ["./data/:/var/data:ro", "given:/a", {type: volume, source: given, target: /b, read_only: true}]
  web:
    image: nginx
    volumes: ["./fixed:/fixed:ro"]
  debug:
    image: nginx
    profiles: [debug]
    volumes: ["own:/own"]
volumes: {given: , own: }
"""


@pytest.mark.parametrize("form", [terminal_bench.FORMAT, HARBOR], ids=["tb", "harbor"])
def test_volumes_of_several_services_are_shared_and_a_folder_that_nobody_writes_to_is_copied(
    tmp_path: Path, form: FolderFormat
):
    place, files = ("environment/", HARBOR_FILES) if form is HARBOR else ("", TB)
    text = SHARED.replace("client", "main") if form is HARBOR else SHARED
    shared = {f"{place}docker-compose.yaml": text, f"{place}data/x": "1", f"{place}fixed/y": "2"}
    task = load_task_folder(form, folder(tmp_path / "given", files | shared)).require_task()
    db, web = task.services
    assert task.volumes == (SharedFolder("folder.data", "/data"), SharedFolder("given", "/given"))
    assert db.volumes == (
        SharedFolder("folder.data", "/var/data", read_only=True),
        SharedFolder("given", "/a"),
        SharedFolder("given", "/b", read_only=True),
    )
    assert (task.read_only, web.volumes) == (("/fixed",), ())
    written = load_task_folder(form, write_task_folder(form, task, tmp_path / "written")).require_task()
    assert (written.volumes, written.services) == (task.volumes, task.services)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("cache:/var/cache/x", "cache:/var/cache/x:nocopy", "nocopy"),
        ("cache:/var", "/cache:/var", "volumes: '/cache' is not the task's own"),
        ("data: {}", "data: {driver: nfs}", "volumes.data"),
        ("data: {}", "other: {}", r"volumes: data \(Compose refuses it: name it below volumes, or write ./data for"),
    ],
)
def test_volumes_that_cannot_be_followed_are_named(tmp_path: Path, old: str, new: str, what: str):
    made = folder(tmp_path, TB | {"docker-compose.yaml": MEMORY_FOLDERS.replace(old, new)})
    with pytest.raises(TaskError, match=what):
        terminal_bench.load_task(made)


def test_terminal_bench_runs_tests_as_root(tmp_path: Path):
    task = terminal_bench.load_task(folder(tmp_path, TB | {"Dockerfile": "FROM a\nUSER bob\n"}))
    assert (task.agent_user, task.tests_user) == ("", "root")
    assert terminal_bench.load_task(terminal_bench.write_task(task, tmp_path / "written")) == task


def test_what_every_sandbox_has_and_a_user_may_be_asked_for(tmp_path: Path):
    lines = "cap_add: [CAP_SYS_CHROOT, setfcap, CHOWN, NET_BIND_SERVICE]\n    user: bob"
    compose = f"services:\n  client:\n    build: .\n    {lines}\n"
    task = terminal_bench.load_task(folder(tmp_path, TB | {"docker-compose.yaml": compose}))
    assert (task.agent_user, task.tests_user) == ("bob", "root")
    written = terminal_bench.write_task(task, tmp_path / "written")
    assert "longshore.yaml" not in {each.name for each in written.iterdir()}
    assert terminal_bench.load_task(written) == task


def test_harbor_services_are_read_from_the_compose_file(tmp_path: Path):
    compose = "services:\n  main: {depends_on: [db]}\n  db: {image: 'postgres:16'}\n"
    task = load_task_folder(
        HARBOR, folder(tmp_path, HARBOR_FILES | {"environment/docker-compose.yaml": compose})
    ).require_task()
    assert [(service.name, service.image) for service in task.services] == [("db", "postgres:16")]
    assert task.build is not None
    assert "docker-compose.yaml" not in task.build.files


def rows(path: Path, *values: object) -> Dataset:
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return load_tasks(path)


def test_both_openclaw_formats_and_miles_rows_refer_to_their_folders(tmp_path: Path):
    folder(tmp_path, TB, "seta_env/a")
    folder(tmp_path, HARBOR_FILES, "tasks/b")
    pointer = {
        "task_name": "first",
        "task_path": "seta_env/a",
        "instruction": "Row's.",
        "data_source": "terminal_bench",
    }
    message = [{"role": "user", "content": "Message's."}]
    first = rows(tmp_path / "1.jsonl", {"task": pointer}, {"task": pointer | {"task_path": "seta_env/none"}})
    second = rows(
        tmp_path / "2.jsonl",
        {"task": message, "metadata": pointer | {"task_path": "../outside"}},
        {"task": message, "metadata": pointer},
    )
    third = rows(
        tmp_path / "3.jsonl", {"label": "b", "prompt": message, "metadata": {"agent_name": "x", "instance_id": "b"}}
    )
    assert [(task.id, task.instruction, task.workdir) for task in first.tasks] == [("first", "Row's.", "/srv/web")]
    assert "1.jsonl:2: " in str(first.problems[0])
    assert "none is missing" in str(first.problems[0])
    assert [(task.id, task.instruction) for task in second.tasks] == [("first", "Message's.")]
    assert "2.jsonl:1" in str(second.problems[0])
    assert [(task.id, task.instruction, task.workdir) for task in third.tasks] == [("b", "Message's.", "/work")]


def test_a_swe_synth_sample_is_a_task_and_its_passing_patch_the_oracle(tmp_path: Path):
    extra = {
        "all_passed": True,
        "all_result": "9/9",
        "bug_types": ["off-by-one"],
        "problem_statement": "It fails.",
        "fix_patch": "diff",
    }
    sample = {"task_id": 7, "score": 1.0, "model": "m", "extra": extra}
    failed = {"task_id": 8, "score": 0.0, "extra": extra | {"all_passed": False}}
    found = rows(tmp_path / "s.jsonl", sample, sample, failed, {"task_id": 9})
    good, bad = found.tasks
    assert (good.id, good.instruction, good.family) == ("swe-synth-7", "It fails.", "off-by-one")
    assert (good.solution_files, good.metadata["sample.extra.all_result"]) == ({"fix.patch": b"diff"}, "9/9")
    assert (bad.solution, bad.metadata["sample.extra.fix_patch"]) == ("", "diff")
    assert [str(problem.folder).rpartition(":")[2] for problem in found.problems] == ["4"]
    (tmp_path / "s.json").write_text(json.dumps([sample, failed]))
    assert load_tasks(tmp_path / "s.json").tasks == found.tasks


CASES = [
    ({"inputs": ["1\n", ["2", "3"]], "outputs": ["a", "b"]}, [("prints", "1\n", "a"), ("prints", "2\n3", "b")]),
    ('{"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"}', [("call", ("add", [1, 2]), 3)]),
    (["assert f(1) == 2"], [("asserts", "assert f(1) == 2", None)]),
    ("assert f(1) == 2\n", [("asserts", "assert f(1) == 2\n", None)]),
    ("42", []),
    ({"inputs": [1], "outputs": []}, []),
    ('{"inputs": [[1], 2], "outputs": [1, 2], "fn_name": "add"}', []),
    (["not python ("], []),
]


@pytest.mark.parametrize(("truth", "cases"), CASES)
def test_a_ground_truth_is_parsed_into_test_cases(tmp_path: Path, truth: object, cases: list[code_rows.CodeCase]):
    row = {
        "data_source": "taco/x",
        "prompt": [{"role": "user", "content": "Add."}],
        "ability": "code",
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "agent_name": "tool_agent",
        "extra_info": {"index": 3},
    }
    assert code_rows.parse_cases(truth) == cases
    found = rows(tmp_path / "c.jsonl", row)
    if not cases:
        assert "holds no tests" in str(found.problems[0])
        return
    (task,) = found.tasks
    assert (task.id, task.family, task.instruction) == (
        "taco-x-3",
        "taco/x",
        f"Add.{code_rows.PROGRAM_INSTRUCTION}",
    )
    assert task.reply_program == "/app/solution.py"
    assert len(task.expected_tests) == len(cases)
    assert code_rows.FORMAT.write(task) == row


@pytest.mark.parametrize(
    ("source", "ability", "truth", "answer"),
    [
        ("deepscaler", "math", "\\frac{1}{2}", "\\frac{1}{2}"),
        ("numina_math", "", 42, "42"),
        ("gpqa_science", "chemistry", " B ", "B"),
        ("taco_code", "", "42", ""),
        ("x", "CODE", "42", ""),
        ("omni_math", "math", ["1", "2"], ""),
        ("omni_math", "math", "  ", ""),
        ("omni_math", "math", True, ""),
    ],
)
def test_a_ground_truth_without_tests_is_an_answer_unless_its_row_is_about_code(
    tmp_path: Path, source: str, ability: str, truth: object, answer: str
):
    """Otherwise a broken test would be an unreachable answer, or a math row could not be trained."""
    row = {
        "data_source": source,
        "prompt": [{"role": "user", "content": "What is it?"}],
        "ability": ability,
        "reward_model": {"ground_truth": truth},
        "agent_name": "tool_agent",
    }
    found = rows(tmp_path / "m.jsonl", row)
    if not answer:
        assert "holds no tests" in str(found.problems[0])
        return
    (task,) = found.tasks
    assert (task.answer, task.run_tests, task.tests) == (answer, "", {})
    assert task.instruction == f"What is it?{BOX_INSTRUCTION}"
    assert [each for each in find_task_warnings(task) if "graded" in each or "oracle" in each] == []
    assert code_rows.FORMAT.write(task) == row


@pytest.mark.parametrize(
    ("more", "problem", "remark"),
    [
        ({"reward_model": {"ground_truth": "7", "style": "rule-lighteval/MATH_v2"}}, "", ""),
        ({"reward_model": {"ground_truth": "7", "style": None}, "images": []}, "", "images"),
        ({"reward_model": {"ground_truth": "7", "style": "model"}}, "style is 'model'", ""),
        ({"reward_model": {"ground_truth": "7", "rubric": "Be kind."}}, "", "reward_model has keys"),
        ({"images": ["a.png"]}, "the row has images", "images"),
        ({"extra_info": {"index": 1, "tools_kwargs": {"a": {}}}}, "", "tools_kwargs"),
        ({"extra_info": {"index": 1, "tools_kwargs": {}}}, "", ""),
    ],
)
def test_what_a_row_asks_for_in_vain_is_named(tmp_path: Path, more: JsonRow, problem: str, remark: str):
    row: JsonRow = {"data_source": "m", "prompt": "What?", "reward_model": {"ground_truth": "7"}, "ability": "math"}
    found = rows(tmp_path / "m.jsonl", row | more)
    assert [problem in str(each) for each in found.problems] == ([True] if problem else [])
    if not problem:
        assert [remark in each.what for each in found.remarks] == ([True] if remark else [])


def test_parquet_rows_are_read_like_json_lines(tmp_path: Path):
    first = {
        "data_source": "taco",
        "prompt": [{"role": "user", "content": "Add."}],
        "ability": "code",
        "reward_model": {"ground_truth": json.dumps({"inputs": ["1 2"], "outputs": ["3"]}), "style": "rule"},
        "extra_info": {"index": 3},
    }
    second = first | {"reward_model": {"ground_truth": "42"}, "ability": "math", "extra_info": {"index": 4, "by": "x"}}
    lines = rows(tmp_path / "r.jsonl", first, second)
    table = load_tasks(write_parquet(tmp_path / "r.parquet", [first, second]))
    assert (*lines.problems, *table.problems) == ()
    assert [replace(task, id="") for task in table.tasks] == [replace(task, id="") for task in lines.tasks]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(TaskError, match="is not readable Parquet"):
        load_tasks(tmp_path / "broken.parquet")


@pytest.mark.parametrize(
    ("pack", "program"), [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")]
)
def test_a_compressed_file_is_named_with_what_unpacks_it(
    tmp_path: Path, pack: Callable[[bytes], bytes], program: str
) -> None:
    (tmp_path / "rows.jsonl.packed").write_bytes(pack(b'{"prompt": "a"}\n'))
    with pytest.raises(TaskError, match=rf"is compressed \(unpack it first: {program} /"):
        load_tasks(tmp_path / "rows.jsonl.packed")


@pytest.mark.parametrize("name", ["rows.csv", "rows.TSV"])
def test_a_table_of_text_is_named_with_what_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("question,answer\n1+1?,2\n")
    with pytest.raises(
        TaskError, match=r"is a table of text \(convert it: rows are JSON lines, a JSON array or Parquet"
    ):
        load_tasks(tmp_path / name)


def test_a_prompt_that_requests_a_box_is_kept_unchanged(tmp_path: Path):
    row = {
        "data_source": "m",
        "prompt": [{"role": "user", "content": "Put it in \\boxed{}."}],
        "ability": "math",
        "reward_model": {"ground_truth": "7"},
    }
    (task,) = rows(tmp_path / "m.jsonl", row).tasks
    assert task.instruction == "Put it in \\boxed{}."
    assert code_rows.FORMAT.write(task) == row


def test_a_damaged_row_is_named_by_its_line_and_the_others_are_read(tmp_path: Path):
    path = tmp_path / "g.jsonl"
    good = {"family": "sort", "seed": 1, "split": "train"}
    path.write_text(f"{json.dumps(good)}\n\n{{\n3\n{json.dumps(good | {'family': 'sorted'})}\n{json.dumps(good)}\n")
    found = load_tasks(path)
    assert [task.id for task in found.tasks] == ["sort-train-00000001"]
    places = [str(problem.folder).rpartition(":")[2] for problem in found.problems]
    assert places == ["3", "4", "5", "6"]
    assert "second task named" in str(found.problems[-1])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("FROM a\n", ""),
        ("FROM a\nWORKDIR /x\nWORKDIR y/../z\n", "/x/z"),
        ("FROM a AS b\nWORKDIR /x\nFROM c\n", ""),
        ("FROM a AS B\nWORKDIR /x\nFROM b\nWORKDIR y\n", "/x/y"),
        ("ARG D=/d\nFROM a\nARG E=/e\nWORKDIR ${E}/x\n", "/e/x"),
        ("FROM a\nWORKDIR ${Q:-/q}\n", "/q"),
        ("FROM a\nWORKDIR $Q\n", ""),
        ("FROM a\nWORKDIR y\n", ""),
        ("FROM a\nWORKDIR\t/x\n", "/x"),
        ("FROM a\nENV Q=\nWORKDIR /x/$Q\nWORKDIR ${Q:-y}\n", "/x/y"),
        ("FROM a\nWORKDIR $Q\nWORKDIR /x\n", "/x"),
        ("FROM a\nRUN <<EOF\nWORKDIR /no\nEOF\nWORKDIR /yes\n", "/yes"),
        ("FROM a\nRUN python3 -c 'print(1 <<20)' && echo $((1<<4))\nWORKDIR /yes\n", "/yes"),
        ("FROM a\nRUN echo $((1 <<20 ))\nWORKDIR /yes\n", "/yes"),
        ("FROM a\nRUN cat <<< hello\nWORKDIR /yes\n", "/yes"),
        ("FROM a\nCOPY <<-'E.F' <<G /x/\nWORKDIR /no\nE.F\nWORKDIR /no\nG\nWORKDIR /yes\n", "/yes"),
        ("FROM a\nRUN x \\\n# comment\nWORKDIR /no\nWORKDIR /yes\n", "/yes"),
        ("FROM a AS one\nWORKDIR /one\nFROM b AS two\nWORKDIR /two\n", "/two"),
    ],
)
def test_the_working_directory_is_where_the_image_would_start(text: str, where: str):
    assert find_workdir(parse_instructions(text), {}) == where


BUILDS = {
    "{context: ./, dockerfile: ./Dockerfile}": "",
    "{context: ./client/}": "client/",
    "./a/../client": "client/",
}


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("step", ["", "RUN make\n"], ids=["plain", "built"])
def test_the_working_directory_is_read_from_any_dockerfile_path(tmp_path: Path, build: str, step: str):
    compose = f"services:\n  client:\n    build: {build}\n"
    files = {path: text for path, text in TB.items() if path != "Dockerfile"}
    files |= {"docker-compose.yaml": compose, f"{BUILDS[build]}Dockerfile": f"FROM a\n{step}WORKDIR /srv/w\n"}
    task = terminal_bench.load_task(folder(tmp_path, files))
    assert (task.workdir, task.image) == ("/srv/w", "" if step else "a")


@pytest.mark.parametrize("line", ["RUN make", "WORKDIR $WHERE", ""])
def test_a_task_that_names_no_working_directory_starts_in_its_images(tmp_path: Path, line: str):
    task = terminal_bench.load_task(folder(tmp_path / "a", TB | {"Dockerfile": f"FROM a\n{line}\n"}))
    assert task.workdir == ""
    assert terminal_bench.load_task(terminal_bench.write_task(task, tmp_path / "again")) == task


def test_a_variable_withheld_from_toolchain_programs_is_warned_about(tmp_path: Path):
    message = "its tests run on the toolchain's programs, which do not get LD_PRELOAD, PYTHONPATH from its environment"
    env = 'ENV PYTHONPATH=/opt/lib MODE=prod LD_PRELOAD="x y.so" HOME=/root\n'
    for files, warned in (
        ({"Dockerfile": f"FROM a\n{env}RUN make\n"}, True),
        ({"Dockerfile": f"FROM a AS b\n{env}FROM a\nENV MODE=prod\nRUN make\n"}, False),
        ({"Dockerfile": f"FROM a\n{env}RUN make\n", "run-tests.sh": "#!/bin/sh\npython3 -m pytest /tests\n"}, False),
    ):
        task = terminal_bench.load_task(folder(tmp_path, TB | {"run-tests.sh": PROJECT} | files))
        assert (message in list(find_task_warnings(task))) is warned


def test_the_working_directory_is_the_target_stages():
    assert (
        find_workdir(parse_instructions("FROM a AS one\nWORKDIR /one\nFROM b AS two\nWORKDIR /two\n"), {}, "one")
        == "/one"
    )


@pytest.mark.parametrize(
    "text",
    ["FROM a\nFROM b\n", "FROM a\nRUN x\n", "FROM $A\n", "WORKDIR /x\n", "FROM a\nCOPY setup.sh /tmp/setup.sh\n"],
)
def test_a_dockerfile_with_more_than_image_and_workdir_needs_a_build(text: str):
    assert parse_plain_dockerfile(text) is None


@pytest.mark.parametrize(
    ("run", "tests", "names"),
    [
        (
            "pytest /tests/test_outputs.py",
            "class TestA:\n def test_b(self): pass\ndef test_c(): pass",
            ("TestA::test_b", "test_c"),
        ),
        ("pytest /tests/test_outputs.py -k fast", "def test_c(): pass", ()),
        ("/venv/bin/python3.11 -I -m pytest /tests/test_outputs.py -rA", "def test_c(): pass", ("test_c",)),
        ("python -m venv v\nuv run -m pytest /tests/test_outputs.py", "def test_c(): pass", ("test_c",)),
        ("python -m pytest -m fast /tests/test_outputs.py", "def test_c(): pass", ()),
        ("uv run pytest -m fast /tests/test_outputs.py", "def test_c(): pass", ()),
        ("pytest /tests", "def test_c(): pass", ()),
        ("pytest /tests/test_outputs.py", "@pytest.mark.parametrize('a', [1])\ndef test_c(a): pass", ()),
        ("pytest /tests/test_outputs.py", "if x:\n def test_c(): pass", ()),
        ("pytest /tests/test_outputs.py", "class TestA(Base):\n def test_b(self): pass", ()),
        ("pytest /tests/test_outputs.py", "def test_c(:", ()),
        ("cd /tests && pytest test_outputs.py", "def test_c(): pass", ("test_c",)),
        ("uvx -w pytest \\\n pytest --ctrf /logs/c.json /tests/test_outputs.py", "def test_c(): pass", ("test_c",)),
        ("pytest /tests/test_outputs.py /tests/test_more.py", "def test_c(): pass", ()),
        ("pytest /tests/test_outputs.py $TEST_DIR/more", "def test_c(): pass", ()),
        ("pytest /tests/test_outputs.py\npytest /tests/test_more.py", "def test_c(): pass", ()),
    ],
)
def test_only_unambiguous_test_names_are_expected(run: str, tests: str, names: tuple[str, ...]):
    assert find_expected_tests(run, {"test_outputs.py": tests.encode()}) == names


@pytest.mark.parametrize(
    "more",
    [
        "@pytest.fixture\ndef test_data(): pass",
        "@fixture(scope='module')\ndef test_data(): pass",
        "class Helper:\n def test_connection(self): pass",
        "class MyError(Exception):\n pass",
        "import test_tools\nfrom pathlib import Path\nROOT = Path('/app')",
        "def helper():\n def test_inner(): pass",
        "@retry(3)\ndef helper(params): pass",
    ],
)
def test_definitions_that_are_not_tests_are_not_expected(more: str):
    tests = {"test_outputs.py": f"def test_c(): pass\n{more}".encode()}
    assert find_expected_tests("pytest /tests/test_outputs.py", tests) == ("test_c",)


@pytest.mark.parametrize(
    "more",
    [
        "class Checks(unittest.TestCase):\n def test_b(self): pass",
        "class Checks(Shared, TestCase): pass",
        "class TestA:\n class TestB:\n  def test_b(self): pass",
        "class TestA:\n test_b = make(0)",
        "class TestA:\n def __init__(self): pass\n def test_b(self): pass",
        "@each\nclass TestA:\n def test_b(self): pass",
        "test_z = make(0)",
        "for n in range(3): globals()[f'test_{n}'] = make(n)",
        "from shared import test_more",
        "from shared import *",
        "try:\n from shared import TestMore\nexcept ImportError: pass",
        "each = pytest.mark.parametrize('x', [1, 2])\n@each\ndef test_b(x): pass",
        "@pytest.fixture(params=[1, 2])\ndef case(request): return request.param",
        "@pytest.fixture(**settings)\ndef case(request): return request.param",
        "def pytest_generate_tests(metafunc): pass",
        "pytestmark = pytest.mark.parametrize('x', [1, 2])",
        "test_c.__test__ = False",
    ],
)
def test_a_file_with_possibly_more_tests_gives_no_expected_names(more: str):
    tests = {"test_outputs.py": f"def test_c(): pass\n{more}".encode()}
    assert find_expected_tests("pytest /tests/test_outputs.py", tests) == ()


@pytest.mark.parametrize(
    ("conftest", "names"),
    [
        ("@pytest.fixture(params=[1, 2])\ndef case(request): pass", ()),
        ("def pytest_collection_modifyitems(items): pass", ()),
        ("def pytest_configure(config): pass", ("test_c",)),
    ],
)
def test_a_conftest_that_may_add_tests_gives_no_expected_names(conftest: str, names: tuple[str, ...]):
    tests = {"test_outputs.py": b"def test_c(case): pass", "conftest.py": conftest.encode()}
    assert find_expected_tests("pytest /tests/test_outputs.py", tests) == names


@pytest.mark.parametrize(
    ("dockerfile", "files", "setup"),
    [
        ("FROM a\nWORKDIR /srv\n", {}, ""),
        ("FROM a\nCOPY rootfs/ /\n", {"/etc/a": b"x"}, ""),
        ("FROM a\nCOPY setup.sh /tmp/setup.sh\nRUN sh /tmp/setup.sh\n", {}, "exit 1\n"),
    ],
)
@pytest.mark.parametrize(("files_of", "inside"), [(TB, ""), (HARBOR_FILES, "environment/")])
def test_only_what_the_dockerfile_copies_is_in_the_sandbox(
    tmp_path: Path, files_of: dict[str, str], inside: str, dockerfile: str, files: dict[str, bytes], setup: str
):
    """Otherwise a script that lies beside a published task's Dockerfile is run, and no other harness runs it."""
    more = {f"{inside}Dockerfile": dockerfile, f"{inside}rootfs/etc/a": "x", f"{inside}setup.sh": "exit 1\n"}
    (task,) = load_tasks(folder(tmp_path, files_of | more)).tasks
    assert (task.image, task.files, task.setup) == ("a", files, setup)


def test_what_a_plain_dockerfile_copies_must_be_there(tmp_path: Path):
    text = "FROM a\nCOPY rootfs/ /\nCOPY setup.sh /tmp/setup.sh\nRUN sh /tmp/setup.sh\n"
    found = load_task_folder(terminal_bench.FORMAT, folder(tmp_path, TB | {"Dockerfile": text}))
    assert [each.what for each in found.problems] == ["rootfs is missing or empty", "setup.sh is missing or empty"]


def test_services_are_empty_without_a_compose_file():
    assert ComposeFacts().services == Task("a", "b").services == ()


@pytest.mark.parametrize("form", [None, "harbor"])
def test_tasks_in_category_folders_are_found(tmp_path: Path, form: str | None):
    for name in ("data/one", "data/two", "web/three", "four"):
        folder(tmp_path, HARBOR_FILES, name)
    (tmp_path / "web" / ".hidden").mkdir()
    (tmp_path / "notes").mkdir()
    found = load_tasks(tmp_path, form)
    assert [task.id for task in found.tasks] == ["one", "two", "four", "three"]
    assert [problem.folder.name for problem in found.problems] == ["notes"]


def test_hidden_tasks_and_links_to_nothing_are_named_and_other_hidden_folders_are_not(tmp_path: Path):
    for name in ("one", "web/two", ".three", "web/.four", ".old/five"):
        folder(tmp_path, HARBOR_FILES, name)
    for name in (".git/objects", ".github/workflows/more", "one/.cache"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("gone", "web/lost", ".lock"):
        (tmp_path / name).symlink_to("nowhere")
    found = load_tasks(tmp_path)
    assert [task.id for task in found.tasks] == ["one", "two"]
    assert [(str(each.folder.relative_to(tmp_path)), each.what) for each in found.problems] == [
        (".old", "is hidden"),
        (".three", "is hidden"),
        ("gone", "is a link to nothing"),
        ("web/.four", "is hidden"),
        ("web/lost", "is a link to nothing"),
    ]
    assert [task.id for task in load_tasks(tmp_path / ".three").tasks] == [".three"]


def test_folders_whose_names_no_id_can_have_are_tasks_of_their_own(tmp_path: Path):
    names = ("a-b", "a b", "a  b", "\u4efb\u52a1\u4e00", "\u4efb\u52a1\u4e8c", "caf\u00e9", "v1.0_x")
    for name in names:
        folder(tmp_path, HARBOR_FILES, name)
    found = load_tasks(tmp_path)
    assert found.problems == ()
    assert [task.id for task in found.tasks] == [
        "a-b-6e12db73",
        "a-b-c8687a08",
        "a-b",
        "caf-850f7dc4",
        "v1.0_x",
        "task-8614956a",
        "task-87c6de6b",
    ]
    decomposed = folder(tmp_path / "mac", HARBOR_FILES, "cafe\u0301")
    assert [task.id for task in load_tasks(decomposed.parent).tasks] == ["caf-850f7dc4"]


def test_each_task_folder_is_read_in_its_own_format(tmp_path: Path):
    folder(tmp_path, HARBOR_FILES, "a")
    folder(tmp_path, TB, "b")
    folder(tmp_path, TB, "category/c")
    found = load_tasks(tmp_path)
    assert ([task.id for task in found.tasks], found.problems) == (["a", "b", "c"], ())
    named = load_tasks(tmp_path, "harbor")
    assert [task.id for task in named.tasks] == ["a"]
    assert [(each.folder.name, each.what) for each in named.problems] == [
        ("b", "is a task in the format terminal_bench"),
        ("c", "is a task in the format terminal_bench"),
    ]


def test_a_task_that_is_too_deep_and_rows_beside_tasks_are_named(tmp_path: Path):
    for name in ("one", "category/two", "category/more/three"):
        folder(tmp_path, HARBOR_FILES, name)
    (tmp_path / "only-rows").mkdir()
    for name in ("rows.jsonl", "category/more.parquet", "only-rows/rows.jsonl", "one/data.jsonl"):
        (tmp_path / name).touch()
    found = load_tasks(tmp_path)
    assert [task.id for task in found.tasks] == ["two", "one"]
    deep, rows = map(str, found.problems)
    assert "three/task.toml is too deep" in deep
    assert "task.toml or task.yaml is missing (rows.jsonl in it is not read" in rows
    assert [notice.partition(" is not read")[0] for notice in found.notices] == [
        str(tmp_path / "rows.jsonl"),
        str(tmp_path / "category/more.parquet"),
    ]
