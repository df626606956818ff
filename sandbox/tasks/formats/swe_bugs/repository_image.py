"""A bug of a repository that is in an image, at ``/app``, with git, Python and what its tests need. Pure.

Setup applies the original patch and the bug there, and puts one commit in place of the history, which would tell the
fix.  It fails where a patch does not apply.  The tests run in a clean container of the image, prepared in the same way,
with the agent's ``/app``, whose tests are put back as they were: from a commit that the agent's container could not
reach, because the repository's ``.git`` only names the folder that holds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sandbox.tasks.formats.swe_bugs.tests_files import TESTS_PATTERNS, files_of_tests
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.unified_diff import PatchError, touched_paths

_PATCHES = "/var/lib/patches"
_GIT_FOLDER = "/var/lib/start.git"
_GIT = f"git -c safe.directory='*' --git-dir={_GIT_FOLDER} --work-tree=/app"
_OTHERS = "/var/lib/start.others"
"""List of the files that are not of the commit, such as environments: they stay as they are."""
_GOLD, _BUG = f"{_PATCHES}/gold.patch", f"{_PATCHES}/bug.patch"
_SETUP = f"""set -e
cd /app
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
for patch in gold bug; do
    git apply --whitespace=nowarn "{_PATCHES}/$patch.patch" || {{ echo "the $patch patch does not apply"; exit 1; }}
done
git add -A
git ls-files -z > {_PATCHES}/tracked
rm -rf .git
git init -q --separate-git-dir={_GIT_FOLDER} .
xargs -0 git add -f -- < {_PATCHES}/tracked
git -c user.name=longshore -c user.email=longshore@localhost -c commit.gpgsign=false commit -q -m "Initial state"
git ls-files -z --others | LC_ALL=C sort -z > {_OTHERS}
chown -R "$(stat -c %u:%g .)" .git {_GIT_FOLDER}
rm -rf {_PATCHES}
"""
_RUN = """#!/bin/bash
cd /app || exit 1
{git} ls-files -z -- {tests} | xargs -0 -r {git} checkout -q HEAD --
{git} ls-files -z --others -- {tests} | LC_ALL=C sort -z | LC_ALL=C comm -z -13 {others} - | xargs -0 -r rm -f --
{{ {command}
}} > /tests/output.log 2>&1 < /dev/null
sed 's/^/| /' /tests/output.log
python3 -I /tests/count_tests.py /tests/output.log /tests/names.txt
"""
SHOW_PATCH = f"cd /app && {_GIT} add -A -N && {_GIT} diff HEAD --binary"
"""Prints what the agent has changed, and fails if that cannot be told."""
_COUNT_TESTS = (Path(__file__).parent / "count_tests.py").read_bytes()


def build_task(task: Task, gold_patch: str, bug_patch: str, tests: Sequence[str], *, image: str, command: str) -> Task:
    """Return ``task`` with its image, tests and solution; ``command`` prints their results as ``pytest -v`` does.

    Raises PatchError if a patch changes no file."""
    for name, patch in {"original.gold_patch": gold_patch, "bug.patch": bug_patch}.items():
        if not touched_paths(patch):
            raise PatchError(f"{name} has no change of a file in it")
    return replace(
        task,
        image=image,
        files={_GOLD: gold_patch.encode(), _BUG: bug_patch.encode()},
        setup=_SETUP,
        tests={"count_tests.py": _COUNT_TESTS, "names.txt": "\n".join(tests).encode()},
        run_tests=_RUN.format(
            git=_GIT, others=_OTHERS, tests=_tests_pathspecs(tests, touched_paths(bug_patch)), command=command
        ),
        solution="cd /app && git apply --whitespace=nowarn -R /solution/bug.patch\n",
        solution_files={"bug.patch": bug_patch.encode()},
        grading=GradingLevel.ARTIFACTS,
        artifacts=("/app",),
        agent_timeout_s=1800.0,
        test_timeout_s=1800.0,
        memory_mb=4096,
        pids=1024,
    )


def _tests_pathspecs(tests: Sequence[str], touched: Collection[str]) -> str:
    """Return git's words for the files of the tests, but for those in which the bug is."""
    specs = (
        *(f":(top,literal){path}" for path in files_of_tests(tests)),
        *(f":(top,glob){pattern}" for pattern in TESTS_PATTERNS),
        *(f":(top,exclude,literal){path}" for path in sorted(touched)),
    )
    return " ".join(map(shlex.quote, specs))
