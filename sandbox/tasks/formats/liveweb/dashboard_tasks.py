"""Families of tasks in the dashboard."""

from __future__ import annotations

import random
from collections import Counter
from types import MappingProxyType

from sandbox.tasks.formats.liveweb.draft import WebTaskDraft, WebTaskFamily, click, go_to, log_in, require, type_text
from sandbox.tasks.sites.dashboard_data import OPERATORS, REGIONS, STATUSES, TEAMS, make_incidents, make_machines

_SITE = "dashboard"
_COMMENTS = ("replaced the disk", "restarted it", "renewed the certificate")
_CHANGED = "SELECT id, status, severity, assignee FROM incidents WHERE assignee != '' OR id = {id} ORDER BY id"


def _count_machines(rng: random.Random, seed: int) -> WebTaskDraft:
    region, status = rng.choice(REGIONS), rng.choice(STATUSES)
    count = sum((each.region, each.status) == (region, status) for each in make_machines(seed))
    require(count)
    return WebTaskDraft(
        site=_SITE,
        question=f"How many machines in the region {region} have the status {status}?",
        answer={"number": count},
        actions=(go_to(_SITE), click("link", "Machines"), go_to(_SITE, "machines", region=region, status=status)),
    )


def _busiest_team(rng: random.Random, seed: int) -> WebTaskDraft:
    severity = rng.choice(("medium", "high"))
    counts = Counter(
        each.team for each in make_incidents(seed) if (each.status, each.severity) == ("open", severity)
    ).most_common(2)
    require(len(counts) == 2 and counts[0][1] > counts[1][1])
    return WebTaskDraft(
        site=_SITE,
        question=f"Which team has the most open incidents of severity {severity}?",
        answer={"exact": counts[0][0]},
        actions=(go_to(_SITE), go_to(_SITE, "incidents", status="open", severity=severity)),
    )


def _longest_uptime(rng: random.Random, seed: int) -> WebTaskDraft:
    team = rng.choice(TEAMS)
    machines = [each for each in make_machines(seed) if each.team == team]
    require(2 <= len(machines) <= 12)
    best = max(machines, key=lambda machine: machine.uptime_days)
    return WebTaskDraft(
        site=_SITE,
        question=f"Which machine of the team {team} has been up for the longest time?",
        answer={"exact": best.name},
        actions=(go_to(_SITE, "machines", team=team, sort="uptime"), click("link", best.name)),
    )


def _large_machines(rng: random.Random, seed: int) -> WebTaskDraft:
    region = rng.choice(REGIONS)
    names = [each.name for each in make_machines(seed) if each.region == region and each.memory_gb >= 64]
    require(names)
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"Which machines in the region {region} have 64 GB of memory or more? The API at /api tells. Name all, "
            "with commas between them."
        ),
        answer={"set": names},
        actions=(go_to(_SITE, "api"), go_to(_SITE, "api/machines", region=region)),
    )


def _mean_cpu(rng: random.Random, seed: int) -> WebTaskDraft:
    region = rng.choice(REGIONS)
    loads = [each.cpu_percent for each in make_machines(seed) if each.region == region]
    require(2 <= len(loads) <= 12)
    return WebTaskDraft(
        site=_SITE,
        question=f"What is the mean CPU load of the machines in the region {region}, in per cent, to one decimal?",
        answer={"number": round(sum(loads) / len(loads), 3), "tolerance": 0.06},
        actions=(go_to(_SITE, "api/machines", region=region),),
    )


def _resolve(rng: random.Random, seed: int) -> WebTaskDraft:
    incident = rng.choice([each for each in make_incidents(seed) if each.status == "open"])
    operator, comment = rng.choice(OPERATORS), rng.choice(_COMMENTS)
    return WebTaskDraft(
        site=_SITE,
        question=(
            f"Log in as {operator[0]} with the password {operator[1]}. Set the incident #{incident.id} to resolved, "
            f"with yourself as its assignee and the comment: {comment}"
        ),
        state=(
            (_CHANGED.format(id=incident.id), [[incident.id, "resolved", incident.severity, operator[0]]]),
            ("SELECT incident, author, text FROM comments", [[incident.id, operator[0], comment]]),
        ),
        actions=(
            *log_in(_SITE, operator, f"incidents/{incident.id}"),
            click("radio", "resolved"),
            click("radio", operator[0]),
            type_text("Comment", comment),
            click("button", "Save"),
        ),
    )


DASHBOARD_FAMILIES = MappingProxyType[str, WebTaskFamily](
    {
        "dashboard-count-machines": _count_machines,
        "dashboard-busiest-team": _busiest_team,
        "dashboard-longest-uptime": _longest_uptime,
        "dashboard-large-machines": _large_machines,
        "dashboard-mean-cpu": _mean_cpu,
        "dashboard-resolve": _resolve,
    }
)
