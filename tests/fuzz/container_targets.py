"""A Dockerfile with its context, and a compose file, as the author of a task writes them."""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.container_files.compose import read_compose_file
from sandbox.tasks.container_files.dockerfile import (
    DockerfileInstruction,
    copied_sources,
    find_environment,
    find_workdir,
    parse_instructions,
    parse_plain_dockerfile,
)
from sandbox.tasks.container_files.named_images import find_named_images
from sandbox.tasks.file_tree import FileTree, TreeFile
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import ImageBuild
from tests.fuzz.folder_text import join_folder, split_folder
from tests.fuzz.fuzz_target import FuzzFindingError, FuzzTarget, InputKind

_URLS = ("http://", "https://")


def _dockerfile(data: bytes) -> None:
    text = data.decode(errors="replace")
    parsed = parse_instructions(text)
    find_environment(parsed, {"A": "b"})
    find_workdir(parsed, {"A": "b"}, "final")
    list(copied_sources(parsed))
    parse_plain_dockerfile(text)
    files = {"Dockerfile": data, "a": b"A", "d/e": b"E", "x.sh": b"#!/bin/sh\n"}
    build = ImageBuild(files, executable=frozenset({"x.sh"}), args={"A": "b"}, target="final")
    find_named_images(build)
    try:
        classic = to_classic(build, "amd64", {"https://example.org/a.txt": b"text"})
    except UnsupportedSyntaxError:
        return
    find_named_images(classic.build)
    rewritten = classic.build.files["Dockerfile"].decode(errors="surrogateescape")
    for instruction in parse_instructions(rewritten):
        if instruction.name == "ADD" and any(source.lower().startswith(_URLS) for source in _sources(instruction)):
            raise FuzzFindingError(f"the engine would fetch ADD {instruction.arguments}")


def _sources(added: DockerfileInstruction) -> list[str]:
    begin = added.arguments.find("[")
    try:
        return json.loads(added.arguments[begin:])[:-1] if begin >= 0 else added.arguments.split()[:-1]
    except (ValueError, RecursionError):
        return added.arguments.split()[:-1]


def _compose(data: bytes) -> None:
    problems = TaskProblems(Path("task"))
    tree = FileTree(split_folder(data))
    for is_merged in (False, True):
        read_compose_file(tree, ("docker-compose.yaml",), "main", {"A": "b"}, problems, is_merged=is_merged)


_DOCKERFILES = [
    b"""# syntax=docker/dockerfile:1
ARG BASE=debian:bookworm-slim
FROM --platform=$BUILDPLATFORM ${BASE} AS build
ARG TARGETARCH
ENV PATH=/opt/bin:$PATH LANG="C.UTF-8"
SHELL ["/bin/bash", "-ec"]
RUN --mount=type=cache,target=/var/cache/apt,uid=1 --mount=type=bind,source=a,target=/a apt-get update \\
    # a comment
    && apt-get install -y make
RUN <<EOF
echo one
EOF
COPY --chmod=755 --chown=1:2 x.sh d/ /usr/local/bin/
COPY <<'A' <<-B /files/
text $x
A
	more ${LANG}
	B
ADD --checksum=sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1 https://example.org/a.txt /srv/
ADD ["a", "/app/"]
FROM scratch AS final
COPY --link --from=build /a /a
USER nobody:100
WORKDIR /srv
ONBUILD ADD a /b
HEALTHCHECK CMD true
CMD ["sh"]
""",
    b"# escape=`\nFROM a`\n  AS b\nADD $A ${B:-c} /x\nRUN echo `\n  a\n",
    b"FROM debian\nWORKDIR /app\nCOPY rootfs/ /\nCOPY setup.sh /tmp/setup.sh\nRUN sh /tmp/setup.sh\n",
    b'FROM a\nADD https://example.org/a.txt a "/b c"\nADD --chmod=600 a d/e ./\nADD git@github.com:a/b.git /c\n',
]
_COMPOSE_FILES = [
    b"""version: "3"
x-common: &common
  restart: always
services:
  main:
    <<: *common
    build: {context: ., dockerfile: Dockerfile, args: {A: "${A:-b}", B: 1.50}, target: final}
    image: ${MAIN_IMAGE:-a}
    command: ["sh", "-c", "sleep infinity"]
    environment: [A=b, "C=${A}"]
    working_dir: /app
    user: 1000:50
    mem_limit: 512m
    cpus: 1.5
    deploy: {resources: {limits: {cpus: "0.5", memory: 2G, pids: 100}}}
    shm_size: 64mb
    ulimits: {nofile: {soft: 1024, hard: 65536}, memlock: -1}
    tmpfs: [/run, "/cache:size=64m"]
    volumes: ["./data:/data:ro", "named:/n", {type: bind, source: ./data, target: /again}]
    depends_on: {db: {condition: service_healthy}}
    ports: ["80:80"]
    networks: [net]
    cap_add: [NET_BIND_SERVICE]
  db:
    image: postgres:16
    hostname: db
    entrypoint: [sh, -c, 'exec "$$@"', sh]
    user: 999
    working_dir: /var/lib/
    environment: {POSTGRES_PASSWORD: x, ON: on, N: 1e6}
    healthcheck: {test: ["CMD", "pg_isready", "-U", "a b"], interval: 2s}
    command: postgres -c 'a=b'
    volumes: ["named:/n", "./data:/data"]
    profiles: [dev]
networks: {net: {driver: bridge}}
volumes: {named: }
""",
    b"services:\n  client:\n    image: a\n    network_mode: none\n",
]


def _compose_corpus() -> list[bytes]:
    context = {"Dockerfile": TreeFile(b"FROM a\nCOPY data /data\n"), "data/a": TreeFile(b"A"), "a.txt": TreeFile(b"")}
    return [join_folder({"docker-compose.yaml": TreeFile(text), **context}) for text in _COMPOSE_FILES]


TARGETS = [
    FuzzTarget("dockerfile", InputKind.TEXT, _dockerfile, lambda: _DOCKERFILES),
    FuzzTarget("compose", InputKind.FOLDER, _compose, _compose_corpus),
]
