"""A newcomer's first commands: the pins are whole, every target is explained, CI tells the truth."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from launch.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
TARGETS = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)
BROUGHT_BY_TORCH = re.compile(r"(cuda|nvidia)-|triton$")
"""Requirements of a CUDA build of torch that the CPU build does not have: they are not ours to pin."""


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines if line[:1] != "#"}


def wanted() -> tuple[list[Requirement], list[Requirement]]:
    """Requirements in pyproject.toml: those with dependencies and those without."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    direct = [
        *project["project"]["dependencies"],
        *groups["dev"],
        *groups["engine"],
        *project["build-system"]["requires"],
    ]
    return [Requirement(text) for text in direct], [Requirement(text) for text in groups["engine-alone"]]


def test_constraints_are_exact_versions_without_a_host() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line), line


def test_constraints_pin_exactly_the_required_packages() -> None:
    """A package that is missing fails on a newcomer's machine only; one too many is downloaded for nothing."""
    have, needed, seen = pins(), set[str](), set[tuple[str, frozenset[str]]]()
    direct, alone = wanted()
    todo = [(requirement, frozenset(requirement.extras)) for requirement in direct]
    while todo:
        requirement, extras = todo.pop()
        name = canonicalize_name(requirement.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        assert name in have, f"{requirement} is not in constraints.txt: make lock"
        assert requirement.specifier.contains(have[name], prereleases=True), f"{requirement} is pinned to {have[name]}"
        needed.add(name)
        for text in importlib.metadata.requires(name) or []:
            inner = Requirement(text)
            if name == "torch" and BROUGHT_BY_TORCH.match(canonicalize_name(inner.name)):
                continue
            applies = [extra for extra in ("", *extras) if not inner.marker or inner.marker.evaluate({"extra": extra})]
            if applies:
                todo.append((inner, frozenset(inner.extras)))
    needed |= {canonicalize_name(requirement.name) for requirement in alone}
    assert set(have) == needed


def test_a_cuda_build_of_torch_needs_no_additional_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that the index prefers does not make the pins wrong."""
    requires = importlib.metadata.requires

    def with_cuda(name: str) -> list[str] | None:
        own = ["nvidia-nccl-cu13==2.29.7", "cuda-toolkit[cublas]==13.0.3", "triton==3.7.1"] if name == "torch" else []
        return [*(requires(name) or []), *own]

    monkeypatch.setattr(importlib.metadata, "requires", with_cuda)
    test_constraints_pin_exactly_the_required_packages()


def test_installed_versions_equal_the_pinned_ones() -> None:
    wrong = {
        name: (version, importlib.metadata.version(name))
        for name, version in pins().items()
        if importlib.metadata.version(name).partition("+")[0] != version
    }
    assert not wrong


def test_every_target_is_in_the_readme_and_sets_up_first() -> None:
    makefile, readme = (ROOT / "Makefile").read_text(), (ROOT / "README.md").read_text()
    targets = TARGETS.findall(makefile)
    assert {"setup", "demo", "test", "test-all", "lint", "format", "clean"} <= set(targets)
    for target in targets:
        assert f"make {target}" in readme, f"README.md does not mention make {target}"
        if target not in {"help", "setup", "clean"}:
            assert re.search(rf"^{target}: setup ", makefile, re.MULTILINE), f"{target} does not depend on setup"


def test_every_command_mentioned_in_docs_and_code_exists() -> None:
    """Advice to run a command that is not there costs more than no advice."""
    named = re.compile(r"(?:[`/(]|: )longshore ([a-z]+)\b")
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    files += [
        file for room in ("protocol", "sandbox", "actors", "learner", "launch") for file in ROOT.glob(f"{room}/**/*.py")
    ]
    found = {name: file for file in files for name in named.findall(file.read_text())}
    assert found.keys() >= {"cluster", "monitor"}
    assert not found.keys() - VERBS.keys(), {name: found[name] for name in found.keys() - VERBS.keys()}
    table = [line for line in files[0].read_text().splitlines() if line.startswith("|")]
    assert VERBS.keys() == {name for line in table for name in named.findall(line)}, "README.md's table of commands"


def _ignore(tmp_path: Path, line: str, room: str = "launch", project: str = "") -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "count_ignores.py").write_text((ROOT / "tools" / "count_ignores.py").read_text())
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / room).mkdir()
    (tmp_path / room / "some.py").write_text(f"import os  {line}\n")
    tool = [sys.executable, str(tmp_path / "tools" / "count_ignores.py")]
    return subprocess.run(tool, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("# no" + "qa: F401  re-exported for readers", 0),
        ("# pyright: " + "ignore[reportUnknownMemberType]  Ray is untyped", 0),
        ("# pyright: reportPrivateUsage=" + "false (it replaces private parts)", 0),
        ("# no" + "qa", 1),
        ("# no" + "qa: F401", 1),
        ("# type: " + "ignore[x]  some long reason", 1),
        ("# pyright: " + "ignore  some long reason", 1),
        ("# pyright: reportPrivateUsage=" + "false", 1),
    ],
)
def test_an_ignore_needs_a_rule_and_a_reason(tmp_path: Path, line: str, code: int) -> None:
    assert _ignore(tmp_path, line).returncode == code


def test_an_ignore_that_pyright_never_reads_is_refused(tmp_path: Path) -> None:
    refused = _ignore(tmp_path, "# pyright: " + "ignore[reportArgumentType]  fields by name", "tests")
    assert refused.returncode == 1
    assert "pyright does not read tests" in refused.stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [('    "S603",  # argument lists only', 0), ('    "S603", "S607",  # argument lists only', 0), ('    "S603",', 1)],
)
@pytest.mark.parametrize(
    "opening", ["[tool.ruff.lint]\nignore = [", '[tool.ruff.lint.per-file-ignores]\n"tests/**" = [']
)
def test_a_rule_disabled_in_pyproject_needs_a_reason(tmp_path: Path, opening: str, line: str, code: int) -> None:
    refused = _ignore(tmp_path, "", project=f'{opening}\n{line}\n]\n[tool.pyright]\ninclude = [\n    "A",\n]\n')
    assert refused.returncode == code, refused.stdout


def test_the_hooks_check_the_files_that_lint_checks() -> None:
    """Otherwise a commit could pass the hooks and fail in CI."""
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    files = {hook["id"]: re.compile(hook.get("files", "")) for hook in repo["hooks"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert all(files["pyright"].search(f"{room}/some.py") for room in project["tool"]["pyright"]["include"])
    assert all(files["ignores"].search(file) for file in ("pyproject.toml", "tests/some.py"))


MAKEFILE = """\
setup:
\t@true
lint:
\t@{lint}
test:
\t@echo "==== 5 passed in 1.00s ===="; {test}
"""

FAKE_PYTHON = """\
#!/bin/sh
case "$*" in
*--collect-only*) for name in a b c d e f g h; do echo "tests/chaos/test_$name.py::test_it"; done ;;
*) {batch} ;;
esac
"""


def _ci(
    folder: Path, *, lint: str = "true", test: str = "true", batch: str = "echo '=== 2 passed in 0.1s ==='",
    edit: Sequence[tuple[str, str]] = (),
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run .ci/run in a checkout whose make and pytest are stand-ins."""
    for name in (".ci", ".venv/bin"):
        (folder / name).mkdir(parents=True)
    script = (ROOT / ".ci" / "run").read_text()
    for old, new in edit:
        assert old in script
        script = script.replace(old, new)
    (folder / ".ci" / "run").write_text(script)
    (folder / "Makefile").write_text(MAKEFILE.format(lint=lint, test=test))
    python = folder / ".venv" / "bin" / "python"
    python.write_text(FAKE_PYTHON.format(batch=batch))
    python.chmod(0o755)
    command = ["bash", str(folder / ".ci" / "run")]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "CI": "true"}
    )


def test_ci_passes_and_names_the_batches_it_left_out(tmp_path: Path) -> None:
    done = _ci(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "test: ==== 5 passed in 1.00s ====" in done.stdout
    assert "batch: === 2 passed in 0.1s ===" in done.stdout
    assert done.stdout.count("(another commit's batch)") == 6
    assert "marked gpu" not in done.stdout


def test_ci_names_the_tests_that_need_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_cuda.py").write_text("pytestmark = pytest.mark." + "gpu\n")
    assert "left out: tests/test_cuda.py (marked gpu)" in _ci(tmp_path).stdout


@pytest.mark.first_case
@pytest.mark.parametrize("stage", ["lint", "test", "batch"])
def test_ci_fails_when_a_stage_does(tmp_path: Path, stage: str) -> None:
    done = _ci(tmp_path, **{stage: "exit 1"})
    assert done.returncode == 1
    assert re.search(rf"^FAILED: {stage}$", done.stdout, re.MULTILINE)


CUT = [
    ("        stage batch ", "        CLOSE_S=1 TOTAL_S=$((SECONDS + 4))\n        stage batch "),
    ("CLOSE_S - 30", "1"),
]
"""Only the batch is short of time, however slow the machine is."""


@pytest.mark.slow
def test_ci_reports_a_batch_that_is_cut_off_as_left_out(tmp_path: Path) -> None:
    done = _ci(tmp_path, batch="exec sleep 600", edit=CUT)
    assert done.returncode == 0, done.stdout
    assert re.search(r"left out: what remained of batch \d of 0\.\.5 \(cut off", done.stdout)


@pytest.mark.slow
def test_ci_says_that_the_tests_themselves_were_cut_off(tmp_path: Path) -> None:
    start = '        stage "$name" make'
    cut = [(start, f"        CLOSE_S=1 TOTAL_S=$((SECONDS + 4))\n{start}"), CUT[1]]
    done = _ci(tmp_path, test="exec sleep 600", edit=cut)
    assert done.returncode == 1
    assert "left out: what remained of make test (cut off" in done.stdout
    assert "FAILED: test\n" in done.stdout


@pytest.mark.slow
def test_ci_fails_for_tests_that_failed_before_the_cut(tmp_path: Path) -> None:
    done = _ci(tmp_path, batch="echo 'FAILED tests/chaos/test_a.py::test_it'; exec sleep 600", edit=CUT)
    assert done.returncode == 1


def test_ci_starts_no_batch_after_a_slow_start(tmp_path: Path) -> None:
    done = _ci(tmp_path, edit=[("QUICK_S=$((30 * 60))", "QUICK_S=0")])
    assert done.returncode == 0
    assert done.stdout.count("(lint and make test took") == 8
