"""When parity is looked for, and what is said of it.

A probe is due before an attempt's first step, ``every_steps`` after the last one, and where a learner was loaded anew.
One that is due is tried until it is made, whenever the loop looks for a batch, and nothing waits for it: a step that is
taken without it says so, once for each probe.  Nothing is due where there are no settings.

The learner computes in a call of its own, under the weights that sampled: on a device that it shares with the engines
they sample in rollout's turn, and it computes in its own, before the step.
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
""":meth:`learner.rank.LearnerRank.logprobs`, in the learner's turn."""


@dataclass(slots=True)
class ParityChecker:
    settings: ParityProbeSettings | None
    every_steps: int
    monitor: ParityMonitor
    events: EventLog
    _next: int = 0
    """Steps after which a probe is due."""
    _sampled: ProbeSamples | None = None
    _why: str = ""
    """Why the probe that is due has not been made."""
    _told: bool = False
    _found: LogprobParity | None = None

    def reset(self) -> None:
        """The learner's weights were loaded: whatever was compared before is not what it has."""
        self._next, self._sampled, self._told = 0, None, False

    async def sample_probe(self, step: int, version: WeightVersion, engines: Sequence[Remote[Engine]]) -> None:
        """Let ``engines`` sample by the learner's weights, if a probe is due that has not been sampled yet, and if one
        of them serves these weights."""
        if self.settings is None or step < self._next or self._samples_of(version) is not None:
            return
        try:
            self._sampled = await sample_probe(self.settings, version, engines)
        except ParityProbeError as error:
            self._why = str(error)

    async def compare_probe(self, step: int, version: WeightVersion, learner: LogprobsCall) -> None:
        """What was sampled by the learner's weights with what it makes of it.  Raises UserError where a run begins out
        of parity."""
        if (sampled := self._samples_of(version)) is None:
            return
        found = measure_parity(await learner(sampled.sequences), sampled.logprobs)
        self._found, self._next, self._sampled, self._told = found, step + self.every_steps, None, False
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
        """``step`` is about to be taken."""
        if self.settings is not None and step > self._next and not self._told:
            self._told = True
            self.events.emit("parity.skipped", step=step, why=self._why)

    def take_result(self) -> LogprobParity | None:
        """What the probe has found that was made since this was last asked, if one was."""
        found, self._found = self._found, None
        return found

    def check_step_metrics(self, metrics: Mapping[str, float]) -> None:
        """Look at a step's own tokens.  Raises UserError where they are the first that were looked at, and out of
        parity."""
        self._emit_alert(self.monitor.check_step(metrics))

    def _samples_of(self, version: WeightVersion) -> ProbeSamples | None:
        """What these weights have sampled: what others have, a learner that was started again does not know."""
        sampled = self._sampled
        return sampled if sampled is not None and sampled.version == version else None

    def _emit_alert(self, text: str | None) -> None:
        if text is not None:
            self.events.emit("alert.raised", name="parity", text=text)
