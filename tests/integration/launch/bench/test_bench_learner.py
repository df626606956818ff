"""If this fails, nobody can measure again what docs/benchmarks.md says of the learner."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from launch.bench.isolated_process import isolate
from launch.bench.learner import gpu_throughput
from launch.bench.learner.benchmark import LearnerArguments, LearnerBenchmarkOptions, parse_options
from launch.bench.learner.hugging_face import Batching, HuggingFaceStep, StepVariant, clipped_loss
from launch.bench.learner.longshore_step import LongshoreStep
from launch.bench.learner.workload import (
    LearnerWorkload,
    Qwen3Shape,
    build_samples,
    build_workload_model,
    log_normal_lengths,
    split_into_lengths,
)
from learner.losses.metrics import SUM_NAMES
from learner.losses.objective import Objective
from learner.losses.policy_loss import policy_loss
from learner.losses.token_columns import concatenate_token_columns
from learner.tensors import from_numpy
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from tests.support.runs.learner_specs import make_spec

KEYS = [
    *("tokens", "ours_s", "hf_padded_s", "hf_sorted_s", "hf_packed_s"),
    *("vs_hf_padded", "vs_hf_sorted", "vs_hf_packed", "metrics_share", "peak_bytes", "hf_peak_bytes"),
    "recompute_peak_bytes",
]
TINY = Qwen3Shape(vocabulary=64, hidden=32, intermediate=48, layers=2, heads=4, key_value_heads=2, head_dim=8)


def options(*arguments: str) -> LearnerBenchmarkOptions:
    return parse_options(parse_arguments(LearnerArguments, arguments, "bench learner"))


@pytest.mark.slow
def test_every_arm_runs_and_longshore_needs_less_memory_than_hugging_face() -> None:
    command = [sys.executable, "-m", "launch.bench", "learner", "--json", "--sequences", "8", "--rounds", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == KEYS
    assert report["peak_bytes"] < report["hf_peak_bytes"]
    none, selective, full = (report["recompute_peak_bytes"][way] for way in ("none", "selective", "full"))
    assert full < selective < none
    assert report["vs_hf_padded"] == pytest.approx(report["hf_padded_s"] / report["ours_s"], rel=0.01)
    assert report["vs_hf_packed"] == pytest.approx(report["ours_s"] / report["hf_packed_s"], rel=0.01)
    assert report["metrics_share"] < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sequences", "12"], "multiple of 8"),
        (["--median-tokens", "2"], "--median-tokens 8 or more"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        options(*arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused() -> None:
    with pytest.raises(UserError, match="torch sees no CUDA device here"):
        options("--device", "cuda")


@pytest.mark.slow
def test_every_hugging_face_variant_has_the_same_gradient_norm_as_longshore(tmp_path: Path) -> None:
    """Otherwise the arms would not train the same, and a ratio of their times would say nothing."""
    work = LearnerWorkload(TINY, log_normal_lengths(16, 12))
    build_workload_model(work, tmp_path / "model")
    with isolate(partial(LongshoreStep, make_spec(str(tmp_path / "model"), device="cpu", threads=1, lr=0.0))) as ours:
        norm = ours.call(LongshoreStep.take_step, work).grad_norm
    ways = [StepVariant(batching, attention) for batching in Batching for attention in ("sdpa", "eager")]
    ways += [
        StepVariant(Batching.PACKED, packed_tokens=64),
        StepVariant(Batching.PACKED, packed_tokens=512, whole_logits=True),
    ]
    norms = {way: HuggingFaceStep(work, tmp_path / "model", threads=1, lr=0.0).take_step(way).grad_norm for way in ways}
    assert norms == pytest.approx(dict.fromkeys(ways, norm), rel=1e-4)


def test_the_hugging_face_loss_has_the_same_gradient_as_ours_beyond_every_clip_bound() -> None:
    """A model that has not been trained gives ratios that no run of a tiny one comes to."""
    rows = build_samples(LearnerWorkload(TINY, log_normal_lengths(16, 12)))
    tokens = concatenate_token_columns([row.columns for row in rows]).map(from_numpy)
    gaps = np.random.default_rng(0).standard_normal(len(tokens.behaviour), np.float32)
    logprobs = (tokens.behaviour + from_numpy(gaps)).requires_grad_()
    ours = policy_loss(logprobs, tokens, Objective())
    assert all(ours.sums.totals[SUM_NAMES.index(bound)] > 0 for bound in ("clip_high", "clip_low", "clip_dual"))
    expected, found = (torch.autograd.grad(loss, logprobs)[0] for loss in (ours.loss, clipped_loss(logprobs, rows)))
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_a_device_is_measured_by_shape_lengths_and_recomputation(tmp_path: Path) -> None:
    """On this one, since the code is the same: only a CUDA device has a peak to be a share of."""
    lines: list[str] = []
    rows = gpu_throughput.measure_gpu_throughput(
        tmp_path, {"tiny": TINY}, "cpu", sequences=8, rounds=1, say=lines.append, tokens=(256, 512)
    ).rows
    assert [(row.tokens, row.sequences, row.recompute) for row in rows] == [
        (tokens, sequences, recompute)
        for recompute in ("none", "selective", "full")
        for tokens in (256, 512)
        for sequences in (8, 1)
    ]
    assert all(row.tokens_per_s > 0 and row.peak_bytes > 0 for row in rows)
    assert len(lines) == len(rows)


def test_lengths_have_the_tail_that_is_asked_for() -> None:
    lengths = sorted(log_normal_lengths(400, 100))
    assert lengths[200] == pytest.approx(100, rel=0.02)
    assert lengths[380] / lengths[200] == pytest.approx(16, rel=0.05)
    assert sum(split_into_lengths(16_384, 64)) == 16_384
