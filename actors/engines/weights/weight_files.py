"""Checks of a folder's safetensors files before a running server loads them.

SGLang's scheduler dies of a truncated file or a wrong shape and silently accepts missing tensors.  So everything that
can be checked is checked beforehand: the headers, the names and shapes against the model's, and the manifest's digest.
Reading for the digest also brings the files into the page cache, which keeps the pause short.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from actors.engines.messages import InvalidWeights
from protocol.weights import WeightManifest, format_version

_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
_MAX_HEADER_BYTES = 100 * 2**20
_CHUNK_BYTES = 4 * 2**20
_TIED_HEAD = "lm_head.weight"

TensorShapes = dict[str, tuple[int, ...]]
"""Tensor name → shape."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Tensor names and shapes that all weight versions of one model share."""

    shapes: TensorShapes
    """All tensors, without the output head if it is tied to the embedding."""
    vocabulary: int
    tied: bool

    def differences(self, other: TensorShapes) -> str:
        """Describe in one line how ``other`` differs from this model's tensors; empty if it does not."""
        other = {name: shape for name, shape in other.items() if not (self.tied and name == _TIED_HEAD)}
        missing, foreign = sorted(self.shapes.keys() - other.keys()), sorted(other.keys() - self.shapes.keys())
        wrong = sorted(name for name in self.shapes.keys() & other.keys() if self.shapes[name] != other[name])
        parts = [f"{len(missing)} tensors missing, {missing[0]} first"] if missing else []
        parts += [f"{len(foreign)} unknown tensors, {foreign[0]} first"] if foreign else []
        parts += [f"{name} has shape {other[name]}, the model {self.shapes[name]}" for name in wrong[:1]]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor, at bytes ``[start, end)`` of the file's data."""

    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Header:
    """A safetensors header."""

    data_start: int
    tensors: dict[str, _Entry]


def read_shapes(folder: Path) -> TensorShapes:
    """Read names and shapes from a folder's safetensors files.  Raises :class:`InvalidWeights`."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InvalidWeights(f"no safetensors file in {folder}")
    shapes: TensorShapes = {}
    for file in files:
        found = {name: entry.shape for name, entry in _read_header(file).tensors.items()}
        if twice := sorted(shapes.keys() & found.keys()):
            raise InvalidWeights(f"{file} has {twice[0]}, which another file in its folder has too")
        shapes |= found
    return shapes


def read_model_shape(folder: Path) -> ModelShape:
    """Read the shape of the model in a Hugging Face folder.  Raises :class:`InvalidWeights`."""
    try:
        config = cast("dict[str, object]", json.loads((folder / "config.json").read_bytes()))
    except (OSError, ValueError) as error:
        raise InvalidWeights(f"no model configuration in {folder}: {error}") from error
    text = config.get("text_config", config)
    fields = cast("dict[str, object]", text) if isinstance(text, dict) else config
    vocabulary = fields.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary <= 0:
        raise InvalidWeights(f"{folder}/config.json has no vocab_size")
    tied = bool(fields.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    shapes = read_shapes(folder)
    if tied:
        shapes.pop(_TIED_HEAD, None)
    return ModelShape(shapes, vocabulary, tied)


def check_weights(manifest: WeightManifest, model: ModelShape) -> None:
    """Read every byte and raise :class:`InvalidWeights` unless the manifest's files are whole and fit ``model``."""
    folder, label = Path(manifest.path), format_version(manifest.version)
    if difference := model.differences(read_shapes(folder)):
        raise InvalidWeights(f"version {label} in {folder} is not the model's: {difference}")
    check_digest(manifest)


def check_digest(manifest: WeightManifest) -> None:
    """Read every byte and raise :class:`InvalidWeights` unless the files have the manifest's digest.

    It is SHA-256 over the files in the order of their names; for a single file that is the file's own.
    """
    folder, label = Path(manifest.path), format_version(manifest.version)
    digest = hashlib.sha256()
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
    except OSError as error:
        raise InvalidWeights(f"version {label} in {folder} cannot be read: {error}") from error
    if manifest.sha256 and digest.hexdigest() != manifest.sha256:
        raise InvalidWeights(f"version {label} in {folder} has digest {digest.hexdigest()}, not {manifest.sha256}")


def check_published(manifest: WeightManifest) -> None:
    """Raise :class:`InvalidWeights` unless the files are certain to be those that were published."""
    if not manifest.sha256:
        raise InvalidWeights(f"the files in {manifest.path} have changed")
    check_digest(manifest)


def read_item_bytes(file: Path) -> int:
    """Return the bytes of one number in a safetensors file, by its first tensor that has any; 1 if none has.  Raises
    :class:`InvalidWeights`."""
    for entry in _read_header(file).tensors.values():
        if entry.end > entry.start:
            return (entry.end - entry.start) // math.prod(entry.shape)
    return 1


def weights_differ(one: Path, other: Path, item_bytes: int) -> bool:
    """Return whether a server with ``item_bytes`` per number must hold different bits for two folders, however their
    tensors are arranged in files.  Numbers that the server rounds need not differ."""
    rounded = any(read_item_bytes(file) > item_bytes for file in sorted(other.glob("*.safetensors")))
    return not rounded and _tensor_digests(one) != _tensor_digests(other)


def _tensor_digests(folder: Path) -> dict[str, bytes]:
    digests: dict[str, bytes] = {}
    for file in sorted(folder.glob("*.safetensors")):
        header = _read_header(file)
        try:
            with file.open("rb") as stream:
                for name, entry in header.tensors.items():
                    stream.seek(header.data_start + entry.start)
                    digests[name] = hashlib.sha256(stream.read(entry.end - entry.start)).digest()
        except OSError as error:
            raise InvalidWeights(f"{file} cannot be read: {error}") from error
    return digests


def _read_header(file: Path) -> _Header:
    try:
        with file.open("rb") as stream:
            size = file.stat().st_size
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
                raise InvalidWeights(f"{file} is not a safetensors file: header of {length} bytes in a file of {size}")
            header = cast("dict[str, dict[str, object]]", json.loads(stream.read(length)))
            return _Header(8 + length, _checked_tensors(file, header, size - 8 - length))
    except OSError as error:
        raise InvalidWeights(f"{file} cannot be read: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidWeights(f"{file} has a header that cannot be read: {error!r}") from error


def _checked_tensors(file: Path, header: dict[str, dict[str, object]], data_bytes: int) -> dict[str, _Entry]:
    tensors: dict[str, _Entry] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = tuple(cast("list[int]", entry["shape"]))
        start, end = cast("list[int]", entry["data_offsets"])
        if end - start != math.prod(shape) * _ITEM_BYTES[cast("str", entry["dtype"])]:
            raise InvalidWeights(f"{file}: {name} has {end - start} bytes, which is not {entry['dtype']} {shape}")
        tensors[name] = _Entry(shape, start, end)
    at = 0
    for entry in sorted(tensors.values(), key=lambda entry: entry.start):
        if entry.start != at:
            raise InvalidWeights(f"{file}: its tensors leave a hole or overlap at byte {at}")
        at = entry.end
    if at != data_bytes:
        raise InvalidWeights(
            f"{file} holds {data_bytes} bytes of tensors, its header says {at}: it is cut off or damaged"
        )
    return tensors
