"""Schedules parity checks and reports their results.

A check is due before the first step after a start, ``every_steps`` after the last one, and when a learner was reloaded.
It is tried whenever the loop looks for a batch until it succeeds, and nothing waits for it: a step that is taken
without it emits an event, once for each check.  Without settings no check is due.

The learner computes in a separate call, under the weights that sampled: on a colocated device engines sample in the
rollout phase, and the learner computes before its step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.run_records.step_facts import LogprobParity
from launch.training.learner_client import LearnerClient
from launch.training.logprob_parity import ParityMonitor, measure_parity
from launch.training.parity_samples import ParitySamples, ParitySampleSettings, ParitySamplingError, sample_for_parity
from launch.weight_sync.manager import WeightSyncManager
from learner.rank import LearnerRank
from protocol.events import EventLog
from protocol.weights import WeightVersion


@dataclass(slots=True)
class ParityChecker:
    settings: ParitySampleSettings | None
    every_steps: int
    monitor: ParityMonitor
    learner: LearnerClient
    weight_sync: WeightSyncManager
    events: EventLog
    _next_step: int = 0
    """Number of steps after which a check is due."""
    _sampled: ParitySamples | None = None
    _failure: str = ""
    """Why nothing could be sampled for the check that is due."""
    _skip_reported: bool = False
    _result: LogprobParity | None = None

    def reset(self) -> None:
        """Forget all samples: the learner's weights were reloaded."""
        self._next_step, self._sampled, self._skip_reported = 0, None, False

    async def sample_for_parity(self, step: int, version: WeightVersion) -> None:
        """Let engines sample for a check if one is due and one of them serves the learner's weights, and compare unless
        the device is the engines' now.  Raises UserError if a run starts out of parity."""
        if self.settings is not None and step >= self._next_step and self._samples_of(version) is None:
            try:
                self._sampled = await sample_for_parity(self.settings, version, self.weight_sync.engines)
            except ParitySamplingError as error:
                self._failure = str(error)
        if not self.learner.colocation.colocated:
            await self._compare_samples(step, version)

    async def before_step(self, step: int, version: WeightVersion) -> None:
        """Compare samples, if there are any, and report that step ``step + 1`` is taken without the check that is due.
        Raises UserError if a run starts out of parity."""
        await self._compare_samples(step, version)
        if self.settings is not None and step >= self._next_step and not self._skip_reported:
            self._skip_reported = True
            self.events.emit("parity.skipped", step=step + 1, why=self._failure)

    async def _compare_samples(self, step: int, version: WeightVersion) -> None:
        """Compare samples with the learner's log-probabilities, if there are any of ``version``."""
        if (sampled := self._samples_of(version)) is None:
            return
        found = measure_parity(await self.learner.call(LearnerRank.logprobs, sampled.sequences), sampled.logprobs)
        self._result, self._next_step, self._sampled, self._skip_reported = found, step + self.every_steps, None, False
        self.events.emit(
            "parity.measured",
            step=step,
            version=version,
            k3=found.rounded_k3,
            tokens=found.tokens,
            limit=self.monitor.limit,
        )
        self._emit_alert(self.monitor.check_samples(found))

    def take_result(self) -> LogprobParity | None:
        """Return the result of the check since the last call, if there was one."""
        result, self._result = self._result, None
        return result

    def check_step_metrics(self, metrics: Mapping[str, float]) -> None:
        """Check the parity of a step's own tokens.  Raises UserError if they are the first measurement and out of
        parity."""
        self._emit_alert(self.monitor.check_step(metrics))

    def _samples_of(self, version: WeightVersion) -> ParitySamples | None:
        """Return the samples if they are of ``version``; a restarted learner has no others."""
        sampled = self._sampled
        return sampled if sampled is not None and sampled.version == version else None

    def _emit_alert(self, text: str | None) -> None:
        if text is not None:
            self.events.emit("alert.raised", name="parity", text=text)
