"""If this fails, a server refuses what it is asked, which on CUDA nobody would see before a run does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from aiohttp import web

from actors.engines.messages import Rendezvous, TensorBucketSpec
from actors.engines.server.client import SGLangClient
from actors.engines.weights.tensor_buckets import TensorBucket
from actors.engines.weights.tensor_loader import pickle_tensors
from tests.support.network.aiohttp_servers import serve_on_loopback

PIECE = TensorBucketSpec(Path("model.safetensors"), "bfloat16", ["a", "b"], [(2, 3), (4,)])
NCCL = Rendezvous("engine-0-1", "10.0.0.1", 4321, 9, "nccl")
FLAT = torch.arange(10, dtype=torch.bfloat16)


CHECK = """
import json, sys
import msgspec
from actors.engines.server import cpu_patches
cpu_patches.install_cpu_patches()
from sglang.srt.managers import io_struct
for kind, message in json.load(sys.stdin):
    fields = {field.name: field for field in msgspec.structs.fields(getattr(io_struct, kind))}
    assert {name for name, field in fields.items() if field.required} <= message.keys() <= fields.keys(), message
    for name, value in message.items():
        msgspec.convert(value, fields[name].type)
    print(kind)
"""
"""In a process of its own, because of the patches."""


def tensors() -> list[str]:
    return [pickle_tensors(TensorBucket(PIECE, FLAT.clone().share_memory_()).tensors(torch.device("cpu")))] * 8


CALLS: dict[str, tuple[str, Callable[[SGLangClient], Awaitable[object]]]] = {
    "/init_weights_update_group": (
        "InitWeightsUpdateGroupReqInput",
        lambda client: client.init_weights_update_group(NCCL),
    ),
    "/update_weights_from_distributed": (
        "UpdateWeightsFromDistributedReqInput",
        lambda client: client.update_weights_from_broadcast("engine-0-1", PIECE, 7),
    ),
    "/update_weights_from_tensor": (
        "UpdateWeightsFromTensorReqInput",
        lambda client: client.update_weights_from_tensors(tensors(), 7),
    ),
    "/update_weights_from_disk": ("UpdateWeightFromDiskReqInput", lambda client: client.update_weights("/weights", 7)),
    "/release_memory_occupation": ("ReleaseMemoryOccupationReqInput", lambda client: client.release_memory(1.0)),
    "/resume_memory_occupation": ("ResumeMemoryOccupationReqInput", lambda client: client.resume_memory()),
    "/pause_generation": ("PauseGenerationReqInput", lambda client: client.pause()),
    "/continue_generation": ("ContinueGenerationReqInput", lambda client: client.resume()),
    "/load_lora_adapter": ("LoadLoRAAdapterReqInput", lambda client: client.load_adapter("v7", "/adapter")),
    "/unload_lora_adapter": ("UnloadLoRAAdapterReqInput", lambda client: client.unload_adapter("v7")),
}


async def posted(path: str, call: Callable[[SGLangClient], Awaitable[object]]) -> dict[str, object]:
    """Return the JSON body that the client posts to that path."""
    bodies: dict[str, dict[str, object]] = {}

    async def note(request: web.Request) -> web.Response:
        bodies[request.path] = await request.json()
        return web.json_response({"message": "Weight version updated to 7."})

    app = web.Application()
    app.router.add_post("/{path}", note)
    async with serve_on_loopback(app) as port, SGLangClient(port, "key") as client:
        await call(client)
    return bodies[path]


@pytest.mark.sglang
async def test_request_bodies_match_the_servers_types_without_unknown_fields() -> None:
    bodies = [(kind, await posted(path, call)) for path, (kind, call) in CALLS.items()]
    checking = partial(subprocess.run, input=json.dumps(bodies), text=True, capture_output=True, check=False)
    done = await asyncio.to_thread(checking, [sys.executable, "-c", CHECK])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [kind for kind, _ in bodies]


async def test_tensors_are_sent_to_the_server_by_reference() -> None:
    """However large they are."""
    large = TensorBucketSpec(PIECE.file, "float32", ["a"], [(1_000_000,)])
    (text, *_) = [
        pickle_tensors(TensorBucket(large, torch.ones(1_000_000).share_memory_()).tensors(torch.device("cpu")))
    ]
    assert len(text) < 1_000
