"""If these fail, an episode that comes near the end of its context counts as failed hardware, servers of one machine
stop each other, strangers reach one, or a token bears the name of weights that did not sample it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.engines.server.process import API_KEY_VARIABLE, server_arguments, server_environment
from actors.engines.settings import EngineSpec
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import engine_spec

CONTEXT = 512
MANIFEST = WeightManifest(WeightVersion(1), 0, NO_VERSION, "/weights", "", 0, 0)


def spec(**changes: Any) -> EngineSpec:
    return engine_spec(Path(), name="engine-0", context_length=CONTEXT, max_running=2, **changes)


@pytest.mark.parametrize("kv_slots", [CONTEXT, 8192])
def test_a_request_may_use_the_whole_context(kv_slots: int) -> None:
    arguments = server_arguments(spec(max_total_tokens=kv_slots), MANIFEST, 1)
    options = dict(pairwise(arguments))
    longest = min(int(options["--context-length"]), int(options["--max-total-tokens"])) - 1  # as SGLang counts
    for tokens in range(1, CONTEXT):
        assert tokens < longest - 5, "it would refuse the input"
        assert longest - tokens - 1 >= CONTEXT - tokens, "it would cut the reply"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_servers_start_with_true_version_labels_on_loopback_and_with_a_key(device: str) -> None:
    """Overlap scheduling labels the token in flight at a pause with the weights after it, replies that are streamed
    whole again and again cost time in the square of their length, and whoever sends it tensors is unpickled."""
    arguments = server_arguments(spec(device=device), MANIFEST, 8000)
    options = dict(pairwise(arguments))
    assert {"--disable-overlap-schedule", "--incremental-streaming-output"} <= set(arguments)
    assert (options["--host"], options["--port"]) == ("127.0.0.1", "8000")
    assert server_environment(spec(device=device), "key")[API_KEY_VARIABLE] == "key"
    assert options["--max-running-requests"] == "3", "the probe waits for nobody's place"


def test_servers_on_a_cpu_take_one_thread_each_and_stay_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two without a bound on threads decode a fiftieth of what one does."""
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    environment = server_environment(spec(), "key")
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["HF_HUB_OFFLINE"]) == ("", "1")


def test_network_and_gpu_variables_of_the_machine_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GLOO_SOCKET_IFNAME": "eth1", "CUDA_VISIBLE_DEVICES": "3", "OMP_NUM_THREADS": "16"}.items():
        monkeypatch.setenv(name, value)
    assert server_environment(spec(), "key")["GLOO_SOCKET_IFNAME"] == "eth1"
    on_gpu = server_environment(spec(device="cuda"), "key")
    assert (on_gpu["CUDA_VISIBLE_DEVICES"], on_gpu["OMP_NUM_THREADS"]) == ("3", "16")
