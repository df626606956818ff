"""Writes a Hugging Face data set: a folder that ``datasets.load_dataset`` reads, and that can be pushed as it is.

``README.md`` is its card; ``data/*.parquet`` hold a row for each trajectory, so many to a file.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUnknownParameterType=false
# (pyarrow has no types; what it gives stays in this file)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from launch.export.selection import ExportItem

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 2_000
"""Rows of one file."""
COLUMNS = (
    ("id", "RUN/ID, or EVALUATION/TASK/ATTEMPT"),
    ("task", "the task's name"),
    ("messages", "the conversation: role and content; a reply is the text that was sampled"),
    ("tools", "schemas of the tools that the first prompt named, as JSON; empty for none"),
    ("reward", "what the episode was worth"),
    ("passed", "all tests passed"),
    ("pass_ratio", "tests that passed ÷ all"),
    ("status", "how it ended"),
    ("tests", "each test's name and whether it passed"),
    ("prompt_tokens", "of all prompts together"),
    ("completion_tokens", "sampled"),
    ("model", "who said it"),
    ("source", "where it was recorded"),
)
"""Column → its description."""


def write_dataset(folder: Path, items: Iterable[ExportItem]) -> int:
    """Write the data set into ``folder`` and return its number of rows.  Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = folder / "data"
    data.mkdir()
    rows, made = 0, map(_row, items)
    while part := list(islice(made, _ROWS)):
        table = pa.Table.from_pylist(part, schema=_schema())
        pq.write_table(table, data / f"train-{rows // _ROWS:05d}.parquet")
        rows += len(part)
    return rows


def render_dataset_card(title: str, sources: Sequence[str], rows: int, filters: str) -> str:
    """Return the text of ``README.md``, whose head ``load_dataset`` reads."""
    columns = "\n".join(f"| `{name}` | {what} |" for name, what in COLUMNS)
    origins = "\n".join(f"- `{source}`" for source in sources)
    return f"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
task_categories:
- text-generation
tags:
- agent
- terminal
- trajectories
---

# {title}

{rows:,} trajectories of agents in terminals, {filters}, exported by longshore from:

{origins}

| column | |
|---|---|
{columns}

    from datasets import load_dataset
    load_dataset("PATH", split="train")
"""


def _row(item: ExportItem) -> dict[str, object]:
    recorded, origin = item
    verdict = recorded.verdict
    tools = [tool.schema for tool in origin.agent.offered_tools.values()]
    return {
        "id": recorded.name,
        "task": recorded.task,
        "messages": [{"role": message["role"], "content": message["content"]} for message in recorded.messages],
        "tools": orjson.dumps(tools).decode() if tools else "",
        "reward": verdict.reward if verdict else None,
        "passed": verdict.passed if verdict else None,
        "pass_ratio": verdict.pass_ratio if verdict else None,
        "status": verdict.status.value if verdict else None,
        "tests": [{"name": test.name, "passed": test.passed} for test in verdict.tests] if verdict else [],
        "prompt_tokens": recorded.prompt_tokens,
        "completion_tokens": recorded.completion_tokens,
        "model": origin.model,
        "source": origin.source,
    }


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, real = pa.string(), pa.float64()
    message = pa.struct([("role", text), ("content", text)])
    test = pa.struct([("name", text), ("passed", pa.bool_())])
    types = {
        "messages": pa.list_(message),
        "tests": pa.list_(test),
        "reward": real,
        "pass_ratio": real,
        "passed": pa.bool_(),
        "prompt_tokens": pa.int64(),
        "completion_tokens": pa.int64(),
    }
    return pa.schema([(name, types.get(name, text)) for name, _ in COLUMNS])
