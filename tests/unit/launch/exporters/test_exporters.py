"""If these fail, a tracker stops or slows a run, or what a dashboard shows is not there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from launch.config import load_recipe
from launch.exporters import prometheus
from launch.exporters.exporter_registry import check_exporters, open_exporter
from launch.exporters.exporter_thread import ExporterThread
from launch.exporters.metric_exporter import ExporterSettings
from launch.exporters.process import run_exporters_process
from launch.exporters.prometheus import STEP_METRIC_HELP, PrometheusServer
from launch.exporters.step_metrics import numeric_metrics
from launch.run_records.metrics_log import MetricsLog
from launch.settings.metrics import MetricsSettings
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USER
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.run_directory.json_fields import Event
from protocol.settings import ConfigError
from tests.support.fakes.fake_run import write_fake_run

DATA = Path(__file__).resolve().parents[3] / "data"
DASHBOARD = Path(prometheus.__file__).parent / "grafana.json"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_fake_run(tmp_path / "fake", steps=3)
    return tmp_path / "fake"


class Taken:
    """A tracker that takes everything."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Mapping[str, float]]] = []
        self.closed = False

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append((step, metrics))

    def close(self) -> None:
        self.closed = True


class Broken(Taken):
    """A tracker that is never to be reached."""

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        raise ConnectionError("no route")

    def close(self) -> None:
        raise ConnectionError("no route")


class Hanging(Taken):
    """A tracker that takes the call and never ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self._for_ever = threading.Event(), threading.Event()

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.called.set()
        self._for_ever.wait()


def test_each_step_is_handed_on_once_with_every_number(run_dir: Path) -> None:
    exporter = Taken()
    ExporterThread("taken", exporter, run_dir, pytest.fail).send_all()
    assert [step for step, _ in exporter.steps] == [1, 2, 3]
    values = exporter.steps[-1][1]
    assert {"loss", "reward_mean", "wait_s", "trained_tokens"} <= set(values)
    assert not {"t", "step"} & set(values)
    assert exporter.closed


def test_tables_in_a_metrics_line_become_figures_and_lists_are_left_out() -> None:
    line = {"step": 1, "loss": 0.5, "dropped": {"all_stale": 2}, "ages": [1], "told": "x", "whole": True}
    assert numeric_metrics(line) == {"loss": 0.5, "dropped/all_stale": 2.0}


def test_steps_repeated_after_a_resume_are_exported_again(run_dir: Path) -> None:
    """After a resume: the later figures of a step count, and trackers are told them."""
    log = MetricsLog(run_dir)
    log.rewind(2)
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 9.0, "t": 1}\n')
    exporter = Taken()
    ExporterThread("taken", exporter, run_dir, pytest.fail).send_all()
    assert [step for step, _ in exporter.steps] == [1, 2, 3, 3]
    assert exporter.steps[-1][1] == {"loss": 9.0}


def test_a_failing_tracker_is_reported_once_and_its_failures_are_counted(run_dir: Path) -> None:
    warnings: list[str] = []
    follower = ExporterThread("broken", Broken(), run_dir, warnings.append)
    follower.send_all()
    assert warnings == ["ConnectionError: no route"]
    assert (follower.sent_steps, follower.failed_calls) == (0, 4), "three steps and the end"


def test_a_hanging_tracker_delays_neither_other_trackers_nor_the_end(run_dir: Path) -> None:
    hanging, taken = Hanging(), Taken()
    followers = [
        ExporterThread("hanging", hanging, run_dir, pytest.fail),
        ExporterThread("taken", taken, run_dir, pytest.fail),
    ]
    for follower in followers:
        follower.start()
        follower.request_stop()
    assert hanging.called.wait(60)
    assert followers[1].join(60)
    assert len(taken.steps) == 3
    assert not followers[0].join(0), "it still hangs, and nobody waits"


def scraped(endpoint: PrometheusServer) -> str:
    with urllib.request.urlopen(endpoint.url, timeout=60) as answer:  # noqa: S310  our own
        return answer.read().decode()


def exposed(run_dir: Path) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """Name → (labels, value) of what a scrape gets."""
    endpoint = PrometheusServer("fake", run_dir, {}, 0)
    try:
        endpoint.observe_new_events()
        assert endpoint.url.startswith("http://127.0.0.1:")
        text = scraped(endpoint)
    finally:
        endpoint.close()
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_scrape_gets_the_newest_step_and_the_event_counts(run_dir: Path) -> None:
    found = exposed(run_dir)
    assert found["longshore_run_info"] == [({"run": "fake"}, 1.0)]
    assert found["longshore_step"] == [({"run": "fake"}, 3.0)]
    newest = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["longshore_loss"] == [({"run": "fake"}, pytest.approx(newest["loss"]))]
    assert found["longshore_engine_loads_total"] == [({"run": "fake", "engine": "engine-0"}, 3.0)]
    assert sum(value for _, value in found["longshore_episodes_finished_total"]) > 0
    assert {labels["state"] for labels, _ in found["longshore_sandboxes"]} == {"live", "starting", "waiting"}


def test_a_scrape_gets_the_tasks_by_the_state_of_their_images(run_dir: Path) -> None:
    EventLog(run_dir, "scheduler-2", "node-0").emit("images.counted", tasks=40, ready=12, failed=1)
    counts = {labels["state"]: value for labels, value in exposed(run_dir)["longshore_task_images"]}
    assert counts == {"ready": 12.0, "failed": 1.0, "missing": 27.0}


def test_a_scrape_gets_the_signs_of_cheating_and_the_graded_episodes_by_isolation(tmp_path: Path) -> None:
    assert exposed(tmp_path)["longshore_episodes_suspicious_total"] == [({"run": "fake"}, 0.0)], "it exists for alerts"
    log = EventLog(tmp_path, "worker-0-0", "node-0")
    for name, isolation in (("a", "toolchain"), ("b", "shared"), ("c", "toolchain"), ("d", "")):
        log.emit("episode.finished", trajectory=name, status="completed", isolation=isolation)
    log.emit("episode.suspicious", trajectory="b", why=["ls /tests"])
    found = exposed(tmp_path)
    assert found["longshore_episodes_suspicious_total"] == [({"run": "fake"}, 1.0)]
    graded = {labels["isolation"]: value for labels, value in found["longshore_episodes_graded_total"]}
    assert graded == {"toolchain": 2.0, "shared": 1.0}, "the last one had no tests"


def dashboard_metrics() -> set[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return {name for query in queries for name in re.findall(r"longshore_\w+", query)}


def test_every_metric_of_the_dashboard_exists(run_dir: Path) -> None:
    """A panel without data is a wrong answer to whoever looks at it."""
    exposed_names = set(exposed(run_dir)) | {f"longshore_{name}" for name in STEP_METRIC_HELP}
    labelled = {"episodes_failed", "trajectories_dropped", "alerts", "deaths"}
    with_nothing_yet = {f"longshore_{name}_total" for name in labelled}
    queried_names = dashboard_metrics()
    assert len(queried_names) > 25
    assert queried_names <= exposed_names | with_nothing_yet, queried_names - exposed_names - with_nothing_yet


def test_a_process_that_is_gone_has_no_lag_and_a_stall_between_two_scrapes_is_counted() -> None:
    collector = prometheus.PrometheusCollector("fake")
    for t, writer, max_ms in ((0.0, "worker-0", 4000.0), (30.0, "worker-0", 1.0), (150.0, "buffer", 2.0)):
        collector.observe_event({"kind": "loop.measured", "t": t, "writer": writer, "max_ms": max_ms, "p99_ms": 1.0})
    values = {
        (sample.name, sample.labels.get("process"), sample.labels.get("figure")): sample.value
        for family in collector.collect()
        for sample in family.samples
    }
    lags = {key[1:]: value for key, value in values.items() if key[0] == "longshore_loop_lag_seconds"}
    assert lags == {("buffer", "max"): 0.002, ("buffer", "p99"): 0.001}
    assert values["longshore_loop_stalled_seconds_total", "worker-0", None] == pytest.approx(4.001)


def test_each_legend_of_the_dashboard_is_a_label_of_its_metric() -> None:
    """Otherwise the curves of a panel would have no names."""
    collector = prometheus.PrometheusCollector("fake")
    events: list[Event] = [
        {"kind": "learner.step", "staleness_histogram": [8, 4], "dropped": {"all_stale": 1}},
        {"kind": "episode.finished", "status": "completed", "isolation": "shared"},
        {"kind": "episode.failed", "reason": "sandbox_lost"},
        {"kind": "alert.raised", "name": "disk"},
        {"kind": "process.died", "what": "worker-0"},
        {"kind": "engine.loaded", "engine": "engine-0", "pause_ms": 5.0},
        {"kind": "sandbox.counted", "worker": "worker-0", "live": 2},
        {"kind": "loop.measured", "writer": "worker-0", "max_ms": 1500.0, "p99_ms": 20.0},
    ]
    for event in events:
        collector.observe_event(event)
    labels = {sample.name: set(sample.labels) for family in collector.collect() for sample in family.samples}
    targets = [target for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", ())]
    legends = [
        (metric, legend)
        for target in targets
        for metric in re.findall(r"longshore_\w+", target["expr"])
        for legend in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    ]
    assert len(legends) > 5
    assert not [(metric, legend) for metric, legend in legends if legend not in labels[metric]]


def test_every_described_step_metric_exists_in_a_metrics_line() -> None:
    """Held against a line that a real run wrote, without a judge of its own."""
    assert set(STEP_METRIC_HELP) - {"judge_tokens"} <= set(json.loads((DATA / "metrics_line.json").read_text()))


def test_counters_exist_before_their_first_event(run_dir: Path) -> None:
    """The four names above are those of families that are there, and empty."""
    endpoint = PrometheusServer("fake", run_dir, {}, 0)
    try:
        text = scraped(endpoint)
    finally:
        endpoint.close()
    for name in ("episodes_failed", "trajectories_dropped", "alerts", "deaths"):
        assert f"# TYPE longshore_{name}_total counter" in text


def test_the_dashboard_can_be_imported_by_grafana() -> None:
    board = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert {"title", "uid", "schemaVersion", "templating", "time"} <= set(board)
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", ()):
            assert 'run="$run"' in target["expr"]


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "trackio"])
def test_a_missing_tracker_package_is_reported_before_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        UserError, match=rf"metrics.exporters names .*pip install 'longshore\[{name}\]', or leave it out"
    ):
        check_exporters([name], "metrics.exporters")


def test_a_tracker_that_cannot_be_opened_is_reported_in_one_line_with_its_message(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, say."""
    (tmp_path / "wandb.py").write_text(
        "def init(**_):\n    raise PermissionError('no key\\nsecond line')\nSettings = dict\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as caught:
        open_exporter("wandb", ExporterSettings("fake", run_dir, "longshore", {}))
    assert "--to wandb: wandb cannot be opened (PermissionError: no key): correct this" in str(caught.value)
    assert "\n" not in str(caught.value)
    sys.modules.pop("wandb", None)


def test_a_package_adds_a_tracker_by_its_name(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is no tracker is refused by its name."""
    metadata = tmp_path / "site" / "ours-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[longshore.metric_exporters]\nours = our_sink:Ours\nodd = our_sink:seven\n"
    )
    (tmp_path / "site" / "our_sink.py").write_text(
        "seven = 7\n"
        "class Ours:\n"
        "    def __init__(self, settings): self.file = open(settings.run_dir / f'{settings.project}.txt', 'a')\n"
        "    def log_step(self, step, metrics): self.file.write(f'{step} ')\n"
        "    def close(self): self.file.close()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert load_recipe("demo", ["metrics.exporters=ours"]).metrics.exporters == ("ours",)
    exporter = open_exporter("ours", ExporterSettings("fake", run_dir, "mine", {}))
    ExporterThread("ours", exporter, run_dir, pytest.fail).send_all()
    assert (run_dir / "mine.txt").read_text() == "1 2 3 "
    with pytest.raises(UserError, match=r"'odd' of longshore\.metric_exporters is not an exporter"):
        open_exporter("odd", ExporterSettings("fake", run_dir, "mine", {}))


@pytest.mark.parametrize(
    ("value", "why"),
    [("wandbb", "did you mean 'wandb'"), ("wandb,wandb", "names one twice"), ("mlflow", "there are wandb, ")],
)
def test_an_unknown_or_repeated_tracker_is_refused(value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_recipe("demo", [f"metrics.exporters={value}"])


def test_a_run_exports_no_metrics_by_default() -> None:
    assert not load_recipe("demo").metrics.exports_metrics
    assert load_recipe("demo", ["metrics.exporters=wandb,trackio"]).metrics.exporters == ("wandb", "trackio")


FAKE_TENSORBOARD = """
import os
class Writer:
    def __init__(self, folder):
        print("a tracker prints where it likes")
        if os.environ.get("TRACKER") == "refuses":
            raise ConnectionError("no key")
    def add_scalar(self, name, value, step):
        if os.environ.get("TRACKER") == "fails":
            raise ConnectionError("gone")
        if os.environ.get("TRACKER") == "dies":
            os._exit(9)
    def flush(self): pass
    def close(self): pass
"""


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package ``tensorboard`` that does what the variable TRACKER says."""
    site = tmp_path / "site" / "tensorboard"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    (site / "summary.py").write_text(FAKE_TENSORBOARD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site.parent), os.environ.get("PYTHONPATH", "")]))
    return site


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.exporters", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_command_exports_every_step_that_a_run_wrote(run_dir: Path, tracker: Path) -> None:
    done = run_command(run_dir, "--to", "tensorboard", "--json")
    assert done.returncode == EXIT_OK, done.stderr
    assert json.loads(done.stdout) == {"run": "fake", "exporters": {"tensorboard": {"sent": 3, "failed": 0}}}
    assert run_command(run_dir, "--to", "tensorboard").stdout == "tensorboard: 3 steps sent, 0 calls failed\n"


def test_steps_that_could_not_be_sent_raise_an_alert_in_the_run(
    run_dir: Path, tracker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER", "fails")
    done = run_command(run_dir, "--to", "tensorboard", "--json")
    assert done.returncode == EXIT_FAILED
    assert json.loads(done.stdout)["exporters"]["tensorboard"] == {"sent": 0, "failed": 3}
    (event,) = map(json.loads, (run_dir / "events" / "exporter-tensorboard.jsonl").read_text().splitlines())
    assert (event["kind"], event["name"]) == ("alert.raised", "metrics")
    assert "ConnectionError: gone" in event["text"]
    assert f"longshore exporters {run_dir} --to tensorboard" in event["text"]


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("arguments", "why"),
    [([], "no exporter is selected"), (["--to", "tensorboard"], "no key"), (["--prometheus", "70000"], "70000")],
)
def test_invalid_arguments_are_a_user_error(
    run_dir: Path, tracker: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str
) -> None:
    monkeypatch.setenv("TRACKER", "refuses")
    done = run_command(run_dir, *arguments, "--json")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == EXIT_USER
    assert why in json.loads(done.stdout)["error"]


async def test_the_exporters_process_follows_a_run_and_ends_with_it(
    run_dir: Path, tracker: Path, tmp_path: Path
) -> None:
    metrics = MetricsSettings(prometheus=True, exporters=("tensorboard",))
    async with run_exporters_process(run_dir, metrics, tmp_path / "exporters.log", pytest.fail) as status:
        name, _, url = status.partition(" and ")
        assert name == "tensorboard"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read().decode())  # noqa: S310  our own
        assert 'longshore_run_info{run="fake"} 1.0' in text
    assert "0 steps sent" in (tmp_path / "exporters.log").read_text(), "what was there before is not sent again"


async def test_a_run_does_not_start_if_a_tracker_cannot_be_opened(
    run_dir: Path, tracker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER", "refuses")
    metrics = MetricsSettings(exporters=("tensorboard",))
    with pytest.raises(
        UserError, match=r"^metrics\.exporters tensorboard: tensorboard cannot be opened \(ConnectionError: no key\)"
    ):
        async with run_exporters_process(run_dir, metrics, tmp_path / "exporters.log", pytest.fail):
            pytest.fail("it began")


async def test_the_death_of_the_exporters_is_reported_once_and_the_run_goes_on(
    run_dir: Path, tracker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER", "dies")
    problems: asyncio.Queue[str] = asyncio.Queue()
    metrics = MetricsSettings(exporters=("tensorboard",))
    async with run_exporters_process(run_dir, metrics, tmp_path / "exporters.log", problems.put_nowait):
        with (run_dir / "metrics.jsonl").open("a") as file:
            file.write('{"step": 4, "loss": 1.0, "t": 1}\n')
        assert "exit code 9" in await problems.get()
    assert problems.empty()


async def test_without_configured_exporters_no_process_is_started(tmp_path: Path) -> None:
    async with run_exporters_process(tmp_path, MetricsSettings(), tmp_path / "exporters.log", pytest.fail) as status:
        assert status == ""
    assert not (tmp_path / "exporters.log").exists()
