"""Reads a checkpoint's pickles without running code that they bring.

Values are read by torch's own unpickler for weights, which makes tensors and plain values and nothing else; what
megatron and torch read by themselves is held to it too.  A checkpoint's metadata is a pickle of torch's classes, which
only a list of these classes allows: it is read here first, and by torch afterwards.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

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


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        is_dtype = module_name == "torch" and isinstance(vars(torch).get(global_name), torch.dtype)
        if is_dtype or (module_name, global_name) in _CLASSES:
            return super().find_class(module_name, global_name)
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
        if piece.transform_descriptors or Path(piece.relative_path).name != piece.relative_path:
            raise pickle.UnpicklingError(f"{METADATA_FILE} has a piece that is transformed or in another folder")
    return metadata
