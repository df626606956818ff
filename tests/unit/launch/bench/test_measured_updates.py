"""If these fail, the bench of weights compares updates that were not made under the same conditions."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import orjson
import pytest
import torch
from safetensors.torch import save_file

from actors.engines.messages import WeightLoadReport
from actors.engines.weights.loader import WeightLoader
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.source import WeightSource
from launch.bench.weights import measured_updates
from launch.bench.weights.benchmark import WeightBenchmarkReport
from launch.bench.weights.instrumented_engine import InstrumentedEngine
from launch.bench.weights.kv_reuse import HistoryReuse
from launch.bench.weights.measured_updates import DecodingWindow, LoadedEngines, WeightRoute
from launch.bench.weights.weight_versions import VersionSequence, WeightStep, delta_bytes_share
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

FakeLoader = str
"""Fake: a name; the engine that is told of it is a fake too."""


class TimedEngine:
    """Notes what it is told; samples ten tokens in each load."""

    def __init__(self, calls: list[tuple[str, int, str]]) -> None:
        self.calls, self.sampled_tokens = calls, 0

    async def stage_with(self, loader: FakeLoader, manifest: WeightManifest, deadline_s: float) -> None:
        self.calls.append((loader, manifest.version, Path(manifest.path).parent.name))

    async def load_weights(self, manifest: WeightManifest, deadline_s: float) -> WeightLoadReport:
        self.sampled_tokens += 10
        return WeightLoadReport(version=manifest.version, pause_ms=4.0, load_ms=1.0, prefetch_ms=1.0)

    async def update_directly(self, manifest: WeightManifest) -> float:
        self.calls.append(("by hand", manifest.version, Path(manifest.path).parent.name))
        return 2.0


def folder(root: Path, name: str, fill: float) -> WeightManifest:
    (root / name).mkdir()
    save_file({"a": torch.full((64,), fill, dtype=torch.bfloat16)}, root / name / "model.safetensors")
    return WeightManifest(WeightVersion(0), 0, NO_VERSION, str(root / name), "", 1, 128)


@pytest.fixture
def step(tmp_path: Path) -> WeightStep:
    return WeightStep(folder(tmp_path, "v0", 1.0), folder(tmp_path, "v1", 2.0))


async def test_every_route_is_measured_in_each_round_and_takes_its_turn_at_being_first(
    tmp_path: Path, step: WeightStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_updates, "GAP_S", 0.0)
    calls: list[tuple[str, int, str]] = []
    settings = HostWeightCacheSettings(name="copies", run_dir=tmp_path, node="there", folder=tmp_path / "copies")
    loaded = LoadedEngines(
        engines=[cast("InstrumentedEngine", TimedEngine(calls))],
        loss=1.0,
        versions=VersionSequence(tmp_path / "weights", step),
        say=lambda _: None,
    )
    routes = [
        WeightRoute("full", cast("list[WeightLoader]", ["files"])),
        WeightRoute("delta", cast("list[WeightLoader]", ["files"]), HostWeightCache(settings, WeightSource())),
        WeightRoute("tensors", cast("list[WeightLoader]", ["tensors"])),
    ]
    updated, floor, before = await loaded.measure_updates(2, routes)
    full, delta = updated["full"], updated["delta"]
    kinds = [how if how != "files" else {"weights": "full", "copies": "delta"}[where] for how, _, where in calls]
    assert kinds[:3] == ["full", "delta", "tensors"], "each has done once what it does only once"
    assert kinds[3:] == ["by hand", "full", "delta", "tensors", "full", "delta", "tensors", "by hand"]
    versions = [version for _, version, _ in calls]
    assert versions == sorted(set(versions)), "each update has a version of its own"
    assert (full.stall_ms, delta.stall_ms, floor) == ([4.0] * 2, [4.0] * 2, [2.0] * 2)
    assert (full.window.tokens, delta.window.tokens) == (20, 20)
    assert before.tokens == 0, "what is decoded in an update is none of what is decoded before it"
    assert len(delta.copy_ms) == 2
    assert not full.copy_ms
    copied = [orjson.loads(line) for line in (tmp_path / "events/copies.jsonl").read_bytes().splitlines()]
    assert [event["share"] > 0.5 for event in copied] == [True, False, False], "what changed is a step"
    report = WeightBenchmarkReport(
        model_bytes=128,
        routes=updated,
        floor_ms=2.0,
        share=await delta_bytes_share(WeightStep(step.before, step.after)),
        higher_share=0.5,
        before=DecodingWindow(1.0, 100),
        after=DecodingWindow(1.0, 90),
        drained_ms=9.0,
        reuse={2048: {"version": HistoryReuse(100, 25, 64, 2.0, 3)}},
    )
    output = report.as_json()
    assert output["stall_vs_floor"] == 2.0
    assert output["full"]["stall_ms_p95"] == 4.0
    assert output["tokens_per_s"]["before"] == 100.0
    assert output["tokens_per_s"]["during_by_route"].keys() == {"full", "delta", "tensors"}
    assert output["prefix_reuse"] == {
        "2k": {
            "version": {
                "prefix_hit_share": 0.25,
                "re_prefilled_tokens_per_update": 25.0,
                "tokens_per_s": 32.0,
                "updates": 3,
            }
        }
    }
