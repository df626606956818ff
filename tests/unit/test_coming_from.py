"""docs/coming-from.md: what the users of each document type there stands in it, and what they type here works.

If these fail, a user who comes from another system is told a command that theirs does not have, or ours refuses.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from launch.bench.recipes.answer_rows import grpo_tcr_rows
from launch.bench.recipes.terminal_tasks import harbor_tasks, terminal_bench_tasks
from launch.bench.tiny_recipes import build_tiny_model
from launch.cli import VERBS
from launch.data.task_split import load_usable_tasks
from launch.run.arguments import parse_cluster_arguments
from protocol.cli.arguments import parse_arguments
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, read_catalog
from sandbox.tasks.formats import miles, openclaw, terminal_bench
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.formats.writing import plan_dataset_write
from tests.support.commands import call_command
from tests.support.documented_commands import ROOT, read_files
from tests.support.runs.evaluations import write_evaluation
from tests.support.runs.recipe_tables import ART, CARD, CODE, OPENCLAW, REFERENCE, SETA, TABLES, TCR, Row

PAGE = ROOT / "docs" / "coming-from.md"
DOCUMENTS = {"SETA": (CARD, SETA), "GRPO-TCR": (TCR,), "ART": (ART,), "OpenClaw": (OPENCLAW,)}
RECIPES = {
    "SETA": ("seta_qwen3_8b", "seta_miles_multinode"),
    "GRPO-TCR": ("grpo_tcr_qwen3_4b",),
    "ART": ("art_terminal", "art_liveweb"),
    "OpenClaw": ("openclaw_terminal",),
}
MODELS = (
    *("Qwen3-8B", "Qwen3-4B", "Qwen3-32B", "seta-env-rl", "Qwen3-4B-Instruct-2507"),
    "qwen3-4b-ra-sft-merged-epoch3",
)
DRY = {"evaluate", "sft", "sweep"}
"""Verbs that ``--dry-run`` shows; ``cluster`` is one too, and its tasks are read besides."""
REAL = {("tasks", "convert"), ("compare",)}
"""First words of what is run as it stands; of all else the arguments are parsed."""
_START = re.compile(r"(?:python|bash|areal\.launcher\.local) [\w./-]+\.(?:py|sh)(?: prepare| --env-type [\w-]+)?")
"""A program of another system, with its name of an environment."""
_SPAN = re.compile(r"`([^`]+)`")


class MigrationRow(NamedTuple):
    section: str
    has_commands: bool
    there: tuple[str, ...]
    here: tuple[str, ...]
    remarks: tuple[str, ...]


def read_rows() -> Iterator[MigrationRow]:
    for section in PAGE.read_text().split("\n## ")[1:]:
        name, commands = section.partition("\n")[0], False
        for line in section.splitlines():
            if line.startswith(("| typed there |", "| written there |", "| there |")):
                commands = not line.startswith("| there |")
            elif line.startswith("| ") and name in DOCUMENTS:
                there, here, remarks = (tuple(_SPAN.findall(cell)) for cell in line.split(" |", 2))
                yield MigrationRow(name, commands, there, here, remarks)


ROWS = tuple(read_rows())
COMMANDS = [(row.section, command) for row in ROWS if row.has_commands for command in row.here]


def read_document(path: str) -> str:
    """The text of a document in one line, without the marks with which a shell goes on in the next."""
    return re.sub(r"(\s|\\(?=\s))+", " ", (REFERENCE / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", DOCUMENTS)
def test_each_document_has_commands_and_settings(section: str) -> None:
    assert sum(row.has_commands for row in ROWS if row.section == section) >= 3
    assert sum(not row.has_commands for row in ROWS if row.section == section) >= 8


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the documents are not part of the repository")
@pytest.mark.parametrize("section", DOCUMENTS)
def test_what_is_typed_there_stands_in_the_document(section: str) -> None:
    text = " ".join(map(read_document, DOCUMENTS[section]))
    typed = [span for row in ROWS if row.section == section and row.has_commands for span in row.there]
    assert [span for span in typed if span not in text] == []


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the documents are not part of the repository")
@pytest.mark.parametrize("section", DOCUMENTS)
def test_each_program_that_a_document_starts_stands_in_the_page(section: str) -> None:
    text = " ".join(map(read_document, DOCUMENTS[section]))
    typed = " ".join(span for row in ROWS if row.section == section and row.has_commands for span in row.there)
    assert [start for start in _START.findall(text) if start not in typed] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page's commands name, with small tasks of ours."""
    made = tmp_path_factory.mktemp("coming")
    build_tiny_model(made / "model")
    (made / "models").mkdir()
    (made / "checkpoints").mkdir()
    for name in MODELS:
        (made / "models" / name).symlink_to(made / "model")
    (made / "checkpoints/best_checkpoint").symlink_to(made / "model")
    for path, text in read_files(PAGE).items():
        (made / path).write_text(text)
    for path in ("seta-env/Dataset", "terminal-rl/dataset/seta_env"):
        plan_dataset_write(terminal_bench.FORMAT, terminal_bench_tasks(), made / path).write()
    plan_dataset_write(HARBOR, harbor_tasks(), made / "seta-env-v2").write()
    plan_dataset_write(miles.FORMAT, harbor_tasks(), made / "miles/train.jsonl").write()
    plan_dataset_write(openclaw.FORMAT, terminal_bench_tasks(), made / "train.jsonl").write()
    built_in = read_catalog(BUILT_IN_CATALOG)
    (made / "liveweb.jsonl").symlink_to(built_in["longshore-web"].path)
    bug = orjson.loads(built_in["longshore-swe"].path.read_bytes().splitlines()[0])
    write_lines(made / "swe-synth.jsonl", [bug | {"task_id": number} for number in range(1, 111)])
    write_lines(made / "open_agentrl_grpo_2k.jsonl", grpo_tcr_rows())
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    write_lines(made / "like_sft.jsonl", [{"messages": messages}])
    (made / "samples.json").write_bytes(orjson.dumps([{"task_id": 1, "score": 1.0, "messages": messages}]))
    for number in (1, 2):
        write_evaluation(made / f"evaluations/model_v{number}", {"a": (True, False)})
    return made


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


@pytest.mark.parametrize(("section", "command"), COMMANDS)
def test_what_is_typed_here_is_accepted(
    section: str, command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Models, labels, rows and task ids are found, and the run's or evaluation's configuration is valid."""
    del section
    words = shlex.split(command)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    monkeypatch.chdir(folder)
    verb, arguments = words[1], words[2:]
    if verb in DRY:
        arguments.append("--dry-run")
    if verb == "cluster":
        assert load_usable_tasks(parse_cluster_arguments(arguments).load_config()).tasks
    elif verb in DRY or tuple(words[1:3]) in REAL or (verb,) in REAL:
        done = call_command(capfd, VERBS[verb].module, *arguments)
        assert done.returncode == 0, done.stderr
    else:
        assert parse_arguments(VERBS[verb].load_command().arguments, arguments, verb)


def read_stated_keys(section: str, name: str) -> set[str]:
    """Our keys for which the recipe takes its value from where a document says ``name``."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    stated = [row for recipe in RECIPES[section] for row in TABLES[recipe] if row.key]
    return {row.key for row in stated if word.search(row.quote if row.document == CODE else read_line(row))}


def read_line(row: Row) -> str:
    return (REFERENCE / row.document).read_text(encoding="utf-8").splitlines()[row.line - 1]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the documents are not part of the repository")
def test_a_setting_is_mapped_to_the_key_that_has_its_value_in_the_recipe() -> None:
    """The tables of the recipes hold each key to the document's own value (tests/unit/launch/config)."""
    checked, wrong = 0, list[str]()
    for row in ROWS:
        keys = {key for span in (*row.here, *row.remarks) for key in re.findall(r"[a-z_]+\.[a-z_0-9]+", span)}
        for name in () if row.has_commands else row.there:
            if stated := read_stated_keys(row.section, name.lstrip("-")):
                checked += 1
                wrong += [] if stated & keys else [f"{row.section}: {name} is {stated}, not {keys}"]
    assert wrong == []
    assert checked > 40
