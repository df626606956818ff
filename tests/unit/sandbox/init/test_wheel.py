"""If these fail, users of the wheel need a C compiler, or the wheel lacks longshore's tasks or the monitor's page."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.pages.packages import package_file
from protocol.errors import UserError
from sandbox.init import build
from sandbox.providers.daytona.relay import build as relay_build

ROOT = Path(__file__).parents[4]


def files_of(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_the_built_package_contains_pid_1_and_uses_it_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here to build the wheel's PID 1 with")
    built = tmp_path / "built"
    commands = ("egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(built))
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", *commands], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (built / "actors" / "agents" / "prompts" / "bash-1.txt").exists(), "agents would have no prompts"
    assert (built / "sandbox" / "providers" / "daytona" / "shell_driver.sh").exists(), (
        "no sandbox of Daytona's could be worked in"
    )
    assert files_of(built / "sandbox" / "datasets") == files_of(ROOT / "sandbox" / "datasets")
    page = Path("launch", "pages")
    assert files_of(built / page / "static") == files_of(ROOT / page / "static"), "the monitor would have half a page"
    carried = {name for name in files_of(built / page / "packages") if name.startswith("node_modules/")}
    if package_file("uplot.js") is not None:
        for name in ("asciinema-player", "solid-js", "uplot"):
            assert f"node_modules/{name}/LICENSE" in carried, "what others wrote would go without its licence"
        assert "node_modules/asciinema-player/dist/bundle/asciinema-player.min.js" in carried
        assert "node_modules/uplot/dist/uPlot.iife.min.js" in carried
    monkeypatch.setattr(build, "FOLDER", built / "sandbox" / "init")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(relay_build, "FOLDER", built / "sandbox" / "providers" / "daytona" / "relay")
    programs = build.build_init(tmp_path / "cache")
    assert {each.parent for each in programs} == {built / "sandbox" / "init"}
    assert relay_build.build_relay(tmp_path / "cache").parent == relay_build.FOLDER
    assert subprocess.run([programs.init], check=False).returncode == 2, (
        "it is no program of ours: it takes three arguments"
    )
    assert not (tmp_path / "cache").exists()


def test_without_a_built_pid_1_and_a_compiler_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=f"{platform.machine()}: apt-get install gcc"):
        build.build_init(tmp_path)
