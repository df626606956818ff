"""The test program of a task of the web: compares the agent's answer, and asks its sites for their state.

It runs in the sandbox once all processes of the agent are dead, and is of the standard library only.  Prints a pytest
summary with one test for each answer, and one for the state.  With a state it is all or nothing: no test passes unless
all do.  Ends with :data:`SILENT_SITE_EXIT` if a site does not answer, which says nothing about the agent.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast

SPECIFICATION = "web_task.json"
"""File of the tests with ``{"answers", "state", "secret", "workdir"}``."""
STATE_TEST = "state"
SILENT_SITE_EXIT = 75
"""The exit code EX_TEMPFAIL: what failed is not the agent's."""
ANSWER_KINDS = ("exact", "number", "set")
_WORD = re.compile(r"[\w.,+-]+")
_NUMBER = re.compile(
    r"([+-]?(?=\.?\d)(?:\d{1,3}(?:,\d{3})+(?!\d)|\d*)(?:\.\d+)?(?:e[+-]?\d+)?)(?:-?[^\W\d]+(?:-[^\W\d]+)*)?[.,]*",
    re.IGNORECASE,
)
"""A number and its unit: commas stand between thousands."""
_DASHES = str.maketrans("−–", "--")
_SEPARATORS = (r"[,;\n]", r"[;\n]", r"\n")
_ANSWER_BYTES = 1 << 20


def answer_test(name: str) -> str:
    """Return the name of the test of an answer; the only answer of a task has no name."""
    return f"answer_{name}" if name else "answer"


def is_right(given: object, expected: Mapping[str, Any]) -> bool:
    """Return whether an answer is the expected one: ``{"exact"}``, ``{"number", "tolerance"}`` or ``{"set"}``.

    Texts are compared without regard to case, white space and a full stop at the end.  A number may stand in a
    sentence, if it is the only one there.  A set is a list, or a text with commas, semicolons or lines between its
    members; where members have commas, with semicolons or lines.
    """
    if "number" in expected:
        found = _numbers(_as_text(given))
        return len(found) == 1 and abs(found.pop() - expected["number"]) <= expected.get("tolerance", 0.0) + 1e-9
    if "set" in expected:
        wanted = _members(expected["set"])
        if isinstance(given, list):
            return _members(cast("list[object]", given)) == wanted
        return any(_members(re.split(separator, _as_text(given))) == wanted for separator in _SEPARATORS)
    return _plain(given) == _plain(expected["exact"])


def _numbers(text: str) -> set[float]:
    """Return the numbers of a text; not a number (NaN) for what begins as one and is none, such as ``12,5``."""
    words = (word.strip("_") for word in _WORD.findall(text.translate(_DASHES)))
    counted = [word for word in words if re.search(r"\d", word) and not word[0].isalpha()]
    return {float(found[1].replace(",", "")) if (found := _NUMBER.fullmatch(word)) else math.nan for word in counted}


def _members(values: Iterable[object]) -> set[str]:
    return {_plain(each) for each in values} - {""}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> str:
    return " ".join(_as_text(value).split()).removesuffix(".").strip(" \"'`").casefold()


def read_answers(workdir: Path) -> dict[str, object]:
    """Return the agent's answers by name; a single one without a name is under ``""``."""
    for name in ("answer.json", "answer.txt"):
        try:
            with (workdir / name).open("rb") as file:
                text = file.read(_ANSWER_BYTES).decode(errors="replace")
        except OSError:
            continue
        try:
            value: object = json.loads(text) if name.endswith(".json") else text
        except ValueError:
            value = text
        named = cast("dict[str, object]", value) if isinstance(value, dict) else {"": value}
        return {**named, "": next(iter(named.values()))} if len(named) == 1 else named
    return {}


def has_state(check: Mapping[str, Any], secret: str) -> bool:
    """Return whether a site of ours answers the SQL of a check with its rows.

    Raises OSError if it does not answer, breaks off or fails itself, ValueError for SQL that it does not take.
    """
    url, body = f"{check['url']}-/state", json.dumps({"sql": check["sql"]}).encode()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(urllib.request.Request(url, body, {"X-Secret": secret}), timeout=20) as response:  # noqa: S310  a site of ours
            return json.load(response)["rows"] == check["rows"]
    except (HTTPException, ValueError) as error:
        raise OSError(f"{url}: {error!r}") from error
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500:
                raise
            raise ValueError(f"{url}: {error.code} {error.read(300).decode(errors='replace')}") from error


def main() -> None:
    """Run the tests and print their results."""
    task: dict[str, Any] = json.loads((Path(os.environ["TEST_DIR"]) / SPECIFICATION).read_text("utf-8"))
    given = read_answers(Path(task["workdir"]))
    results = {
        answer_test(name): name in given and is_right(given[name], expected)
        for name, expected in task["answers"].items()
    }
    if task["state"]:
        try:
            results[STATE_TEST] = all(has_state(check, task["secret"]) for check in task["state"])
        except OSError as error:
            print(f"a site does not answer: {error}")  # noqa: T201  the grade's log has it
            sys.exit(SILENT_SITE_EXIT)
        if not all(results.values()):
            print(f"all or nothing: {results}")  # noqa: T201  as above
            results = dict.fromkeys(results, False)
    print("short test summary info")  # noqa: T201  results are what a test program prints
    for name, passed in results.items():
        print(f"{'PASSED' if passed else 'FAILED'} {name}")  # noqa: T201  as above


if __name__ == "__main__":
    main()
