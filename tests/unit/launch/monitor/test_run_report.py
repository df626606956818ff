"""If these fail, a report that is sent to somebody needs the network, says other figures, or runs a sandbox's text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.monitor.reports.run_report import write_run_report
from launch.pages.static_files import STATIC_FOLDER
from launch.report import COMMAND
from protocol.events import EventLog
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.terminal_recordings import CastWriter
from tests.support.fakes.fake_run import HELD_OUT, write_fake_run
from tests.support.pages.standalone_pages import outside_urls, without_packages
from tests.support.runs.attempts import make_attempt
from tests.support.runs.evaluations import write_run_attempts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_fake_run(tmp_path / "demo", steps=6)
    return tmp_path / "demo"


def _report(run_dir: Path) -> str:
    return write_run_report(run_dir).read_text()


def test_the_report_needs_no_network(run_dir: Path):
    page = without_packages(_report(run_dir))
    assert outside_urls(page) == []
    assert not re.search(r"(?:src|href)\s*=\s*\"(?!data:)", page.partition("<script")[0])
    assert not re.search(r"@import|url\(", page)
    assert "default-src 'none'" in page


def test_the_figures_of_the_report_are_those_of_the_summary(run_dir: Path):
    page = html.unescape(_report(run_dir))
    summary = json.loads((run_dir / "summary.json").read_text())
    accounting, evaluation = summary["trajectories"], summary["evaluation"]
    dropped = sum(accounting["dropped"].values())
    assert (
        f"{accounting['acknowledged']:,} acknowledged = {accounting['trained']:,} trained + {dropped:,} dropped" in page
    )
    assert f"{100 * evaluation['before']['pass_at_1']:.1f} %" in page
    assert f"{100 * evaluation['after']['pass_at_1']:.1f} %" in page
    assert f"+{100 * evaluation['difference']:.1f} points" in page
    assert f"the bound is {summary['staleness']['max_staleness']}" in page
    assert f"at most {summary['weights']['pause_ms_max']:,.0f} ms" in page
    for family, row in evaluation["families"].items():
        assert family in page
        assert f"+{100 * row['difference']:.1f} ± 9.2" in page


def test_the_share_of_episodes_by_isolation_is_shown(run_dir: Path):
    grading = html.unescape(_report(run_dir)).partition("Grading</h2>")[2].partition("</section>")[0]
    shares = dict(re.findall(r"<td>([^<]+)</td><td>[\d,]+</td><td>([\d.]+) %</td>", grading))
    assert set(shares) == {
        "tests on longshore's programs",
        "tests that import or start code of the agent",
        "signs of cheating",
    }
    graded = sum(float(share) for what, share in shares.items() if what.startswith("tests"))
    assert graded == pytest.approx(100.0, abs=0.1)


def test_the_held_out_family_is_shown_separately(run_dir: Path):
    before, _, after = _report(run_dir).partition("Held-out family, never trained on")
    for family in HELD_OUT:
        assert family not in before.partition("Evaluation</h2>")[2]
        assert f"<td>{family}</td>" in after


def test_a_broken_promise_is_shown_as_broken(run_dir: Path):
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text())
    summary["trajectories"]["acknowledged"] += 1
    summary["staleness"]["max"] = 9
    summary["ok"] = False
    path.write_text(json.dumps(summary))
    page = _report(run_dir)
    assert page.count('class="broken"') == 2
    assert ">failed<" in page


def test_an_engine_that_was_paused_for_too_long_is_shown_as_a_broken_promise(run_dir: Path):
    """Also where the load then failed, so that no load of the accounting is as long."""
    assert 'class="broken"' not in _report(run_dir)
    line = {"t": 2e9, "kind": "engine.load_failed", "engine": "engine-0", "version": 3, "pause_ms": 61_000.0}
    with (run_dir / "events" / "engine-0.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    page = _report(run_dir)
    assert page.count('class="broken"') == 1
    assert "to load weights: at most 1 min 01 s" in page
    assert "engine.update_timeout_s allows 1 min 00 s" in page


def test_engines_that_load_weights_without_a_pause_are_reported_so(run_dir: Path):
    summary = json.loads((run_dir / "summary.json").read_text())
    summary["weights"] |= {"pause_ms_p50": 0.0, "pause_ms_max": 0.0}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    for file in (run_dir / "events").glob("*.jsonl"):
        file.write_text(re.sub(r'"pause_ms": ?[\d.]+', '"pause_ms":0.0', file.read_text()))
    assert f"Engines loaded weights {summary['weights']['loads']} times without a pause." in _report(run_dir)


def test_a_colocated_run_reports_the_time_for_which_rollout_was_blocked(run_dir: Path):
    """Its loads, short as they are, are not what rollout waited for."""
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text())
    summary["colocation"] = {"placement": "colocated", "offloads": 12, "blocked_s": 60.0, "blocked_share": 0.415}
    path.write_text(json.dumps(summary))
    page = _report(run_dir)
    assert page.count('class="broken"') == 1
    assert "in 12 periods 41.5 % of the time" in page


def test_the_staleness_axis_has_whole_numbers():
    chart = re.search(r"  staleness: \{.*?\n  \},\n", (STATIC_FOLDER / "report.js").read_text(), re.DOTALL)
    assert chart
    assert "whole: true" in chart[0]


def test_no_line_of_the_page_scripts_is_too_long():
    """Nothing formats them but people."""
    lines = [(path.name, line) for path in STATIC_FOLDER.rglob("*.js") for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in lines if len(line) > 120] == []


def test_output_of_a_sandbox_cannot_inject_markup_into_the_page(run_dir: Path):
    name = next((run_dir / "terminals").glob("*.cast")).stem
    for path in (run_dir / "terminals").glob("*.cast"):
        with CastWriter.open(path, 80, 24, HOSTILE) as cast:
            cast.record_output(HOSTILE)
    line = {"t": 2e9, "kind": "episode.finished", "trajectory": name, "status": HOSTILE, "reward": 9.0}
    started = {"t": 2e9, "kind": "episode.started", "trajectory": name, "task": HOSTILE, "instruction": HOSTILE}
    with (run_dir / "events" / "worker-0.jsonl").open("a") as file:
        file.write(json.dumps(started) + "\n" + json.dumps(line) + "\n")
    page = without_packages(_report(run_dir))
    assert page.count("<script") == 2
    assert "<img src=x" not in page
    assert "alert(1)" in page, "the text itself is there, to be read"


def test_only_the_script_and_style_of_the_report_may_run(run_dir: Path):
    page = _report(run_dir)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert policy
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "unsafe-inline" not in policy[1]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to parse the script")
def test_the_bundled_script_parses(run_dir: Path, tmp_path: Path):
    script = re.search(r'<script type="module">(.*?)</script>', _report(run_dir), re.DOTALL)
    assert script
    path = tmp_path / "bundle.mjs"
    path.write_text(script[1])
    done = subprocess.run(["node", "--check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_that_ended_early_has_a_report_that_says_so(tmp_path: Path):
    write_fake_run(tmp_path / "cut", steps=6, finished=False)
    page = _report(tmp_path / "cut")
    assert ">stopped<" in page
    assert "the run left no summary" in page


def test_a_run_that_ended_early_shows_its_evaluations_by_family(tmp_path: Path):
    """And does not call the mean without the held-out family that of all."""
    run = tmp_path / "cut"
    write_fake_run(run, steps=6, finished=False)
    config = json.loads((run / "config.json").read_text())
    config["config"]["data"] = {"held_out_family": "sort_unique"}
    (run / "config.json").write_text(json.dumps(config))
    assert "<td>all</td>" not in _report(run)
    assert "all but the held-out family" in _report(run)
    families = ("count_words", "sort_unique")
    write_run_attempts(run, "before", [make_attempt(f"{name}-0", family=name) for name in families])
    table = _report(run).partition("Evaluation</h2>")[2]
    trained, _, held_out = table.partition("Held-out family, never trained on")
    assert "<td>count_words</td>" in trained
    assert "<td>sort_unique</td>" not in trained
    assert "<td>sort_unique</td>" in held_out


def test_online_evaluations_are_in_the_report_with_and_without_a_summary(tmp_path: Path):
    run = tmp_path / "cut"
    write_fake_run(run, steps=6, finished=False)
    log = EventLog(run, "driver-1", "node-0")
    for step, score in ((2, 0.25), (4, 0.5)):
        score_fields = {"pass_at_1": score, "stderr": 0.1, "n": 8, "greedy": 0.5, "version": step}
        log.emit("evaluation.finished", name=f"step-{step:06d}", step=step, **score_fields)
    log.close()
    section = _report(run).partition("During training")[2]
    assert "<td>2</td>" in section
    assert "25.0 % ± 10.0" in section
    summary = {"evaluation": {"steps": [{"step": 2, "pass_at_1": 0.25, "n": 8}]}, "best": {"step": 2}}
    (run / "summary.json").write_text(json.dumps(summary))
    section = _report(run).partition("During training")[2]
    assert "<td>best</td>" in section
    assert "<td>4</td>" not in section.partition("</table>")[0]


def test_an_empty_or_damaged_run_directory_has_a_report(tmp_path: Path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.jsonl").write_bytes(b"\xff\xfe\n{}\n")
    (tmp_path / "summary.json").write_text("{torn")
    (tmp_path / "metrics.jsonl").write_text('{"step": "x", "dropped": []}\n')
    assert ">stopped<" in _report(tmp_path)


def test_the_command_prints_the_reports_path_and_refuses_a_missing_run(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
):
    assert COMMAND.main([str(run_dir)]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")
    with pytest.raises(NoSuchRunError):
        write_run_report(run_dir / "nothing")
