"""Stages that ask whether the numbers are right: against the CPU, and against themselves after state has moved."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from learner.rank import LearnerRank
from learner.settings import Dtype, LoraSettings, Offload, Recompute
from protocol.events import JsonValue
from protocol.trajectory import Float32Array
from tools.gpu_check.workloads import CUDA, PARITY, Workbench, train_step, training_dtype

_STEPS = 3
_FLOAT32_LOGPROB_GAP = 1e-4
_BFLOAT16_K3 = 3e-3


def _trained(bench: Workbench, **settings: Any) -> tuple[Float32Array, Float32Array, list[float]]:
    """Log-probabilities of the fixed sequences before and after three steps, and the gradient norms of these."""
    learner = bench.learner(PARITY, **settings)
    before = np.concatenate(learner.logprobs(bench.sequences()))
    batch = bench.training_batch()
    norms = [train_step(learner, step, batch)["grad_norm"] for step in range(1, _STEPS + 1)]
    after = np.concatenate(learner.logprobs(bench.sequences()))
    learner.close()
    return before, after, norms


def reference(bench: Workbench) -> dict[str, JsonValue]:
    """Compute log-probabilities and gradient norms on the CPU in float32, as the reference of :func:`parity`."""
    before, after, norms = _trained(bench, device="cpu")
    np.savez(bench.folder / "reference.npz", before=before, after=after, norms=norms)
    return {"tokens": len(before), "grad_norms": [round(norm, 6) for norm in norms]}


def parity(bench: Workbench) -> dict[str, JsonValue]:
    """Run the same model and batches on this device in float32 and bfloat16, and compare with :func:`reference`."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kept: Mapping[str, Float32Array] = np.load(bench.folder / "reference.npz")
    found: dict[str, dict[str, float]] = {}
    for dtype in (Dtype.FLOAT32, Dtype.BFLOAT16):
        before, after, norms = _trained(bench, dtype=dtype)
        gap = before - kept["before"]
        found[dtype.value] = {
            "logprob_max_abs": float(abs(gap).max()),
            "k3": float(np.mean(np.exp(gap) - 1 - gap)),
            "after_3_steps_max_abs": float(abs(after - kept["after"]).max()),
            "moved_by_3_steps": float(abs(kept["after"] - kept["before"]).max()),
            "grad_norm_rel": float(abs(np.array(norms) / kept["norms"] - 1).max()),
        }
    holds = found["float32"]["logprob_max_abs"] < _FLOAT32_LOGPROB_GAP and found["bfloat16"]["k3"] < _BFLOAT16_K3
    return {**{dtype: dict(row) for dtype, row in found.items()}, "holds": holds}


def state(bench: Workbench) -> dict[str, JsonValue]:
    """Check that two steps end alike with checkpoints, offload and recomputation, and that adapters train."""
    wanted = _State(bench).two_steps()
    checks: dict[str, Callable[[], JsonValue]] = {
        "twice_the_same": lambda: _State(bench).two_steps() == wanted,
        "resumed_the_same": lambda: _State(bench).resumed() == wanted[1],
        "saved_at_step_0": lambda: _State(bench).saved_at_start(),
        "offloaded": lambda: _State(bench).offloaded(wanted[1]),
        "lora": lambda: list[JsonValue](_State(bench, lora=LoraSettings(rank=8)).two_steps()[0]),
    }
    for offload in (Offload.OPTIMIZER, Offload.PARAMETERS):
        checks[f"offload_{offload}"] = lambda kind=offload: _State(bench, offload=kind).two_steps()[1] == wanted[1]
    for recompute in (Recompute.SELECTIVE, Recompute.FULL):
        checks[f"recompute_{recompute}"] = lambda kind=recompute: _norm_gap(
            _State(bench, recompute=kind).two_steps()[0], wanted[0]
        )
    found = {name: _attempt(check) for name, check in checks.items()}
    failed = [name for name, value in found.items() if value is False or isinstance(value, str)]
    return {**found, "holds": not failed}


def _attempt(check: Callable[[], JsonValue]) -> JsonValue:
    """Return the result of ``check``, or its error as text, so that the other checks still run."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  whatever fails on a strange machine is the finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:300]} | {where.filename}:{where.lineno}"


def _norm_gap(norms: list[float], wanted: list[float]) -> float:
    """Return the largest relative difference of two lists of gradient norms."""
    return max(abs(norm / other - 1) for norm, other in zip(norms, wanted, strict=True))


class _State:
    """Takes the same two steps in several ways, in one configuration of a learner."""

    def __init__(self, bench: Workbench, **settings: Any) -> None:
        self._bench, self._settings, self._batch = bench, settings, bench.training_batch()

    def _learner(self) -> LearnerRank:
        return self._bench.learner(PARITY, dtype=training_dtype(), **self._settings)

    def _step(self, learner: LearnerRank, step: int) -> float:
        return train_step(learner, step, self._batch)["grad_norm"]

    def _finished(self, learner: LearnerRank) -> str:
        digest = learner.weights_digest()
        learner.close()
        return digest

    def two_steps(self) -> tuple[list[float], str]:
        """Return the gradient norms of two steps and the digest of the resulting weights."""
        learner = self._learner()
        return [self._step(learner, step) for step in (1, 2)], self._finished(learner)

    def resumed(self) -> str:
        """Return the weights' digest after a second step by a learner that loaded the checkpoint of the first."""
        folder = str(self._bench.folder / "saved")
        first = self._learner()
        self._step(first, 1)
        first.save(folder)
        first.close()
        second = self._learner()
        second.load(folder)
        self._step(second, 2)
        return self._finished(second)

    def saved_at_start(self) -> bool:
        """Write and read a checkpoint before any step; return true."""
        folder = str(self._bench.folder / "start")
        learner = self._learner()
        learner.save(folder)
        learner.load(folder)
        learner.close()
        return True

    def offloaded(self, wanted: str) -> JsonValue:
        """Return whether an offload between the steps changes nothing, and the share of memory left on the device."""
        learner = self._learner()
        self._step(learner, 1)
        held = _allocated()
        learner.offload_to_host()
        left = _allocated() / held if held else 0.0
        self._step(learner, 2)
        return {"same": self._finished(learner) == wanted, "left_on_device": round(left, 4)}


def _allocated() -> int:
    return torch.cuda.memory_allocated() if CUDA else 0
