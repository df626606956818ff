"""Any task that breaks no rule, for property tests of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.task import BASE_IMAGE, Task, TaskStep
from sandbox.tasks.task_containers import (
    ImageBuild,
    ServiceCondition,
    SharedFolder,
    TaskHealthcheck,
    TaskService,
    TestsEnvironment,
)
from sandbox.tasks.task_grading import CollectCommand, GradingLevel, ResultsFormat, StepsReward
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

texts = st.text(st.characters(codec="utf-8"), max_size=30)
lines = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(str.strip)
names = st.text("abcXYZ019_.-", min_size=1, max_size=12).filter(lambda name: name not in {".", ".."})
hosts = st.text("abcXYZ019_-", min_size=1, max_size=12).map("*.{}.example:80".format)
variables = st.dictionaries(st.text("ABC_x", min_size=1, max_size=4), texts.filter(lambda t: "\0" not in t), max_size=3)
contents = st.one_of(st.binary(max_size=20), texts.map(str.encode))
paths = st.one_of(
    names,
    st.builds("/".join, st.lists(names, min_size=2, max_size=3)),
    st.sampled_from(["ein Öl $x:y", "run-tests.sh", "test.sh", "Dockerfile", "setup.sh", "rootfs/a", "task.yaml"]),
)


def _join(files: dict[str, bytes], folders: dict[str, bytes]) -> dict[str, bytes]:
    return files | folders


def _no_file_above_another(files: dict[str, bytes]) -> bool:
    """Return whether no file, and no empty folder, has something below it."""
    return not any(other.startswith(f"{path.rstrip('/')}/") for path in files for other in files if other != path)


empty_folders = st.dictionaries(names.map("{}/".format), st.just(b""), max_size=1)
trees = st.builds(_join, st.dictionaries(paths, contents, max_size=4), empty_folders).filter(_no_file_above_another)
limits = st.floats(0.001, 1e6)
images = st.sampled_from([BASE_IMAGE, "debian:bookworm-slim", "python:3.13", "example/image@sha256:abc"])
metadata = st.dictionaries(
    texts | st.sampled_from(["tags", "author_name", "harbor.task", "instruction"]),
    texts | st.sampled_from(["1", '"x"', "[1, null]", '{"a": 2}']),
    max_size=3,
)


tmpfs = st.lists(st.sampled_from(["/run", "/cache:size=64m,mode=1777"]), unique=True, max_size=2).map(tuple)
entrypoints = st.sampled_from([None, (), ("/entry", "a b")])
ulimits = st.sampled_from([(), (ProcessLimit("nofile", 1024, 65536), ProcessLimit("memlock", -1, -1))])
collects = st.lists(st.builds(CollectCommand, texts, limits, st.sampled_from(["", "0", "bob"])), max_size=2).map(tuple)
healthchecks = st.builds(TaskHealthcheck, lines, limits, limits, limits, limits, st.integers(1, 9))


@st.composite
def builds(draw: st.DrawFn) -> ImageBuild:
    """A context whose Dockerfile copies nothing that is not there."""
    files = draw(trees)
    name = draw(st.sampled_from(["Dockerfile", "docker/Main.dockerfile"]))
    if not _no_file_above_another({**files, name: b""}):
        files = {}
    step = draw(st.sampled_from(["", "RUN make\n", "WORKDIR /srv\nUSER nobody\n", 'COPY . /app\nENTRYPOINT ["x"]\n']))
    files |= draw(
        st.sampled_from([{}, {".dockerignore": b"# no logs\n*.log\n!a.log\n**/x\n"}, {"docker-compose.yml": b"no"}])
    )
    files[name] = f"FROM a\n{step}".encode()
    args = draw(st.dictionaries(st.sampled_from(["A", "B"]), texts, max_size=2))
    regular = sorted(path for path in files if not path.endswith("/"))
    executable = frozenset(draw(st.lists(st.sampled_from(regular), unique=True)))
    return ImageBuild(files, name, executable, args, draw(st.sampled_from(["", "final"])))


def _condition(service: TaskService) -> st.SearchStrategy[ServiceCondition]:
    return st.sampled_from(
        [each for each in ServiceCondition if service.ends or each is not ServiceCondition.COMPLETED]
    )


@st.composite
def services(
    draw: st.DrawFn, name: str, volumes: tuple[SharedFolder, ...], earlier: Sequence[TaskService]
) -> TaskService:
    build = draw(st.none() | builds())
    return TaskService(
        name,
        "" if build else draw(st.sampled_from(["postgres:16", "a/$b"])),
        build,
        tuple(draw(st.lists(texts.filter(lambda text: "\0" not in text), max_size=3))),
        draw(variables),
        draw(st.none() | texts),
        draw(st.integers(1, 4096)),
        draw(limits),
        draw(st.integers(1, 4096)),
        draw(tmpfs),
        volumes,
        draw(entrypoints),
        draw(st.sampled_from(["", "bob", "1000:50"])),
        draw(st.sampled_from(["", "/", "/work/a b$c"])),
        draw(ulimits),
        draw(st.sampled_from(["", "db-1.example"])),
        draw(st.sampled_from([(), ("store", "db.example")])),
        {each.name: draw(_condition(each)) for each in earlier if draw(st.booleans())},
        draw(st.booleans()),
        draw(st.integers(1, 1 << 16)),
        draw(st.sampled_from([(), BASE_CAPABILITIES, ("KILL", "IPC_LOCK")])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(["", "always", "on-failure:3"])),
    )


def excludes(artifacts: tuple[str, ...]) -> st.SearchStrategy[dict[str, tuple[str, ...]]]:
    return st.sampled_from([{}, dict.fromkeys(artifacts, ("*.log", "./a"))])


@st.composite
def task_steps(draw: st.DrawFn, name: str) -> TaskStep:
    files, artifacts = draw(trees), tuple(draw(st.lists(paths.map("/{}".format), max_size=2)))
    tests = {path: data for path, data in draw(trees).items() if path != "Dockerfile"}  # it would be read as one
    return TaskStep(
        name,
        draw(lines),
        files,
        frozenset(draw(st.lists(st.sampled_from(sorted(files)), unique=True))) if files else frozenset(),
        draw(st.none() | healthchecks),
        tests,
        draw(lines),
        tuple(draw(st.lists(texts, unique=True, max_size=3))),
        draw(texts),
        draw(trees),
        artifacts,
        draw(excludes(artifacts)),
        draw(st.sampled_from([GradingLevel.LIVE, GradingLevel.ARTIFACTS, GradingLevel.SIBLING])),
        draw(collects),
        draw(
            st.none() | st.builds(TestsEnvironment, st.sampled_from(["", "checker:1"]), st.none() | builds(), variables)
        ),
        draw(variables),
        draw(st.sampled_from(["", "root", "bob", "1000:50"])),
        draw(st.sampled_from(["", "0", "bob"])),
        draw(limits),
        draw(limits),
        draw(st.dictionaries(names | st.just("reward"), st.floats(-9, 9), max_size=2)),
    )


@st.composite
def stepped_tasks(draw: st.DrawFn) -> Task:
    """A task of one step or two."""
    return replace(
        draw(tasks()),
        steps=tuple(draw(task_steps(name)) for name in draw(st.sampled_from([("a",), ("b c", "a")]))),
        steps_reward=draw(st.sampled_from(StepsReward)),
        reports=("/logs/verifier/reward.txt",),
        grading=draw(st.sampled_from([GradingLevel.SAME, GradingLevel.LIVE])),
        tests={},
        run_tests="",
        expected_tests=(),
        weights={},
        answer="",
        solution="",
        solution_files={},
        foils={},
        artifacts=(),
        artifact_excludes={},
        collect=(),
        test_env={},
    )


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    names_beside = draw(st.lists(st.sampled_from(["db", "web"]), unique=True, max_size=2))
    volumes = draw(
        st.sampled_from([(), (SharedFolder("kept", "/$a b"), SharedFolder("a.b_20_c", "/c", read_only=True))])
    )
    beside: list[TaskService] = []
    for name in names_beside:
        beside.append(draw(services(name, volumes, tuple(beside))))
    image, build = draw(st.tuples(images, st.none()) | st.tuples(st.just(BASE_IMAGE), builds()))
    modes = st.sampled_from(NetworkMode)
    grading = draw(st.sampled_from(GradingLevel))
    artifacts = tuple(draw(st.lists(paths.map("/{}".format), max_size=2)))
    reported_in = "/logs/verifier" if grading is GradingLevel.LIVE else ""
    return Task(
        id=draw(names),
        instruction=draw(lines),
        family=draw(texts),
        image=image,
        setup=draw(texts),
        files={f"/{path}": data for path, data in draw(trees).items()},
        tests=draw(trees),
        run_tests=draw(lines),
        results_format=draw(st.sampled_from(ResultsFormat)),
        expected_tests=tuple(draw(st.lists(texts, unique=True, max_size=3))),
        weights=draw(st.dictionaries(texts, st.floats(0.1, 10), max_size=3)),
        answer=draw(texts.filter(lambda text: "\0" not in text)),
        reply_program=draw(st.sampled_from(["", "/app/a.py"])),
        start_url=draw(st.sampled_from(["", "http://shop:8000/?a=b#c"])),
        reports=tuple(draw(st.lists(paths.map(f"{reported_in}/{{}}".format), max_size=2))),
        solution=draw(texts),
        solution_files=draw(trees),
        foils=draw(st.dictionaries(names, texts, max_size=2)),
        build=build,
        services=tuple(beside),
        network=draw(st.builds(TaskNetwork, modes, modes, modes, st.lists(hosts, max_size=2).map(tuple))),
        grading=grading,
        artifacts=artifacts,
        artifact_excludes=draw(excludes(artifacts)),
        collect=draw(collects),
        env=draw(variables),
        agent_env=draw(variables),
        test_env=draw(variables | st.just({"A": "${B:-c}"})),
        solution_env=draw(variables),
        agent_user=draw(st.sampled_from(["", "root", "bob", "1000:50"])),
        tests_user=draw(st.sampled_from(["", "0", "bob"])),
        hostname=draw(st.sampled_from(["", "box"])),
        aliases=draw(st.sampled_from([(), ("main", "app.example")])),
        entrypoint=draw(entrypoints),
        command=draw(st.sampled_from([(), ("python3", "-m", "http.server")])),
        ulimits=draw(ulimits),
        container_user=draw(st.sampled_from(["", "bob"])),
        login_shell=draw(st.booleans()),
        healthcheck=draw(st.none() | healthchecks),
        metadata=draw(metadata),
        workdir=draw(st.sampled_from(["", "/", "/app", "/work/a b"])),
        agent_timeout_s=draw(limits),
        test_timeout_s=draw(limits),
        build_timeout_s=draw(limits),
        memory_mb=draw(st.integers(1, 1 << 20)),
        pids=draw(st.integers(1, 1 << 20)),
        cpus=draw(limits),
        shm_mb=draw(st.integers(1, 1 << 20)),
        tmpfs=draw(tmpfs),
        read_only=draw(st.sampled_from([(), ("/data",)])),
        volumes=volumes if beside else (),
        storage_mb=draw(st.integers(1, 1 << 20)),
    )
