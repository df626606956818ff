"""Adam behind megatron's optimizer: gradient norm over all ranks, clipping, main weights in float32 for bfloat16."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from learner.models.policy_model import torch_dtype
from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import OptimizerConfig, get_megatron_optimizer
from learner.settings import Offload, TrainerSettings
from learner.training.offload import HostOffload


class LearnerOptimizer:
    """Adam over this rank's parameters.  The learning rate is passed to each step."""

    def __init__(self, wrapped: Any, settings: TrainerSettings) -> None:
        dtype = torch_dtype(settings.dtype)
        # megatron copies gradients by ``.float()``, which only the function mode keeps in float64.
        self._mode = megatron_on_cpu.cuda_is_cpu if dtype == torch.float64 else contextlib.nullcontext
        with megatron_on_cpu.without_megatron_warnings(), megatron_on_cpu.cuda_is_cpu():
            self.megatron: Any = get_megatron_optimizer(
                OptimizerConfig(
                    optimizer="adam",
                    lr=settings.lr,
                    min_lr=settings.lr,
                    weight_decay=settings.weight_decay,
                    adam_beta1=settings.betas[0],
                    adam_beta2=settings.betas[1],
                    adam_eps=settings.adam_eps,
                    clip_grad=settings.clip_grad,
                    bf16=dtype == torch.bfloat16,
                    params_dtype=dtype,
                    use_distributed_optimizer=settings.distributed_optimizer,
                ),
                [wrapped],
                use_gloo_process_groups=False,
            )
        self._model_parameters: list[Tensor] = list(wrapped.parameters())
        chained = getattr(self.megatron, "chained_optimizers", [self.megatron])
        if len(chained) != 1:
            raise RuntimeError(f"megatron built {len(chained)} optimizers for one dense model")
        self.inner: Any = chained[0]
        for group in self.adam.param_groups:
            # megatron leaves this product to its schedule, which is not used here.
            group["weight_decay"] = settings.weight_decay * group["wd_mult"]
            if isinstance(self.adam, torch.optim.AdamW):
                group["fused"], group["foreach"] = True, False
        self._host = HostOffload() if settings.offload is not Offload.NONE else None

    @property
    def adam(self) -> torch.optim.Optimizer:
        return self.inner.optimizer

    def step(self, lr: float) -> float:
        """Make one update and return the gradient norm before clipping.  If that is not finite, nothing is updated."""
        self.reload()
        for group in self.adam.param_groups:
            group["lr"] = lr
        with torch.no_grad(), self._mode():
            self.megatron.prepare_grads()
            norm: float = self.megatron.clip_grad_norm(self.megatron.config.clip_grad)
            if math.isfinite(norm):
                self.megatron.step_with_ready_grads()
        return norm

    def offload(self) -> None:
        """Move moments and main weights to the host, if ``learner.offload`` is set and they are not there yet."""
        if self._host is not None and not self._host.is_offloaded:
            self._host.offload(self.own_tensors())

    def reload(self) -> None:
        """Copy offloaded state back; call it before reading the state."""
        if self._host is not None:
            self._host.reload()

    def own_tensors(self) -> Iterator[Tensor]:
        """Yield moments and main weights, which only the update needs, not the weights that the model computes with."""
        model_storage = {parameter.untyped_storage().data_ptr() for parameter in self._model_parameters}
        for group in self.adam.param_groups:
            for parameter in group["params"]:
                values: tuple[Tensor, ...] = (parameter, *self.adam.state.get(parameter, {}).values())
                yield from (x for x in values if x.untyped_storage().data_ptr() not in model_storage)

    def zero_grad(self) -> None:
        self.megatron.zero_grad()

    def forget_moments(self) -> None:
        """Clear all moments."""
        self.reload()
        self.adam.state.clear()

    def make_state(self) -> None:
        """Create zero moments where there are none, so that a fresh optimizer can be saved or loaded into."""
        self.reload()
        for group in self.adam.param_groups:
            for parameter in group["params"]:
                if not self.adam.state[parameter]:
                    self.adam.state[parameter] = {
                        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }
