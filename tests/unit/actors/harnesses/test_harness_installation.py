"""If these fail, a harness does not run on some image, or an interrupted installation passes for a whole one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from actors.harnesses.catalog import PUBLISHED_HARNESSES, find_harness
from actors.harnesses.installation import install_harness, require_installed
from protocol.errors import UserError
from sandbox.toolchain.portable_programs import find_loader_name, make_portable
from tests.support.commands import call_json

HARNESS = replace(PUBLISHED_HARNESSES["codex"], program="node_modules/*/program")
PROGRAM = Path("/bin/sh").resolve()
PAYLOAD = b"what a bundler appends"

FAKE_NPM = """#!/bin/sh
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/it"
cp {program} "$2/node_modules/it/program"
exit {code}
"""


def put_fake_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: int) -> None:
    npm = folder / "bin" / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text(FAKE_NPM.format(program=PROGRAM, code=code))
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")


def test_an_installation_that_fails_leaves_nothing_and_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, said = tmp_path / "home", list[str]()
    put_fake_npm(tmp_path, monkeypatch, code=1)
    with pytest.raises(UserError, match=r"could not install @openai/codex(.|\n)*npm ping"):
        install_harness(home, HARNESS, said.append)
    assert not list(home.rglob("*/program"))
    with pytest.raises(UserError, match="longshore harness install codex"):
        require_installed(home, HARNESS)
    put_fake_npm(tmp_path, monkeypatch, code=0)
    folder = install_harness(home, HARNESS, said.append)
    require_installed(home, HARNESS)
    assert (folder / "bin" / "codex").resolve() == folder / "node_modules" / "it" / "program"
    put_fake_npm(tmp_path, monkeypatch, code=1)
    assert install_harness(home, HARNESS, said.append) == folder, "it was installed again"


def test_a_package_without_its_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_fake_npm(tmp_path, monkeypatch, code=0)
    with pytest.raises(UserError, match=r"has no node_modules/it/other for this machine"):
        install_harness(tmp_path / "home", replace(HARNESS, program="node_modules/it/other"), print)


def test_a_program_of_the_machine_is_copied_with_its_locale_and_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_fake_npm(tmp_path, monkeypatch, code=0)
    folder = install_harness(tmp_path / "home", replace(HARNESS, machine_programs=("sh",)), print)
    copied = find_loader_name(folder / "bin" / "sh")
    assert copied is not None
    assert copied.loader == Path("/.hns/ld.so")
    assert {"locale", "terminfo"} <= {each.name for each in folder.iterdir()}


def test_a_program_that_the_machine_lacks_is_told_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="tmux is needed, and there is no apt-get here: install your system's"):
        install_harness(tmp_path / "home", PUBLISHED_HARNESSES["terminus-2"], print)


def test_a_program_uses_the_loader_and_the_libraries_beside_it_and_keeps_what_follows_it(tmp_path: Path) -> None:
    program = tmp_path / "lib" / "program"
    program.parent.mkdir()
    shutil.copy(PROGRAM, program)
    before = find_loader_name(program)
    assert before is not None
    program.write_bytes(program.read_bytes() + PAYLOAD)
    size = program.stat().st_size
    make_portable(tmp_path, program)
    after = find_loader_name(program)
    assert after is not None
    assert after.loader == Path("/.hns/ld.so")
    assert (program.stat().st_size, program.read_bytes()[-len(PAYLOAD) :]) == (size, PAYLOAD)
    assert b"/etc/ld.so.cache\0" not in (tmp_path / "ld.so").read_bytes(), "it would find the image's libraries"


def test_a_harness_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(UserError, match=r"'claude-cod'; did you mean 'claude-code'\?: they are claude-code, codex"):
        find_harness("claude-cod")


def test_the_list_says_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / PUBLISHED_HARNESSES["pi"].folder).mkdir(parents=True)
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))
    listed = call_json(capfd, "actors.harnesses", "list").output["harnesses"]
    assert {each["name"]: each["installed"] for each in listed} == {name: name == "pi" for name in PUBLISHED_HARNESSES}
