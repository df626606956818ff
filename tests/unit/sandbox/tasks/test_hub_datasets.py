"""If these fail, a data set of the Hugging Face hub cannot be named, or is not read from its cache offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.tasks.dataset_catalog import load_dataset, load_labelled_dataset
from sandbox.tasks.task import TaskError

TASK = {
    "task.toml": "",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
    "tests/train.json": "[]",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, which cannot be reached."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put(cache: Path, name: str, files: dict[str, str], revision: str = "main") -> None:
    """Lay files out as the hub's client does: a snapshot of links to files named by their content."""
    folder = cache / f"datasets--{name.replace('/', '--')}"
    commit = f"{len(revision):040x}"
    for path in ("refs", "blobs", f"snapshots/{commit}"):
        (folder / path).mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    for number, (path, text) in enumerate(files.items()):
        blob = folder / "blobs" / f"{commit}{number}"
        blob.write_text(text)
        link = folder / "snapshots" / commit / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)


def code_row(number: int) -> str:
    tests = {"inputs": [f"{number}\n"], "outputs": [f"{number}\n"]}
    reward = {"style": "rule", "ground_truth": json.dumps(tests)}
    return json.dumps({"prompt": f"Print {number}.", "reward_model": reward}) + "\n"


def load(name: str) -> list[str]:
    found = load_dataset(name, Path("datasets.toml"))
    assert not found.problems
    return [task.instruction for task in found.tasks]


def test_rows_of_the_training_split_are_read_unless_others_are_named(cache: Path) -> None:
    files = {"README.md": "x", "data/train-0.jsonl": code_row(1), "data/train-1.jsonl": code_row(2)}
    put(cache, "some/rows", files | {"data/test-0.jsonl": code_row(3)})
    assert [text.count("Print") for text in load("hf:some/rows")] == [1, 1]
    assert "Print 3." in load("hf:some/rows:data/test-*.jsonl")[0]
    put(cache, "some/rows", {"data/train-0.jsonl": code_row(4)}, revision="v1.0.0")
    assert "Print 4." in load("hf:some/rows@v1.0.0")[0]


def test_a_data_set_of_task_folders_is_read_and_may_be_labelled(cache: Path, tmp_path: Path) -> None:
    put(cache, "some/tasks", {f"tasks/{task}/{path}": text for task in "ab" for path, text in TASK.items()})
    assert load("hf:some/tasks") == ["Do it."] * 2
    catalog = tmp_path / "datasets.toml"
    catalog.write_text('[mine]\npath = "hf:some/tasks:tasks/a"\n')
    assert [task.id for task in load_labelled_dataset(catalog, "mine").tasks] == ["a"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:some/other", "not in this machine's cache.*hf download some/other --repo-type dataset"),
        ("hf:some", "write hf:ORG/NAME"),
        ("hf:some/text", "neither tasks nor files of rows"),
        ("hf:some/rows:c*.jsonl", r"has no c\*\.jsonl.*it has a\.jsonl, b\.parquet"),
        ("hf:some/rows", r"several files of rows.*hf:some/rows:FILES; a\.jsonl, b\.parquet"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_the_way_out(cache: Path, name: str, says: str) -> None:
    put(cache, "some/rows", {"a.jsonl": code_row(1), "b.parquet": ""})
    put(cache, "some/text", {"README.md": "x"})
    with pytest.raises(TaskError, match=says):
        load(name)
