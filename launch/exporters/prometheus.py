"""Serves a run's metrics in Prometheus' text format on loopback.

Figures of a step are gauges, by their names in ``metrics.jsonl``; what events tell between two steps stands beside
them.  Each is given only once there is something to give.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app  # pyright: ignore[reportUnknownVariableType]  its type is not whole
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from launch.exporters.step_metrics import numeric_metrics
from protocol.errors import UserError
from protocol.run_directory.cursors import Cursor
from protocol.run_directory.json_fields import Event, get_list, get_mapping, get_number, get_text
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.loop_lags import RecentLoopLags
from protocol.run_directory.run_tail import RunTail

PREFIX = "longshore_"

STEP_METRIC_HELP = {
    "staleness_max": "largest staleness of a token with loss, in optimizer steps",
    "staleness_mean": "mean staleness of the tokens with loss",
    "clip_dual": "share of tokens that the dual clip bounded",
    "clip_high": "share of tokens clipped above",
    "clip_low": "share of tokens clipped below",
    "server_switched_turns": "turns whose engine was lost while it sampled them",
    "auxiliary_turns": "replies of a harness beside its work, such as titles",
    "discarded_turns": "replies that a harness threw away and asked for again",
    "elapsed_s": "seconds from the step before to this one",
    "engine_tokens": "tokens that engines sampled since the step before",
    "judge_tokens": "tokens that the judge's own engines sampled since the step before",
    "entropy": "of the policy, mean over tokens",
    "episodes": "episodes whose group closed since the step before",
    "ess": "effective sample size of tokens, as a share",
    "ess_sequence": "effective sample size of sequences, as a share",
    "grad_norm": "before clipping",
    "groups": "in the batch",
    "kl_k1": "k1 estimate of the KL divergence of the policy from the one that sampled",
    "kl_k3": "k3 estimate of the same",
    "loss": "of the batch",
    "lr": "learning rate",
    "masked_tokens": "tokens too stale to have loss",
    "mismatch_max": "largest gap of a token's log-probability between engine and learner",
    "mixed_prefix_turns": "turns with a prefix that was computed with older weights",
    "parity_k3": "k3 estimate between the log-probabilities of engine and learner, with the same weights",
    "parity_check_k3": "the same, for the last parity check",
    "pass_rate": "episodes whose tests all passed",
    "pause_ms": "an engine's last pause for weights",
    "reward_mean": "of the episodes whose group closed since the step before",
    "sampled_tokens": "in the batch",
    "step_s": "seconds of the step itself",
    "tokens_per_s": "of the learner, within a step",
    "tokens_per_s_sampled": "of all engines since the step before",
    "tokens_per_s_trained": "tokens with loss since the step before",
    "trained_share": "sampled tokens of the batch that have loss",
    "trained_tokens": "in the batch",
    "trained_trajectories": "in the batch",
    "updated": "1 where the step changed the weights",
    "wait_s": "seconds that the learner waited for the batch",
    "zero_variance_groups": "groups without anything to train on since the step before",
}
"""Key of a step's line → its help text; others get a generic one."""


class PrometheusCollector(Collector):
    """Collects the metrics of a run.  One thread updates it; others read it."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._lock = threading.Lock()
        self._step = 0
        self._values: dict[str, float] = {}
        self._tokens_by_staleness: list[float] = []
        self._dropped: Counter[str] = Counter()
        self._episodes: Counter[str] = Counter()
        self._graded: Counter[str] = Counter()
        self._suspicious = 0
        self._failed: Counter[str] = Counter()
        self._alerts: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()
        self._sandboxes: dict[tuple[str, ...], float] = {}
        self._loop_lags = RecentLoopLags()
        self._stalled_s = defaultdict[str, float](float)
        self._images: dict[tuple[str, ...], float] = {}
        self._pauses: dict[str, float] = {}
        self._loads: Counter[str] = Counter()

    def observe_event(self, event: Event) -> None:
        """Update the metrics with one event."""
        with self._lock:
            match get_text(event, "kind"):
                case "learner.step":
                    self._stepped(event)
                case "episode.finished":
                    self._episodes[get_text(event, "status")] += 1
                    if isolation := get_text(event, "isolation"):
                        self._graded[isolation] += 1
                case "episode.suspicious":
                    self._suspicious += 1
                case "episode.failed":
                    self._failed[get_text(event, "reason")] += 1
                case "alert.raised":
                    self._alerts[get_text(event, "name")] += 1
                case "process.died" | "engine.died":
                    self._deaths[get_text(event, "what") or get_text(event, "engine")] += 1
                case "engine.loaded":
                    self._pauses[get_text(event, "engine")] = get_number(event, "pause_ms") or 0.0
                    self._loads[get_text(event, "engine")] += 1
                case _:
                    self._observe_state(event)

    def _observe_state(self, event: Event) -> None:
        match get_text(event, "kind"):
            case "sandbox.counted":
                for state in ("live", "starting", "waiting"):
                    self._sandboxes[get_text(event, "worker"), state] = get_number(event, state) or 0.0
            case "images.counted":
                tasks, ready, failed = (get_number(event, key) or 0.0 for key in ("tasks", "ready", "failed"))
                self._images = {("ready",): ready, ("failed",): failed, ("missing",): tasks - ready - failed}
            case "loop.measured":
                self._loop_lags.observe_report(event)
                self._stalled_s[get_text(event, "writer")] += (get_number(event, "max_ms") or 0.0) / 1000
            case _:
                pass

    def _stepped(self, event: Event) -> None:
        self._step = int(get_number(event, "step") or 0)
        self._values = {
            name: value for name, value in numeric_metrics(event).items() if "/" not in name and name != "seq"
        }
        self._tokens_by_staleness = [float(str(tokens)) for tokens in get_list(event, "staleness_histogram")]
        dropped = get_mapping(event, "dropped")
        self._dropped.update({reason: int(get_number(dropped, reason) or 0) for reason in dropped})

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            yield from [*self._collected()]

    def _collected(self) -> Iterator[Metric]:
        yield self._gauge("run_info", "always 1, with the run's id as a label", (), {(): 1.0})
        yield self._gauge("step", "newest optimizer step", (), {(): float(self._step)})
        for name, value in sorted(self._values.items()):
            yield self._gauge(name, STEP_METRIC_HELP.get(name, "of the newest step"), (), {(): value})
        histogram = {(str(staleness),): tokens for staleness, tokens in enumerate(self._tokens_by_staleness)}
        yield self._gauge("tokens_by_staleness", "tokens with loss in the newest step", ("staleness",), histogram)
        yield self._gauge("sandboxes", "by worker and state", ("worker", "state"), self._sandboxes)
        yield self._gauge(
            "loop_lag_seconds",
            "lag of each process's event loop in its last 30 s",
            ("process", "figure"),
            {
                (process, figure): ms / 1000
                for process, lag in self._loop_lags.by_process().items()
                for figure, ms in (("max", lag.max_ms), ("p99", lag.p99_ms))
            },
        )
        yield self._counter(
            "loop_stalled_seconds",
            "sum of the longest lags of a process's event loop, one in 30 s",
            "process",
            self._stalled_s,
        )
        yield self._gauge("task_images", "training tasks by the state of their images", ("state",), self._images)
        pauses = {(engine,): value for engine, value in self._pauses.items()}
        yield self._gauge("engine_pause_ms", "an engine's last pause for weights", ("engine",), pauses)
        yield self._counter("engine_loads", "weight versions that an engine has loaded", "engine", self._loads)
        yield self._counter("episodes_finished", "by how they ended", "status", self._episodes)
        yield self._counter("episodes_graded", "by whose programs ran the tests", "isolation", self._graded)
        suspicious = CounterMetricFamily(
            f"{PREFIX}episodes_suspicious", "episodes with signs of cheating", labels=["run"]
        )
        suspicious.add_metric([self._run_id], self._suspicious)
        yield suspicious
        yield self._counter("episodes_failed", "attempts that infrastructure lost", "reason", self._failed)
        yield self._counter("trajectories_dropped", "by steps that could not train them", "reason", self._dropped)
        yield self._counter("alerts", "alerts raised, by name", "name", self._alerts)
        yield self._counter("deaths", "processes that died or were killed", "what", self._deaths)

    def _gauge(
        self, name: str, help_text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}{name}", help_text, labels=["run", *labels])
        for label_values, value in sorted(values.items()):
            family.add_metric([self._run_id, *label_values], value)
        return family

    def _counter(self, name: str, help_text: str, label: str, counts: Mapping[str, float]) -> CounterMetricFamily:
        family = CounterMetricFamily(f"{PREFIX}{name}", help_text, labels=["run", label])
        for value, count in sorted(counts.items()):
            family.add_metric([self._run_id, value], count)
        return family


class PrometheusServer:
    """Serves ``http://127.0.0.1:PORT/metrics``, with a thread that follows the run's events."""

    def __init__(self, run_id: str, run_dir: Path, begin: Cursor, port: int) -> None:
        """Open the port.  Raises UserError if it is taken."""
        self._collector, self._tail = PrometheusCollector(run_id), RunTail(run_dir, EVENT_FILES, begin)
        registry = CollectorRegistry()
        registry.register(self._collector)
        try:
            self._server = _Server(("127.0.0.1", port), _Silent)
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}): set metrics.port to another, or 0 for a free one"
            ) from error
        self._server.set_app(make_wsgi_app(registry))  # pyright: ignore[reportUnknownArgumentType]  as above
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"
        threading.Thread(target=self._server.serve_forever, daemon=True, name="prometheus").start()

    def observe_new_events(self) -> None:
        """Update the metrics with the events that were written since the last call."""
        for event in self._tail.iter_events():
            self._collector.observe_event(event)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    address_family = socket.AF_INET


class _Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the standard library
        del format, args
