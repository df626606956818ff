"""Patches with which SGLang's CUDA build runs on a machine without a GPU; inert if CUDA is available.

There are four obstacles:

- ``torchvision`` and ``sgl_kernel`` have no build that works here.  Their imports get placeholder modules whose
  attributes raise when called.  transformers is asked first, so that it finds torchvision absent and keeps to its
  text-only paths.
- Pinned host memory needs an accelerator.  ``pin_memory`` is dropped from the tensor factories and from ``Tensor``.
- SGLang wants an environment variable for its CPU engine, not only ``--device``.
- SGLang's weight checksum is a kernel on CUDA but SHA-256 on a CPU, which would lengthen each weight-swap pause; XXH3
  has the same 64 bits and takes a tenth of the time.

``install_cpu_patches`` must run in the server's main process and in each child that it spawns, before sglang is
imported, and ``patch_weight_checksum`` after that.  The entrypoint calls both at top level, because a spawned child
imports the main module again.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_FACTORIES = ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like", "ones_like")


class _Absent:
    """An attribute of an absent module: it can be read, and raises when called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_args: object, **_kwargs: object) -> object:
        raise NotImplementedError(f"{self._name} does not exist on a machine without CUDA")

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")


class _AbsentModule(ModuleType):
    """A module that is not installed."""

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")


class _Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``torchvision`` and ``sgl_kernel`` as placeholders; the kernels' scalar types are Python, and real."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        root = fullname.partition(".")[0]
        if root == "torchvision" or (root == "sgl_kernel" and fullname != "sgl_kernel.scalar_type"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = _AbsentModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _without_pinning(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def unpinned(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return unpinned


def _itself(tensor: Any, *_args: object, **_kwargs: object) -> Any:
    return tensor


def install_cpu_patches() -> bool:
    """Patch this process.  Returns False, and changes nothing, if CUDA is available."""
    import torch

    if torch.cuda.is_available():
        return False
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    from transformers.utils import import_utils

    if import_utils.is_torchvision_available():
        raise RuntimeError("torchvision is installed but has no CPU build that works: pip uninstall torchvision")
    sys.meta_path.insert(0, _Placeholders())
    for name in _FACTORIES:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = _itself  # pyright: ignore[reportAttributeAccessIssue]  replaced on purpose
    return True


def patch_weight_checksum() -> None:
    """Let the server's weight checker hash by :func:`_xxh3`."""
    checker: Any = importlib.import_module("sglang.srt.utils.weight_checker")
    checker.tensor_hash = _xxh3


def _xxh3(tensor: Any) -> int:
    """Hash a tensor's bytes to 64 bits."""
    import torch
    import xxhash

    return xxhash.xxh3_64_intdigest(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
