"""Writes report.html: the results of a run in one file that needs no network.

Its figures are those of the summary; for a run without one they are derived from events and metrics, and the page
says so.  Text from sandboxes is embedded as JSON and drawn as text nodes, under a policy that runs only the script
whose hash it names.
"""

from __future__ import annotations

import random
from html import escape
from pathlib import Path

import orjson

from launch.evaluation.held_out.evaluation_store import read_run_evaluation
from launch.evaluation.scores import family_table
from launch.monitor.reports.run_report_facts import ReportFacts, collect_report_facts, get_held_out_family
from launch.monitor.run_state.model import EpisodeProgress
from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import RunView
from launch.pages.html_document import (
    PageHeader,
    PageSection,
    html_document,
    html_facts,
    html_section,
    html_table,
)
from launch.pages.script_bundle import bundle_scripts
from protocol.events import JsonValue
from protocol.files.filesystem import replace_file
from protocol.run_directory.layout import CONFIG_FILE, REPORT_FILE, SUMMARY_FILE
from protocol.run_directory.recording_reader import read_recording, recording_path
from protocol.run_directory.run_status import RunStatus, read_run_status, summarised_status

_MAX_RECORDING_BYTES = 200_000
_STATUS_KINDS = {
    RunStatus.RUNNING: "live",
    RunStatus.FINISHED: "live",
    RunStatus.FAILED: "bad",
    RunStatus.STOPPED: "warn",
    RunStatus.DAMAGED: "bad",
}
"""Status → kind of the badge in the page's head."""


def write_run_report(run_dir: Path) -> Path:
    """Write ``report.html`` into ``run_dir`` and return its path.  Raises NoSuchRunError."""
    store = RunStore(run_dir)
    store.catch_up()
    view = store.view()
    config, summary = store.read_json_object(CONFIG_FILE), store.read_json_object(SUMMARY_FILE)
    # the driver that writes its own report still holds the lock
    status = read_run_status(run_dir) if summary is None else summarised_status(summary)
    facts = collect_report_facts(view, status, summary, config, _families(run_dir, view.step, config))
    recordings = _recordings(run_dir, list(store.state.recent))
    html = _page(facts, view, recordings, config)
    path = run_dir / REPORT_FILE
    replace_file(path, html.encode())
    return path


def _families(run_dir: Path, step: int, config: dict[str, JsonValue] | None) -> dict[str, JsonValue]:
    """Return the finished evaluations by task family, also for a run without a summary."""
    found = {name: read_run_evaluation(run_dir, name, at) for name, at in (("before", 0), ("after", step))}
    return family_table({name: attempts for name, attempts in found.items() if attempts}, {get_held_out_family(config)})


def _page(
    facts: ReportFacts, view: RunView, recordings: list[dict[str, JsonValue]], config: dict[str, JsonValue] | None
) -> str:
    script = bundle_scripts("report.js")
    data = {
        "curves": view.curves,
        "steps": facts.steps,
        "max_staleness": facts.max_staleness,
        "staleness_histogram": view.staleness_histogram,
        "marks": facts.marks,
        "recordings": recordings,
    }
    embedded = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode().replace("<", "\\u003c")
    foot = f'<footer class="foot"><span>Made by longshore from {escape(facts.source)}.</span></footer>'
    head = PageHeader(facts.run, "report", _spans(facts.subtitle), facts.status.value, _STATUS_KINDS[facts.status])
    return html_document(
        head, f"{_body(facts, recordings, config)}\n{foot}", script=script, data=embedded, packages=("uplot", "player")
    )


def _body(facts: ReportFacts, recordings: list[dict[str, JsonValue]], config: dict[str, JsonValue] | None) -> str:
    headline = "".join(
        f'<div class="card"><span class="label">{escape(fact.label)}</span>'
        f'<span class="value">{escape(fact.value)}</span>'
        f'<span class="sub">{escape(fact.note)}</span></div>'
        for fact in facts.headline
    )
    promises = "".join(
        f'<li class="{promise.kind}"><b>{escape(promise.name)}</b><p>{escape(promise.statement)}</p></li>'
        for promise in facts.guarantees
    )
    sections = [
        f'<section class="cards wide">{headline}</section>',
        html_section(PageSection("Guarantees", f'<ul class="promises">{promises}</ul>')),
        _chart_pair("reward", "pass"),
    ]
    if facts.evaluation_rows or facts.step_rows:
        sections.append(html_section(_evaluation(facts)))
    sections.append(_chart_pair("staleness", "clip"))
    if facts.grading:
        note = "whose programs decided the rewards: docs/grading.md"
        table = html_table(("isolation", "episodes", "share"), facts.grading)
        sections.append(html_section(PageSection("Grading", table, note)))
    sections.append(
        '<div class="columns even">'
        + html_section(PageSection("Dropped episodes", html_table(("reason", "episodes"), facts.drops)))
        + html_section(PageSection("Engines and sandboxes", html_facts(facts.machines)))
        + "</div>"
    )
    if recordings:
        players = "".join(f'<div class="replay" id="replay-{index}"></div>' for index in range(len(recordings)))
        note = "Pauses are shortened."
        sections.append(html_section(PageSection("Terminals", f'<div class="replays">{players}</div>', note)))
    if config is not None:
        pretty = orjson.dumps(config, option=orjson.OPT_INDENT_2).decode()
        body = f"<details><summary>Show</summary><pre>{escape(pretty)}</pre></details>"
        sections.append(html_section(PageSection("Configuration", body)))
    return "\n".join(sections)


def _evaluation(facts: ReportFacts) -> PageSection:
    head = ("family", "before", "after", "difference", "greedy", "episodes")
    note = (
        "by family of tasks, or the data source of rows: pass@1 ± standard error, difference paired by task; "
        "greedy: one attempt with greedy decoding"
    )
    body = html_table(head, facts.evaluation_rows, total=facts.evaluation_total) if facts.evaluation_rows else ""
    if facts.held_out_rows:
        body += "<h3>Held-out family, never trained on</h3>" + html_table(head, facts.held_out_rows)
    if facts.step_rows:
        steps = html_table(("step", "pass@1", "greedy", "episodes", "checkpoint"), facts.step_rows)
        body += "<h3>During training</h3>" + steps
    return PageSection("Evaluation", body, note)


def _chart_pair(left: str, right: str) -> str:
    charts = "".join(f'<section class="panel" id="{name}"></section>' for name in (left, right))
    return f'<div class="columns even">{charts}</div>'


def _spans(texts: list[str]) -> str:
    return "".join(f"<span>{escape(text)}</span>" for text in texts)


def _recordings(run_dir: Path, sessions: list[EpisodeProgress]) -> list[dict[str, JsonValue]]:
    """Return the best, the worst and a random one of the recent episodes with a reward and a recording."""
    graded = [session for session in sessions if session.reward is not None and _recorded(run_dir, session)]
    if not graded:
        return []
    by_reward = sorted(graded, key=lambda session: (session.reward or 0.0, session.ended_at or 0.0))
    chosen = {"best": by_reward[-1], "worst": by_reward[0]}
    rest = [session for session in graded if session not in chosen.values()]
    if rest:
        chosen["random"] = random.Random(run_dir.name).choice(rest)
    return [_recording(run_dir, label, session) for label, session in chosen.items()]


def _recorded(run_dir: Path, session: EpisodeProgress) -> bool:
    path = recording_path(run_dir, session.trajectory)
    return path is not None and path.exists()


def _recording(run_dir: Path, label: str, session: EpisodeProgress) -> dict[str, JsonValue]:
    path = recording_path(run_dir, session.trajectory)
    chunk = read_recording(path, 0, _MAX_RECORDING_BYTES) if path else None
    events: list[JsonValue] = [[t, text] for t, text in chunk.events] if chunk else []
    return {
        "label": label,
        "task": session.task,
        "instruction": session.instruction,
        "status": session.status,
        "reward": session.reward,
        "width": chunk.width if chunk else 80,
        "height": chunk.height if chunk else 24,
        "events": events,
    }
