"""Stages that measure: the machine, the attention kernel, whole steps, where a step's time goes, a publication."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor

from learner.models.attention import varlen_attention
from learner.parallel.context_exchange import make_sequence_bounds
from learner.settings import Recompute
from learner.tensors import manual_seed
from protocol.events import JsonValue
from protocol.weights import NO_VERSION, WeightVersion
from tools.gpu_check.workloads import CUDA, Workbench, train_step, training_dtype

_PACKAGES = ("triton", "transformers", "megatron.core", "transformer_engine", "flash_attn", "flash_attn_interface")
_GIB = 1 << 30
_ROUNDS = 5
_LONG = 16_384


def _seconds(call: Callable[[], object]) -> float:
    """Return the median duration of ``call``, including the device's work, after one warm-up call."""
    wait: Callable[[], None] = torch.cuda.synchronize if CUDA else lambda: None
    taken: list[float] = []
    for _ in range(_ROUNDS + 1):
        began = time.perf_counter()
        call()
        wait()
        taken.append(time.perf_counter() - began)
    return median(taken[1:])


def machine(bench: Workbench) -> dict[str, JsonValue]:
    """Return versions and installed kernels; measure copy and hash bandwidths and matmul TFLOP/s."""
    del bench
    packages = {name: _version_of(name) for name in _PACKAGES}
    software: dict[str, JsonValue] = {"python": sys.version.split()[0], "torch": str(torch.__version__), **packages}
    if not CUDA:
        return {**software, **_hash_speeds()}
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn_like(a)
    return {
        **software,
        **_hash_speeds(),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(),
        "capability": list[JsonValue](torch.cuda.get_device_capability()),
        "memory_gib": round(torch.cuda.mem_get_info()[1] / _GIB, 1),
        "attention_implementations": list[JsonValue](_implementations()),
        "copy_gb_s": dict[str, JsonValue](_copy_speeds()),
        "matmul_tflops": round(2 * 8192**3 / _seconds(lambda: a @ b) / 1e12, 1),
    }


def _version_of(package: str) -> str:
    try:
        return str(getattr(importlib.import_module(package), "__version__", "installed"))
    except ImportError as error:
        return f"no ({error})"


def _hash_speeds() -> dict[str, float]:
    import xxhash

    data = bytes(_GIB // 4)
    sha256 = _seconds(lambda: hashlib.sha256(data).digest())
    xxh3 = _seconds(lambda: xxhash.xxh3_128(data).digest())
    return {"sha256_gb_s": round(len(data) / sha256 / 1e9, 2), "xxh3_gb_s": round(len(data) / xxh3 / 1e9, 2)}


def _copy_speeds() -> dict[str, float]:
    device = torch.empty(_GIB, dtype=torch.uint8, device="cuda")
    other, pageable = torch.empty_like(device), torch.empty(_GIB, dtype=torch.uint8)
    pinned = torch.empty(_GIB, dtype=torch.uint8, pin_memory=True)
    copies = {
        "device": (other, device, 2),
        "to_pinned": (pinned, device, 1),
        "to_pageable": (pageable, device, 1),
        "from_pinned": (device, pinned, 1),
    }
    return {
        name: round(times * _GIB / _seconds(lambda to=to, source=source: to.copy_(source)) / 1e9, 1)
        for name, (to, source, times) in copies.items()
    }


def _implementations() -> list[str]:
    """Return the flash attention implementations that torch can activate besides its default."""
    from torch.nn import attention

    listed: Any = getattr(attention, "list_flash_attention_impls", list)
    return [str(name) for name in listed()]


class _Heads(NamedTuple):
    """The attention shape of Qwen3-8B."""

    query: int = 32
    key_value: int = 8
    size: int = 128


_HEADS = _Heads()


def attention_kernel(bench: Workbench) -> dict[str, JsonValue]:
    """Compare each implementation of the packed kernel with float32, then measure milliseconds and TFLOP/s."""
    del bench
    if not CUDA:
        return {"skipped": "there is no GPU"}
    from torch.nn import attention

    found: dict[str, JsonValue] = {}
    for name in ("default", *_implementations()):
        try:
            if name != "default":
                attention.activate_flash_attention_impl(name)
            found[name] = {
                "error": _kernel_error((5, 400, 700)),
                "16k_in_16": _kernel_speed((1024,) * 16),
                "16k": _kernel_speed((16_384,)),
                "64k": _kernel_speed((65_536,)),
            }
        except Exception as error:  # noqa: BLE001  an implementation that is listed need not be installed
            found[name] = f"{type(error).__name__}: {str(error)[:160]}"
    return found


class _Packed:
    """Return random queries, keys and values of packed sequences."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        manual_seed(0)
        self.bounds = make_sequence_bounds(lengths, lengths, torch.device("cuda"))
        self.tensors = [
            torch.randn(sum(lengths), heads, _HEADS.size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for heads in (_HEADS.query, _HEADS.key_value, _HEADS.key_value)
        ]

    def forward(self) -> Tensor:
        query, key, value = self.tensors
        return varlen_attention(query, key, value, self.bounds, _HEADS.size**-0.5)

    def forward_backward(self) -> None:
        out = self.forward()
        torch.autograd.grad(out, self.tensors, torch.ones_like(out))


def _kernel_error(lengths: tuple[int, ...]) -> JsonValue:
    """Return the largest differences from float32, of the output and of each gradient."""
    packed = _Packed(lengths)
    out = packed.forward()
    weight = torch.randn_like(out)
    gradients = torch.autograd.grad(out, packed.tensors, weight)
    wide = [tensor.detach().float().requires_grad_() for tensor in packed.tensors]
    parts: list[Tensor] = []
    for start, end in itertools.pairwise([0, *itertools.accumulate(lengths)]):
        query, key, value = (tensor[start:end].transpose(0, 1)[None] for tensor in wide)
        part = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        parts.append(part[0].transpose(0, 1).flatten(1))
    wanted = torch.cat(parts)
    right = torch.autograd.grad(wanted, wide, weight.float())
    return {
        "forward_max_abs": float((out.float() - wanted).abs().max()),
        "gradient_max_abs": [
            round(float((gradient.float() - other).abs().max()), 4)
            for gradient, other in zip(gradients, right, strict=True)
        ],
    }


def _kernel_speed(lengths: tuple[int, ...]) -> JsonValue:
    packed = _Packed(lengths)
    flops = sum(2 * _HEADS.query * _HEADS.size * length**2 for length in lengths)  # the causal half of 4 · h · n²
    forward, both = _seconds(packed.forward), _seconds(packed.forward_backward)
    return {
        "forward_ms": round(forward * 1e3, 2),
        "both_ms": round(both * 1e3, 2),
        "forward_tflops": round(flops / forward / 1e12),
        "both_tflops": round(3.5 * flops / both / 1e12),
    }


def steps(bench: Workbench, shape: str, tokens: int) -> dict[str, JsonValue]:
    """Measure tokens/s, MFU and peak memory of whole steps, by recomputation and batch."""
    found: dict[str, JsonValue] = {}
    for recompute in (Recompute.NONE, Recompute.SELECTIVE) if tokens <= _LONG else (Recompute.SELECTIVE,):
        try:
            found |= _steps(bench, shape, tokens, recompute)
        except torch.OutOfMemoryError as error:
            found[recompute.value] = f"out of memory: {str(error)[:120]}"
    return found


def _steps(bench: Workbench, shape: str, tokens: int, recompute: Recompute) -> dict[str, JsonValue]:
    learner = bench.learner(
        shape, dtype=training_dtype(), recompute=recompute, micro_batch_tokens=bench.tokens(tokens), lr=1e-6
    )
    found: dict[str, JsonValue] = {}
    for kind, batch in bench.batches(shape, tokens).items():
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        metrics = [train_step(learner, 1, batch) for _ in range(4)][1:]
        found[f"{recompute.value}/{kind}"] = {
            "tokens_per_s": round(median(each["tokens_per_s"] for each in metrics)),
            "mfu": round(median(each.get("mfu", 0.0) for each in metrics), 4),
            "peak_gib": round(torch.cuda.max_memory_allocated() / _GIB, 2) if CUDA else None,
        }
    learner.close()
    return found


_KERNELS = {
    "attention": ("flash", "fmha", "attention"),
    "matmul": ("gemm", "cutlass", "cublas", "nvjet", "mm", "matmul"),
    "optimizer": ("adam", "foreach", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy"),
    "reduce": ("reduce", "softmax", "norm"),
    "elementwise": ("elementwise", "vectorized", "add", "mul", "silu"),
}
"""Kind → what names of its kernels contain; the first kind that fits counts."""


def profile(bench: Workbench) -> dict[str, JsonValue]:
    """Profile one step of the 1.7B shape: share of the device's time by kind of kernel, and the twenty largest."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    learner = bench.learner("1.7B", dtype=training_dtype(), micro_batch_tokens=bench.tokens(_LONG), lr=1e-6)
    batch = bench.batches("1.7B", _LONG)["many"]
    for _ in range(2):
        train_step(learner, 1, batch)
    began = time.perf_counter()
    with profiled(activities=[ProfilerActivity.CUDA if CUDA else ProfilerActivity.CPU]) as seen:
        train_step(learner, 1, batch)
    wall_ms = (time.perf_counter() - began) * 1e3
    averages: list[Any] = list(cast("Any", seen).key_averages())
    time_of = "self_device_time_total" if CUDA else "self_cpu_time_total"
    kernels = [(str(each.key), float(getattr(each, time_of)) / 1e3, int(each.count)) for each in averages]
    kernels.sort(key=lambda kernel: -kernel[1])
    total_ms = sum(ms for _, ms, _ in kernels)
    shares = dict.fromkeys([*_KERNELS, "other"], 0.0)
    for name, ms, _ in kernels:
        shares[_kind(name)] += ms / total_ms
    return {
        "wall_ms": round(wall_ms, 1),
        "device_ms": round(total_ms, 1),
        "busy": round(total_ms / wall_ms, 3),
        "shares": {kind: round(share, 3) for kind, share in shares.items()},
        "largest": [{"kernel": name[:90], "ms": round(ms, 2), "calls": calls} for name, ms, calls in kernels[:20]],
    }


def _kind(kernel: str) -> str:
    low = kernel.lower()
    return next((kind for kind, words in _KERNELS.items() if any(word in low for word in words)), "other")


def publish(bench: Workbench) -> dict[str, JsonValue]:
    """Measure how long the 1.7B shape's snapshot blocks training and how long the concurrent write takes, with GB/s."""
    learner = bench.learner("1.7B", dtype=training_dtype())
    found: dict[str, JsonValue] = {}
    snapshot_s = write_s = size = 0.0
    for number in (1, 2):
        folder = bench.folder / f"version-{number}"
        parent = NO_VERSION if number == 1 else WeightVersion(number - 1)
        began = time.perf_counter()
        learner.begin_publish()
        begun = time.perf_counter()
        learner.end_publish(WeightVersion(number), number, parent, str(folder))
        snapshot_s, write_s = begun - began, time.perf_counter() - begun
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e9
        found[f"push {number}"] = {"snapshot_s": round(snapshot_s, 3), "write_s": round(write_s, 3)}
    speeds = {"snapshot_gb_s": round(size / snapshot_s, 2), "write_gb_s": round(size / write_s, 2)}
    return {**found, "gb": round(size, 3), **speeds}
