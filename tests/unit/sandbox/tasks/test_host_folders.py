"""If these fail, a compose file's volume of the task's own files is lost, or shows an agent the solution."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.formats import terminal_bench
from sandbox.tasks.formats.folders import load_task_folder
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.validation.task_warnings import find_task_warnings

FILES = {
    "task.yaml": "instruction: Do it.\n",
    "run-tests.sh": "true\n",
    "solution.sh": "true\n",
    "tests/test_outputs.py": "def test_a(): pass\n",
    "data/rows.csv": "1\n",
    "data/run.sh": "#!/bin/sh\n",
}


def load(folder: Path, client: str, dockerfile: str = "") -> LoadedTask:
    database = "{image: 'postgres:16', volumes: ['./data:/docker-entrypoint-initdb.d:ro']}"
    text = f"services:\n  client: {{{client}}}\n  db: {database}\n"
    for path, content in (FILES | {"docker-compose.yaml": text, "Dockerfile": dockerfile}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    (folder / "data/run.sh").chmod(0o755)
    return load_task_folder(terminal_bench.FORMAT, folder)


def build_of(task: Task) -> ImageBuild:
    assert task.build is not None
    return task.build


def added(build: ImageBuild) -> list[str]:
    """Return the lines that the volumes add to the Dockerfile."""
    lines = build.files[build.dockerfile].decode().splitlines()
    return lines[next(n for n, line in enumerate(lines) if "rm -rf" in line or ".longshore" in line) :]


def test_a_folder_replaces_the_images_own_and_keeps_its_modes(tmp_path: Path) -> None:
    loaded = load(tmp_path / "t", "image: 'debian:12', volumes: ['./data:/data:ro', './data/run.sh:/bin/run']")
    task = loaded.require_task()
    build = build_of(task)
    assert build.files.keys() == {"Dockerfile", ".longshore-volumes/data/rows.csv", ".longshore-volumes/data/run.sh"}
    assert build.executable == {".longshore-volumes/data/run.sh"}
    assert added(build) == [
        'COPY [".longshore-volumes/data/run.sh", "/bin/run"]',
        'RUN ["sh", "-c", "rm -rf /data && mkdir -p /data"]',
        'COPY [".longshore-volumes/data", "/data/"]',
    ]
    assert task.read_only == ("/data",)
    (db,) = task.services
    assert db.build is not None
    assert db.build.files["Dockerfile"].startswith(b"FROM postgres:16\n")
    assert loaded.remarks == ("docker-compose.yaml: services db and client have a copy of 'data/run.sh' each",)
    assert terminal_bench.load_task(terminal_bench.write_task(task, tmp_path / "again")) == task


def test_the_whole_task_is_mounted_without_its_solution(tmp_path: Path) -> None:
    task = load(tmp_path, "build: ., volumes: ['.:/app']", "FROM debian\nRUN true\n").require_task()
    mounted = {path.partition("/")[2] for path in build_of(task).files if path.startswith(".longshore-volumes/")}
    assert {"tests/test_outputs.py", "run-tests.sh", "data/rows.csv"} <= mounted
    assert "solution.sh" not in mounted
    assert "its image contains tests, which the agent can read" in find_task_warnings(task)


def test_a_folder_that_is_not_there_is_empty_and_users_stay(tmp_path: Path) -> None:
    stages = "FROM debian AS a\nUSER bob\nFROM debian\n"
    task = load(tmp_path, "build: {context: ., target: a}, volumes: ['./out:/out']", stages).require_task()
    build = build_of(task)
    lines = build.files["Dockerfile"].decode().splitlines()
    assert lines[3:] == ["FROM a", "USER 0:0", 'RUN ["sh", "-c", "rm -rf /out && mkdir -p /out"]', "USER bob"]
    assert not build.target


@pytest.mark.parametrize("source", ["/etc", "../other", "~/x", "./a/../../b"])
def test_other_folders_of_the_host_are_a_problem(tmp_path: Path, source: str) -> None:
    (problem,) = load(tmp_path, f"image: a, volumes: ['{source}:/x']").problems
    assert "is not the task's own" in problem.what


def test_a_read_only_file_is_remarked_on(tmp_path: Path) -> None:
    loaded = load(tmp_path, "image: a, volumes: [{type: bind, source: ./data/rows.csv, target: /x, read_only: true}]")
    assert loaded.require_task().read_only == ()
    assert ["read-only for other users than root" in each for each in loaded.remarks] == [True]
