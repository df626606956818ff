"""``/metrics``: the pool server's metrics in Prometheus' text format."""

from __future__ import annotations

from sandbox.http.application import prometheus_exposition
from sandbox.server.service import PoolService


def render_metrics(service: PoolService) -> bytes:
    """Render the metrics."""
    pool, limits = service.provider.statistics(), service.settings.leases
    gauges = {
        "leases": ("current leases", len(service.table)),
        "lease_slots": ("maximum number of leases", limits.tasks * limits.runs_per_task),
        "pending_closes": ("sandboxes being ended", service.pending_closes),
        "sandboxes_live": ("sandboxes handed out", pool.live),
        "sandboxes_warm": ("sandboxes ready and waiting", pool.warm),
        "sandboxes_capacity": ("sandboxes that may be alive at once", pool.capacity),
        "starts_running": ("containers starting", pool.starting),
        "starts_waiting": ("starts that wait for a start slot or for a sandbox slot", pool.waiting),
        "starts_limit": ("containers that may start at once, as measured", pool.start_limit),
        "start_wait_seconds": ("estimated wait of a new start", service.provider.wait_s()),
        "start_seconds_mean": ("mean duration of a start", pool.start_ms_mean / 1000),
        "draining": ("1 while the server is being stopped", float(service.draining)),
    }
    counters = {
        "starts": ("containers started", pool.started),
        "starts_failed": ("containers that did not start, or whose task's setup failed", pool.failed_starts),
        "warm_hits": ("sandboxes handed out without a start", pool.warm_hits),
        "sandboxes_closed": ("sandboxes ended", pool.closed),
        "leases_reaped": ("leases ended because they were not renewed", service.reaped),
        "leases_adopted": ("sandboxes taken over from an earlier server", service.adopted),
        "containers_swept": ("containers of an earlier server that were removed", service.swept),
    }
    return prometheus_exposition("longshore_sandbox", gauges, counters)
