"""The files of a sharded checkpoint: planned by megatron's dist_checkpointing, copied at once, written later.

megatron's own asynchronous writer forks processes from a threaded one, or, in one process, reads live weights on a CPU
(``.to("cpu")`` is an alias there).  Here each rank copies its part of the plan, and any thread may write the copies
while training continues.  Planning communicates over all ranks and touches no file; writing touches no weight, and
communicates over its own group.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import filesystem as torch_files
from torch.distributed.checkpoint.api import CheckpointException

from learner.checkpoint.plain_pickles import METADATA_FILE, read_metadata, read_plain_values
from learner.messages import CheckpointSaveError
from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import dist_checkpointing
from learner.tensors import all_gather_objects
from protocol.files.digests import FileDigest, digest_files
from protocol.files.filesystem import fsync_path

_COMMON, _CONFIG = "common.pt", "metadata.json"


class UnreadableCheckpointError(Exception):
    """The files are not a readable checkpoint."""


def _megatron(module: str) -> Any:
    return importlib.import_module(f"megatron.core.dist_checkpointing.{module}")


with megatron_on_cpu.importing_megatron():  # megatron imports them in its first save, too late to patch them
    _core, _preprocess = _megatron("core"), _megatron("state_dict_utils")
    _strategy, _saver = _megatron("strategies.torch"), _megatron("strategies.state_dict_saver")
    _filesystem = _megatron("strategies.filesystem_async")
    for _late in ("exchange_utils", "strategies.fully_parallel"):
        _megatron(_late)
megatron_on_cpu.patch_megatron()

_Base: Any = _filesystem.FileSystemWriterAsync


class _CopyingWriter(_Base):
    """Writer for megatron's planner that copies this rank's part of the plan."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """Return the plan; upstream's method creates the folder."""
        return plan

    def prepare_write_data(self, plan: Any, planner: Any) -> None:
        """Copy this rank's part of the plan."""
        self.name: str = f"{plan.storage_data.prefix}0{torch_files.DEFAULT_SUFFIX}"
        self.copies: list[tuple[Any, Any]] = [(item, _copied(planner.resolve_data(item))) for item in plan.items]

    def write(self, folder: Path) -> list[Any]:
        """Write all copies into one file, sync and release them; return their metadata.  Raises OSError."""
        if not self.copies:
            return []
        results: list[Any] = []
        write_item: Callable[..., Any] = vars(torch_files)["_write_item"]  # torch has no public name for it
        with (folder / self.name).open("wb") as file:
            for item, data in self.copies:
                form = torch_files.SerializationFormat.TORCH_SAVE
                results.append(write_item(self.transforms, file, data, item, self.name, form))
            self.copies = []
            file.flush()
            os.fsync(file.fileno())
        return results


def _copied(data: object) -> object:
    return data.detach().to("cpu", copy=True) if isinstance(data, torch.Tensor) else data


@dataclass(slots=True)
class PlannedCheckpoint:
    """A copied checkpoint, independent of the live weights."""

    folder: Path
    writer: Any
    metadata: Any
    """Metadata of all ranks' shards; only on rank 0."""
    common: bytes
    """State common to all ranks; only on rank 0."""


def plan_checkpoint(state: dict[str, Any], folder: Path) -> PlannedCheckpoint:
    """Copy ``state``, a sharded state dict.  A collective of all ranks."""
    sharded, common = _preprocess.save_preprocess(state)
    names = vars(cast("ModuleType", _strategy))
    sharded = names["_replace_state_dict_keys_with_sharded_keys"](sharded, True)[0]
    writer = _CopyingWriter(folder, thread_count=1)
    (_, metadata, _), *_ = _saver.save_state_dict_async_plan(
        names["mcore_to_pyt_state_dict"](sharded, False),
        writer,
        planner=names["MCoreSavePlanner"](dedup_replicated_tensors=False, flatten_state_dict=False),
    )
    return PlannedCheckpoint(folder, writer, metadata, _saved(common) if dist.get_rank() == 0 else b"")


def _saved(common: object) -> bytes:
    stream = io.BytesIO()
    torch.save(common, stream)
    return stream.getvalue()


def write_planned_checkpoint(planned: PlannedCheckpoint, group: dist.ProcessGroup) -> dict[str, FileDigest]:
    """Write a planned checkpoint, sync it and read it back.

    A collective of all ranks, in any thread; nothing else uses ``group`` meanwhile.  Returns file → digest on rank 0,
    an empty dict elsewhere.  Raises CheckpointSaveError on every rank if one could not write.
    """
    written = all_gather_objects(_write_own(planned), group)
    for rank, (_, _, error) in enumerate(written):
        if error:
            raise CheckpointSaveError(
                f"{planned.folder}: rank {rank} could not write its part of the checkpoint: {error}"
            )
    if dist.get_rank() != 0:
        return {}
    files = {name: digest for _, digests, _ in written for name, digest in digests.items()}
    try:
        return files | _write_common(planned, [results for results, _, _ in written])
    except OSError as error:
        raise CheckpointSaveError(f"{planned.folder}: the checkpoint could not be completed: {error}") from error


def _write_own(planned: PlannedCheckpoint) -> tuple[list[Any], dict[str, FileDigest], str]:
    """Write this rank's part; return (metadata, digests, error)."""
    writer = planned.writer
    try:
        planned.folder.mkdir(parents=True, exist_ok=True)
        results = cast("list[Any]", writer.write(planned.folder))
        return results, digest_files(planned.folder, [writer.name] if results else []), ""
    except (OSError, RuntimeError) as error:  # torch's writer converts OSError to RuntimeError
        writer.copies = []
        return [], {}, str(error)


def _write_common(planned: PlannedCheckpoint, results: list[list[Any]]) -> dict[str, FileDigest]:
    folder = planned.folder
    (folder / _COMMON).write_bytes(planned.common)
    planned.writer.finish(planned.metadata, results)
    _core.save_config(_core.CheckpointingConfig("torch_dist", 1), str(folder))
    for name in (_COMMON, METADATA_FILE, _CONFIG):
        fsync_path(folder / name)
    fsync_path(folder)
    return digest_files(folder, (_COMMON, METADATA_FILE, _CONFIG))


def read_common_state(folder: Path) -> dict[str, Any]:
    """Return the state common to all ranks.  Raises UnreadableCheckpointError, also if a shard is missing or too short:
    :func:`read_sharded_state` would find that out only after overwriting weights."""
    try:
        found: dict[str, Any] = read_plain_values(folder / _COMMON)
        config: object = _core.maybe_load_config(str(folder))
        _require_whole(folder, read_metadata(folder).storage_data.values())
    except UnreadableCheckpointError:
        raise
    except Exception as error:  # a damaged or foreign pickle raises anything
        raise UnreadableCheckpointError(f"{type(error).__name__}: {error}") from error
    if config is None:
        raise UnreadableCheckpointError(f"it has no {_CONFIG}")
    return found


def _require_whole(folder: Path, pieces: Iterable[Any]) -> None:
    sizes: dict[str, int] = {}
    for piece in pieces:
        sizes[piece.relative_path] = max(sizes.get(piece.relative_path, 0), piece.offset + piece.length)
    for name, size in sizes.items():
        if (found := (folder / name).stat().st_size) < size:
            raise UnreadableCheckpointError(f"{name} has {found} bytes of {size}")


def read_sharded_state(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return ``state`` with the folder's values.  A collective of all ranks.  Raises UnreadableCheckpointError."""
    failures: tuple[type[BaseException], ...] = (
        *(_core.CheckpointingException, CheckpointException),
        *(OSError, pickle.UnpicklingError),
    )
    try:
        return cast("dict[str, Any]", dist_checkpointing.load(state, str(folder)))
    except failures as error:
        raise UnreadableCheckpointError(str(error).strip().splitlines()[-1]) from error
