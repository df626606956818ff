"""If these fail, a generated task changes in a round trip, accepts unreadable input, or leaks held-out names into
training."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES, HELD_OUT_FAMILY
from sandbox.tasks.formats.generated.generator import held_out_tasks, make_task, training_families, training_tasks
from sandbox.tasks.formats.generated.shell_checks import SUMMARY_HEADER
from sandbox.tasks.formats.generated.vocabulary import SIZES, WORDS
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.terminal_bench import load_task, write_task
from sandbox.tasks.task import Task, TaskError
from tests.support.tasks.task_files import solution_command, wrong_commands

FULL = Task(
    id="full-1",
    instruction='Say "hi" — twice.',
    family="files",
    image="debian:bookworm-slim",
    setup="touch /app/ready\n",
    files={"/app/a/b.bin": b"\x00\xff\n", "/etc/motd": b"hello\n", "/app/empty": b""},
    tests={"test_outputs.py": b"def test_x(): pass\n", "deep/data": b"\x00"},
    run_tests="#!/bin/bash\npytest $TEST_DIR\n",
    expected_tests=("test_x",),
    solution="echo hi\n",
    workdir="/work",
    agent_timeout_s=12.5,
    test_timeout_s=7.0,
    memory_mb=512,
    pids=32,
    cpus=0.5,
)


@pytest.mark.parametrize("task", [FULL, *held_out_tasks(0, 1)], ids=lambda task: task.id)
def test_a_written_task_is_read_back_equal(tmp_path: Path, task: Task):
    assert load_task(write_task(task, tmp_path)) == task


def test_a_task_is_never_written_over_another(tmp_path: Path):
    write_task(FULL, tmp_path)
    with pytest.raises(TaskError, match=r"full-1: exists already"):
        write_task(FULL, tmp_path)


def terminal_bench(folder: Path) -> Path:
    """Write a folder as Terminal-Bench itself writes it."""
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/test_outputs.py").write_text("def test_x(): pass\n")
    (folder / "run-tests.sh").write_text("#!/bin/bash\npytest $TEST_DIR -rA\n")
    (folder / "solution.sh").write_text("#!/bin/bash\necho hi > hi\n")
    (folder / "Dockerfile").write_text("# the image\nFROM python:3.13\n\nWORKDIR /srv\n")
    (folder / "task.yaml").write_text(
        "instruction: |-\n  Say hi.\nauthor_name: x\ndifficulty: easy\ncategory: files\nparser_name: pytest\n"
        "max_agent_timeout_sec: 180.0\nrun_tests_in_same_shell: false\n"
    )
    (folder / "docker-compose.yaml").write_text(
        "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n"
        "    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}\n"
        "    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}\n"
        '    command: [ "sh", "-c", "sleep infinity" ]\n    environment:\n      - TEST_DIR=${T_BENCH_TEST_DIR}\n'
        "    volumes:\n      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n"
    )
    return folder


def test_a_terminal_bench_folder_is_a_task(tmp_path: Path):
    task = load_task(terminal_bench(tmp_path / "say-hi"))
    assert (task.instruction, task.image, task.workdir, task.family) == ("Say hi.", "python:3.13", "/srv", "files")
    assert (task.agent_timeout_s, task.test_timeout_s) == (180.0, 60.0)
    assert task.expected_tests == ()


def _no_agent(f: Path):
    (f / "docker-compose.yaml").write_text("services:\n  db:\n    image: postgres\n  web:\n    image: nginx\n")


MALFORMED = {
    "no description": (lambda f: (f / "task.yaml").unlink(), "task.yaml is missing"),
    "no instruction": (lambda f: (f / "task.yaml").write_text("difficulty: easy\n"), "task.yaml: instruction"),
    "no yaml": (lambda f: (f / "task.yaml").write_text("a: [\n"), "not readable YAML"),
    "empty yaml": (lambda f: (f / "task.yaml").write_text(""), "task.yaml: the whole file"),
    "endless": (
        lambda f: (f / "task.yaml").write_text("instruction: x\nmax_agent_timeout_sec: -1\n"),
        "max_agent_timeout_sec",
    ),
    "no tests": (lambda f: (f / "run-tests.sh").unlink(), "run-tests.sh is missing"),
    "nothing to copy": (lambda f: (f / "Dockerfile").write_text("FROM a\nCOPY x /\n"), "copies 'x'"),
    "no image": (lambda f: (f / "Dockerfile").write_text("# nothing\n"), "names no image"),
    "empty image": (lambda f: (f / "Dockerfile").write_text("FROM\nRUN true\n"), "line 1: FROM"),
    "no agent": (_no_agent, "services db, web"),
    "devices": (
        lambda f: (f / "docker-compose.yaml").write_text("services:\n  client:\n    devices: ['/dev/kvm']\n"),
        "services.client: devices",
    ),
    "foreign volume": (
        lambda f: (f / "docker-compose.yaml").write_text("services:\n  client:\n    volumes: ['/:/host']\n"),
        "'/' is not the task's own",
    ),
    "own key": (lambda f: (f / "longshore.yaml").write_text("memory: 3\n"), "longshore.yaml: memory"),
    "binary script": (lambda f: (f / "run-tests.sh").write_bytes(b"\xff\xfe"), "run-tests.sh is not readable text"),
    "link": (lambda f: (f / "tests/link").symlink_to("/etc/passwd"), "tests/link is not a regular file"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_malformed_folder_is_named_and_the_others_are_loaded(tmp_path: Path, kind: str):
    spoil, what = MALFORMED[kind]
    for name in ("a-good", "b-bad", "c-good"):
        terminal_bench(tmp_path / name)
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("no task\n")
    spoil(tmp_path / "b-bad")
    found = load_tasks(tmp_path, "terminal_bench")
    assert [task.id for task in found.tasks] == ["a-good", "c-good"]
    (problem,) = found.problems
    assert problem.folder == tmp_path / "b-bad"
    assert what in str(problem)
    assert "b-bad" in str(problem)


def test_a_missing_data_set_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(TaskError, match="nowhere: is missing"):
        load_tasks(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(TaskError, match="file: is not a folder"):
        load_tasks(tmp_path / "file", "terminal_bench")


def texts_of(tasks: Iterable[Task]) -> set[str]:
    """Return all text of an instance: its instruction, its paths and its contents."""
    return {
        text
        for task in tasks
        for text in (task.instruction, *task.files, *(data.decode("latin-1") for data in task.files.values()))
    }


WORD = "|".join(WORDS)


def names(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(rf"(?:{WORD})-(?:{WORD})", text)}


def sizes_of(task: Task) -> list[int]:
    """Return the lines of each file, including those in an archive; for empty files, their number."""
    texts = [data for path, data in task.files.items() if data and not path.endswith(".tar")]
    for path, data in task.files.items():
        if path.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                texts += [file.read() for member in archive if (file := archive.extractfile(member))]
    lines = [len(data.splitlines()) for data in texts]
    return lines or ([len(task.files)] if task.files else [])


def test_held_out_names_contents_and_sizes_do_not_occur_in_training():
    training = [task for seed in range(3) for task in training_tasks(seed, 900)]
    trained = texts_of(training)
    sizes = {size for task in training for size in sizes_of(task)}
    assert HELD_OUT_FAMILY not in {task.family for task in training}
    for seed in range(3):
        held_out = held_out_tasks(seed, 20)
        assert {task.family for task in held_out} == set(FAMILIES)
        assert not names(texts_of(held_out)) & names(trained)
        assert not (texts_of(held_out) & trained) - {""}
        assert not {size for task in held_out for size in sizes_of(task)} & sizes
        assert len({task.instruction for task in held_out}) == len(held_out)


def test_every_instance_names_its_files_and_file_sizes_are_those_of_its_split():
    for split in TaskSplit:
        for family in FAMILIES:
            task = make_task(family, 1, split)
            assert names([task.instruction])
            assert all(size in SIZES[split] for size in sizes_of(task))
            assert bool(sizes_of(task)) == (family not in {"create", "directories"})


def test_held_out_instructions_use_only_words_of_training():
    trained = {word for task in training_tasks(0, 900) for word in re.findall(r"\w+", task.instruction)}
    held_out = {word for task in held_out_tasks(0, 20) for word in re.findall(r"\w+", task.instruction)}
    assert held_out <= trained


def test_any_family_can_be_held_out_or_none():
    assert "sort" not in {task.family for task in training_tasks(0, 100, held_out_family="sort")}
    assert len(training_families("")) == len(FAMILIES)
    assert held_out_tasks(0, 1, held_out_family="sort")[-1].family == "sort"
    assert len(held_out_tasks(0, 1, held_out_family="")) == len(FAMILIES)
    with pytest.raises(UserError, match="no task family 'sorted'"):
        training_families("sorted")


def test_each_training_batch_takes_the_families_in_turn():
    names = [task.family for task in training_tasks(1, 4 * len(training_families()))]
    assert names[: len(training_families())] == list(training_families()) == names[-len(training_families()) :]


def test_tasks_are_the_same_in_every_process_and_ids_are_unique():
    assert make_task("count", 3, TaskSplit.TRAIN) == make_task("count", 3, TaskSplit.TRAIN)
    assert make_task("count", 3, TaskSplit.TRAIN) != make_task("count", 4, TaskSplit.TRAIN)
    ids = [task.id for task in (*training_tasks(0, 400), *training_tasks(1, 400), *held_out_tasks(0, 9))]
    assert len(set(ids)) == len(ids)


def test_no_word_contains_another():
    assert not [(a, b) for a in WORDS for b in WORDS if a != b and a in b]


TOOLS = {"stat", "readlink"}
SHELL = shutil.which("dash") or "sh"


@pytest.mark.parametrize("family", FAMILIES)
def test_tests_are_plain_sh_with_at_most_three_checks_and_a_summary(family: str, tmp_path: Path):
    task = make_task(family, 5, TaskSplit.HELD_OUT)
    script = task.tests["check.sh"].decode()
    assert task.run_tests.startswith("#!/bin/sh\n")
    assert script.startswith("#!/bin/sh\n")
    assert 1 <= len(task.expected_tests) <= 3
    assert set(re.findall(r"\$\((\w+)", script)) <= TOOLS
    local = script.replace("cd /app", f"cd {tmp_path}")
    done = subprocess.run([SHELL, "-c", local], capture_output=True, text=True, timeout=30, check=False)
    first, *verdicts = done.stdout.splitlines()
    assert first == SUMMARY_HEADER
    assert [line.split()[1] for line in verdicts] == list(task.expected_tests)
    assert "FAILED" in done.stdout


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"mode"}))
def test_the_right_command_passes_and_every_mistake_fails(family: str, tmp_path: Path):
    for seed in range(2):
        task = make_task(family, seed, TaskSplit.TRAIN)
        right, *wrong = solution_command(task), *wrong_commands(task), "true"
        assert passes(task, right, tmp_path / f"right{seed}")
        for number, command in enumerate(wrong):
            assert not passes(task, command, tmp_path / f"wrong{seed}-{number}"), command


def passes(task: Task, command: str, folder: Path) -> bool:
    """Run our own command in a folder that stands for the sandbox, and the tests after it."""
    folder.mkdir()
    for path, data in task.files.items():
        file = folder / Path(path).relative_to(task.workdir)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    check = task.tests["check.sh"].decode().replace(f"cd {task.workdir}", f"cd {folder}")
    for script in (command, check):
        done = subprocess.run(
            [SHELL, "-c", script], cwd=folder, capture_output=True, text=True, timeout=30, check=False
        )
    return "FAILED" not in done.stdout and done.stdout.count("PASSED") == len(task.expected_tests)
