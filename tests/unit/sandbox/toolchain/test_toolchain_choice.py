"""If these fail, a machine without the verifier's Python tries the same download again in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.init.build import InitPrograms, NoCompiler
from sandbox.toolchain import build as toolchain_build
from sandbox.toolchain.portable_python import SourcePython

BARE, WHOLE = "toolchain-c0de", "toolchain-c0de-full"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fake a machine without the pinned Python, and record what was requested."""
    found: list[str] = []

    def find(cache: Path, python: Path | None, say: object) -> SourcePython:
        found.append("python")
        raise UserError("no such Python")

    def build(cache: Path, busybox: Path | None, source: SourcePython | None, say: object) -> Path:
        found.append("build")
        (cache / BARE).mkdir(exist_ok=True)
        return cache / BARE

    monkeypatch.setattr(toolchain_build, "core_digest", lambda cache, busybox, say: "c0de")
    monkeypatch.setattr(toolchain_build, "find_source_python", find)
    monkeypatch.setattr(toolchain_build, "build_toolchain", build)
    return found


def test_the_first_choice_reports_why_the_verifier_is_left_out(looked: list[str], tmp_path: Path) -> None:
    lines: list[str] = []
    assert toolchain_build.ensure_toolchain(tmp_path, None, None, lines.append) == tmp_path / BARE
    assert looked == ["python", "build"]
    assert all(words in lines[0] for words in ("no such Python", "longshore toolchain build"))


def test_a_remembered_choice_is_reused_without_a_search(looked: list[str], tmp_path: Path) -> None:
    (tmp_path / BARE).mkdir()
    lines: list[str] = []
    assert toolchain_build.ensure_toolchain(tmp_path, None, tmp_path / BARE, lines.append) == tmp_path / BARE
    assert (looked, lines) == ([], [])


def test_a_toolchain_built_since_is_looked_for(looked: list[str], tmp_path: Path) -> None:
    (tmp_path / BARE).mkdir()
    (tmp_path / WHOLE).mkdir()
    toolchain_build.ensure_toolchain(tmp_path, None, tmp_path / BARE, lambda line: None)
    assert looked[0] == "python"


def test_a_missing_compiler_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs = InitPrograms(tmp_path / "init", tmp_path / "init.so")

    def build(cache: Path) -> InitPrograms:
        if not installed:
            raise NoCompiler("no compiler")
        return programs

    installed: list[str] = []
    monkeypatch.setattr(toolchain_build, "build_init", build)
    monkeypatch.setattr(toolchain_build, "apt_install", lambda packages, say: installed.extend(packages))
    assert toolchain_build.provide_init(tmp_path, lambda line: None) == programs
    assert installed == ["gcc", "libc6-dev"]
