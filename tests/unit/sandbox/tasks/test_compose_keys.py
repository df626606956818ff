"""If these fail, what a compose file says of a service is dropped in silence, or lost when the task is rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.http.task_codec import decode_task, encode_task
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.formats.folders import load_task_folder, write_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task

FILES = {
    "task.toml": "",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM debian\nRUN true\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
}


def load(parent: Path, compose: str, **more: str) -> LoadedTask:
    files = FILES | {"environment/docker-compose.yaml": f"services:\n{compose}"} | more
    for path, text in files.items():
        (parent / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / "a" / path).write_text(text)
    return load_task_folder(HARBOR, parent / "a")


def read(parent: Path, compose: str, **more: str) -> Task:
    """Return a task that has no remark, and that its own format can hold without a file of ours."""
    loaded = load(parent, compose, **more)
    task = loaded.require_task()
    assert loaded.remarks == ()
    written = write_task_folder(HARBOR, task, parent / "again")
    again = load_task_folder(HARBOR, written).require_task()
    assert (again.services, again.build, again.ulimits) == (task.services, task.build, task.ulimits)
    own = (written / "longshore.yaml").read_text() if (written / "longshore.yaml").exists() else ""
    assert not {"services", "build", "ulimits"} & {line.partition(":")[0] for line in own.splitlines()}
    return task


@pytest.mark.parametrize(
    ("lines", "entrypoint", "command"),
    [
        ("", None, ()),
        ("command: serve 'a b'", None, ("serve", "a b")),
        ("entrypoint: /entry 'a b'", ("/entry", "a b"), ()),
        ('entrypoint: ["$$A"], command: [b]', ("$A",), ("b",)),
        ("entrypoint: []", (), ()),
        ("entrypoint: null", None, ()),
    ],
)
def test_a_service_starts_what_it_names(
    tmp_path: Path, lines: str, entrypoint: tuple[str, ...] | None, command: tuple[str, ...]
) -> None:
    (db,) = read(tmp_path, f"  db: {{image: 'postgres:16', {lines}}}\n").services
    assert (db.entrypoint, db.command) == (entrypoint, command)


def test_a_service_has_the_user_the_folder_and_the_host_name_that_it_names(tmp_path: Path) -> None:
    (db,) = read(
        tmp_path, "  db: {image: 'postgres:16', user: 1000:50, working_dir: /srv//a/, hostname: db-1.a}\n"
    ).services
    assert (db.user, db.workdir, db.hostname) == ("1000:50", "/srv/a", "db-1.a")
    (number,) = read(tmp_path / "b", "  db: {image: 'postgres:16', user: 999}\n").services
    assert number.user == "999"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("working_dir: srv", "'srv' is not an absolute path: write /srv"),
        ('entrypoint: "serve \'a"', "db.entrypoint"),
        ("entrypoint: {a: b}", "entrypoint"),
        ("user: [a]", "user"),
        ("hostname: a b", "'a b' is not a host name"),
        ('command: ["a\\0"]', "entrypoint or command has a NUL byte"),
    ],
)
def test_a_wrong_value_of_a_service_is_named(tmp_path: Path, lines: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  db: {{image: 'postgres:16', {lines}}}\n").problems))


def test_a_services_folder_in_longshores_own_file_is_absolute(tmp_path: Path) -> None:
    """Docker would refuse the container, which would count as a failure of the machine."""
    own = {"longshore.yaml": "services: [{name: db, image: 'postgres:16', workdir: srv}]\n"}
    assert "workdir: 'srv'" in str(load(tmp_path, "  main: {}\n", **own).problems)


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        ({}, ".dockerignore\n.longshore-Dockerfile\n"),
        ({"environment/.dockerignore": "*.md\n!**"}, "*.md\n!**\n.longshore-Dockerfile\n"),
    ],
)
def test_a_dockerfile_may_be_a_text_in_the_compose_file(tmp_path: Path, given: dict[str, str], ignored: str) -> None:
    """As in Compose, what it copies does not contain it."""
    lines = "FROM debian\\nWORKDIR /srv\\nCOPY . /srv\\nRUN echo $$HOME ${A:-b}\\n"
    task = read(tmp_path, f'  main: {{build: {{dockerfile_inline: "{lines}", args: {{V: 1}}}}}}\n', **given)
    assert task.build is not None
    assert task.build.files[task.build.dockerfile] == b"FROM debian\nWORKDIR /srv\nCOPY . /srv\nRUN echo $HOME b\n"
    assert task.build.files[".dockerignore"].decode() == ignored
    assert (task.build.args, task.workdir) == ({"V": "1"}, "/srv")
    assert "docker-compose.yaml" in task.build.files, "all of the folder is copied"


def test_a_services_dockerfile_may_be_a_text_too(tmp_path: Path) -> None:
    build = '{context: ./db, dockerfile_inline: "FROM postgres:16\\nCOPY x /\\n"}'
    (db,) = read(tmp_path, f"  db: {{build: {build}}}\n", **{"environment/db/x": "1"}).services
    assert db.build is not None
    assert (db.build.files[db.build.dockerfile], db.build.files["x"]) == (b"FROM postgres:16\nCOPY x /\n", b"1")


@pytest.mark.parametrize(
    ("build", "what"),
    [
        ("{dockerfile: A, dockerfile_inline: FROM a}", "dockerfile and dockerfile_inline exclude each other"),
        ("{dockerfile_inline: RUN true}", "names no image"),
        ('{dockerfile_inline: "FROM a\\nCOPY absent /"}', "copies 'absent', which is not in its context"),
        ("{dockerfile_inline: [a]}", "build.dockerfile_inline"),
    ],
)
def test_a_wrong_dockerfile_in_the_compose_file_is_named(tmp_path: Path, build: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  main: {{build: {build}}}\n").problems))


@pytest.mark.parametrize(
    ("lines", "limits"),
    [
        ("nofile: 65536", (ProcessLimit("nofile", 65536, 65536),)),
        ("nofile: {soft: 1024, hard: '4096'}", (ProcessLimit("nofile", 1024, 4096),)),
        ("memlock: {soft: -1, hard: -1}, core: '0'", (ProcessLimit("memlock", -1, -1), ProcessLimit("core", 0, 0))),
        ("nproc: 65535, stack: {soft: 67108864, hard: -1}",
         (ProcessLimit("nproc", 65535, 65535), ProcessLimit("stack", 64 << 20, -1))),
    ],
)  # fmt: skip
def test_limits_of_each_process_are_those_of_the_compose_file(
    tmp_path: Path, lines: str, limits: tuple[ProcessLimit, ...]
) -> None:
    task = read(tmp_path, f"  main: {{ulimits: {{{lines}}}}}\n  db: {{image: 'db:1', ulimits: {{{lines}}}}}\n")
    assert (task.ulimits, task.services[0].ulimits) == (limits, limits)
    assert decode_task(encode_task(task)) == task


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("core: -1", "ulimits: core -1:-1 (a sandbox writes no core dumps"),
        ("core: {soft: 0, hard: 1}", "writes no core dumps"),
        ("nofile: 100", "need 256"),
        ("nofile: {soft: 100, hard: 1000}", "need 256"),
        ("nofile: -1", "kernels allow 1,048,576"),
        ("nofile: 2000000", "kernels allow 1,048,576"),
        ("nofile: {soft: 2000, hard: 1000}", "the soft limit is above the hard one"),
        ("memlock: {soft: -1, hard: 100000}", "the soft limit is above the hard one"),
        ("nproc: 100", "in all sandboxes together"),
        ("stack: 4096", "need 1 MiB"),
        ("rtprio: 1", "only core, memlock, nofile, nproc, stack can be set"),
        ("nofile: many", "ulimits.nofile"),
        ("nofile: {soft: 1024}", "ulimits.nofile.hard"),
    ],
)
@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
def test_limits_that_no_sandbox_can_have_are_named(tmp_path: Path, service: str, lines: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  {service}ulimits: {{{lines}}}}}\n").problems))


@pytest.mark.parametrize("given", ["['host.docker.internal:host-gateway']", "{a.example: 127.0.0.1}"])
@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
def test_names_of_hosts_are_refused_with_the_reason(tmp_path: Path, service: str, given: str) -> None:
    (problem,) = load(tmp_path, f"  {service}extra_hosts: {given}}}\n").problems
    assert "extra_hosts" in str(problem)
    assert "a name leads only to services of the file" in str(problem)
    assert load(tmp_path / "none", f"  {service}extra_hosts: []}}\n").problems == ()


@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
@pytest.mark.parametrize(
    ("lines", "what", "why"),
    [
        ("networks: {n: {aliases: [other]}}", "networks.n.aliases", "not in the supported part of Compose"),
        (
            "depends_on: {a: {condition: service_completed_successfully}}",
            "depends_on.a.condition",
            "service_completed_successfully is not supported",
        ),
    ],
)
def test_a_key_with_two_forms_is_named_once(tmp_path: Path, service: str, lines: str, what: str, why: str) -> None:
    (problem,) = load(tmp_path, f"  {service}{lines}}}\n").problems
    assert problem.what.endswith(what)
    assert why in problem.why


@pytest.mark.parametrize(
    "lines",
    [
        "networks: [n], depends_on: [main]",
        "networks: {n: null}, depends_on: {main: {condition: service_started}}",
    ],
)
def test_networks_and_dependencies_have_two_forms(tmp_path: Path, lines: str) -> None:
    assert read(tmp_path, f"  db: {{image: 'db:1', {lines}}}\n").services[0].name == "db"
