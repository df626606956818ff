"""Reads a checkpoint's pickles without running code that they bring.

Values are read by torch's own unpickler for weights, which makes tensors and plain values and nothing else; what
megatron and torch read by themselves is held to it too.  A checkpoint's metadata is a pickle of torch's classes, and
only a list of these may be named.  It is read only here, also for torch: a pickle that changed a class on its way could
name something else when it is read a second time.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint import filesystem as torch_files
from torch.distributed.checkpoint.metadata import StorageMeta

METADATA_FILE = ".metadata"

# Whoever calls torch.load in this process, and whatever it asks for.
os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"

_CHECKPOINT = "torch.distributed.checkpoint"
_CLASSES = frozenset(
    {
        *((f"{_CHECKPOINT}.filesystem", name) for name in ("_StorageInfo",)),
        *(
            (f"{_CHECKPOINT}.metadata", name)
            for name in (
                *("Metadata", "MetadataIndex", "StorageMeta", "BytesStorageMetadata", "TensorStorageMetadata"),
                *("TensorProperties", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"),
            )
        ),
        *((f"{_CHECKPOINT}.planner", name) for name in ("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType")),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
    }
)


_Base: Any = vars(pickle)["_Unpickler"]
"""Python's own unpickler in Python, the only one whose instructions can be judged one by one."""


class _MetadataUnpickler(_Base):
    def set_state(self) -> None:
        """Do what BUILD asks for, unless it would change a class, a function or a member of an enumeration."""
        changed: object = self.stack[-2]
        if isinstance(changed, type) or not is_dataclass(changed):
            raise pickle.UnpicklingError(f"{METADATA_FILE} changes {changed!r}, which is not part of it")
        self.load_build()

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**_Base.dispatch, pickle.BUILD[0]: set_state}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        is_dtype = module_name == "torch" and isinstance(vars(torch).get(global_name), torch.dtype)
        if is_dtype or (module_name, global_name) in _CLASSES:
            return _Base.find_class(self, module_name, global_name)
        raise pickle.UnpicklingError(f"{METADATA_FILE} names {module_name}.{global_name}, which is not part of it")


def read_plain_values(path: Path) -> Any:
    """Return the tensors and plain values in a file of ``torch.save``.  Raises UnpicklingError for anything else, and
    OSError, RuntimeError or EOFError for a damaged file."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"{path.name} holds more than tensors and plain values") from error


def read_metadata(folder: Path) -> Any:
    """Return the metadata of a sharded checkpoint.  Raises UnpicklingError if it names anything but torch's classes
    for metadata, or pieces that are stored in another form."""
    with (folder / METADATA_FILE).open("rb") as file:
        metadata = _MetadataUnpickler(file).load()
    for piece in metadata.storage_data.values():
        if piece.transform_descriptors or not _is_file_name(piece.relative_path):
            raise pickle.UnpicklingError(f"{METADATA_FILE} has a piece that is transformed or not a file beside it")
    return metadata


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name not in {"", ".", ".."} and not {"/", "\0"} & {*name}


def _read_for_torch(self: Any) -> Any:
    """Return what torch's own method does.  It has no parameter for a rank, so that torch looks for no other file."""
    metadata = read_metadata(Path(self.path))
    metadata.storage_meta = StorageMeta(load_id=self.load_id)
    return metadata


torch_files.FileSystemReader.read_metadata = _read_for_torch
