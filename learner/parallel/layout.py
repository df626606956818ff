"""Process groups of one learner rank: gloo on a CPU, NCCL on CUDA.

Ranks are numbered tensor-parallel fastest, then context-, then data-parallel, then pipeline (megatron's
``tp-cp-ep-dp-pp``; expert parallelism, ``ep``, would take its size from there).
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import parallel_state, seed_model_parallel
from learner.settings import TrainerSettings
from learner.tensors import manual_seed, new_gloo_group
from protocol.errors import UserError
from protocol.processes.loopback import is_loopback
from protocol.processes.rendezvous import guard_process_groups


@dataclass(frozen=True, slots=True, eq=False)
class ParallelLayout:
    """This rank's position and groups in the parallel layout."""

    rank: int
    world: int
    tp_rank: int
    tp: int
    pp_rank: int
    pp: int
    dp_rank: int
    dp: int
    cp_rank: int
    cp: int
    tp_group: dist.ProcessGroup
    pp_group: dist.ProcessGroup
    cp_group: dist.ProcessGroup

    @property
    def is_first_stage(self) -> bool:
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        return self.pp_rank == self.pp - 1

    @property
    def reports_metrics(self) -> bool:
        """True if this rank's sums enter the metrics: one rank per share of the data."""
        return self.is_last_stage and self.tp_rank == 0 and self.cp_rank == 0

    @property
    def is_writer(self) -> bool:
        """True if this rank writes files."""
        return self.rank == 0


def join_process_groups(
    settings: TrainerSettings, rank: int, world: int, master: tuple[str, int], *, seed: int
) -> ParallelLayout:
    """Join the process group and build megatron's groups.  Raises UserError if ``world`` is not a multiple of tp · pp ·
    cp, or the configured device is not available."""
    here = "cpu" if megatron_on_cpu.CPU_ONLY else "cuda"
    if settings.device != here:
        raise UserError(
            f"learner.device = {settings.device}, and torch {torch.__version__} has {here} in this process: install "
            f"torch's CUDA build into .venv on a machine with a GPU, or --set learner.device={here}"
        )
    if world % settings.model_parallel_size:
        raise UserError(
            f"{world} learner ranks cannot be split into tp={settings.tp} × pp={settings.pp} × cp={settings.cp}: "
            f"use a multiple of {settings.model_parallel_size}"
        )
    torch.set_num_threads(settings.threads)
    if not megatron_on_cpu.CPU_ONLY:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    elif is_loopback(master[0]):
        # gloo would otherwise resolve the host's own name, which a container may not know.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "gloo" if megatron_on_cpu.CPU_ONLY else "nccl"
    timeout = dt.timedelta(seconds=settings.collective_timeout_s)
    guard_process_groups()
    if world == 1:
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage] - documented; torch forgot to export it
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        dist.init_process_group(
            backend, init_method=f"tcp://{master[0]}:{master[1]}", rank=rank, world_size=world, timeout=timeout
        )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=settings.tp,
        pipeline_model_parallel_size=settings.pp,
        context_parallel_size=settings.cp,
        distributed_timeout_minutes=settings.collective_timeout_s / 60,
        create_gloo_process_groups=False,
    )
    megatron_on_cpu.patch_megatron()
    manual_seed(seed)
    seed_model_parallel(seed)
    return ParallelLayout(
        rank=rank,
        world=world,
        tp_rank=parallel_state.get_tensor_model_parallel_rank(),
        tp=settings.tp,
        pp_rank=parallel_state.get_pipeline_model_parallel_rank(),
        pp=settings.pp,
        dp_rank=parallel_state.get_data_parallel_rank(),
        dp=parallel_state.get_data_parallel_world_size(),
        cp_rank=parallel_state.get_context_parallel_rank(),
        cp=settings.cp,
        tp_group=parallel_state.get_tensor_model_parallel_group(),
        pp_group=parallel_state.get_pipeline_model_parallel_group(),
        cp_group=parallel_state.get_context_parallel_group(),
    )


def make_background_group(settings: TrainerSettings) -> dist.ProcessGroup:
    """Return a gloo group of all ranks for a background thread.  A collective of all ranks."""
    return new_gloo_group(dt.timedelta(seconds=settings.collective_timeout_s))


def leave_process_groups() -> None:
    """Leave all groups; :func:`join_process_groups` may be called again in the same process."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
