"""Rows of LIVEWEB: JSON Lines, a JSON array, or Parquet.

``{"task_id", "start_url", "question", "answer": EXPECTED | "answers": {NAME: EXPECTED}, "state": [{"site", "sql",
"rows"}], "sites": [SITE], "seed", "actions", "family"}``.  EXPECTED is ``{"exact": TEXT}``, ``{"number": N,
"tolerance": T}`` or ``{"set": [TEXT]}``.  A site is one of ours (``shop``, ``wiki``, ``dashboard``), which then is a
service of the task with the data of the seed, or a host of the live web, which the egress proxy lets through.  The
state is asked of a site of ours by SQL.  ``actions`` are the oracle's; the last one is ``stop``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from protocol.cli.suggestions import did_you_mean
from sandbox.tasks.allowed_hosts import allowed_ports, split_authority
from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.formats.liveweb import web_checks
from sandbox.tasks.formats.liveweb.web_actions import ACTION_TYPES, STOP, stop_answer
from sandbox.tasks.formats.liveweb.web_checks import ANSWER_KINDS, SPECIFICATION, STATE_TEST, answer_test
from sandbox.tasks.formats.question_columns import add_question_parts
from sandbox.tasks.formats.rows import EXTRA_FIELDS_KEY, JsonRow, RowFormat, RowPart
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.sites.serve import SITES
from sandbox.tasks.sites.site_services import TOOLCHAIN_PYTHON, make_site_service, site_url
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

ACTIONS_FILE = "actions.json"
"""File of the solution with the oracle's actions, which a browser carries out."""
ANSWER_INSTRUCTION = "\n\nEnd with the action stop and your answer."
_ROW = "row."
_ADDRESS = re.compile(r"https?://[^\s/]")
_PROGRAM = "web_checks.py"
_RUN = f"#!/bin/sh\nexec {TOOLCHAIN_PYTHON} -I -B /tests/{_PROGRAM}\n"
_NO_SCRIPT = "echo 'the solution is what a browser does: /solution/actions.json' >&2\nexit 1\n"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Exact(_Strict):
    exact: str


class _Number(_Strict):
    number: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class _Set(_Strict):
    set: list[str] = Field(min_length=1)


_MODELS: dict[str, type[_Strict]] = dict(zip(ANSWER_KINDS, (_Exact, _Number, _Set), strict=True))


class _StateCheck(_Strict):
    site: str
    sql: str = Field(min_length=1)
    rows: list[list[str | int | float | None]]


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: str
    params: dict[str, Any] = Field(default_factory=dict[str, Any])


def _check_address(url: str) -> str:
    """Return an address of a page that can be split.  Raises ValueError."""
    if not _ADDRESS.match(url):
        raise ValueError(f"must be http://HOST/… or https://HOST/…, not {url!r}")
    _ = urlsplit(url).port
    return url


class _Row(RowPart):
    task_id: int | str
    start_url: Annotated[str, AfterValidator(_check_address)]
    question: str = Field(min_length=1)
    answer: dict[str, Any] | None = None
    answers: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    state: list[_StateCheck] = Field(default_factory=list[_StateCheck])
    sites: list[str] = Field(default_factory=list[str])
    seed: int = 0
    actions: list[_Action] = Field(default_factory=list[_Action])
    family: str = ""


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    own = {key: value for key, value in row.items() if key != EXTRA_FIELDS_KEY}
    plain = Task(_task_id(own.get("task_id", "")), f"{own.get('question', '')}")
    if row.get(EXTRA_FIELDS_KEY) and not any(own.get(key) for key in ("answer", "answers", "state")):
        return plain  # of another format: its other fields say how it is graded
    if not own.get("start_url"):
        problems.add("the row has no start_url", "it is the page on which the agent begins: http://… or https://…")
        return plain
    given = problems.validate("row", own, _Row)
    if given is None:
        return plain
    named = given.answers or ({"": given.answer} if given.answer is not None else {})
    answers = {name: _read_expected(name, expected, problems) for name, expected in named.items()}
    for what, why in (*_broken_sites(given), *_broken_states(given), *_broken_actions(given.actions)):
        problems.add(what, why)
    if not answers and not given.state:
        problems.add("the row has neither answer, answers nor state", "nothing could be graded")
    if given.answers and given.answer is not None:
        problems.add("the row has both answer and answers", "put all of them under answers, by name")
    question, _ = add_question_parts(given.question.strip(), given.model_extra or {}, problems)
    if problems.found:
        return plain
    return _task(given.model_copy(update={"question": question}), answers, own)


def _task(given: _Row, answers: dict[str, dict[str, Any]], row: JsonRow) -> Task:
    secret = hashlib.sha256(_sorted_json(row)).hexdigest()  # no agent sees the row
    ours = [site for site in _sites(given) if site in SITES]
    hosts = tuple(site for site in _sites(given) if site not in SITES)
    mode = NetworkMode.PROXY if hosts else NetworkMode.NONE
    task = Task(
        id=_task_id(given.task_id),
        instruction=given.question + ANSWER_INSTRUCTION,
        family=given.family,
        start_url=given.start_url,
        run_tests=_RUN,
        expected_tests=(*map(answer_test, answers), *([STATE_TEST] if given.state else ())),
        services=tuple(make_site_service(site, given.seed, secret) for site in ours),
        network=TaskNetwork(agent=mode, allowed_hosts=hosts),
        metadata=to_metadata({key: value for key, value in row.items() if key != "start_url"}, _ROW),
        solution=_NO_SCRIPT if given.actions else "",
        solution_files=_actions_file(given.actions),
    )
    specification = {
        "answers": answers,
        "state": [{"url": site_url(each.site), "sql": each.sql, "rows": each.rows} for each in given.state],
        "secret": secret,
        "workdir": task.workdir,
    }
    program = Path(web_checks.__file__).read_bytes()
    task.tests.update({SPECIFICATION: _sorted_json(specification), _PROGRAM: program})
    return task


def _task_id(given: object) -> str:
    return f"liveweb-{given}" if isinstance(given, int) else f"{given}"


def _actions_file(actions: list[_Action]) -> dict[str, bytes]:
    return {ACTIONS_FILE: _sorted_json([each.model_dump() for each in actions])} if actions else {}


def _sorted_json(value: object) -> bytes:
    """Return JSON whose keys are in one order, whatever the order in the row."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _sites(given: _Row) -> list[str]:
    """Return the sites without repeats; by default the one of the first page."""
    return list(dict.fromkeys(given.sites or [_host(given.start_url)]))


def _host(url: str) -> str:
    """Return the name of a site of ours, or the host with its port if that is not the scheme's own."""
    split = urlsplit(url)
    name = (split.hostname or "").lower()
    return name if name in SITES else split.netloc.rpartition("@")[2].lower()


def _read_expected(name: str, expected: dict[str, Any], problems: TaskProblems) -> dict[str, Any]:
    where = answer_test(name)
    kinds = [kind for kind in ANSWER_KINDS if kind in expected]
    if len(kinds) == 1:
        valid = problems.validate(f"row: {where}", expected, _MODELS[kinds[0]])
        return valid.model_dump(exclude_unset=True) if valid else {}
    unknown = next((key for key in expected if key not in {*ANSWER_KINDS, "tolerance"}), "")
    what = f"the {where} has the unknown check {unknown!r}" if unknown else f"the {where} names {len(kinds)} checks"
    problems.add(what, f"it is one of {', '.join(ANSWER_KINDS)}{did_you_mean(unknown, ANSWER_KINDS)}")
    return {}


def _broken_sites(given: _Row) -> Iterator[tuple[str, str]]:
    sites, first = _sites(given), _host(given.start_url)
    for site in sites:
        if site not in SITES and ("." not in site or split_authority(site, 0) is None):
            meant = did_you_mean(site, SITES)
            yield f"sites: {site!r} is no site", f"it is one of ours ({', '.join(SITES)}) or a host: example.org{meant}"
    url = urlsplit(given.start_url)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    if first not in sites and (first in SITES or port not in allowed_ports(sites, url.hostname or "")):
        yield f"start_url is on {first}, which is not among the sites", "the agent could not open it: add it to sites"
    if first in SITES and f"{url.scheme}://{url.netloc.lower()}/" != site_url(first):
        yield f"start_url {given.start_url} is not on {site_url(first)}", "that is where the site answers"


def _broken_states(given: _Row) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each check of a state: its SQL is asked of a site of the same seed."""
    for check in given.state:
        if check.site not in SITES or check.site not in _sites(given):
            yield f"state: {check.site!r} is not among the sites of ours", "only those can be asked for their state"
            continue
        answer = SITES[check.site](given.seed, "").answer_state("", orjson.dumps({"sql": check.sql}).decode())
        if answer.status is not HTTPStatus.OK:
            yield f"state: {check.site} does not take {check.sql!r}", orjson.loads(answer.body)["error"]


def _broken_actions(actions: list[_Action]) -> Iterator[tuple[str, str]]:
    for number, action in enumerate(actions, 1):
        if action.type not in ACTION_TYPES:
            meant = did_you_mean(action.type, ACTION_TYPES)
            yield f"actions: no action has the type {action.type!r}", f"it is one of {', '.join(ACTION_TYPES)}{meant}"
        if (action.type == STOP) != (number == len(actions)):
            yield f"actions: action {number} is {action.type}", "the last action, and no other, is stop"
        if action.type == STOP and stop_answer(action.params) is None:
            yield (
                "actions: stop has no answer",
                'its params are {"answer": TEXT} or {"final": {"answers": {NAME: ANSWER}}}',
            )


def oracle_actions(task: Task) -> list[dict[str, Any]]:
    """Return what the oracle of a web task does in a browser, ``{"type", "params"}`` each; nothing without an oracle of
    that kind."""
    return orjson.loads(task.solution_files.get(ACTIONS_FILE, b"[]")) if task.start_url else []


def row_task_id(task: Task) -> int | str:
    """Return the task's id as its row has it: a number, or a name."""
    number = task.id.removeprefix("liveweb-")
    is_number = task.id.startswith("liveweb-") and number.isdecimal() and str(int(number)) == number
    return int(number) if is_number else task.id


def _write(task: Task) -> JsonRow:
    row = from_metadata(task.metadata, _ROW)
    row.setdefault("task_id", row_task_id(task))
    row.setdefault("question", task.instruction.removesuffix(ANSWER_INSTRUCTION))
    return {**row, "start_url": task.start_url}


FORMAT = RowFormat(_read, _write)
