"""Schedules parity probes and reports their results.

A probe is due before an attempt's first step, ``every_steps`` after the last one, and after a learner was reloaded.  It
is tried whenever the loop looks for a batch until it succeeds, and nothing waits for it: a step that is taken without
it emits an event, once for each probe.  Without settings no probe is due.

The learner computes in a separate call, under the weights that sampled: on a colocated device engines sample in the
rollout phase, and the learner computes before its step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from launch.run_records.step_facts import LogprobParity
from launch.training.logprob_parity import ParityMonitor, measure_parity
from launch.training.parity_probe import ParityProbeError, ParityProbeSettings, ProbeSamples, sample_probe
from protocol.events import EventLog
from protocol.trajectory import Float32Array, Int32Array, Uint8Array
from protocol.weights import WeightVersion

LogprobsCall = Callable[[list[tuple[Int32Array, Uint8Array]]], Awaitable[list[Float32Array]]]
"""Calls :meth:`learner.rank.LearnerRank.logprobs` while the learner has the device."""


@dataclass(slots=True)
class ParityChecker:
    settings: ParityProbeSettings | None
    every_steps: int
    monitor: ParityMonitor
    events: EventLog
    _next_step: int = 0
    """Number of steps after which a probe is due."""
    _sampled: ProbeSamples | None = None
    _failure: str = ""
    """Why the probe that is due could not be sampled."""
    _skip_reported: bool = False
    _result: LogprobParity | None = None

    def reset(self) -> None:
        """Forget all probes: the learner's weights were reloaded."""
        self._next_step, self._sampled, self._skip_reported = 0, None, False

    async def sample_probe(self, step: int, version: WeightVersion, engines: Sequence[Remote[Engine]]) -> None:
        """Let ``engines`` sample a probe if one is due and one of them serves the learner's weights."""
        if self.settings is None or step < self._next_step or self._samples_of(version) is not None:
            return
        try:
            self._sampled = await sample_probe(self.settings, version, engines)
        except ParityProbeError as error:
            self._failure = str(error)

    async def compare_probe(self, step: int, version: WeightVersion, learner: LogprobsCall) -> None:
        """Compare a sampled probe with the learner's log-probabilities.  Raises UserError if a run starts out of
        parity."""
        if (sampled := self._samples_of(version)) is None:
            return
        found = measure_parity(await learner(sampled.sequences), sampled.logprobs)
        self._result, self._next_step, self._sampled, self._skip_reported = found, step + self.every_steps, None, False
        self.events.emit(
            "parity.measured",
            step=step,
            version=version,
            k3=found.rounded_k3,
            tokens=found.tokens,
            limit=self.monitor.limit,
        )
        self._emit_alert(self.monitor.check_probe(found))

    def before_step(self, step: int) -> None:
        """Report that ``step`` is taken without the probe that is due, if it is."""
        if self.settings is not None and step > self._next_step and not self._skip_reported:
            self._skip_reported = True
            self.events.emit("parity.skipped", step=step, why=self._failure)

    def take_result(self) -> LogprobParity | None:
        """Return the result of the probe since the last call, if there was one."""
        result, self._result = self._result, None
        return result

    def check_step_metrics(self, metrics: Mapping[str, float]) -> None:
        """Judge the parity of a step's own tokens.  Raises UserError if they are the first measurement and out of
        parity."""
        self._emit_alert(self.monitor.check_step(metrics))

    def _samples_of(self, version: WeightVersion) -> ProbeSamples | None:
        """Return the samples if they are of ``version``; a restarted learner has no others."""
        sampled = self._sampled
        return sampled if sampled is not None and sampled.version == version else None

    def _emit_alert(self, text: str | None) -> None:
        if text is not None:
            self.events.emit("alert.raised", name="parity", text=text)
