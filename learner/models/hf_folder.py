"""Hugging Face folders: tensors read one at a time, written a shard at a time.

Nothing here knows the model; :mod:`learner.models.weight_conversion` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import safetensors
import safetensors.torch
from torch import Tensor

from learner.models.qwen import WEIGHTS_FILE, WEIGHTS_INDEX_FILE
from protocol.errors import UserError

TensorShape = tuple[int, ...]


class NamedWeight(NamedTuple):
    name: str
    tensor: Tensor


_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})
"""safetensors' names of the types that weights may have."""


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...
    def get_dtype(self) -> str: ...


class _TensorFile(Protocol):
    """safetensors' reader, which ships no types."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def get_slice(self, name: str) -> _Slice: ...


class DamagedModelFolderError(UserError):
    """The folder's weight files are missing, truncated, or of another model than its config.json."""


def _open(path: Path) -> AbstractContextManager[_TensorFile]:
    opener: Callable[..., AbstractContextManager[_TensorFile]] = vars(safetensors)["safe_open"]
    error: type[Exception] = vars(safetensors)["SafetensorError"]
    try:
        return opener(path, framework="pt")
    except FileNotFoundError as missing:
        raise DamagedModelFolderError(
            f"{path} is missing, but {WEIGHTS_INDEX_FILE} names it: copy or download the folder again"
        ) from missing
    except error as damage:
        raise DamagedModelFolderError(f"{path} is damaged or cut off ({damage}): copy or download it again") from damage


class TensorFolder:
    """An open folder, from which tensors are read on demand."""

    def __init__(self, folder: Path, files: Mapping[str, _TensorFile]) -> None:
        self.folder = folder
        self._files = files
        """Tensor name → the open file that has it."""

    def check_tensors(self, expected: Mapping[str, TensorShape], ignored: Callable[[str], bool]) -> None:
        """Raise DamagedModelFolderError unless the folder has exactly the ``expected`` tensors and others for which
        ``ignored`` is true.  Only headers are read."""
        wrong = [f"no tensor {name}" for name in expected if name not in self._files]
        wrong += [f"an unexpected {name}" for name in self._files if name not in expected and not ignored(name)]
        for name in expected.keys() & self._files.keys():
            header = self._files[name].get_slice(name)
            found = tuple(header.get_shape())
            if found != expected[name]:
                wrong.append(f"{name} has shape {found}, config.json says {expected[name]}")
            elif header.get_dtype() not in _DTYPES:
                wrong.append(f"{name} is {header.get_dtype()}, and weights are one of {', '.join(sorted(_DTYPES))}")
        if wrong:
            more = f" and {len(wrong) - 1} more such" if len(wrong) > 1 else ""
            raise DamagedModelFolderError(
                f"{self.folder}: {wrong[0]}{more}; config.json and weights are of different models, or files are "
                "missing: copy or download the folder again"
            )

    def read_tensor(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)


@contextmanager
def open_tensor_folder(folder: Path) -> Generator[TensorFolder]:
    """Open a folder with one safetensors file or an index of several.  Raises UserError for a folder without either,
    DamagedModelFolderError if files are missing or damaged."""
    if (folder / WEIGHTS_INDEX_FILE).exists():
        files = _read_index(folder / WEIGHTS_INDEX_FILE)
    elif (folder / WEIGHTS_FILE).exists():
        files = {}
    else:
        raise UserError(
            f"{folder}: neither {WEIGHTS_FILE} nor {WEIGHTS_INDEX_FILE}; model_path must be a Hugging Face folder"
        )
    with ExitStack() as stack:
        names = sorted(set(files.values())) or [WEIGHTS_FILE]
        opened = {name: stack.enter_context(_open(folder / name)) for name in names}
        held = {file: set(opened[file].keys()) for file in names}
        files = files or dict.fromkeys(held[WEIGHTS_FILE], WEIGHTS_FILE)
        yield TensorFolder(folder, {name: opened[file] for name, file in files.items() if name in held[file]})


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    """Tensor name → file name."""


def _read_index(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedModelFolderError(
            f"{path} is not an index of tensors ({error}): copy or download it again"
        ) from error


class WrittenTensors(NamedTuple):
    files: tuple[str, ...]
    """File names in order."""
    tensors: int


def write_tensors(
    weights: Iterable[NamedWeight], sizes: Mapping[str, int], folder: Path, shard_bytes: int
) -> WrittenTensors:
    """Write ``weights`` into ``folder``: one file, or, above ``shard_bytes``, several and their index.  ``sizes`` are
    their bytes in the same order; only one file's tensors are held at a time.  A tensor larger than ``shard_bytes``
    gets its own file."""
    shards = _shards(sizes, shard_bytes)
    count = len(shards)
    names = [WEIGHTS_FILE] if count == 1 else [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    remaining, index = iter(weights), dict[str, str]()
    for file, shard in zip(names, shards, strict=True):
        index |= dict.fromkeys(write_tensor_file(folder / file, (weight for _, weight in zip(shard, remaining))), file)  # noqa: B905  a stream that ends early is found below
    if list(index) != list(sizes) or next(remaining, None) is not None:
        raise ValueError("the tensors do not match the given sizes")
    if count > 1:
        content = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": index}
        (folder / WEIGHTS_INDEX_FILE).write_text(json.dumps(content, indent=2) + "\n")
    return WrittenTensors(tuple(names), len(index))


def write_tensor_file(path: Path, weights: Iterable[NamedWeight]) -> list[str]:
    """Write one safetensors file; return the names written."""
    held = {name: tensor.contiguous() for name, tensor in weights}
    save: Callable[..., None] = vars(safetensors.torch)["save_file"]  # its own types are partial
    save(held, path, metadata={"format": "pt"})
    return list(held)


def _shards(sizes: Mapping[str, int], shard_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    room = shard_bytes
    for name, size in sizes.items():
        if shards[-1] and size > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(name)
        room -= size
    return shards
