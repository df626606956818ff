"""The documentation: its site builds offline, its links lead somewhere, and its commands can be run.

If these fail, a reader follows a dead link, sets a removed key, or types a command that is refused.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from launch.alerts.rules import HEALTH_RULES, TUNING_RULES
from launch.cli import VERBS
from launch.config import RunConfig, SftConfig, dotted_fields
from launch.control.pause_state import PAUSE_ALERT
from launch.doctor.finding import Finding
from launch.run.arguments import parse_cluster_arguments
from launch.stall_diagnosis.detector import STALL_ALERT
from protocol.cli.arguments import parse_arguments
from protocol.run_directory.trajectory_export import ExportIndexEntry
from tests.support.documented_commands import PAGES, ROOT, CommandMark, DocumentedCommand, read_commands

COMMANDS = [command for page in PAGES for command in read_commands(page)]
OURS = [command for command in COMMANDS if re.match(r"(launch|sandbox|protocol)\.", command.module)]
KEYS = {*dotted_fields(RunConfig), *dotted_fields(SftConfig)}
ADDED = ("prompt_lines", "one_file", "provider=lab", "reward=brief")
"""Names that the example packages of the pages add; tests/unit/test_plugins.py tests them."""
LINK = re.compile(r"\]\((?!\w+://)([^)#\s]+)(?:#[^)\s]*)?\)")
NAMED_PATH = re.compile(
    r"`((?:protocol|sandbox|actors|learner|launch|tests|tools|unit|integration)/[\w/.-]*(?:\.\w+|/))"
)
NAMED_CODE = re.compile(r"`((?:protocol|sandbox|actors|learner|launch)(?:\.\w+)+)")
NOT_CODE = {"learner.step", "sandbox.leaked"}
"""An event, and a key of ``summary.json``."""
NAMED_TEST = re.compile(r"`(test_\w+\.py)\b")
SMALLER = {
    "launch.bench training-modes": "launch/bench/test_bench_training_modes.py",
    "launch.bench chaos": "launch/bench/test_bench_chaos.py",
    "launch.bench soak": "launch/bench/test_bench_soak.py",
    "launch.bench engine": "launch/bench/test_bench_engine.py",
    "launch.bench grading": "launch/bench/test_bench_grading.py",
    "launch.bench learner": "launch/bench/test_bench_learner.py",
    "launch.bench monitor": "launch/bench/test_bench_monitor.py",
    "launch.bench recipes": "launch/run/test_run_recipes.py",
    "launch.bench transport": "launch/bench/test_bench_transport.py",
    "launch.bench weights": "launch/bench/test_bench_weights.py",
    "launch.cluster": "launch/run/test_run.py",
    "launch.control.ctl": "launch/run/test_run_control.py",
    "launch.environment": "launch/run/test_run_environment.py",
    "launch.monitor": "launch/monitor/test_monitor_http.py",
    "launch.replay": "launch/trajectory_reader/test_trajectories_again.py",
    "launch.sft": "launch/sft/test_sft_run.py",
    "launch.simulate": "../unit/launch/simulate/test_simulate.py",
    "launch.sweep": "launch/sweep/test_sweep_objectives.py",
    "sandbox.server": "sandbox/server/test_pool_server_killed.py",
    "sandbox.stress": "sandbox/stress/test_stress.py",
    "sandbox.tasks validate": "sandbox/validation/test_proofs_in_docker.py",
}
"""Command → the integration test that runs a smaller version of it."""


def tool(name: str) -> ModuleType:
    """Import a script of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("page", ["config", "commands"])
def test_generated_pages_match_the_code(page: str) -> None:
    """Otherwise a reader could set a removed key, or miss a new one."""
    done = subprocess.run([sys.executable, str(ROOT / "tools" / f"{page}_page.py"), "--check"], check=False)
    assert done.returncode == 0, f"docs/{page}.md is stale: make docs"


def test_a_key_without_a_docstring_is_refused() -> None:
    from pydantic import BaseModel

    class Undocumented(BaseModel):
        key: int = 0

    with pytest.raises(ValueError, match=r"Undocumented\.key has no docstring"):
        list(tool("config_page").keys(Undocumented))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_every_page_and_no_dead_link(site: Path) -> None:
    """In strict mode a missing page, anchor or image fails the build."""
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
    assert {"changelog.html", "contributing.html"} <= {path.name for path in site.iterdir()}


def test_a_page_loads_nothing_from_other_hosts(site: Path) -> None:
    """Otherwise it would leak its readers' addresses and stay incomplete behind a firewall."""
    external = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")
    for page in site.rglob("*.html"):
        assert not external.findall(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", style.read_text()), style


def test_a_page_without_a_nav_entry_appears_in_the_navigation() -> None:
    """Otherwise it could be reached only by its address."""
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"))
    config.nav = [{"Home": "index.md"}]
    nav = tool("docs_site").on_config(config).nav
    assert nav[0] == {"Home": "index.md"}
    assert "promises.md" in nav[1]["More"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_a_link_to_a_file_of_the_repository_leads_to_one(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not [target for target in LINK.findall(text) if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_a_file_that_a_page_names_exists(page: Path) -> None:
    """A reader looks for the rule or the test behind a sentence, and finds it where the page says."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    missing = [
        path for path in NAMED_PATH.findall(text) if not ((ROOT / path).exists() or (ROOT / "tests" / path).exists())
    ]
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")} | {"test_outputs.py"}  # Terminal-Bench's
    assert not missing + [name for name in NAMED_TEST.findall(text) if name not in tests]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_a_module_class_or_function_that_a_page_names_exists(page: Path) -> None:
    """Otherwise a reader could write code against a name that was renamed."""
    for name in sorted(set(NAMED_CODE.findall(page.read_text())) - KEYS - NOT_CODE):
        assert pkgutil.resolve_name(name) is not None


def test_the_table_of_alerts_names_every_alert() -> None:
    """Otherwise a reader who looks up an alert would find nothing."""
    sources = [path.read_text() for room in ("actors", "launch") for path in (ROOT / room).rglob("*.py")]
    raised = re.compile(r'(?:"alert\.raised", name=|raise_alert\()"(\w+)"')
    alerts = {name for source in sources for name in raised.findall(source)}
    section = (ROOT / "docs" / "steering.md").read_text().partition("## Alerts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    table = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(alerts) > 5
    assert sorted(table) == sorted({*alerts, *HEALTH_RULES, *TUNING_RULES, STALL_ALERT, PAUSE_ALERT})


def test_the_fields_that_a_page_lists_are_those_that_are_written() -> None:
    """Otherwise a reader's program could ask for a field that does not exist."""
    formats, operations = ((ROOT / "docs" / page).read_text() for page in ("formats.md", "operations.md"))
    index = formats.partition("### `trajectories/index.jsonl`")[2].partition("`length` bytes")[0]
    assert re.findall(r"`(\w+)`", index) == [field.name for field in dataclasses.fields(ExportIndexEntry)]
    (finding,) = re.findall(r'"findings": \[\{(.*?)\}\]', operations)
    assert re.findall(r'"(\w+)"', finding) == [field.name for field in dataclasses.fields(Finding)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_key_that_a_page_gives_a_value_exists(page: Path) -> None:
    """Otherwise a reader could set a key that was renamed, and be refused."""
    sections = {key.partition(".")[0] for key in KEYS}
    keys = set(re.findall(r"`([a-z_]+\.[a-z_0-9]+) = ", page.read_text()))
    assert not {key for key in keys - KEYS if key.partition(".")[0] in sections}


def test_file_counts_in_the_code_walkthroughs_are_right() -> None:
    """Otherwise a reader could trust an outdated number."""
    walks = (ROOT / "docs" / "architecture.md").read_text().partition("## Reading the code")[2].split("\n### ")[1:]
    for walk in walks:
        files = re.findall(r"^\| `([^`]+)` \|", walk, re.MULTILINE)
        (count,) = re.findall(r": (\d+) files$", walk.partition("\n")[0])
        assert len(set(files)) == len(files) == int(count)
    assert len(walks) == 3


def test_the_light_and_the_dark_picture_differ_only_in_style() -> None:
    light, dark = (
        (ROOT / "docs" / "assets" / f"concepts-{kind}.svg").read_text().split("</style>") for kind in ("light", "dark")
    )
    assert light[1] == dark[1]
    assert light[0] != dark[0]


def test_keys_in_the_migration_tables_exist() -> None:
    """Otherwise a user of another system could set a key that does not exist."""
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|", (ROOT / "docs" / "coming-from.md").read_text(), re.MULTILINE)
    named = {key for cell in cells for key in re.findall(r"`([a-z]+\.[a-z_0-9]+)\b", cell)}
    assert len(named) > 50
    assert not named - KEYS - {"metrics.jsonl"}


@pytest.mark.parametrize("command", OURS, ids=str)
def test_a_command_of_a_page_is_accepted_by_its_own_parser(
    command: DocumentedCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a copied command could fail with an unknown option or key."""
    if any(name in word for word in command.words for name in ADDED):
        pytest.skip("of a package: tests/unit/test_plugins.py")
    monkeypatch.setenv("WORKER_URLS", "http://worker1:18081")
    monkeypatch.chdir(ROOT)
    if command.module == "launch.cluster":
        arguments = parse_cluster_arguments([word.replace("./my-prompt.txt", "seta-1") for word in command.arguments])
        assert arguments.resume is not None or arguments.load_config()
        return
    (verb,) = [verb for verb in VERBS.values() if verb.module == command.module]
    parse_arguments(verb.load_command().arguments, command.arguments, command.module)
    assert not set(_keys(command.arguments)) - KEYS


def _keys(words: list[str]) -> Iterator[str]:
    """Yield the configuration keys that a command line sets."""
    for option, value in itertools.pairwise(words):
        if option in {"--set", "--axis"} and "." in value.partition("=")[0]:
            yield value.partition("=")[0]


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.words[0] == "make"], ids=str)
def test_a_make_target_of_a_page_exists(command: DocumentedCommand) -> None:
    assert re.search(rf"^{command.words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.words[:2] == ("ray", "start")], ids=str)
def test_ray_commands_of_a_page_are_accepted_by_ray(command: DocumentedCommand) -> None:
    from ray.scripts.scripts import start

    start.make_context("start", list(command.words[2:]))
    assert command.mark is CommandMark.CLUSTER


def test_submitted_job_files_are_written_by_the_command_before() -> None:
    written = ""
    submitted = {"sbatch": list[str](), "kubectl": list[str]()}
    for command in read_commands(ROOT / "docs" / "cluster.md"):
        if command.module == "launch.templates":
            written = command.words[command.words.index("--output") + 1]
        elif command.words[0] in submitted:
            submitted[command.words[0]] += command.words[1:]
            assert command.words[-1] == written
    assert submitted == {"sbatch": ["job.sh"], "kubectl": ["apply", "-f", "job.yaml"]}


def test_the_ray_token_of_a_page_is_valid_and_private(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    (line,) = [line.strip() for line in page.splitlines() if "auth_token)" in line]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", line], env={"HOME": str(tmp_path), "PATH": path}, check=True)
    token = tmp_path / ".ray" / "auth_token"
    assert re.fullmatch(r"[0-9a-f]{64}\n", token.read_text())
    assert token.stat().st_mode & 0o777 == 0o600


def test_each_long_command_has_a_test_that_runs_it_smaller() -> None:
    """Otherwise only its arguments would be tested."""
    for command in OURS:
        if command.mark in {CommandMark.MINUTES, CommandMark.LIVE, CommandMark.STAYS}:
            names = (f"{command.module} {command.arguments[0]}" if command.arguments else "", command.module)
            where = next((SMALLER[name] for name in names if name in SMALLER), None)
            assert where is not None, f"{command}: no test runs it"
            assert (ROOT / "tests" / "integration" / where).exists(), where


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_long_command_has_a_mark(page: Path) -> None:
    """Otherwise readers and tests would wait for minutes instead of seconds."""
    unmarked = [str(command) for command in read_commands(page) if command.is_long and command.mark is CommandMark.NONE]
    assert not unmarked, "add a mark to its comment (docs/index.md lists them)"


def test_the_legend_lists_every_mark() -> None:
    legend = (ROOT / "docs" / "index.md").read_text()
    assert {mark.value for mark in CommandMark} - {""} == set(re.findall(r"`\[(\w+)\]`", legend))
