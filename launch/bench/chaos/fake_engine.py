"""A fake engine without SGLang, which recites replies of an agent.

It implements the interface of the engine actor and answers fast, so that the real processes around it are busy.  It
reads and checks the files of each version like the real engine and reports them in its events, and each token carries
the version that was loaded when it was sampled, so that a reply during a load has tokens of both.  Texts and
log-probabilities are made up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from actors.engines.messages import (
    EngineLoad,
    EngineSnapshot,
    EngineStartError,
    EngineState,
    EngineStatistics,
    EngineStatus,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    TokensInFlight,
    WeightLoadError,
    WeightLoadReport,
)
from actors.engines.settings import EngineSpec
from actors.engines.weights import weight_files
from actors.engines.weights.broadcast_loader import BroadcastSender
from actors.tokens.chat_format import load_tokenizer
from launch.bench.chaos.evidence import weights_digest
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

_CALL = '<tool_call>\n{{"name": "shell_exec", "arguments": {{"command": "echo {number} > note.txt"}}}}\n</tool_call>'
_LAST_WORD = "done"
_TOKENS_AT_ONCE = 8
_PAUSE_S = 0.02
"""Seconds of pause after these tokens, in which other requests and loads run."""
_PROMPT_TURNS = 2
"""Number of messages in a first prompt: system and user."""


class FakeEngine:
    """Replies with a command first and then with a final answer, in every episode."""

    def __init__(self, spec: EngineSpec, sender: BroadcastSender | None = None) -> None:
        del sender
        self._spec = spec
        self._events = EventLog(spec.run_dir, spec.name, spec.node)
        self._state, self._counts = EngineState.NEW, EngineStatistics()
        self._manifest: WeightManifest | None = None

    async def start(self, manifest: WeightManifest) -> EngineStatus:
        if self._state is not EngineState.NEW:
            raise EngineStartError(f"engine {self._spec.name} is {self._state} and cannot be started")
        path = self._spec.model_path
        self._tokenizer = await asyncio.to_thread(load_tokenizer, path)
        self._shape = await asyncio.to_thread(weight_files.read_model_shape, Path(path))
        digest = await self._read(manifest)
        self._manifest, self._state = manifest, EngineState.SERVING
        self._events.emit("engine.started", engine=self._spec.name, version=manifest.version, sha256=digest)
        return await self.status()

    async def stop(self) -> None:
        self._state = EngineState.STOPPED

    async def status(self) -> EngineStatus:
        return EngineStatus(
            name=self._spec.name,
            state=self._state,
            version=self._manifest.version if self._manifest else NO_VERSION,
            pid=0,
            port=0,
            node=self._spec.node,
            restarts=0,
            start_s=0.0,
            error="",
        )

    async def statistics(self) -> EngineStatistics:
        return replace(self._counts)

    async def drain(self, patience_s: float) -> bool:
        """Do nothing: there is no server to replace."""
        del patience_s
        return True

    async def restart_if_checksum(self, version: WeightVersion, checksum: str) -> None:
        """Do nothing: the weights are files that are checked anyway."""

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        """Do nothing: there is no memory to release."""

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Do nothing: :meth:`load_weights` reads the files."""

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool = True
    ) -> WeightLoadReport:
        del wait_for_restart  # it has no server that could start again
        begun = time.monotonic()
        if self._manifest is None:
            raise WeightLoadError(f"engine {self._spec.name} is {self._state} and cannot load weights")
        if self._manifest.version != manifest.version:
            async with asyncio.timeout(deadline_s):
                digest = await self._read(manifest)
            self._manifest = manifest
            self._counts.loads += 1
            self._events.emit(
                "engine.loaded", engine=self._spec.name, version=manifest.version, pause_ms=0.0, sha256=digest
            )
        return WeightLoadReport(
            version=manifest.version, pause_ms=0.0, load_ms=0.0, prefetch_ms=(time.monotonic() - begun) * 1000
        )

    async def _read(self, manifest: WeightManifest) -> str:
        """Return the SHA-256 of the files.  Raises InvalidWeights if the files do not match the manifest."""
        await asyncio.to_thread(weight_files.check_weights, manifest, self._shape)
        return await asyncio.to_thread(weights_digest, Path(manifest.path))

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        del watch
        if self._manifest is None or self._state is not EngineState.SERVING:
            raise EngineUnavailable(f"engine {self._spec.name} is {self._state}")
        begun, key = time.monotonic(), self._manifest.version
        dice = random.Random(f"{request.session}/{request.seed}/{len(request.input_ids)}")
        reply = self._recite(request, dice)
        ids, versions = reply[: request.max_new_tokens], list[int]()
        for index in range(len(ids)):
            if index % _TOKENS_AT_ONCE == 0:
                await asyncio.sleep(_PAUSE_S)
            versions.append(self._manifest.version)
        self._counts.requests += 1
        self._counts.completed += 1
        self._counts.sampled_tokens += len(ids)
        return GenerateReply(
            token_ids=ids,
            logprobs=[-dice.expovariate(1.0) for _ in ids],
            versions=versions,
            finish="stop" if len(ids) == len(reply) else "length",
            key_version=key,
            mixed_prefix=versions[0] != key,
            server_switches=0,
            ms=(time.monotonic() - begun) * 1000,
            cached_tokens=0,
            engine=self._spec.name,
        )

    async def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:  # noqa: ARG002  the real one's
        """Return nothing: a reply starts again from its beginning."""
        return {}

    async def snapshot(self, known: Mapping[str, int]) -> EngineSnapshot:
        """Return an engine that is never full."""
        status, nothing = await self.status(), TokensInFlight(running=0, queued=0, of_caller=0)
        load = EngineLoad(state=status.state, paused_s=0.0, version=status.version, tokens=nothing)
        return EngineSnapshot(await self.partial_replies(known), load)

    def _recite(self, request: GenerateRequest, dice: random.Random) -> list[int]:
        (end,) = request.stop_token_ids
        first = request.input_ids.count(end) <= _PROMPT_TURNS
        text = _CALL.format(number=dice.randrange(1_000_000)) if first else _LAST_WORD
        return [*self._tokenizer.encode(text, add_special_tokens=False), end]
