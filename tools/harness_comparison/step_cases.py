"""The tasks of several steps of the comparison with Harbor: one for each thing that ``[[steps]]`` can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.harness_comparison.cases import BOB, REWARD, ComparisonCase, passes_if

_JSON = "/logs/verifier/reward.json"


@dataclass(frozen=True, slots=True)
class ComparisonStep:
    """A step of a case."""

    solve: str = "true"
    test: str = f"echo 1 > {REWARD}"
    """The script of its tests; empty for the task's."""
    settings: str = ""
    """Lines of its table."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other files by path in its folder."""


def stepped(
    name: str,
    *steps: ComparisonStep,
    test: str = "false",
    settings: str = "",
    dockerfile: str = "",
    files: Mapping[str, str] | None = None,
    differs: str = "",
    refused: str = "",
) -> ComparisonCase:
    """Return a case whose steps are named a, b, c …; the others are the task's own."""
    tables, written = settings, {**(files or {})}
    for letter, step in zip("abcdef", steps, strict=False):
        tables += f'\n[[steps]]\nname = "{letter}"\n{step.settings}\n'
        own = {"instruction.md": f"Do {letter}.\n", "solution/solve.sh": f"#!/bin/bash\n{step.solve}\n", **step.files}
        own |= {"tests/test.sh": step.test} if step.test else {}
        written |= {f"steps/{letter}/{path}": text for path, text in own.items()}
    return ComparisonCase(
        f"steps-{name}",
        test,
        settings=tables,
        dockerfile=dockerfile,
        files=written,
        differs=differs,
        refused=refused,
    )


def gives(reward: str) -> ComparisonStep:
    return ComparisonStep(test=f"echo {reward} > {REWARD}")


def gives_json(rewards: str, settings: str = "") -> ComparisonStep:
    return ComparisonStep(test=f"echo '{rewards}' > {_JSON}", settings=settings)


_FINAL = 'multi_step_reward_strategy = "final"'
_LOW = ComparisonStep(test=f"echo 0.4 > {REWARD}", settings="min_reward = 0.5")
_JOB = "(exec -a the-job sleep 1000) > /dev/null 2>&1 &"
_COUNT_JOBS = "ps aux | grep -c '[t]he-job' > jobs; true"
_HEALTHCHECK = """[steps.healthcheck]
command = "echo >> /app/tries; [ $(wc -l < /app/tries) -ge 2 ]"
interval_sec = 0.1
"""
_SEPARATE_STEP = '[steps.verifier]\nenvironment_mode = "separate"'
_SEPARATE = """artifacts = ["/app/x"]
[steps.verifier]
environment_mode = "separate"
"""

STEP_CASES = (
    # rewards
    stepped(
        "good",
        ComparisonStep("echo 1 > x", passes_if("[ $(cat /app/x) = 1 ]")),
        ComparisonStep("echo 2 >> x", passes_if('[ "$(echo $(cat /app/x))" = "1 2" ]')),
        ComparisonStep("rm x", passes_if("[ ! -e /app/x ]")),
    ),
    stepped(
        "nothing-done",
        ComparisonStep(test=passes_if("[ -e /app/x ]")),
        ComparisonStep(test=passes_if("[ -e /app/y ]")),
    ),
    stepped("one", gives("1")),
    stepped("mean", gives("1"), gives("0"), gives("0.5")),
    stepped("mean-said", gives("1"), gives("0"), settings='multi_step_reward_strategy = "mean"'),
    stepped("mean-above-1", gives("2"), gives("0")),
    stepped("final", gives("0"), gives("1"), settings=_FINAL),
    stepped("final-fails", gives("1"), gives("0"), settings=_FINAL),
    stepped("min-reward", _LOW, gives("1")),
    stepped("min-reward-final", _LOW, gives("1"), settings=_FINAL),
    stepped("min-reward-met", ComparisonStep(test=f"echo 0.5 > {REWARD}", settings="min_reward = 0.5"), gives("1")),
    stepped("min-reward-later", gives("1"), _LOW, gives("1")),
    stepped("min-reward-named", gives_json('{"reward": 1, "good": 0.2}', "min_reward = {good = 0.5}"), gives("0")),
    stepped("min-reward-unnamed", gives_json('{"good": 1}', "min_reward = 0.5"), gives("0")),
    stepped("reward-json", gives_json('{"a": 1, "b": 0.5}'), gives_json('{"a": 1}')),
    stepped(
        "reward-missing",
        gives("1"),
        ComparisonStep(test="true"),
        differs="Harbor leaves a step without a reward out of the mean; here tests that prove nothing give 0",
    ),
    # tests and solutions
    stepped(
        "tests",
        ComparisonStep(test=passes_if("[ -e /tests/all ] && [ -e /tests/own ]"), files={"tests/own": ""}),
        ComparisonStep(test=passes_if("[ -e /tests/all ] && [ ! -e /tests/own ]")),
        ComparisonStep(test=""),
        test=passes_if("[ -e /tests/all ]"),
        files={"tests/all": ""},
    ),
    stepped("tests-hidden", gives("1"), ComparisonStep("ls -A /tests > x", passes_if("[ ! -s /app/x ]"))),
    stepped(
        "tests-write",
        ComparisonStep(test=f"echo 1 > {REWARD}; echo made > /app/made"),
        ComparisonStep("cp made x", passes_if("[ $(cat /app/x) = made ]")),
    ),
    stepped(
        "env",
        ComparisonStep(test=passes_if("[ $A$B = 12 ]"), settings='[steps.verifier.env]\nB = "2"'),
        ComparisonStep(test=passes_if("[ $A = 3 ] && [ -z $B ]"), settings='[steps.verifier.env]\nA = "3"'),
        settings='[verifier.env]\nA = "1"',
    ),
    stepped(
        "users",
        ComparisonStep("whoami > x", passes_if("[ $(cat /app/x)$(whoami) = bobroot ]")),
        ComparisonStep(
            "whoami > y",
            passes_if("[ $(cat /app/y)$(whoami) = rootbob ]"),
            '[steps.agent]\nuser = "root"\n[steps.verifier]\nuser = "bob"\ntimeout_sec = 50',
        ),
        settings='[agent]\nuser = "bob"',
        dockerfile=BOB,
    ),
    stepped(
        "out-of-time",
        ComparisonStep("touch x; sleep 60", passes_if("[ -e /app/x ]"), "[steps.agent]\ntimeout_sec = 15"),
        ComparisonStep("rm x", passes_if("[ ! -e /app/x ]")),
    ),
    # what a step begins with
    stepped(
        "workdir",
        ComparisonStep(test=passes_if("[ ! -e /srv/run.sh ]")),
        ComparisonStep(
            "./run.sh > x",
            passes_if('[ "$(cat /srv/x)" = "data" ] && [ -s /srv/setup.sh ]'),
            files={
                "workdir/run.sh": "#!/bin/sh\ncat d/made\n",
                "workdir/setup.sh": "cp d/data d/made",
                "workdir/d/data": "data",
            },
        ),
        dockerfile="WORKDIR /srv\n",
    ),
    stepped(
        "setup-user",
        ComparisonStep(
            "true",
            passes_if('[ "$(cat /app/who) $(stat -c %U /app/who)" = "bob bob" ]'),
            '[steps.agent]\nuser = "bob"',
            {"workdir/setup.sh": "whoami > who"},
        ),
        dockerfile=BOB,
    ),
    stepped(
        "setup-fails",
        gives("1"),
        ComparisonStep(files={"workdir/setup.sh": "exit 3"}),
        differs="Harbor leaves a step that cannot begin out of the mean; here it is 0: an agent could bring it about",
    ),
    stepped(
        "healthcheck",
        ComparisonStep(test=passes_if("[ ! -e /app/tries ]")),
        ComparisonStep(test=passes_if("[ $(wc -l < /app/tries) = 2 ]"), settings=_HEALTHCHECK),
    ),
    stepped(
        "logs",
        ComparisonStep("touch /logs/agent/a /logs/artifacts/b /logs/verifier/c"),
        ComparisonStep(
            "cd /logs; ls agent artifacts verifier | grep -x '[abc]' > /app/x", passes_if("[ $(cat /app/x) = b ]")
        ),
    ),
    stepped(
        "process",
        ComparisonStep(_JOB),
        ComparisonStep(_COUNT_JOBS, passes_if("[ $(cat /app/jobs) = 1 ]")),
        ComparisonStep(test=passes_if("ps aux | grep -q '[t]he-job'")),
    ),
    stepped(
        "process-of-tests",
        ComparisonStep(test=f"{_JOB} echo 1 > {REWARD}"),
        ComparisonStep(_COUNT_JOBS, passes_if("[ $(cat /app/jobs) = 1 ]")),
        differs="what tests leave running is killed here",
    ),
    # separate
    stepped(
        "separate",
        ComparisonStep(f"touch x y; {_JOB}", passes_if("[ -e /app/x ] && [ ! -e /app/y ]"), _SEPARATE),
        ComparisonStep(_COUNT_JOBS, passes_if("[ $(cat /app/jobs) = 1 ] && [ -e /app/y ]")),
    ),
    stepped(
        "separate-image",
        ComparisonStep("touch x", "", _SEPARATE),
        ComparisonStep("rm x", passes_if("[ ! -e /app/x ]")),
        test=passes_if("[ -e /app/x ] && [ -e /own ]"),
        files={"tests/Dockerfile": "FROM {base}\nWORKDIR /app\nCOPY . /tests\nCOPY own /\n", "tests/own": ""},
    ),
    stepped(
        "artifact-excludes",
        ComparisonStep(
            "mkdir d; touch d/a d/b.log",
            passes_if('[ "$(ls /app/d)" = a ]'),
            f'artifacts = [{{source = "/app/d", exclude = ["*.log"]}}]\n{_SEPARATE_STEP}',
        ),
    ),
    stepped(
        "published",
        ComparisonStep("touch /logs/artifacts/x", passes_if("[ -e /logs/artifacts/x ]"), _SEPARATE_STEP),
        ComparisonStep("true", passes_if("[ -e /logs/artifacts/x ]"), _SEPARATE_STEP),
    ),
    stepped(
        "own-image",
        ComparisonStep(
            "touch x",
            passes_if("[ -e /own ]"),
            _SEPARATE,
            {"tests/Dockerfile": "FROM {base}\nWORKDIR /app\nCOPY . /tests\nCOPY own /\n", "tests/own": ""},
        ),
        ComparisonStep("rm x", passes_if("[ ! -e /own ] && [ ! -e /app/x ]"), _SEPARATE_STEP),
    ),
    stepped(
        "own-environment",
        ComparisonStep(test=passes_if("[ $PWD = /srv ]"), settings='[steps.verifier.environment]\nworkdir = "/srv"'),
        ComparisonStep(test=passes_if('[ "$PWD $A" = "/app 1" ]'), settings=_SEPARATE_STEP),
        settings='[environment.env]\nA = "1"',
    ),
    stepped(
        "environment-of-image",
        ComparisonStep("touch x", "", '[steps.verifier.environment]\nworkdir = "/srv"', {"tests/none": ""}),
        ComparisonStep("touch y", "", _SEPARATE_STEP),
        test=passes_if('[ "$PWD$A" = /srv ] || [ "$PWD$A" = /app1 ]'),
        settings='[environment.env]\nA = "1"',
        files={"tests/Dockerfile": "FROM {base}\nWORKDIR /app\nCOPY . /tests\n"},
    ),
    stepped(
        "collect",
        ComparisonStep(
            test=passes_if("[ -e /app/state ]"), settings='[[steps.verifier.collect]]\ncommand = "touch /app/state"'
        ),
        ComparisonStep("rm state", passes_if("[ ! -e /app/state ]")),
    ),
)
