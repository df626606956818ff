"""The task model, independent of the format in which a task is written.

A task knows nothing of Docker: it is text and bytes. The harness writes ``files`` into the sandbox and runs ``setup``
before the agent's first turn; ``tests`` are written into the sandbox only for grading, ``solution`` never.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import with_config

from protocol.errors import UserError
from sandbox.default_limits import CPUS, MEMORY_MB, PIDS, SHM_MB
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.strict_values import STRICT
from sandbox.tasks.task_containers import ImageBuild, SharedFolder, TaskHealthcheck, TaskService, TestsEnvironment
from sandbox.tasks.task_grading import CollectCommand, GradingLevel, ResultsFormat, StepsReward
from sandbox.tasks.task_network import OFFLINE, TaskNetwork

STEP_SETUP = "setup.sh"
"""Name of the script among :attr:`TaskStep.files` that prepares the step."""
BASE_IMAGE = ""
"""Value of :attr:`Task.image` that stands for the pool's own base image."""

PUBLISHED_FOLDER = "/logs/artifacts"
"""Folder in which an agent of Harbor leaves what is to be kept."""
_HARBOR_LOGS = ("/logs/agent", PUBLISHED_FOLDER, "/logs/verifier")
_TERMINAL_BENCH_LOGS = ("/logs", "/agent-logs")


class TaskError(UserError):
    """A task folder cannot be used. The message names the folder, the problem, and why it matters."""

    def __init__(self, folder: Path, what: str, why: str) -> None:
        self.folder, self.what, self.why = folder, what, why
        super().__init__(f"task {folder}: {what} ({why})")


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TaskStep:
    """One of several steps that an agent plays in one container, each with its own instruction and tests.

    The fields that :class:`Task` has too replace the task's own in this step (:attr:`Task.in_steps`).
    """

    name: str
    """Unique in its task; a folder's name."""
    instruction: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by path relative to the task's ``workdir``, written before the agent starts. Owned by root, mode 0644.
    ``setup.sh`` among them then runs there by bash, as the agent's user."""
    executable: frozenset[str] = frozenset()
    """Paths of ``files`` that are executable."""
    healthcheck: TaskHealthcheck | None = None
    """Must then succeed, as the agent's user."""
    tests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    run_tests: str = ""
    expected_tests: tuple[str, ...] = ()
    solution: str = ""
    solution_files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    artifacts: tuple[str, ...] = ()
    artifact_excludes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    grading: GradingLevel = GradingLevel.LIVE
    """The last step alone may have a level that ends the agent's processes; ``same`` is ``live`` if that is the task's
    own level."""
    collect: tuple[CollectCommand, ...] = ()
    tests_environment: TestsEnvironment | None = None
    """Container of the tests at level ``artifacts``; None for the task's :attr:`Task.tests_environment`."""
    test_env: dict[str, str] = field(default_factory=dict[str, str])
    agent_user: str = ""
    tests_user: str = ""
    agent_timeout_s: float = 360.0
    test_timeout_s: float = 60.0
    min_rewards: dict[str, float] = field(default_factory=dict[str, float])
    """Smallest value of each named reward with which the next step follows; ``reward`` is the one without a name."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem for a terminal agent.  Immutable; equal by value."""

    id: str
    """Unique in its data set; letters, digits, ``-``, ``_``, ``.`` only: it names files and containers."""
    instruction: str
    """The agent's instruction; of a task of several steps, all of theirs."""
    family: str = ""
    """Kind of task, by which results are grouped."""
    image: str = BASE_IMAGE
    setup: str = ""
    """Shell script, run in ``workdir`` by the harness before the agent starts; empty for none."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by absolute path in the sandbox. Owned by root, mode 0644; missing folders are created.  Here as in all
    fields with contents by path, one that ends in ``/`` is an empty folder."""
    tests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by path relative to ``/tests``, written only for grading."""
    run_tests: str = ""
    """Shell script that runs the tests in ``workdir`` with ``TEST_DIR=/tests`` and prints their results."""
    results_format: ResultsFormat = ResultsFormat.PYTEST
    expected_tests: tuple[str, ...] = ()
    """Names that the summary must contain: a missing one counts as failed. If empty, the summary's names count."""
    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weight of each test in the weighted score, by name; a test that is not named has weight 1."""
    answer: str = ""
    r"""Answer that the agent's last reply must give in ``\\boxed{…}``; if not empty, it is graded instead of tests.
    """
    reply_program: str = ""
    """Absolute path where the tests expect a program that the agent may also give as the block of Python with which its
    last reply ends; empty if a reply is never a program."""
    start_url: str = ""
    """Page that an agent with a browser sees first: ``http`` or ``https``; empty for a blank one."""
    reports: tuple[str, ...] = ()
    """Absolute paths where the tests leave CTRF, JUnit, ``reward.txt`` or ``reward.json`` files."""
    solution: str = ""
    """Shell script of the oracle."""
    solution_files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by path relative to ``/solution``, only for the oracle."""
    foils: dict[str, str] = field(default_factory=dict[str, str])
    """Shell scripts, by name, of attempts that must not get the full score: near misses and cheats, which prove the
    tests."""
    build: ImageBuild | None = None
    """Build of the image; replaces ``image``."""
    services: tuple[TaskService, ...] = ()
    network: TaskNetwork = OFFLINE
    grading: GradingLevel = GradingLevel.SAME
    artifacts: tuple[str, ...] = ()
    """Absolute paths that level ``artifacts`` copies into the clean image."""
    artifact_excludes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Patterns, by the path of an artifact that is a folder, of what is not copied, as ``--exclude`` of GNU tar."""
    collect: tuple[CollectCommand, ...] = ()
    """Run one after another before the tests."""
    tests_environment: TestsEnvironment | None = None
    """Container of the tests at level ``artifacts``; None for one like the agent's."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the agent's shell and of the tests, which override the image's."""
    agent_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables that override ``env`` for the agent alone."""
    test_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables that override ``env`` for the tests alone."""
    solution_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the oracle."""
    agent_user: str = ""
    """User of the agent's processes, as in Docker: a name or a number, with ``:group`` or without; empty for the
    image's own."""
    tests_user: str = ""
    """User of the tests; empty for the image's own."""
    container_user: str = ""
    """User of the image's entrypoint and of the health check; empty for the image's own."""
    healthcheck: TaskHealthcheck | None = None
    """Must succeed before the agent starts."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    """Other fields of the format (author, difficulty, tags …), kept for writing it again."""
    login_shell: bool = False
    """True if agent and tests work in login shells, as in Terminal-Bench: what the image's profiles set overrides
    ``env``."""
    workdir: str = "/app"
    """Directory in which the agent and the tests start; empty for the image's."""
    agent_timeout_s: float = 360.0
    test_timeout_s: float = 60.0
    build_timeout_s: float = 600.0
    memory_mb: int = MEMORY_MB
    pids: int = PIDS
    cpus: float = CPUS
    storage_mb: int = 2048
    """Disk space that the agent may use, limited by the best means that the host has."""
    shm_mb: int = SHM_MB
    """Size of ``/dev/shm``."""
    tmpfs: tuple[str, ...] = ()
    """Folders in memory: absolute paths, with ``:options`` of mount or without."""
    read_only: tuple[str, ...] = ()
    """Absolute paths of the image's folders in which nobody can change anything."""
    volumes: tuple[SharedFolder, ...] = ()
    """Folders of the agent's container that services have too."""
    entrypoint: tuple[str, ...] | None = None
    """Started before the agent, with ``command`` as its arguments; None for the image's own."""
    command: tuple[str, ...] = ()
    """What runs beside the agent; empty for what only waits."""
    ulimits: tuple[ProcessLimit, ...] = ()
    """Limits of each process in the agent's container, in place of a sandbox's own."""
    hostname: str = ""
    """Host name of the agent's container; empty for the one that all sandboxes have."""
    aliases: tuple[str, ...] = ()
    """Names under which services reach the agent's container."""
    steps: tuple[TaskStep, ...] = ()
    """Steps that are played one after another; empty for a task that is one step itself."""
    steps_reward: StepsReward = StepsReward.MEAN

    @property
    def service_names(self) -> tuple[str, ...]:
        """The names by which the agent reaches services."""
        return tuple(name for each in self.services for name in (each.name, *each.aliases))

    @property
    def in_steps(self) -> tuple[Task, ...]:
        """The steps as tasks that have one step each; only this task, if it is one step itself."""
        return tuple(self._in_step(step) for step in self.steps) or (self,)

    @property
    def step_name(self) -> str:
        """Name of the step that this is, if it is one of a task's (:attr:`in_steps`); empty otherwise."""
        return self.steps[0].name if len(self.steps) == 1 else ""

    def _in_step(self, step: TaskStep) -> Task:
        live = self.grading is GradingLevel.LIVE and step.grading is GradingLevel.SAME
        own = step.tests_environment or self.tests_environment
        return replace(
            self,
            steps=(step,),
            instruction=step.instruction,
            tests=step.tests,
            run_tests=step.run_tests,
            expected_tests=step.expected_tests,
            solution=step.solution,
            solution_files=step.solution_files,
            artifacts=step.artifacts,
            artifact_excludes=step.artifact_excludes,
            collect=step.collect,
            grading=GradingLevel.LIVE if live else step.grading,
            tests_environment=own if step.grading is GradingLevel.ARTIFACTS else None,
            test_env=step.test_env,
            agent_user=step.agent_user,
            tests_user=step.tests_user,
            agent_timeout_s=step.agent_timeout_s,
            test_timeout_s=step.test_timeout_s,
        )

    @property
    def log_folders(self) -> tuple[str, ...]:
        """Folders of logs that exist, writable by everybody, when the agent starts: the harnesses mount them."""
        own = _TERMINAL_BENCH_LOGS if self.login_shell else ()
        return own + (_HARBOR_LOGS if any(each.startswith("/logs/verifier/") for each in self.reports) else ())

    @property
    def has_tests_image(self) -> bool:
        """True if the tests have an image of their own, which holds them."""
        return self.tests_environment is not None and self.tests_environment.has_image

    @property
    def tests_environments(self) -> tuple[TestsEnvironment, ...]:
        """The containers of tests, its own and those of its steps, each once."""
        found = list[TestsEnvironment]()
        for each in (self, *self.steps):
            if each.tests_environment is not None and each.tests_environment not in found:
                found.append(each.tests_environment)
        return tuple(found)

    @property
    def carries_artifacts(self) -> bool:
        """True if artifacts are named, or if one that is always carried is spoken of."""
        if set(self.artifacts) != {PUBLISHED_FOLDER}:
            return bool(self.artifacts)
        own = self.tests_environment and self.tests_environment.build
        texts = (
            self.run_tests.encode(),
            self.instruction.encode(),
            *self.tests.values(),
            *(own.files.values() if own else ()),
        )
        return any(PUBLISHED_FOLDER.encode() in each for each in texts)

    @property
    def gradable(self) -> bool:
        """True if there are tests or an answer; not every row of a data set has them."""
        return bool(self.answer) or all(step.run_tests for step in self.in_steps)

    @property
    def has_oracle(self) -> bool:
        """True if a solution or an answer is known."""
        return bool(self.answer) or all(step.solution for step in self.in_steps)
