"""The hidden tests as files: their contents and paths in the container. Pure."""

from __future__ import annotations

from sandbox.grading.isolation.decision import Isolation, shell_scripts
from sandbox.grading.isolation.environment import TEMPORARY_DIR, TESTS_DIR
from sandbox.grading.isolation.pytest_settings import EMPTY_SETTINGS, has_pytest_settings
from sandbox.tasks.task import Task

TEST_SCRIPT_NAME = ".longshore-tests.sh"
"""Name in TESTS_DIR of the script that is run; no task has a file of that name."""
_OWN_SCRIPT_NAME = "test.sh"
"""Name of the script in an image of the tests' own."""
_USUAL_NAMES = ("run-tests.sh", "test.sh")
"""Names of the script in Terminal-Bench and Harbor, used unless the task has another file of that name."""
_VERDICTS_DIR = "/logs/verifier"
"""Harbor's folder for report files; the agent's files in it are removed."""
_QUOTES = str.maketrans("", "", "\"'\\")


def files_for_tests(task: Task, isolation: Isolation) -> dict[str, bytes]:
    """Return contents by path below TESTS_DIR: the task's script and its other files, each under its own path.

    pytest settings are added if the task has none, so that pytest does not look for them in the folders above.
    """
    if task.has_tests_image:
        return {}
    script, taken = task.run_tests.encode(), {path.partition("/")[0] for path in task.tests}
    files = {name: script for name in _USUAL_NAMES if name not in taken} | task.tests | {TEST_SCRIPT_NAME: script}
    if not has_pytest_settings(files, newest=isolation is Isolation.IMAGE):
        files |= EMPTY_SETTINGS
    return files


def script_path(task: Task) -> str:
    """Return the path of the script that is run."""
    return f"{TESTS_DIR}/{_OWN_SCRIPT_NAME if task.has_tests_image else TEST_SCRIPT_NAME}"


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
