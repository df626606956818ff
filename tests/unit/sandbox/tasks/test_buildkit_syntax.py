"""If these fail, a Dockerfile of today fails to build, or makes another image than BuildKit would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.container_files.buildkit_syntax import ClassicBuild, to_classic
from sandbox.tasks.container_files.dockerfile import parse_plain_dockerfile
from sandbox.tasks.file_tree import FileTree, TreeFile
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import ImageBuild

FILES = {"a": b"A", "d/e": b"E", "x.sh": b"#!/bin/sh\n"}


def classic(text: str, **args: str) -> ClassicBuild:
    build = ImageBuild({**FILES, "Dockerfile": text.encode()}, executable=frozenset({"x.sh"}), args=args)
    return to_classic(build, "amd64")


def lines(text: str, **args: str) -> list[str]:
    return classic(f"FROM b\n{text}", **args).build.files["Dockerfile"].decode().splitlines()[1:]


@pytest.mark.parametrize(
    "text",
    [
        "RUN echo $((1<<4)) && cat <<<x\n",
        "COPY --chown=1:2 a /a\n",
        "COPY --from=one /a /a\n",
        "RUN a \\\n  # why\n  && b\n",
        "ARG TARGETARCH=sparc\n",
        "# syntax=docker/dockerfile:1\nRUN true\n",
    ],
)
def test_a_dockerfile_without_its_syntax_is_built_as_it_is(text: str) -> None:
    build = ImageBuild({"a": b"", "Dockerfile": f"FROM b\n{text}".encode()})
    assert to_classic(build, "amd64") == ClassicBuild(build, {})


@pytest.mark.parametrize(
    ("frontend", "is_own"),
    [
        ("docker/dockerfile:1.7-labs", True),
        ("docker.io/docker/dockerfile@sha256:00", True),
        ("mirror.example:5000/hub/docker/dockerfile-upstream:master", True),
        ("ghcr.io/someone/pyproject:2", False),
        ("someone/docker-dockerfile", False),
        ("x@docker/dockerfile", False),
    ],
)
def test_a_dockerfile_for_another_frontend_than_dockers_is_not_built_as_if_it_were_for_that(
    frontend: str, *, is_own: bool
) -> None:
    directive = ImageBuild({"Dockerfile": f"# escape=`\n# Syntax = {frontend}\nFROM b\n".encode()})
    argument = ImageBuild({"Dockerfile": b"FROM b\n"}, args={"BUILDKIT_SYNTAX": frontend})
    comment = ImageBuild({"Dockerfile": f"FROM b\n# syntax={frontend}\n".encode()})
    assert to_classic(comment, "amd64") == ClassicBuild(comment, {})
    assert bool(parse_plain_dockerfile(directive.files["Dockerfile"].decode())) is is_own
    for build in (directive, argument):
        if is_own:
            assert to_classic(build, "amd64") == ClassicBuild(build, {})
        else:
            with pytest.raises(UnsupportedSyntaxError, match=f"the frontend {frontend}"):
                to_classic(build, "amd64")


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("printf 'a\\n\\\nb'", "printf 'a\\nb'"),
        ("a \\  \n\n  # why\n  b\\\nc", "a   bc"),
        ("echo a\\\\\nUSER b", "echo a\\\\"),
        ("a \\", "a"),
    ],
)
def test_continued_lines_are_joined_as_docker_joins_them(text: str, run: str) -> None:
    assert lines(f"RUN --mount=type=secret,id=s {text}")[0] == f"RUN {run}"


@pytest.mark.parametrize(
    ("text", "shell", "script"),
    [
        ("RUN <<EOF\necho one\n\techo two\nEOF", ["/bin/sh", "-c"], "echo one\n\techo two\n"),
        ("RUN <<-'EOF'\n\techo $x\n\tEOF", ["/bin/sh", "-c"], "echo $x\n"),
        ("RUN cat <<EOF > /x\n  EOF\nhi\nEOF", ["/bin/sh", "-c"], "cat <<EOF > /x\n  EOF\nhi\nEOF"),
        ("RUN <<-EOF\n  EOF\nhi\n\tEOF", ["/bin/sh", "-c"], "  EOF\nhi\n"),
        ("RUN python3 <<EOF > /o\nprint(1)\nEOF", ["/bin/sh", "-c"], "python3 <<EOF > /o\nprint(1)\nEOF"),
        ("RUN cat <<A <<B\na\nA\nb\nB", ["/bin/sh", "-c"], "cat <<A <<B\na\nA\nb\nB"),
        ('SHELL ["bash", "-ec"]\nRUN <<EOF\n[[ a ]]\nEOF', ["bash", "-ec"], "[[ a ]]\n"),
    ],
)
def test_the_shell_runs_a_here_document_as_in_buildkit(text: str, shell: list[str], script: str) -> None:
    run = lines(text)[-1]
    assert json.loads(run.removeprefix("RUN ")) == [*shell, script]


def test_a_shell_lasts_for_its_stage_and_those_made_from_it() -> None:
    text = 'FROM b AS one\nSHELL ["bash", "-c"]\nFROM one AS two\nRUN <<E\nx\nE\nFROM b\nRUN <<E\nx\nE\n'
    runs = [line for line in lines(text) if line.startswith("RUN")]
    assert runs == ['RUN ["bash", "-c", "x\\n"]', 'RUN ["/bin/sh", "-c", "x\\n"]']


@pytest.mark.parametrize(
    ("word", "written", "content"),
    [
        ("<<EOT", "a $V ${V:-w} ${W:-w} ${V:+u} [$W] \\$V", "a 1 1 w u [] \\$V\n"),
        ("<<'EOT'", "a $V", "a $V\n"),
        ('<<-"EOT"', "\t\ta $V", "a $V\n"),
    ],
)
def test_a_here_document_becomes_a_file_of_the_context(word: str, written: str, content: str) -> None:
    made = classic(f"FROM b\nARG V=0\nCOPY {word} a /to/\n{written}\nEOT\n", V="1").build
    copy = made.files["Dockerfile"].decode().splitlines()[-1]
    source, plain, target = json.loads(copy.removeprefix("COPY "))
    assert (made.files[source], plain, target) == (content.encode(), "a", "/to/")
    assert source.endswith("/EOT"), "the file has the word's name in a folder"


def test_a_here_document_may_name_the_platform() -> None:
    made = classic("FROM b\nARG TARGETARCH\nCOPY <<E /a\n$TARGETARCH $TARGETOS\nE\n").build
    assert [data for path, data in made.files.items() if path.endswith("/E")] == [b"amd64 \n"], "only what it declares"


@pytest.mark.parametrize(
    ("copy", "modes"),
    [
        ("COPY --chmod=750 a /a", {"a": 0o750}),
        ("COPY --chmod=0444 --chown=1:1 a d /x/", {"a": 0o444, "d/e": 0o444}),
        ("COPY --link --chmod=700 . /x/", {"Dockerfile": 0o700, "a": 0o700, "d": 0o700, "d/e": 0o700, "x.sh": 0o700}),
        ("ADD --chmod=600 *.sh /x/", {"x.sh": 0o600}),
        ("COPY --chmod=755 <<EOF /run.sh\n#!/bin/sh\nEOF", {"EOF": 0o755}),
        ("COPY --link a /a", {}),
    ],
)
def test_files_and_folders_are_copied_with_the_mode_that_is_named(copy: str, modes: dict[str, int]) -> None:
    made = classic(f"FROM b\n{copy}\n")
    assert "--chmod" not in (text := made.build.files["Dockerfile"].decode())
    assert "--link" not in text
    assert {path.split("/", 2)[2]: mode for path, mode in made.modes.items()} == modes
    assert all(path in made.build.files or path.endswith("/d") for path in made.modes)


@pytest.mark.parametrize(
    ("copy", "made"),
    [
        ("COPY a d .", 'COPY ["a", "d", "./"]'),
        ('COPY ["a", "x.sh", "/o"]', 'COPY ["a", "x.sh", "/o/"]'),
        ("ADD a x.sh $T", 'ADD ["a", "x.sh", "$T/"]'),
        ("COPY --from=s --chown=1:2 /a /b /o", 'COPY --from=s --chown=1:2 ["/a", "/b", "/o/"]'),
        ("COPY --from=s /d/* .", 'COPY --from=s ["/d/*", "./"]'),
        ("COPY --from=s * /o", "COPY --from=s * /o"),
        ("COPY * /o", 'COPY ["*", "/o/"]'),
        ("ARG P=?.sh\nCOPY $P /o", "COPY $P /o"),
        ("ARG P=?*\nCOPY $P /o", 'COPY ["$P", "/o/"]'),
        ("COPY d/* /o", "COPY d/* /o"),
        ("COPY ? /o", 'COPY ["?", "/o/"]'),
        ("COPY a d /o/", "COPY a d /o/"),
        ("COPY d /o", "COPY d /o"),
    ],
)
def test_the_place_of_several_files_is_a_folder(copy: str, made: str) -> None:
    assert lines(copy)[-1] == made


def test_files_of_another_stage_get_their_mode_after_the_copy() -> None:
    made = lines("USER u\nCOPY --from=s --chmod=755 /bin/t /opt/bin")
    assert made[1:] == [
        'COPY --from=s ["/bin/t", "/opt/bin"]',
        "USER 0:0",
        "RUN if [ -d /opt/bin ]; then chmod 755 /opt/bin/t; else chmod 755 /opt/bin; fi",
        "USER u",
    ]


@pytest.mark.parametrize(
    ("run", "made"),
    [
        ("RUN --mount=type=cache,target=/c --network=default make", ["RUN mkdir -p /c", "RUN make"]),
        (
            "RUN --mount=type=cache,dst=/c,uid=1,gid=2 \\\n  --mount=type=secret,id=k make",
            ["RUN mkdir -p /c", "RUN chown 1:2 /c", "RUN make"],
        ),
        ('RUN --mount=type=tmpfs,target=/t ["make", "all"]', ["RUN mkdir -p /t", 'RUN ["make", "all"]']),
    ],
)
def test_a_mount_of_nothing_is_a_folder(run: str, made: list[str]) -> None:
    assert lines(run) == made


def test_a_bind_mount_is_a_copy_that_is_removed() -> None:
    made = lines("RUN --mount=source=a,target=in.txt --mount=type=bind,from=s,target=/m make")
    assert [line for line in made if "exit 1" not in line] == [
        "COPY a in.txt",
        "COPY --from=s / /m",
        "RUN make",
        "RUN rm -rf in.txt",
        "RUN rm -rf /m",
    ]


def test_the_platform_has_docker_s_names() -> None:
    text = "FROM --platform=$BUILDPLATFORM b AS one\nARG TARGETARCH\nARG BUILDPLATFORM\nFROM --platform=linux/386 b\n"
    made = classic(text).build.files["Dockerfile"].decode().splitlines()
    assert made == [
        "FROM b AS one",
        "ARG TARGETARCH=amd64",
        "ARG BUILDPLATFORM=linux/amd64",
        "FROM --platform=linux/386 b",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("COPY --parents a /a", "COPY --parents"),
        ("COPY --chmod=u+x a /a", "COPY --chmod=u+x"),
        ("COPY --chmod=755 $A /a", "--chmod of $A"),
        ("ADD --checksum=sha256:1 https://a.example/b /b", "ADD --checksum"),
        ("RUN --mount=type=secret,id=k,required=true make", "RUN --mount=type=secret,id=k,required=true"),
        ("RUN --mount=type=bind,target=. make", "RUN --mount=type=bind,target=."),
        ("RUN --network=host make", "RUN --network=host"),
        ("RUN --security=insecure make", "RUN --security=insecure"),
    ],
)
def test_what_cannot_be_rewritten_is_a_problem_of_the_task(text: str, what: str) -> None:
    with pytest.raises(UnsupportedSyntaxError, match=what.replace("$", r"\$").replace("+", r"\+")):
        lines(text)
    problems = TaskProblems(Path("task"))
    tree = FileTree({"a": TreeFile(b""), "Dockerfile": TreeFile(f"FROM b\n{text}\n".encode())})
    read_build_context(tree, BuildPlan(), (), problems)
    assert what in str(problems.found[0])
