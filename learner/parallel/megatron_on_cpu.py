"""Adaptation of megatron-core (0.16) to machines without CUDA; inert if CUDA is available.

megatron-core hard-codes ``"cuda"``.  On a CPU three means replace it, all limited to megatron's own modules:

* each ``megatron.core`` module sees a facade of ``torch`` whose ``device="cuda"`` means the CPU;
* :func:`cuda_is_cpu`, a function mode for tensor *methods* (``Tensor.cuda()``, ``Tensor.type()``).  It costs time per
  operation, so it is entered where model, optimizer and checkpoints are built, never in a training step of one
  pipeline stage;
* replacements of a few functions: gradient norm and clipping, the random-number tracker.

Import megatron inside ``with importing_megatron():``, then call :func:`patch_megatron`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from learner.tensors import all_reduce, manual_seed, vector_norm

CPU = torch.device("cpu")
CPU_ONLY = not torch.cuda.is_available()
_FACTORIES = (
    "empty",
    "zeros",
    "ones",
    "full",
    "tensor",
    "arange",
    "rand",
    "randn",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
)


def rank_device() -> torch.device:
    """Return the device of this rank's tensors."""
    return CPU if CPU_ONLY else torch.device("cuda", torch.cuda.current_device())


@contextlib.contextmanager
def without_megatron_warnings() -> Generator[None]:
    """Suppress megatron's warnings about absent CUDA libraries and about options that it deprecates itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def importing_megatron() -> Generator[None]:
    """Import megatron without warnings about absent CUDA libraries and, on a CPU, without ``torch.compile``: creating
    one compiled wrapper imports Dynamo and Inductor (two thirds of megatron's import time), and calling one runs a C++
    compiler."""
    real = cast("Callable[..., Any]", torch.compile)  # pyright: ignore[reportUnknownMemberType]  untyped in torch

    def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def identity(model: Callable[..., Any] | None = None, **_: object) -> Callable[..., Any]:
        return model if model is not None else unchanged

    with without_megatron_warnings():
        if not CPU_ONLY:
            yield
            return
        torch.compile = identity
        try:
            yield
        finally:
            torch.compile = real


def _is_cuda(device: object) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, int) and not isinstance(device, bool)


class _Facade(types.ModuleType):
    """A module with some names replaced and all others from the real module."""

    def __init__(self, real: types.ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(replaced)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


class _NoStream:
    """A CUDA stream or event on a machine without CUDA: every method does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*_: object, **__: object) -> None:
    pass


def _no_stream(*_: object, **__: object) -> _NoStream:
    return _NoStream()


def _no_context(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return factory(*args, **kwargs)

    return made


def _get_rng_state(*_: object, **__: object) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(state: torch.Tensor, *_: object, **__: object) -> None:
    torch.set_rng_state(state)


def _make_facade() -> _Facade:
    def current_device() -> torch.device:
        return CPU

    cuda = _Facade(
        torch.cuda,
        {
            "current_device": current_device,
            "synchronize": _nothing,
            "empty_cache": _nothing,
            "set_device": _nothing,
            "manual_seed": manual_seed,
            "get_rng_state": _get_rng_state,
            "set_rng_state": _set_rng_state,
            "stream": _no_context,
            "device": _no_context,
            "Stream": _no_stream,
            "Event": _no_stream,
            "current_stream": _no_stream,
            "default_stream": _no_stream,
        },
    )
    return _Facade(torch, {name: _on_cpu(getattr(torch, name)) for name in _FACTORIES} | {"cuda": cuda})


_facade: list[_Facade] = []


def _module(name: str) -> Any:
    return importlib.import_module(f"megatron.core.{name}")


def patch_megatron() -> None:
    """Replace torch by the facade in each megatron module imported so far.  Call again after importing more of them."""
    if not CPU_ONLY:
        return
    if not _facade:
        _facade.append(_make_facade())
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core") and getattr(module, "__dict__", {}).get("torch") is torch:
            module.__dict__["torch"] = _facade[0]
    _replace("tensor_parallel.random", "_get_cuda_rng_state", _get_rng_state)
    _replace("tensor_parallel.random", "_set_cuda_rng_state", _set_rng_state)
    _module("tensor_parallel.random").CudaRNGStatesTracker.fork = _fork
    _replace("optimizer.optimizer", "clip_grad_by_total_norm_fp32", _clip_gradients)
    _replace("optimizer.optimizer", "get_grad_norm_fp32", _grad_norm)


def _replace(module: str, name: str, by: object) -> None:
    found: types.ModuleType = _module(module)
    names = vars(found)
    if name not in names:
        raise RuntimeError(f"megatron.core.{module} has no {name}: this adaptation is for megatron-core 0.16")
    names[name] = by


@contextlib.contextmanager
def _fork(self: Any, name: str = "model-parallel-rng") -> Generator[None]:
    """Fork the random state; upstream's version warns if the CPU's state changes, but here that is the tracked
    state."""
    saved = torch.get_rng_state()
    torch.set_rng_state(self.states_[name])
    try:
        yield
    finally:
        self.states_[name] = torch.get_rng_state()
        torch.set_rng_state(saved)


def _clip_gradients(
    parameters: Sequence[torch.Tensor], max_norm: float, total_norm: float, _decoupled: bool = False
) -> None:
    """Clip gradients; upstream's version requires ``torch.cuda.FloatTensor`` and scales one by one."""
    scale = max_norm / (total_norm + 1e-6)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if scale < 1.0 and gradients:
        multiply: Callable[..., None] = vars(torch)["_foreach_mul_"]  # one call for all
        multiply(gradients, scale)


def _grad_norm(
    grads_for_norm: Sequence[torch.Tensor],
    norm_type: float = 2.0,
    grad_stats_parallel_group: dist.ProcessGroup | None = None,
) -> float:
    """Return the gradient norm, summed in float64 (upstream: float32), so that layouts differ only by rounding within a
    tensor."""
    if norm_type != 2.0:
        raise ValueError(f"norm of order {norm_type}")
    total = torch.zeros((), dtype=torch.float64)
    for gradient in grads_for_norm:
        total += vector_norm(gradient).double().square()
    all_reduce(total, grad_stats_parallel_group)
    return float(total.sqrt())


class _CudaIsCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda or func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            name: str = func(*args)
            # megatron's optimizers take FloatTensor to mean "needs no main weights", which holds for float64 too.
            name = name.replace("DoubleTensor", "FloatTensor")
            return name if name.startswith("torch.cuda.") else name.replace("torch.", "torch.cuda.")
        if func is torch.Tensor.float and args[0].dtype == torch.float64:
            return args[0]  # megatron converts to the type of main weights by float()
        if _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": CPU}
        return func(*args, **kwargs)


def cuda_is_cpu() -> contextlib.AbstractContextManager[object]:
    """Make tensor methods that move to CUDA or request a CUDA type use the CPU during the block."""
    return _CudaIsCpu() if CPU_ONLY else contextlib.nullcontext()


def separate_adam_steps(adam: torch.optim.Optimizer) -> None:
    """Give every parameter its own ``step`` after loading optimizer state.  Without Transformer Engine or Apex,
    megatron shares one ``step`` tensor among all parameters (torch's Adam would increment it once per parameter), and
    has none for step 0."""
    for parameter, state in adam.state.items():
        step = state.get("step", 0.0)
        state["step"] = torch.tensor(float(step), dtype=torch.float32, device=parameter.device)


def restore_adam_steps(optimizer: Any, loaded: dict[str, Any]) -> None:
    """Prepare ``optimizer`` for loading the ``loaded`` state.  megatron saves no common step if it is 0, which torch's
    Adam requires; and without Transformer Engine or Apex, DistributedOptimizer drops ``step`` from the source but
    copies every key of the destination."""
    inner = loaded.get("optimizer", loaded)
    if "state" in inner:
        inner["state"].setdefault("common_step", torch.zeros(()))
    module = _module("optimizer.distrib_optimizer")
    cls = module.DistributedOptimizer
    if module.HAVE_APEX_OR_TE or not isinstance(optimizer, cls):
        return
    upstream = cls._set_main_param_and_optimizer_states
    if upstream.__module__ == __name__:
        return

    def with_step(self: Any, parameter: torch.Tensor, tensors: dict[str, torch.Tensor]) -> None:
        group, order = self.model_param_group_index_map[parameter]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        upstream(self, parameter, ({"step": state["step"]} if "step" in state else {}) | tensors)

    cls._set_main_param_and_optimizer_states = with_step
