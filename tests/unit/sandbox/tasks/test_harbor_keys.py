"""If these fail, a key of a published task's task.toml is dropped in silence, or followed otherwise than in Harbor."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.http.task_codec import decode_task, encode_task
from sandbox.tasks.formats.folders import load_task_folder, write_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskHealthcheck, TestsEnvironment
from sandbox.tasks.task_grading import CollectCommand, GradingLevel
from sandbox.tasks.task_network import OFFLINE, ONLINE, NetworkMode, TaskNetwork
from sandbox.validation.task_warnings import find_task_warnings

NONE, PROXY, FULL = NetworkMode.NONE, NetworkMode.PROXY, NetworkMode.FULL


def load(parent: Path, toml: str, **more: str) -> LoadedTask:
    files = {
        "task.toml": toml,
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM debian\nRUN true\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
        **{name.replace("__", "/"): text for name, text in more.items()},
    }
    for path, text in files.items():
        (parent / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / "a" / path).write_text(text)
    return load_task_folder(HARBOR, parent / "a")


def read(parent: Path, toml: str) -> Task:
    loaded = load(parent, toml)
    assert loaded.remarks == ()
    task = loaded.require_task()
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, parent / "again")).require_task() == task
    return task


@pytest.mark.parametrize(
    ("toml", "network"),
    [
        ("", ONLINE),
        ("[environment]\nallow_internet = false", OFFLINE),
        ("[environment]\nallow_internet = true", ONLINE),
        ('[environment]\nallow_internet = true\nnetwork_mode = "no-network"', OFFLINE),
        ('[environment]\nallow_internet = false\nnetwork_mode = "public"', ONLINE),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org", "*.b.org"]',
            TaskNetwork(agent=PROXY, verify=PROXY, allowed_hosts=("a.org", "*.b.org")),
        ),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = [" a.org "]',
            TaskNetwork(agent=PROXY, verify=PROXY, allowed_hosts=("a.org",)),
        ),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["8.8.0.0/16", "2606:4700::/32", "2600::1"]',
            TaskNetwork(agent=PROXY, verify=PROXY, allowed_hosts=("8.8.0.0/16", "2606:4700::/32", "2600::1")),
        ),
        ('[environment]\nnetwork_mode = "allowlist"', TaskNetwork(agent=PROXY, verify=PROXY)),
        ('[agent]\nnetwork_mode = "no-network"', TaskNetwork(verify=FULL)),
        ('[verifier]\nnetwork_mode = "no-network"', TaskNetwork(agent=FULL)),
        ('[verifier.environment]\ndocker_image = "a"\nnetwork_mode = "no-network"', TaskNetwork(agent=FULL)),
        (
            '[environment]\nnetwork_mode = "no-network"\n[verifier.environment]\ndocker_image = "a"',
            TaskNetwork(verify=FULL),
        ),
        (
            '[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
            TaskNetwork(verify=PROXY, allowed_hosts=("a.org",)),
        ),
    ],
)
def test_the_network_of_each_phase_is_that_of_harbor(tmp_path: Path, toml: str, network: TaskNetwork) -> None:
    assert read(tmp_path, toml).network == network


def test_variables_reach_only_their_phase(tmp_path: Path) -> None:
    task = read(
        tmp_path,
        '[environment.env]\nA = "1"\nMODE = "${MODE:-fast}"\nEMPTY = "${X:-}"\nPART = "a${B}c"\n'
        '[agent.env]\nB = "2"\n[verifier.env]\nC = "3"\n[solution.env]\nD = "4"',
    )
    assert task.env == {"A": "1", "MODE": "fast", "EMPTY": "", "PART": "a${B}c"}
    assert (task.agent_env, task.test_env, task.solution_env) == ({"B": "2"}, {"C": "3"}, {"D": "4"})


def test_health_check_and_working_directory_are_applied(tmp_path: Path) -> None:
    toml = '[environment]\nworkdir = "/srv"\n[environment.healthcheck]\ncommand = "true"\ninterval_sec = 1\n'
    task = read(tmp_path, toml + "start_period_sec = 2\nretries = 5")
    assert (task.workdir, task.healthcheck) == ("/srv", TaskHealthcheck("true", 1, 30, 2, 5, 5))


def test_commands_that_collect_are_those_of_the_task(tmp_path: Path) -> None:
    toml = '[[verifier.collect]]\ncommand = "a"\nservice = "main"\n[[verifier.collect]]\ncommand = "b"\nuser = 1000\n'
    task = read(tmp_path, f"{toml}timeout_sec = 2")
    assert task.collect == (CollectCommand("a"), CollectCommand("b", 2.0, "1000"))


def test_agent_and_tests_have_users_of_their_own(tmp_path: Path) -> None:
    task = read(tmp_path, '[agent]\nuser = "bob"\n[verifier]\nuser = 1000')
    assert (task.agent_user, task.tests_user) == ("bob", "1000")


def test_the_compose_files_user_is_that_of_both(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    build: .\n    user: 1000:50\n"
    task = load(tmp_path, '[verifier]\nuser = "root"', **{"environment__docker-compose.yaml": compose}).require_task()
    assert (task.agent_user, task.tests_user, task.container_user) == ("1000:50", "root", "1000:50")


def test_the_compose_files_build_may_have_no_network(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    build: {context: ., network: none}\n"
    task = load(tmp_path, "[environment]\nallow_internet = true", **{"environment__docker-compose.yaml": compose})
    assert task.require_task().network == TaskNetwork(build=NONE, agent=FULL, verify=FULL)


def test_artifacts_may_be_tables(tmp_path: Path) -> None:
    toml = 'artifacts = ["/a", {source = "/b", destination = "b.txt"}]\n[verifier]\nenvironment_mode = "separate"'
    task = read(tmp_path, toml)
    assert (task.artifacts, task.grading) == (("/logs/artifacts", "/a", "/b"), GradingLevel.ARTIFACTS)


@pytest.mark.parametrize(
    ("artifacts", "paths", "excludes"),
    [
        ("[]", ("/logs/artifacts",), {}),
        ('["/a//b/./c/"]', ("/logs/artifacts", "/a/b/c"), {}),
        ('[{source = "/a", exclude = ["*.o", "b"]}]', ("/logs/artifacts", "/a"), {"/a": ("*.o", "b")}),
        (
            '["/b", {source = "/logs/artifacts/", exclude = ["x"]}]',
            ("/b", "/logs/artifacts"),
            {"/logs/artifacts": ("x",)},
        ),
        ('["/a", {source = "/a/", exclude = ["x"]}]', ("/logs/artifacts", "/a"), {}),
    ],
)
def test_tests_of_their_own_get_what_is_published_and_what_is_named_without_what_is_excluded(
    tmp_path: Path, artifacts: str, paths: tuple[str, ...], excludes: dict[str, tuple[str, ...]]
) -> None:
    task = read(tmp_path, f'artifacts = {artifacts}\n[verifier]\nenvironment_mode = "separate"')
    assert (task.artifacts, task.artifact_excludes) == (paths, excludes)


@pytest.mark.parametrize(
    ("toml", "what"),
    [
        ('[environment]\nos = "Windows"', "environment.os = 'windows'"),
        ("[environment]\ngpus = 1", "environment.gpus = 1"),
        ('[environment]\nmemory = "2G"\nmemory_mb = 512', "environment.memory and memory_mb differ"),
        ('[environment]\nworkdir = "app"', "'app' is not an absolute path: write /app"),
        ('[environment.tpu]\ntype = "v6e"\ntopology = "2x2"', "environment.tpu"),
        ('[[environment.mcp_servers]]\nname = "a"\nurl = "b"', "environment.mcp_servers"),
        ('[environment]\nskills_dir = "/skills"', "environment.skills_dir"),
        ('[environment]\nnetwork_mode = "offline"', "environment.network_mode"),
        ('[environment]\nallowed_hosts = ["a.org"]', "environment.allowed_hosts"),
        ('[verifier]\nnetwork_mode = "public"\nallowed_hosts = ["a.org"]', "verifier.allowed_hosts"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["8.8.0.1/16"]', "allowed_hosts: '8.8.0.1/16'"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.*.org"]', "allowed_hosts: 'a.*.org'"),
        (
            '[agent]\nnetwork_mode = "allowlist"\n[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["b"]',
            "different allowed_hosts",
        ),
        ('[environment.env]\nMODE = "${MODE}"', "environment.env.MODE"),
        ('[verifier.env]\nKEY = "${OPENAI_API_KEY}"', "verifier.env.KEY"),
        ('[[verifier.collect]]\ncommand = "dump"\nservice = "db"', "verifier.collect of the service db"),
        ('[verifier.environment]\ndocker_image = "a"\ngpus = 1', "verifier.environment.gpus = 1"),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1', "contradicts"),
        ('artifacts = ["out.csv"]', "artifacts: 'out.csv'"),
        ('artifacts = [{source = "/a", service = "db"}]', "of the service db"),
    ],
)
def test_an_unsupported_key_makes_the_task_unusable_and_is_named(tmp_path: Path, toml: str, what: str) -> None:
    loaded = load(tmp_path, toml)
    assert loaded.task is None
    assert what in "\n".join(map(str, loaded.problems))


SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'


def test_tests_may_have_an_image_of_their_own(tmp_path: Path) -> None:
    task = load(
        tmp_path, f"{SEPARATE}[environment.env]\nA = '1'", tests__Dockerfile="FROM a", tests__x=""
    ).require_task()
    assert task.tests_environment is not None
    assert task.tests_environment.build is not None
    assert task.tests_environment.build.files.keys() == {"Dockerfile", "x", "test.sh"}
    assert (task.grading, task.tests_environment.env) == (GradingLevel.ARTIFACTS, {"A": "1"})
    again = load_task_folder(HARBOR, write_task_folder(HARBOR, task, tmp_path / "again")).require_task()
    assert again == task


def test_the_tests_image_may_be_named(tmp_path: Path) -> None:
    task = read(tmp_path, '[verifier.environment]\ndocker_image = "checker:1"\nworkdir = "/t"\nenv = {A = "${B:-c}"}')
    assert task.tests_environment == TestsEnvironment("checker:1", env={"A": "c"}, workdir="/t")
    assert task.grading is GradingLevel.ARTIFACTS


def test_the_tests_container_may_have_limits_of_its_own(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        f'{SEPARATE}[verifier.environment]\ncpus = 4\nmemory = "3G"\nstorage_mb = 99\nbuild_timeout_sec = 9\n'
        '[verifier.environment.healthcheck]\ncommand = "true"',
        tests__Dockerfile="FROM a",
    )
    own = loaded.require_task().tests_environment
    assert own is not None
    assert (own.cpus, own.memory_mb, own.storage_mb) == (4, 3072, 99)
    assert loaded.remarks == (
        "verifier.environment: build_timeout_sec is not used: the tests' image has the run's limit",
        "verifier.environment: healthcheck is not used: only the agent's container is checked",
    )


def test_tests_in_a_container_of_the_agents_image_may_have_their_own_limits_and_variables(tmp_path: Path) -> None:
    toml = '[environment.env]\nA = "1"\n[verifier.environment]\ncpus = 2\nworkdir = "/t"\nenv = {B = "2"}'
    task = read(tmp_path, toml)
    assert task.tests_environment == TestsEnvironment(env={"B": "2"}, workdir="/t", cpus=2)
    assert (task.has_tests_image, task.grading) == (False, GradingLevel.ARTIFACTS)


def test_tests_with_services_of_their_own_are_named(tmp_path: Path) -> None:
    loaded = load(tmp_path, SEPARATE, **{"tests__docker-compose.yaml": "services: {}"})
    assert "tests/docker-compose.yaml" in str(loaded.problems[0])


@pytest.mark.parametrize(
    ("toml", "what"),
    [
        ('[environment]\ngpu_types = ["H100"]', "gpu_types"),
        ('multi_step_reward_strategy = "final"', "multi_step_reward_strategy"),
        ("[agent]\nretries = 3", "[agent] has keys that Harbor does not know either: retries"),
        ('[environment.healthcheck]\ncommand = "true"\nretry = 1', "[environment.healthcheck] has keys"),
        ('artifacts = [{source = "/a", mode = 1}]', "the artifact /a has keys"),
        ('[[verifier.collect]]\ncommand = "a"\nretries = 1', "verifier.collect.0 has keys"),
        ("colour = 1", "task.toml has keys that Harbor does not know either: colour"),
    ],
)
def test_a_key_without_effect_is_a_remark(tmp_path: Path, toml: str, what: str) -> None:
    loaded = load(tmp_path, toml)
    assert loaded.task is not None
    assert [what in each for each in loaded.remarks] == [True]


def test_every_key_that_harbor_documents_is_known(tmp_path: Path) -> None:
    toml = """
schema_version = "1.4"
source = "a"
[task]
name = "org/a"
keywords = ["x"]
[metadata]
anything = 1
[verifier]
timeout_sec = 1
environment_mode = "shared"
network_mode = "public"
env = {}
user = "root"
collect = []
[agent]
timeout_sec = 1
user = "root"
network_mode = "public"
[environment]
build_timeout_sec = 1
os = "linux"
cpus = 1
memory_mb = 1
storage_mb = 1
gpus = 0
mcp_servers = []
network_mode = "public"
env = {}
workdir = "/a"
[solution]
env = {}
"""
    assert load(tmp_path, toml).remarks == ()


def test_a_compose_file_of_another_name_is_material_of_the_task(tmp_path: Path) -> None:
    """Harbor's own is docker-compose.yaml; a task may ask to repair one."""
    loaded = load(tmp_path, "", **{"environment__docker-compose.yml": "services: {broken"})
    task = loaded.require_task()
    assert task.build is not None
    assert "docker-compose.yml" in task.build.files


def test_a_compose_file_may_have_only_other_services(tmp_path: Path) -> None:
    """Harbor merges it with a file of its own that has the agent's."""
    loaded = load(tmp_path, "", **{"environment__docker-compose.yaml": "services: {db: {image: 'postgres:16'}}"})
    task = loaded.require_task()
    assert (task.build is not None, [each.name for each in task.services]) == (True, ["db"])


@pytest.mark.parametrize(
    ("line", "started"),
    [
        ("command: sh -c 'sleep infinity'", (None, ())),
        ("command: sh -c 'serve & sleep infinity'", (None, ("sh", "-c", "serve & sleep infinity"))),
        ("command: [serve, $$A]", (None, ("serve", "$A"))),
        ("entrypoint: /entry 'a b'", (("/entry", "a b"), ())),
        ("entrypoint: []", ((), ())),
        ("entrypoint: ''", ((), ())),
    ],
)
def test_what_the_compose_file_starts_is_started(
    tmp_path: Path, line: str, started: tuple[tuple[str, ...] | None, tuple[str, ...]]
) -> None:
    compose = f"services:\n  main:\n    {line}\n"
    loaded = load(tmp_path, "", **{"environment__docker-compose.yaml": compose})
    task = loaded.require_task()
    assert (task.entrypoint, task.command, loaded.remarks) == (*started, ())
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, tmp_path / "again")).require_task() == task


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("{test: a b}", TaskHealthcheck("sh -c 'a b'", 30, 30, 30, 5, 3)),
        (
            "{test: [CMD, a, b c], interval: 1m30s, retries: 9}",
            TaskHealthcheck("sh -c 'a '\"'\"'b c'\"'\"''", 90, 30, 90, 5, 9),
        ),
        (
            "{test: [CMD-SHELL, a], interval: 500ms, timeout: 2s, start_period: 1m, start_interval: 1s}",
            TaskHealthcheck("sh -c a", 0.5, 2, 60.5, 0.5, 3),
        ),
        ("{test: [NONE]}", None),
        ("{test: a, disable: true}", None),
    ],
)
def test_the_compose_files_health_check_is_that_of_docker(
    tmp_path: Path, check: str, expected: TaskHealthcheck | None
) -> None:
    compose = f"services:\n  main:\n    healthcheck: {check}\n"
    loaded = load(tmp_path, "", **{"environment__docker-compose.yaml": compose})
    assert loaded.require_task().healthcheck == expected


def test_two_health_checks_are_named(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    healthcheck: {test: a}\n"
    toml = '[environment.healthcheck]\ncommand = "b"'
    loaded = load(tmp_path, toml, **{"environment__docker-compose.yaml": compose})
    assert "a healthcheck beside [environment.healthcheck]" in str(loaded.problems[0])


def test_a_service_that_compose_does_not_start_is_named(tmp_path: Path) -> None:
    compose = "services:\n  main: {depends_on: [b, c]}\n  b: {image: a, depends_on: {main: {}}}\n"
    compose += "  c: {image: a, profiles: [x]}\n"
    loaded = load(tmp_path, "", **{"environment__docker-compose.yaml": compose})
    assert [each.what for each in loaded.problems] == ["docker-compose.yaml: services.main.depends_on: c"]


def test_compose_keys_without_effect_are_remarks(tmp_path: Path) -> None:
    compose = """
services:
  main: {platform: linux/amd64, ports: ["80:80"], logging: {driver: none}, stop_signal: SIGINT, pull_policy: always}
  db: {image: "postgres:16", ports: [5432]}
  debug: {image: busybox, profiles: [tools]}
"""
    loaded = load(tmp_path, "", **{"environment__docker-compose.yaml": compose})
    assert [service.name for service in loaded.require_task().services] == ["db"]
    assert [remark.split()[1] for remark in loaded.remarks] == [
        "services.main.ports",
        "services.main.platform",
        "services.db.ports",
        "services.debug",
    ]


def test_the_compose_files_host_name_is_that_of_the_container(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    hostname: box\n"
    task = load(tmp_path, "", **{"environment__docker-compose.yaml": compose}).require_task()
    assert task.hostname == "box"


def test_a_named_image_comes_before_the_compose_files_build(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    build: .\n"
    toml = '[environment]\ndocker_image = "made:1"'
    task = load(tmp_path, toml, **{"environment__docker-compose.yaml": compose}).require_task()
    assert (task.image, task.build) == ("made:1", None)


@pytest.mark.parametrize(
    ("key", "files", "env"),
    [
        (
            "a.env",
            {"a.env": "# a\n\nexport A=1 # one\nB: 'x $y'\nC=\"a b\"\nD=\n"},
            {"A": "1", "B": "x $y", "C": "a b", "D": ""},
        ),
        ("[./a.env, b/c.env]", {"a.env": "A=1\nB=1", "b/c.env": "B=2"}, {"A": "1", "B": "2"}),
        ("[{path: a.env, required: false}]", {}, {}),
    ],
)
def test_variables_may_be_in_files(tmp_path: Path, key: str, files: dict[str, str], env: dict[str, str]) -> None:
    compose = f"services:\n  main:\n    env_file: {key}\n    environment: {{E: here}}\n"
    inside = {f"environment/{path}": text for path, text in files.items()}
    task = load(tmp_path, "", **{"environment/docker-compose.yaml": compose, **inside}).require_task()
    assert task.env == {**env, "E": "here"}


@pytest.mark.parametrize(
    ("line", "what"), [("A=$B", "a.env:2"), ("A", "a.env:2"), ('A="b', "a.env:2"), (None, "is missing")]
)
def test_a_file_of_variables_that_cannot_be_read_is_named(tmp_path: Path, line: str | None, what: str) -> None:
    given = {} if line is None else {"environment/a.env": f"A=1\n{line}\n"}
    compose = "services:\n  main:\n    env_file: a.env\n"
    loaded = load(tmp_path, "", **{"environment/docker-compose.yaml": compose, **given})
    assert [what in str(each) for each in loaded.problems] == [True]


def test_variables_of_the_environment_are_those_of_the_compose_file(tmp_path: Path) -> None:
    compose = "services:\n  main: {}\n  db: {image: 'db:${VERSION}', environment: {P: '${PASSWORD:-none}'}}\n"
    toml = '[environment.env]\nVERSION = "16"\nPASSWORD = "${SECRET:-known}"'
    task = load(tmp_path, toml, **{"environment/docker-compose.yaml": compose}).require_task()
    assert [(each.image, each.env) for each in task.services] == [("db:16", {"P": "known"})]


def test_a_compose_files_own_variables_come_after_those_of_the_environment(tmp_path: Path) -> None:
    compose = "services:\n  main:\n    environment: {P: '${A}', Q: '${B:-default}', R: '${C:-default}'}\n"
    own = "A=own\n# B=no\nexport B='own too'\nUNUSED=$HOME\n"
    files = {"environment/docker-compose.yaml": compose, "environment/.env": own}
    task = load(tmp_path, '[environment.env]\nA = "task\'s"', **files).require_task()
    assert task.env == {"A": "task's", "P": "task's", "Q": "own too", "R": "default"}
    compose = "services:\n  main:\n    environment: {A: '2'}\n"
    both = load(tmp_path, '[environment.env]\nA = "1"', **{"environment/docker-compose.yaml": compose}).require_task()
    assert both.env == {"A": "1"}
    files["environment/.env"] = "A=$HOME\n"
    assert [".env:1" in str(each) for each in load(tmp_path, "", **files).problems] == [True, False]


def test_no_agent_is_told_of_a_canary(tmp_path: Path) -> None:
    canary = "<!-- task-canary GUID 1 -->\n# CANARY 2\n\n"
    task = load(tmp_path, "", **{"instruction.md": f"{canary}# Canary birds\nCount them.\n"})
    assert task.require_task().instruction == "# Canary birds\nCount them."
    text = f"{canary}Count.\n# canary\n"
    steps = load(tmp_path / "s", '[[steps]]\nname = "one"', **{"steps/one/instruction.md": text}).require_task()
    assert steps.steps[0].instruction == "Count.\n# canary"
    (problem,) = load(tmp_path / "only", "", **{"instruction.md": canary}).problems
    assert "instruction.md has only a canary" in str(problem)


def test_loose_files_of_the_environment_are_put_into_the_named_image(tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "made:1"\nworkdir = "/srv"\n'
    folder = tmp_path / "a"
    load(tmp_path, toml, **{"environment/data/x.csv": "1,2", "environment/setup.sh": "exit 1"})
    (folder / "environment/Dockerfile").unlink()
    task = load_task_folder(HARBOR, folder).require_task()
    assert task.build is not None
    assert task.build.files == {
        "Dockerfile": b'FROM made:1\nWORKDIR /srv\nCOPY ["environment/", "./"]\n',
        "environment/data/x.csv": b"1,2",
        "environment/setup.sh": b"exit 1",
    }
    assert (task.files, task.setup, task.workdir) == ({}, "", "/srv")
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, tmp_path / "again")).require_task() == task


def test_a_compose_file_that_names_the_image_still_builds_the_dockerfile(tmp_path: Path) -> None:
    compose = {"environment__docker-compose.yaml": "services:\n  main:\n    image: mine:1\n"}
    task = load(tmp_path, "", **compose).require_task()
    assert task.build is not None
    assert task.build.files["Dockerfile"].startswith(b"FROM debian")


def test_files_of_tests_and_solution_that_their_rules_name_are_left_out(tmp_path: Path) -> None:
    files = {
        "tests/.harborignore": "# notes\n*.md\n!kept.md\n/d/\nout/*\n",
        "tests/kept.md": "",
        "tests/left.md": "",
        "tests/d/kept.md": "",
        "tests/out/a": "",
        "tests/in/.harborignore": "!left.md\n*.log\n",
        "tests/in/left.md": "",
        "tests/in/a.log": "",
        "tests/a.log": "",
        "solution/.harborignore": "draft\n",
        "solution/draft/a": "",
        "solution/kept.md": "",
        "environment/.harborignore": "Dockerfile\n",
    }
    task = load(tmp_path, "", **files).require_task()
    assert set(task.tests) == {"kept.md", "in/left.md", "a.log"}
    assert set(task.solution_files) == {"kept.md"}
    assert task.build is not None
    assert {"Dockerfile", ".harborignore"} <= set(task.build.files)


def test_rules_that_leave_out_the_tests_or_cannot_be_read_are_named(tmp_path: Path) -> None:
    (needed,) = load(tmp_path / "a", "", **{"tests/.harborignore": "test.sh\n"}).problems
    assert "tests/test.sh" in str(needed)
    (unreadable,) = load(tmp_path / "b", "", **{"tests/d/.harborignore": "!\n"}).problems
    assert "tests/d/.harborignore" in str(unreadable)


def test_a_key_of_a_service_without_a_value_is_unset(tmp_path: Path) -> None:
    compose = {"environment__docker-compose.yaml": "services:\n  main:\n    environment:\n    volumes:\n    user:\n"}
    assert load(tmp_path, "", **compose).require_task().env == {}


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("healthcheck: {test: [curl, localhost]}", "a list begins with NONE, CMD or CMD-SHELL, not with 'curl'"),
        ("env_file: 5", "services.main: env_file"),
    ],
)
def test_a_value_that_compose_refuses_is_named(tmp_path: Path, key: str, what: str) -> None:
    compose = {"environment__docker-compose.yaml": f"services:\n  main:\n    {key}\n"}
    (problem,) = load(tmp_path, "", **compose).problems
    assert what in str(problem)


def test_a_dockerfile_that_copies_all_of_its_folder_copies_the_compose_file_too(tmp_path: Path) -> None:
    files = {"environment/docker-compose.yaml": "services:\n  main:\n    user: '0'\n"}
    task = load(tmp_path, "", **{"environment/Dockerfile": "FROM debian\nCOPY . /app/\n"}, **files).require_task()
    assert task.build is not None
    assert "docker-compose.yaml" in task.build.files


def test_a_dockerfile_s_own_rules_of_what_is_ignored_come_first(tmp_path: Path) -> None:
    files = {"Dockerfile.dockerignore": "b\n", ".dockerignore": "a\n", "a": "", "b": ""}
    task = load(tmp_path, "", **{f"environment/{path}": text for path, text in files.items()}).require_task()
    assert task.build is not None
    assert {"a", "b"} & task.build.files.keys() == {"a"}


def test_a_path_of_the_tests_is_warned_about(tmp_path: Path) -> None:
    warning = "its tests find the toolchain's programs before those in the PATH that it gives them"
    assert warning in find_task_warnings(read(tmp_path / "a", '[verifier.env]\nPATH = "/opt/bin:/bin"'))
    assert warning not in find_task_warnings(read(tmp_path / "b", '[verifier.env]\nPATHS = "/opt/bin:/bin"'))


def test_empty_folders_are_those_of_the_task(tmp_path: Path) -> None:
    for path in ("tests/e/f", "solution/e", "environment/e", "environment/ignored", "environment/.git"):
        (tmp_path / "a" / path).mkdir(parents=True)
    files = {"environment/Dockerfile": "FROM a\nCOPY e /e\n", "environment/.dockerignore": "ignored\n"}
    task = load(tmp_path, "", **files).require_task()
    assert (task.tests, task.solution_files) == ({"e/f/": b""}, {"e/": b""})
    assert task.build is not None
    assert task.build.files.keys() == {"Dockerfile", ".dockerignore", "e/"}
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, tmp_path / "again")).require_task() == task
    assert decode_task(encode_task(task)) == task
