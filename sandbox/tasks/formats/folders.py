"""Formats in which a task is a folder: reads and writes a task in any of them.

Fields that a format lacks are in ``longshore.yaml`` (:mod:`sandbox.tasks.field_encoding`), which other harnesses
ignore. Two more names have a meaning where a plain Dockerfile copies them: ``rootfs/`` holds files as they are in the
sandbox before the agent starts (``rootfs/app/a.txt`` is ``/app/a.txt``), and ``setup.sh`` runs in the working directory
after they have been written.

A task whose tests need something that the agent leaves running, and which names no grading level, is graded at ``live``
(:mod:`sandbox.tasks.live_evidence`).
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.tasks.container_files import dockerfile
from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.container_files.host_folders import HostFolder, build_from, copy_host_folders
from sandbox.tasks.field_encoding import apply_fields, differing_fields
from sandbox.tasks.file_tree import FileTree, TreeFile, as_tree_files, check_paths, read_tree, write_tree
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import BASE_IMAGE, Task, TaskError
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.yaml_text import YamlError, dump_yaml, parse_yaml

EXTRA_FIELDS_FILE = "longshore.yaml"
_MISTAKEN = {"longshore.yml", "longshore.toml", "longshore.json"}


@dataclass(frozen=True, slots=True)
class FolderFormat:
    marker: str
    """File that identifies a task of the format."""
    read: Callable[[str, FileTree, TaskProblems], Task]
    """Creates a task from a folder's name and tree; problems are added."""
    write: Callable[[Task], dict[str, TreeFile]]
    """Creates the tree with everything that the format can hold."""


def find_task_folders(folder: Path, markers: Collection[str]) -> Iterator[Path]:
    """Find each subfolder of ``folder``, or of a subfolder that is none (``CATEGORY/TASK``), with one of ``markers``.

    A subfolder in which there is none is among them, and hidden ones are not.
    """
    for entry in subfolders(folder):
        yield from subfolders(entry) if _is_category(entry, markers) else [entry]


def find_unread_tasks(folder: Path, markers: Collection[str]) -> Iterator[TaskError]:
    """Find what may be a task where :func:`find_task_folders` looks, and is none of what it finds: hidden folders that
    have a task, and links to nothing."""
    categories = [each for each in subfolders(folder) if _is_category(each, markers)]
    for entry in (each for parent in (folder, *categories) for each in sorted(parent.iterdir())):
        hidden = entry.name.startswith(".")
        if hidden and any(any(entry.glob(f"{above}{marker}")) for marker in markers for above in ("", "*/")):
            yield TaskError(
                entry, "is hidden", "a folder whose name begins with a dot is not read: rename or remove it"
            )
        elif not hidden and entry.is_symlink() and not entry.exists():
            yield TaskError(entry, "is a link to nothing", f"there is no {entry.readlink()}")


def _is_category(folder: Path, markers: Collection[str]) -> bool:
    return not has_marker(folder, markers) and any(has_marker(each, markers) for each in subfolders(folder))


def has_marker(folder: Path, markers: Iterable[str]) -> bool:
    """Return whether ``folder`` has one of ``markers``."""
    return any((folder / each).exists() for each in markers)


def subfolders(folder: Path) -> list[Path]:
    """Return the subfolders of ``folder`` that are not hidden, in the order of their names."""
    return [each for each in sorted(folder.iterdir()) if not each.name.startswith(".") and each.is_dir()]


def load_task_folder(form: FolderFormat, folder: Path) -> LoadedTask:
    """Load the task in ``folder``. Never raises: errors in its content are among the problems."""
    problems = TaskProblems(folder)
    task = None
    with problems.collecting_errors():
        if (folder / form.marker).is_file():
            task = read_task_tree(form, _folder_id(folder.name), read_tree(folder, apart=True), problems)
        else:
            problems.add(f"{form.marker} is missing", "it describes the task")
    return problems.loaded(task)


def as_task_id(name: str) -> str:
    """Return a name, such as that of a folder, with ``-`` for what an id cannot have, such as spaces."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _folder_id(name: str) -> str:
    """Return the id of the task in the folder ``name``: the name, or what an id can have of it and a digest."""
    whole = unicodedata.normalize("NFC", name)  # a Mac's file names are decomposed
    if (kept := as_task_id(whole)) == name:
        return name
    return f"{kept.strip('-.') or 'task'}-{hashlib.sha256(os.fsencode(whole)).hexdigest()[:8]}"


def read_task_tree(form: FolderFormat, name: str, tree: FileTree, problems: TaskProblems) -> Task:
    """Read the task ``name`` from the content of its folder; what is wrong with it is added to ``problems``."""
    task = form.read(name, tree, problems)
    for mistaken in sorted(_MISTAKEN & tree.files.keys()):
        problems.add(f"{mistaken} is not read", f"rename it {EXTRA_FIELDS_FILE}")
    if EXTRA_FIELDS_FILE in tree.files:
        try:
            given: object = parse_yaml(problems.read_text(tree, EXTRA_FIELDS_FILE))
        except YamlError as error:
            problems.add(f"{EXTRA_FIELDS_FILE} is not readable YAML", str(error))
        else:
            task = apply_fields(task, {} if given is None else given, problems, EXTRA_FIELDS_FILE)
    problems.check_rules(task)
    return task


def encode_task_folder(form: FolderFormat, task: Task) -> dict[str, TreeFile]:
    """Return the files that are read back as ``task``. Raises TaskError if there are none."""
    for what, why in ((p.what, p.why) for p in _checked(task)):
        raise TaskError(Path(task.id), what, why)
    files = form.write(task)
    check_paths(files, Path(task.id))
    ignored = TaskProblems(Path(task.id))
    rest = differing_fields(task, form.read(task.id, FileTree(files), ignored))
    if rest:
        files[EXTRA_FIELDS_FILE] = TreeFile(dump_yaml(rest))
    problems = TaskProblems(Path(task.id))
    read_back = read_task_tree(form, task.id, FileTree(files), problems)
    if problems.found:
        raise problems.found[0]
    if read_back != task:
        differ = ", ".join(differing_fields(task, read_back))
        raise TaskError(
            Path(task.id), f"cannot be written so that it is read back equal: {differ}", "try another format"
        )
    return files


def _checked(task: Task) -> list[TaskError]:
    problems = TaskProblems(Path(task.id))
    problems.check_rules(task)
    return problems.found


def write_task_folder(form: FolderFormat, task: Task, parent: Path) -> Path:
    """Write ``task`` as ``parent/<id>``, so that :func:`load_task_folder` reads an equal task.

    Raises TaskError when the folder exists or the task breaks a rule.
    """
    folder = parent / task.id
    if folder.exists():
        raise TaskError(folder, "exists already", "a task never overwrites another: remove it first")
    return write_tree(encode_task_folder(form, task), folder)


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """The image, files and setup from which an agent starts."""

    image: str = BASE_IMAGE
    build: ImageBuild | None = None
    workdir: str = ""
    """Working directory; empty for the image's own."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    setup: str = ""


def read_environment(
    tree: FileTree,
    plan: BuildPlan | None,
    image: str,
    private: tuple[str, ...],
    problems: TaskProblems,
    *,
    folders: Sequence[HostFolder] = (),
) -> TaskEnvironment:
    """Read image, working directory, files and setup of a task whose build contexts lie in ``tree``.

    A plain Dockerfile needs no build, unless ``folders`` of the task are mounted.
    """
    workdir = ""
    build = None
    if plan is None and not image:
        problems.add("there is no Dockerfile and no image is named", "the content of its sandbox is not defined")
    if plan is not None:
        inside = plan.context_in(tree)
        text = problems.read_text(inside, plan.dockerfile)
        plain = (
            dockerfile.parse_plain_dockerfile(text)
            if plan.dockerfile in inside.files and plan == BuildPlan(plan.context) and not folders
            else None
        )
        if plain:
            return _read_plain(plain, inside, problems)
        build = read_build_context(tree, plan, private, problems)
        image = BASE_IMAGE
        workdir = dockerfile.find_workdir(dockerfile.parse_instructions(text), plan.args, plan.target)
    if folders and (build or image):
        build = copy_host_folders(build or build_from(image), folders, tree, problems)
        image = BASE_IMAGE
    return TaskEnvironment(image, build, workdir)


def _read_plain(plain: dockerfile.PlainDockerfile, context: FileTree, problems: TaskProblems) -> TaskEnvironment:
    files, setup = dict[str, bytes](), ""
    if plain.copies_rootfs:
        files = {f"/{path}": data for path, data in problems.read_regular_files(context, "rootfs").items()}
        if not files:
            problems.add("rootfs is missing or empty", "the Dockerfile copies it")
    if plain.runs_setup:
        setup = problems.read_text(context, "setup.sh", "the Dockerfile runs it")
    return TaskEnvironment(plain.image, None, plain.workdir, files, setup)


def write_environment(task: Task, context: str) -> tuple[dict[str, TreeFile], BuildPlan]:
    """Write the files from which :func:`read_environment` reads the same; the context of a real build is the folder
    ``context``."""
    if task.build:
        files = as_tree_files(task.build.files, task.build.executable, under=context)
        return files, BuildPlan(f"./{context}", task.build.dockerfile, task.build.args, task.build.target)
    files = as_tree_files({path.lstrip("/"): data for path, data in task.files.items()}, under="rootfs")
    if runs_setup := bool(task.setup.strip()):
        files["setup.sh"] = TreeFile(task.setup.encode(), executable=True)
    plain = dockerfile.PlainDockerfile(task.image, task.workdir, bool(task.files), runs_setup)
    files["Dockerfile"] = TreeFile(dockerfile.write_plain_dockerfile(plain).encode())
    return files, BuildPlan()
