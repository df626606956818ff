"""Terminal-Bench 1 directories: one folder per task.

Read: ``task.yaml`` (instruction, time limits, category), ``run-tests.sh``, ``tests/``, ``solution.sh`` (optional), and
``Dockerfile`` and ``docker-compose.yaml`` as far as they only name an image and a working directory.  What a task needs
beyond that has three files of ours, which Terminal-Bench itself ignores:

* ``rootfs/``: files as they lie in the sandbox before the agent starts (``rootfs/app/a.txt`` is ``/app/a.txt``);
* ``setup.sh``: run in the working directory before the agent starts;
* ``longshore.yaml``: family, expected tests, working directory, memory, processes and CPUs.

A task that cannot be used is a problem with its folder's name; the others are loaded all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.filesystem import whole_folder
from sandbox.tasks.task import BASE_IMAGE, Task, TaskError

_SERVICE = "client"
_FROM = re.compile(r"FROM\s+(\S+)", re.IGNORECASE)
_WORKDIR = re.compile(r"WORKDIR\s+(/\S*)", re.IGNORECASE)
_OURS = ("T_BENCH_", "TEST_DIR")
"""Variables that Terminal-Bench's own harness sets."""

Positive = Annotated[float, Field(gt=0)]


class _TaskYaml(BaseModel):
    """The fields that we use; Terminal-Bench has more."""

    model_config = ConfigDict(extra="ignore")
    instruction: Annotated[str, Field(min_length=1)]
    category: str = ""
    max_agent_timeout_sec: Positive = 360.0
    max_test_timeout_sec: Positive = 60.0


class _OwnYaml(BaseModel):
    """``longshore.yaml``."""

    model_config = ConfigDict(extra="forbid")
    family: str = ""
    expected_tests: tuple[str, ...] = ()
    workdir: Annotated[str, Field(pattern="^/")] | None = None
    memory_mb: Annotated[int, Field(gt=0)] = 256
    pids: Annotated[int, Field(gt=0)] = 64
    cpus: Positive = 1.0


class _Service(BaseModel):
    """A compose service, as far as it changes nothing that we would have to imitate."""

    model_config = ConfigDict(extra="forbid")
    build: dict[str, Any] | str | None = None
    image: str = ""
    container_name: str = ""
    command: list[str] | str | None = None
    environment: list[str] | dict[str, str | None] = Field(default_factory=list[str])
    volumes: list[str] = Field(default_factory=list[str])


class _Compose(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: str = ""
    services: dict[str, _Service]


@dataclass(frozen=True, slots=True)
class Dataset:
    tasks: tuple[Task, ...]
    """In order of their folders' names."""
    problems: tuple[TaskError, ...]
    """One for each folder that cannot be used."""


def load_dataset(folder: Path) -> Dataset:
    """All tasks of ``folder``'s sub-folders; hidden ones and files are passed over.

    Raises TaskError when ``folder`` is no folder.
    """
    if not folder.is_dir():
        raise TaskError(folder, "is not a folder", "a data set is a folder of task folders")
    tasks: list[Task] = []
    problems: list[TaskError] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        try:
            tasks.append(load_task(entry))
        except TaskError as problem:
            problems.append(problem)
    return Dataset(tuple(tasks), tuple(problems))


def load_task(folder: Path) -> Task:
    """One task.  Raises TaskError, which says what to mend."""
    described = _parse(folder, "task.yaml", _TaskYaml)
    own = _parse(folder, "longshore.yaml", _OwnYaml) if (folder / "longshore.yaml").exists() else _OwnYaml()
    if not re.fullmatch(r"[\w.-]+", folder.name, re.ASCII):
        raise TaskError(folder, f"the name {folder.name!r} has other characters than A-Z a-z 0-9 _ . -", "it is the id")
    image, workdir = _image(folder)
    files = {f"/{path}": data for path, data in _tree(folder, "rootfs").items()}
    tests = _tree(folder, "tests")
    run_tests = _text(folder, "run-tests.sh")
    if not run_tests.strip():
        raise TaskError(folder, "run-tests.sh is missing or empty", "without it nothing can be graded")
    return Task(
        id=folder.name,
        instruction=described.instruction.strip(),
        family=own.family or described.category,
        image=image,
        setup=_text(folder, "setup.sh"),
        files=files,
        tests=tests,
        run_tests=run_tests,
        expected_tests=own.expected_tests,
        solution=_text(folder, "solution.sh"),
        workdir=own.workdir or workdir or "/app",
        agent_timeout_s=described.max_agent_timeout_sec,
        test_timeout_s=described.max_test_timeout_sec,
        memory_mb=own.memory_mb,
        pids=own.pids,
        cpus=own.cpus,
    )


def write_task(task: Task, parent: Path) -> Path:
    """Write ``task`` as ``parent/<id>``, so that :func:`load_task` gives an equal task back.

    The folder is whole or not there, however the process ends.
    Raises TaskError when the folder exists already, or when a path would lie outside it.
    """
    folder = parent / task.id
    if folder.exists():
        raise TaskError(folder, "exists already", "a task is never written over another: remove it first")
    with whole_folder(folder) as partial:
        _fill(task, partial)
    return folder


def _fill(task: Task, folder: Path) -> None:
    for path, data in task.files.items():
        _write(folder, f"rootfs/{path.lstrip('/')}", data)
    for path, data in task.tests.items():
        _write(folder, f"tests/{path}", data)
    scripts = {"run-tests.sh": task.run_tests, "solution.sh": task.solution, "setup.sh": task.setup}
    for name, script in scripts.items():
        if script:
            _write(folder, name, script.encode())
            (folder / name).chmod(0o755)
    if task.image != BASE_IMAGE:
        _write(folder, "Dockerfile", f"FROM {task.image}\nWORKDIR {task.workdir}\n".encode())
    _write_yaml(
        folder,
        "task.yaml",
        {
            "instruction": task.instruction,
            "author_name": "longshore",
            "author_email": "unknown",
            "difficulty": "unknown",
            "category": task.family,
            "tags": ["longshore"],
            "parser_name": "pytest",
            "max_agent_timeout_sec": task.agent_timeout_s,
            "max_test_timeout_sec": task.test_timeout_s,
        },
    )
    own = _OwnYaml(
        family=task.family,
        expected_tests=task.expected_tests,
        workdir=task.workdir,
        memory_mb=task.memory_mb,
        pids=task.pids,
        cpus=task.cpus,
    )
    _write_yaml(folder, "longshore.yaml", own.model_dump(mode="json"))


_Model = TypeVar("_Model", bound=BaseModel)


def _parse(folder: Path, name: str, model: type[_Model]) -> _Model:
    try:
        value = cast("object", yaml.safe_load((folder / name).read_text()))
        return model.model_validate(value)
    except FileNotFoundError as error:
        raise TaskError(folder, f"{name} is missing", "it describes the task") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TaskError(folder, f"{name} is not readable YAML", " ".join(str(error).split())) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise TaskError(folder, f"{name}: {where}", first["msg"]) from error


def _image(folder: Path) -> tuple[str, str]:
    """Image and working directory that Dockerfile and compose file name; empty where they name none."""
    compose = next((name for name in ("docker-compose.yaml", "docker-compose.yml") if (folder / name).exists()), "")
    named = _compose_image(folder, compose) if compose else ""
    if not (folder / "Dockerfile").exists():
        return named, ""
    image = workdir = ""
    for line in map(str.strip, _text(folder, "Dockerfile").splitlines()):
        if not line or line.startswith("#"):
            continue
        if (found := _FROM.fullmatch(line)) and not image:
            image = found[1]
        elif (found := _WORKDIR.fullmatch(line)) and image:
            workdir = found[1]
        else:
            raise TaskError(
                folder,
                f"Dockerfile: cannot follow {line!r}",
                "only FROM and WORKDIR are understood: build the image yourself and name it in FROM",
            )
    if not image:
        raise TaskError(folder, "Dockerfile names no image", "it has no FROM")
    return image, workdir


def _compose_image(folder: Path, name: str) -> str:
    services = _parse(folder, name, _Compose).services
    if set(services) != {_SERVICE}:
        raise TaskError(
            folder, f"{name} has services {', '.join(sorted(services)) or 'none'}", f"only one, {_SERVICE!r}, can run"
        )
    service = services[_SERVICE]
    settings = service.environment if isinstance(service.environment, list) else list(service.environment)
    for given in (*settings, *service.volumes):
        if not given.lstrip("${").startswith(_OURS):
            raise TaskError(folder, f"{name}: cannot follow {given!r}", "only Terminal-Bench's own variables are known")
    return "" if "$" in service.image else service.image


def _text(folder: Path, name: str) -> str:
    """A text file; empty when there is none."""
    try:
        return (folder / name).read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(folder, f"{name} is not readable text", str(error)) from error


def _tree(folder: Path, name: str) -> dict[str, bytes]:
    """Path below ``name`` → content, for regular files.  Links are refused: they could lead out of the folder."""
    root, found = folder / name, dict[str, bytes]()
    for path in sorted(root.rglob("*")) if root.is_dir() else ():
        inside = path.relative_to(root).as_posix()
        if path.is_symlink():
            raise TaskError(folder, f"{name}/{inside} is a link", "only regular files are carried into a sandbox")
        if path.is_file():
            try:
                found[inside] = path.read_bytes()
            except OSError as error:
                raise TaskError(folder, f"{name}/{inside} is not readable", str(error)) from error
    return found


def _write(folder: Path, name: str, data: bytes) -> None:
    if ".." in PurePosixPath(name).parts:
        raise TaskError(folder, f"{name!r} has ..", "it would be written outside the folder")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_yaml(folder: Path, name: str, values: dict[str, object]) -> None:
    _write(folder, name, yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120).encode())
