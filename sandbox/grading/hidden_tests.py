"""The hidden tests as files: their contents and paths in the container. Pure."""

from __future__ import annotations

from sandbox.grading.isolation.decision import Isolation, shell_scripts
from sandbox.grading.isolation.environment import TEMPORARY_DIR, TESTS_DIR
from sandbox.grading.isolation.pytest_settings import EMPTY_SETTINGS, has_pytest_settings
from sandbox.tasks.task import Task

_SPARE_NAME = ".longshore-tests.sh"
"""Name of the script that is run if the task has other files of its usual names."""
_OWN_SCRIPT_NAME = "test.sh"
"""Name of the script in an image of the tests' own."""
_USUAL_NAMES = ("run-tests.sh", "test.sh")
"""Names of the script in Terminal-Bench and Harbor; it has each of which the task has no other file."""
_VERDICTS_DIR = "/logs/verifier"
"""Harbor's folder for report files; the agent's files in it are removed."""
_QUOTES = str.maketrans("", "", "\"'\\")


def files_for_tests(task: Task, isolation: Isolation) -> dict[str, bytes]:
    """Return contents by path below TESTS_DIR: the task's script and its other files, each under its own path.

    pytest settings are added if the task has none, so that pytest does not look for them in the folders above.
    """
    if task.has_tests_image:
        return {}
    files = task.tests | dict.fromkeys(_script_names(task), task.run_tests.encode())
    if not has_pytest_settings(files, newest=isolation is Isolation.IMAGE):
        files |= EMPTY_SETTINGS
    return files


def script_path(task: Task) -> str:
    """Return the path of the script that is run: that of its own harness, unless the task has another file there."""
    return f"{TESTS_DIR}/{_OWN_SCRIPT_NAME if task.has_tests_image else _script_names(task)[0]}"


def _script_names(task: Task) -> list[str]:
    """Return the names of the script, that of its own harness first: Harbor's tests leave reports."""
    taken = {path.partition("/")[0] for path in task.tests}
    names = reversed(_USUAL_NAMES) if task.reports else _USUAL_NAMES
    return [name for name in names if name not in taken] or [_SPARE_NAME]


def folders_for_tests(task: Task) -> dict[str, int]:
    """Return the modes of the tests' own folders by path; the folders are empty when the tests are written.

    Tests with an image of their own are in it already.
    """
    tests = {} if task.has_tests_image else {TESTS_DIR: 0o700}
    verdicts = {_VERDICTS_DIR: 0o700} if mentions_path(task, _VERDICTS_DIR) else {}
    return {**tests, TEMPORARY_DIR: 0o1777, **verdicts}


def mentions_path(task: Task, path: str) -> bool:
    """Return whether a script of the tests or a report path names ``path``, with quotes anywhere."""
    texts = (task.run_tests, *task.reports, *shell_scripts(task.tests).values())
    return any(path in text.translate(_QUOTES) for text in texts)
