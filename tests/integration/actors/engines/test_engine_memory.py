"""If these fail, learner and engine do not fit on one GPU in turns: what is asked of SGLang is not what it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from actors.engines.engine import SGLangEngine
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import server_arguments, server_environment
from actors.engines.settings import EngineSpec
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.integration.actors.engines import tiny_qwen
from tests.integration.actors.engines.test_engine import make_request, prompt
from tests.support.actors.engine_specs import engine_spec

pytestmark = pytest.mark.sglang

GRAPHS = "SGLANG_MEMORY_SAVER_CUDA_GRAPH"
READ = """
import argparse, json, sys
from actors.engines.server import cpu_patches
cpu_patches.install_cpu_patches()
from pydantic import TypeAdapter
from sglang.srt.environ import envs
from sglang.srt.constants import GPU_MEMORY_ALL_TYPES
from sglang.srt.managers import io_struct
from sglang.srt.server_args import ServerArgs
arguments, sent, variable = json.loads(sys.stdin.read())
assert not getattr(envs, variable).get(), "it is on by default"
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
kinds = {
    "/pause_generation": io_struct.PauseGenerationReqInput,
    "/release_memory_occupation": io_struct.ReleaseMemoryOccupationReqInput,
    "/resume_memory_occupation": io_struct.ResumeMemoryOccupationReqInput,
}
read = {path: TypeAdapter(kind).validate_python(sent[path]) for path, kind in kinds.items()}
told = {path: {key: getattr(read[path], key) for key in sent[path]} for path in kinds}
given = parser.parse_args(arguments)
shared = [given.enable_memory_saver, given.tp_size, given.mem_fraction_static]
print(json.dumps([shared, told, GPU_MEMORY_ALL_TYPES]))
"""


class NotingClient(SGLangClient):
    """A fake: it sends nothing, and remembers what it would have sent."""

    def __init__(self) -> None:
        super().__init__(0, "")
        self.sent: dict[str, dict[str, object]] = {}

    async def request(self, method: str, path: str, message: dict[str, object] | None) -> bytes:
        del method
        self.sent[path] = message or {}
        return b""


def spec(root: Path, device: Literal["cpu", "cuda"], **changes: Any) -> EngineSpec:
    return engine_spec(
        name="tiny",
        run_dir=root / "run",
        model_path=str(root / "random"),
        context_length=2048,
        max_running=16,
        device=device,
        dtype="bfloat16",
        **{"offloads_memory": True} | changes,
    )


def read_by_sglang(arguments: list[str], sent: dict[str, dict[str, object]]) -> Any:
    """In a process of its own: the seam replaces functions of torch."""
    command, stdin = [sys.executable, "-c", READ], json.dumps([arguments, sent, GRAPHS])
    found = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.slow
async def test_sglang_understands_the_memory_arguments_and_requests_that_it_receives(tmp_path: Path) -> None:
    client, manifest = NotingClient(), WeightManifest(WeightVersion(1), 0, NO_VERSION, "/weights", "", 0, 0)
    await client.release_memory(30.0)
    await client.resume_memory()
    assert list(client.sent)[:3] == ["/pause_generation", "/flush_cache?timeout=30", "/release_memory_occupation"]
    made = spec(tmp_path, "cuda", tp=4, mem_fraction_static=0.7)
    shared, read, tags = read_by_sglang(server_arguments(made, manifest, 1), client.sent)
    assert shared == [True, 4, 0.7]
    assert read["/pause_generation"] == {"mode": "abort"}
    assert sorted(read["/release_memory_occupation"]["tags"]) == sorted(tags), "something stays on the device"
    assert read["/release_memory_occupation"] == read["/resume_memory_occupation"]


@pytest.mark.parametrize(("device", "offloads"), [("cpu", True), ("cuda", False)])
def test_the_memory_saver_is_enabled_only_on_cuda_and_with_offloading(
    tmp_path: Path, device: Literal["cpu", "cuda"], *, offloads: bool
) -> None:
    """On a CPU the flag ends the server; without need it would cost the allocator's speed."""
    made = spec(tmp_path, device, offloads_memory=offloads)
    manifest = WeightManifest(WeightVersion(1), 0, NO_VERSION, "/weights", "", 0, 0)
    assert "--enable-memory-saver" not in server_arguments(made, manifest, 1)
    assert GRAPHS not in server_environment(made, "key")
    assert GRAPHS in server_environment(spec(tmp_path, "cuda"), "key")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.slow
async def test_an_offloaded_engine_leaves_the_device_to_the_learner(tmp_path: Path) -> None:
    random, a, b = (tmp_path / name for name in ("random", "a", "b"))
    tiny_qwen.write_random(random)
    tiny_qwen.write_parrot(random, a, tiny_qwen.SAYS_A)
    tiny_qwen.write_parrot(random, b, tiny_qwen.SAYS_B)

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free

    empty, engine = used(), SGLangEngine(spec(tmp_path, "cuda"))
    await engine.start(tiny_qwen.manifest(1, a))
    try:
        serving = used() - empty
        for version, folder, token in ((2, b, tiny_qwen.SAYS_B), (3, a, tiny_qwen.SAYS_A)):
            await engine.offload_memory(600, 300)
            assert used() - empty < serving / 10
            await engine.load_weights(tiny_qwen.manifest(version, folder), 300)
            reply = await engine.generate(make_request(prompt(20, version), 10))
            assert (set(reply.token_ids), set(reply.versions)) == ({token}, {version})
    finally:
        await engine.stop()
