"""Formats in which a task is a folder: reading and writing one, whatever the format says.

What the format cannot say lies in ``longshore.yaml`` beside it (:mod:`sandbox.tasks.encoding`), which other harnesses
ignore, and two more names are ours: ``rootfs/`` holds files as they lie in the sandbox before the agent starts
(``rootfs/app/a.txt`` is ``/app/a.txt``), and ``setup.sh`` runs in the working directory after they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.tasks import dockerfile
from sandbox.tasks.context import BuildPlan, image_build
from sandbox.tasks.encoding import say, unsaid
from sandbox.tasks.problems import Problems
from sandbox.tasks.task import BASE_IMAGE, ImageBuild, Task, TaskError
from sandbox.tasks.tree import File, Tree, check_paths, grow, read_tree, write_tree
from sandbox.tasks.yaml_text import YamlError, dump, parse

OWN = "longshore.yaml"


@dataclass(frozen=True, slots=True)
class FolderFormat:
    marker: str
    """The file that every task of the format has."""
    read: Callable[[str, Tree, Problems], Task]
    """Name and tree → what the format says; problems are noted."""
    write: Callable[[Task], dict[str, File]]
    """The tree that says of a task what the format can say."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One task, or why there is none."""

    task: Task | None
    problems: tuple[TaskError, ...] = ()

    def one(self) -> Task:
        """The task.  Raises TaskError, the first problem, when there is none."""
        if self.task is None:
            raise self.problems[0]
        return self.task


def load(form: FolderFormat, folder: Path) -> Loaded:
    """The task in ``folder``.  Never raises for what is in it."""
    problems = Problems(folder)
    task = None
    with problems.kept():
        if (folder / form.marker).is_file():
            task = _read(form, folder.name, read_tree(folder), problems)
        else:
            problems.add(f"{form.marker} is missing", "it describes the task")
    return Loaded(None if problems.found else task, tuple(problems.found))


def _read(form: FolderFormat, name: str, tree: Tree, problems: Problems) -> Task:
    task = form.read(name, tree, problems)
    if OWN in tree.files:
        try:
            said: object = parse(problems.text(tree, OWN))
        except YamlError as error:
            problems.add(f"{OWN} is not readable YAML", str(error))
        else:
            task = say(task, {} if said is None else said, problems, OWN)
    problems.rules(task)
    return task


def tree_of(form: FolderFormat, task: Task) -> dict[str, File]:
    """The folder that gives ``task`` back.  Raises TaskError when none does."""
    for what, why in ((p.what, p.why) for p in _checked(task)):
        raise TaskError(Path(task.id), what, why)
    files = form.write(task)
    check_paths(files, Path(task.id))
    place = Problems(Path(task.id))
    rest = unsaid(task, form.read(task.id, Tree(files), place))
    if rest:
        files[OWN] = File(dump(rest))
    problems = Problems(Path(task.id))
    again = _read(form, task.id, Tree(files), problems)
    if problems.found:
        raise problems.found[0]
    if again != task:
        differ = ", ".join(unsaid(task, again))
        raise TaskError(
            Path(task.id), f"cannot be written so that it is read back equal: {differ}", "try another format"
        )
    return files


def _checked(task: Task) -> list[TaskError]:
    problems = Problems(Path(task.id))
    problems.rules(task)
    return problems.found


def write(form: FolderFormat, task: Task, parent: Path) -> Path:
    """Write ``task`` as ``parent/<id>``, so that :func:`load` gives an equal task back.

    Raises TaskError when the folder exists already, or when the task breaks a rule.
    """
    folder = parent / task.id
    if folder.exists():
        raise TaskError(folder, "exists already", "a task is never written over another: remove it first")
    return write_tree(tree_of(form, task), folder)


@dataclass(frozen=True, slots=True)
class Ground:
    """What an agent starts from."""

    image: str = BASE_IMAGE
    build: ImageBuild | None = None
    workdir: str = "/app"
    """Empty when the Dockerfile names one that only a build would know."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    setup: str = ""


def read_ground(tree: Tree, plan: BuildPlan | None, image: str, private: tuple[str, ...], problems: Problems) -> Ground:
    """Image, working directory, files and setup of a task whose build contexts lie in ``tree``.

    A plain Dockerfile needs no build.  ``rootfs/`` and ``setup.sh`` are ours unless they are part of a real build.
    """
    workdir = "/app"
    build = None
    own = True
    if plan is None and not image:
        problems.add("there is no Dockerfile and no image is named", "nothing says what its sandbox holds")
    if plan is not None:
        inside = tree.below(plan.context)
        text = problems.text(inside, plan.dockerfile)
        plain = dockerfile.plain(text) if plan.dockerfile in inside.files and plan == BuildPlan(plan.context) else None
        if plain:
            image, workdir = plain.image, plain.workdir or workdir
        else:
            build = image_build(tree, plan, private, problems)
            image = BASE_IMAGE
            own = plan.context != "."
            found = dockerfile.workdir_of(dockerfile.instructions(text), plan.args, plan.target)
            workdir = "" if found is None else found or workdir
    if not own:
        return Ground(image, build, workdir)
    files = {f"/{path}": data for path, data in problems.regular(tree, "rootfs").items()}
    return Ground(image, build, workdir, files, problems.text(tree, "setup.sh"))


def write_ground(task: Task, context: str) -> tuple[dict[str, File], BuildPlan]:
    """The files from which :func:`read_ground` reads the same; a real build's context is the folder ``context``."""
    files = grow({path.lstrip("/"): data for path, data in task.files.items()}, under="rootfs")
    if task.setup:
        files["setup.sh"] = File(task.setup.encode(), executable=True)
    if task.build:
        files |= grow(task.build.files, task.build.executable, under=context)
        return files, BuildPlan(f"./{context}", task.build.dockerfile, task.build.args, task.build.target)
    plain = dockerfile.Plain(task.image, task.workdir, bool(task.files), bool(task.setup))
    files["Dockerfile"] = File(dockerfile.write_plain(plain).encode())
    return files, BuildPlan()
