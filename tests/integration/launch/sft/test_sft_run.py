"""Supervised training as a user starts it: the loss falls, the folder is an ordinary one, and a run that was ended goes
on as if it had not been."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from actors.tokens.chat_format import load_tokenizer
from launch.config import load_recipe
from launch.data.conversations import read_conversations
from launch.data.demo.model import build_demo_model
from launch.data.preparation import require_model_files
from launch.data.sft_examples import ConversationEncoder
from launch.run_records.metrics_log import read_metrics
from protocol.codec import inspect_blob, pack_trajectory
from protocol.run_directory.trajectory_export import TrajectoryExporter
from tests.support.commands import run_json
from tests.support.runs.trajectories import make_trajectory

pytestmark = [pytest.mark.ray, pytest.mark.slow]
STEPS = 12


@dataclass(frozen=True, slots=True)
class Trained:
    folder: Path
    summary: dict[str, Any]

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "whole"

    def options(self, run_id: str) -> list[str]:
        return options(self.folder, run_id)


def options(folder: Path, run_id: str) -> list[str]:
    return [
        *("--model", str(folder / "model"), "--data", str(folder / "train.jsonl"), str(folder / "sampled")),
        *("--eval-data", str(folder / "held-out.jsonl"), "--reward-weighted", "--min-score", "0.3"),
        *("--epochs", "2", "--batch-size", "6", "--lr", "5e-3", "--run-id", run_id),
        *("--set", f"run.dir={folder / 'runs'}", "--set", "checkpoint.every_steps=3", "--set", "checkpoint.keep=9"),
        *("--set", "learner.micro_batch_tokens=256"),
    ]


def talk(word: str, score: float) -> str:
    call = {"function": {"name": "shell_exec", "arguments": {"command": f"echo {word}"}}}
    messages = [
        {"role": "system", "content": "You are a shell agent."},
        {"role": "user", "content": f"Print {word}."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": word},
        {"role": "assistant", "content": "done"},
    ]
    return json.dumps({"messages": messages, "score": score}) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that nobody disturbed, on conversations and on what another run sampled."""
    folder, rng = tmp_path_factory.mktemp("sft"), random.Random(1)
    shape = ["model.layers=1", "model.hidden=64", "model.intermediate=96", "model.heads=2"]
    build_demo_model(folder / "model", load_recipe("demo", shape).model, 0)
    for name, count in (("train", 32), ("held-out", 8)):
        words = [rng.choice(("alpha", "beta", "gamma")) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(talk(word, 0.5 + n % 2 / 2) for n, word in enumerate(words)))
    exporter = TrajectoryExporter(folder / "sampled")
    for sample in range(8):
        blob = pack_trajectory(make_trajectory(0, sample, size=8, reward=sample % 2))
        exporter.export_trajectory(inspect_blob(blob), blob)
    done = run_json("launch.sft", *options(folder, "whole"))
    assert done.exit_code == 0, done.stderr
    return Trained(folder, done.output)


def test_the_loss_falls_and_the_summary_describes_the_training(trained: Trained) -> None:
    summary, lines = trained.summary, read_metrics(trained.run)
    assert summary["loss_last"] < 0.6 * summary["loss_first"]
    assert summary["eval_loss_after"] < 0.6 * summary["eval_loss_before"]
    assert (summary["steps"], [line["step"] for line in lines]) == (STEPS, list(range(STEPS + 1)))
    assert summary["data"]["sequences"] == 36
    assert summary["data"]["excluded"] == {"score": 4}
    assert json.loads((trained.run / "summary.json").read_text()) == summary
    assert [path.name for path in sorted((trained.run / "checkpoints").iterdir())] == [
        f"step-{step:06d}" for step in (3, 6, 9, 12)
    ]


def test_the_model_folder_has_the_reported_held_out_loss(trained: Trained) -> None:
    """In transformers, from the ids and masks of the held-out conversations, with their weights."""
    folder = require_model_files(Path(trained.summary["model"]))
    encoder = ConversationEncoder(load_tokenizer(str(folder)))
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    above = tokens = 0.0
    for each in read_conversations(trained.folder / "held-out.jsonl"):
        ids, mask = encoder.encode(each)
        with torch.no_grad():
            logprobs = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0, :-1].log_softmax(-1)
        found = logprobs.gather(1, torch.from_numpy(ids[1:].astype(np.int64))[:, None])[:, 0].numpy()
        above -= (each.score or 0) * float(found[mask[1:] == 1].sum())
        tokens += (each.score or 0) * int(mask[1:].sum())
    assert above / tokens == pytest.approx(trained.summary["eval_loss_after"], rel=1e-4)


def test_a_resumed_run_ends_with_bitwise_identical_weights(trained: Trained, tmp_path: Path) -> None:
    """From its first checkpoint, with a half of another beside it, as a crash leaves one."""
    run = shutil.copytree(trained.run, tmp_path / "whole")
    for path in (*(run / "checkpoints" / f"step-{step:06d}" for step in (9, 12)), run / "model"):
        shutil.rmtree(path)
    (run / "checkpoints" / "step-000006").rename(run / "checkpoints" / "step-000009.unfinished")
    (run / "summary.json").unlink()
    done = run_json("launch.sft", "--resume", "whole", "--set", f"run.dir={tmp_path}")
    assert done.exit_code == 0, done.stderr
    assert "step 4/12" in done.stderr
    assert "step 3/12" not in done.stderr
    assert_same(done.output, run, trained)
    assert (run / "model" / "model.safetensors").read_bytes() == (
        trained.run / "model" / "model.safetensors"
    ).read_bytes()
    done = run_json("launch.sft", "--resume", "whole", "--set", f"run.dir={tmp_path}")
    assert (done.exit_code, "has ended" in done.output["error"]) == (2, True)


def assert_same(summary: dict[str, Any], run: Path, trained: Trained) -> None:
    for name in ("weights_digest", "steps", "data", "loss_first", "loss_last", "eval_loss_before", "eval_loss_after"):
        assert summary[name] == trained.summary[name], name
    whole, again = ({line["step"]: line.get("loss") for line in read_metrics(path)} for path in (trained.run, run))
    assert again == whole


def test_adapters_are_also_written_alone_and_a_finished_run_can_write_to_other_folders(
    trained: Trained, tmp_path: Path
) -> None:
    """A folder that somebody keeps files in is left to them."""
    base, runs = trained.folder / "model", ("--set", f"run.dir={tmp_path / 'runs'}")
    first, second = (
        ("--output", str(tmp_path / name / "merged"), "--adapters", str(tmp_path / name / "alone"))
        for name in ("first", "second")
    )
    data = ("--model", base, "--data", trained.folder / "train.jsonl", "--lr", "1e-2", "--set", "lora.rank=2")
    done = run_json("launch.sft", *data, *runs, *first, "--run-id", "mine")
    assert done.exit_code == 0, done.stderr
    (tmp_path / "first" / "merged" / "notes.txt").touch()
    again = run_json("launch.sft", "--resume", "mine", *runs, *second)
    assert again.exit_code == 0, again.stderr
    for output, name in ((done.output, "first"), (again.output, "second")):
        alone = tmp_path / name / "alone"
        assert (output["model"], output["adapters"]) == (str(alone.with_name("merged")), str(alone))
        assert {path.name for path in alone.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
        described = json.loads((alone / "adapter_config.json").read_text())
        assert (described["base_model_name_or_path"], described["r"]) == (str(base), 2)
    assert again.output["weights_digest"] == done.output["weights_digest"]
    assert load_file(tmp_path / "first" / "alone" / "adapter_model.safetensors").keys() == (
        load_file(tmp_path / "second" / "alone" / "adapter_model.safetensors").keys()
    )
    done = run_json("launch.sft", "--resume", "mine", *runs, *first)
    assert (done.exit_code, "merged exists and has files that this run did not write" in done.output["error"]) == (
        2,
        True,
    )


def test_a_run_resumes_on_two_ranks(trained: Trained, tmp_path: Path) -> None:
    """Another layout has other bits and the same losses."""
    run = shutil.copytree(trained.run, tmp_path / "whole")
    for path in (*(run / "checkpoints" / f"step-{step:06d}" for step in (6, 9, 12)), run / "model"):
        shutil.rmtree(path)
    (run / "summary.json").unlink()
    layout = ("--set", "learner.ranks=2", "--set", "learner.tp=2")
    done = run_json("launch.sft", "--resume", "--set", f"run.dir={tmp_path}", *layout)
    assert done.exit_code == 0, done.stderr
    assert done.output["loss_last"] == pytest.approx(trained.summary["loss_last"], rel=1e-4)


KILLED_AT_ITS_SECOND_CHECKPOINT = """
import os, runpy, signal
from launch.checkpoints.store import CheckpointStore

def finish(self, manifest, ledger, whole=CheckpointStore.finish):
    if manifest.step > 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, manifest, ledger)

CheckpointStore.finish = finish
runpy.run_module("launch.sft", run_name="__main__")
"""


@pytest.mark.chaos
def test_a_killed_run_resumes_to_bitwise_identical_weights(trained: Trained) -> None:
    run = trained.folder / "runs" / "killed"
    command = [sys.executable, "-c", KILLED_AT_ITS_SECOND_CHECKPOINT, *trained.options("killed")]
    killed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (run / "model").exists()
    assert (run / "checkpoints" / "step-000003").is_dir()
    done = run_json("launch.sft", "--resume", "killed", "--set", f"run.dir={trained.folder / 'runs'}")
    assert done.exit_code == 0, done.stderr
    assert_same(done.output, run, trained)


def test_resuming_with_changed_data_is_refused(trained: Trained, tmp_path: Path) -> None:
    run = shutil.copytree(trained.run, tmp_path / "whole")
    (run / "summary.json").unlink()
    (run / "data.json").write_text('{"sha256": "another"}')
    done = run_json("launch.sft", "--resume", "whole", "--set", f"run.dir={tmp_path}")
    assert (done.exit_code, "has changed" in done.output["error"]) == (2, True)


def test_malformed_data_is_refused_and_starts_no_run(trained: Trained, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(talk("alpha", 1) + '{"messages": [{"role": "bot", "content": "x"}]}\n')
    places = ("--model", trained.folder / "model", "--data", data, "--set", f"run.dir={tmp_path / 'runs'}")
    done = run_json("launch.sft", *places)
    assert done.exit_code == 2
    assert f"{data}:2: message 1: no role is called 'bot'" in done.output["error"]
    assert not (tmp_path / "runs").exists()
