"""Each rule by what it is for and by what looks like it: a pattern that matches nearly everything pays for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.bash_block import SUBMIT
from actors.rewards import process_rules, shell_commands
from actors.rewards.episode_result import ModelTurn, ToolCallRecord
from actors.rewards.process_rules import MAX_TURN_REWARD, score_turns
from actors.rewards.shaping import cap_turn_rewards
from actors.rewards.shell_commands import is_idle, modifies_code, touches_tests


def shell(*commands: str, exit_code: int | None = 0, output: str = "", timed_out: bool = False) -> ModelTurn:
    calls = tuple(ToolCallRecord("shell_exec", command, output, exit_code, timed_out) for command in commands)
    return ModelTurn("I run it.", calls)


def surf(tool: str, output: str, *, timed_out: bool = False) -> ModelTurn:
    return ModelTurn("I look.", (ToolCallRecord(tool, "", output, None, timed_out),))


def given_for(turn: ModelTurn) -> set[str]:
    return set(score_turns([turn]).rules)


MODIFIES = [
    "sed -i 's/a/b/' src/main.py",
    "sed -i.bak -e s/a/b/ f.c",
    "sed --in-place s/a/b/ f.c",
    "perl -pi -e 's/a/b/' f.c",
    "cat > src/new.py <<'EOF'\nprint('x > y')\nEOF",
    "cat <<EOF > lib/a.rb\nputs 1\nEOF\necho ok",
    "echo 'fixed' >> README.md",
    "printf x >| src/f.c",
    "cd src && echo 1 > version.py",
    "git apply fix.patch",
    "cd repo; git am < 0001.patch",
    "patch -p1 < fix.diff",
    "echo x | tee src/a.py",
    "echo x | sudo tee -a src/a.py",
    "python3 -c \"open('a.py', 'w').write('x')\"",
    "python - <<'EOF'\nfrom pathlib import Path\nPath('a.py').write_text('x')\nEOF",
]
LEAVES = [
    "ls -la > /dev/null",
    "make 2> errors.c",
    "make > build.log 2>&1",
    "cmd > /tmp/out.py",
    "grep -n 'a > b' src/main.py",
    'grep "->" src/main.c',
    "sed -n 1,10p src/main.py",
    "sed 's/-i/-j/' f.c",
    "awk '$1 > 5 {print}' data.csv",
    "cat src/main.py # > other.py",
    "cat <<'EOF'\nx > y.py\nEOF",
    "git apply --check fix.patch",
    "git status",
    "patch --dry-run -p1 < fix.diff",
    "echo x | tee /dev/null",
    "python3 -c \"print(open('a.py').read())\"",
    "python3 -c \"print(open('a.py', 'r').read())\"",
    "diff a.py b.py",
    "test 3 -gt 2",
]
MEETS = [
    "pytest",
    "pytest -q tests/test_a.py",
    "cd repo && python -m pytest -x",
    "python3.11 -m unittest discover",
    "FOO=1 timeout 60 pytest",
    "uv run pytest -q",
    "npx jest",
    "npm test",
    "npm run test",
    "yarn test --ci",
    "go test ./...",
    "cargo test --release",
    "make -j4 check",
    "./gradlew test",
    "python manage.py test app",
    "./run-tests.sh",
    "bash run_tests.sh",
    "ls tests",
    "ls -la tests/",
    "find . -name 'test_*.py'",
    "find src -name '*_test.go'",
    "cat src/app/tests/conftest.py",
    "grep -rn fixture tests/",
    "head -50 test_parser.py",
    "cat src/button.spec.ts",
]
MISSES = [
    "test -f config.yml",
    "[ -f config.yml ] && cat config.yml",
    "echo latest",
    "cat contest.py",
    "ls attestations",
    "pip install pytest",
    "grep test src/main.py",
    "grep -rn 'test_' src/main.py",
    "git log --oneline",
    "echo 'run pytest'",
    "cat <<'EOF' > notes.md\npytest\nEOF",
    "# pytest",
    "make",
    "npm install",
    "python main.py test",
    "vim protest.py",
    "go build ./...",
]
IDLE = ["", "  ", ":", "true", "echo I am thinking", "echo a; echo b", "# only a comment", "sleep 5", "printf done"]
BUSY = ["ls", "pwd", "echo x > f.py", "echo a && ls", f"echo {SUBMIT}", "true && make", "cat f | wc -l"]
SHOWS = [
    'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: x',
    "E   AssertionError: assert 1 == 2",
    "FAILED tests/test_a.py::test_x - AssertionError",
    "src/main.c:12:5: error: expected ';'",
    "main.go:3: error: undefined",
    "error[E0382]: borrow of moved value",
    "thread 'main' panicked at src/main.rs:2:5",
    "TypeError: x\n    at run (/app/index.js:10:5)",
]
HIDES = ["", "0 errors, 0 warnings", "no error", "5 passed in 0.1s", "error", "see error.log", "grep: error: nothing"]


@pytest.mark.parametrize(
    ("rule", "positive", "negative"),
    [(modifies_code, MODIFIES, LEAVES), (touches_tests, MEETS, MISSES), (is_idle, IDLE, BUSY)],
    ids=["modifies_code", "meets_tests", "is_idle"],
)
def test_each_pattern_matches_its_commands_and_no_others(
    rule: Callable[[str], bool], positive: list[str], negative: list[str]
) -> None:
    assert [command for command in positive if not rule(command)] == []
    assert [command for command in negative if rule(command)] == []


@pytest.mark.parametrize(
    ("turn", "rules"),
    [
        (shell("ls"), {"valid_command", "command_succeeds"}),
        (shell("ls /none", exit_code=2), {"valid_command"}),
        (shell("ls", "cat none", exit_code=1), {"valid_command"}),
        (shell("sed -i s/a/b/ f.py"), {"valid_command", "command_succeeds", "code_modified"}),
        (shell("sed -i s/a/b/ f.py", exit_code=1), {"valid_command"}),
        (shell("pytest -q", exit_code=1, output=SHOWS[2]), {"valid_command", "tests_discovered", "error_context"}),
        (shell("make", exit_code=None, timed_out=True), {"valid_command", "timeout"}),
        (shell("echo hm"), {"no_op"}),
        (shell(f"echo {SUBMIT}"), {"valid_command", "command_succeeds"}),
        (ModelTurn("done"), set[str]()),
        (ModelTurn("<tool_call>{", malformed=True), {"invalid_format"}),
        (ModelTurn("", (ToolCallRecord("shell_exec", "ls", "", 0),), malformed=True), {"invalid_format"}),
        (ModelTurn("", (ToolCallRecord("shell_write_content_to_file", "x = 1\na.py", "written"),)), {"code_modified"}),
        (
            ModelTurn("", (ToolCallRecord("shell_write_content_to_file", "x\na.py", "Error: no such folder"),)),
            set[str](),
        ),
        (ModelTurn("", (ToolCallRecord("code_interpreter", "x = 1 > 2\npytest"),)), set[str]()),
        (ModelTurn("", (ToolCallRecord("bash", "ls", "f.py", 0),)), {"valid_command", "command_succeeds"}),
        (surf("click", "Clicked.\nURL: http://shop:8000/"), {"valid_command", "command_succeeds"}),
        (surf("goto", "URL: http://shop:8000/"), {"valid_command", "command_succeeds"}),
        (surf("click", ""), set[str]()),
        (surf("click", "Error: the page has no element 9: its elements are 1 to 4"), set[str]()),
        (surf("click", "Error: timed out", timed_out=True), {"timeout"}),
        (surf("click", 'URL: http://x/\nFAILED tests::x\ntext "a"'), {"valid_command", "command_succeeds"}),
        (surf("read", "FAILED tests::x"), set[str]()),
        (surf("read", "pytest\nall good"), set[str]()),
        (surf("wait", "URL: http://shop:8000/"), {"no_op"}),
    ],
)
def test_a_turn_is_rewarded_by_the_rules_that_apply(turn: ModelTurn, rules: set[str]) -> None:
    assert given_for(turn) == rules


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (process_rules.valid_command, 0.01),
        (process_rules.command_succeeds, 0.02),
        (process_rules.code_modified, 0.03),
        (process_rules.tests_discovered, 0.02),
        (process_rules.error_context, 0.01),
        (process_rules.timeout, -0.02),
        (process_rules.no_op, -0.01),
        (process_rules.invalid_format, -0.05),
    ],
)
def test_rule_values_equal_those_of_the_art_seed(rule: Callable[[ModelTurn], bool], value: float) -> None:
    """README.md of the ART seed, "Process Rewards", and its code for the two that the table leaves out."""
    assert [each.value for each in (*process_rules.RULES, process_rules.MALFORMED_RULE) if each.applies is rule] == [
        value
    ]


@pytest.mark.parametrize("output", SHOWS)
def test_error_context_in_output_is_recognised(output: str) -> None:
    assert process_rules.error_context(shell("make", exit_code=1, output=f"some lines\n{output}\n"))


@pytest.mark.parametrize("output", HIDES)
def test_words_alone_are_not_error_context(output: str) -> None:
    assert not process_rules.error_context(shell("make", exit_code=1, output=output))


def test_each_rule_rewards_a_turn_once_and_parts_name_the_rules() -> None:
    found = score_turns([shell("ls", "ls", "ls"), shell("ls")])
    assert found.turns == pytest.approx((0.03, 0.03))
    assert found.rules == pytest.approx({"valid_command": 0.02, "command_succeeds": 0.04})


turns = st.lists(
    st.builds(
        lambda command, code, output, late, bad: ModelTurn(
            "", (ToolCallRecord("bash", command, output, code, late),), bad
        ),
        st.sampled_from([*MODIFIES, *MEETS, *IDLE, *BUSY]),
        st.sampled_from([0, 1, None]),
        st.sampled_from([*SHOWS, *HIDES]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=120,
)


@given(turns, st.floats(0.001, 0.24))
def test_turn_and_episode_rewards_stay_within_their_bounds(episode: list[ModelTurn], cap: float) -> None:
    """The ART seed's rules gave up to 8 where a solved task is 1; here a failed episode never beats a solved one."""
    found = score_turns(episode)
    assert all(abs(value) <= MAX_TURN_REWARD for value in found.turns)
    capped = cap_turn_rewards(found.turns, cap)
    assert len(capped) == len(episode)
    assert abs(sum(capped)) <= cap + 1e-9
    assert 0.5 + sum(capped) < 1.0 - cap


@given(st.text() | st.text(st.sampled_from("'\"\\<EOF>;&|$()#\n a1-/.")), st.text())
def test_any_command_and_output_can_be_scored(command: str, output: str) -> None:
    """Otherwise one odd command would end an episode as an unexpected failure."""
    score_turns([shell(command, output=output)])


@pytest.mark.parametrize(
    "piece", ["'", '"', "<<A\n", "(", "> ", "\\", "a=1 ", "timeout ", "uv run ", "E   ", "at a ", "\n", " ", ":1"]
)
@pytest.mark.timeout(20)
def test_patterns_take_time_linear_in_a_command_and_its_output(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern with quadratic time would block a worker's event loop: it needs minutes for this text, a linear one
    about a second."""
    chars = 1 << 18
    monkeypatch.setattr(shell_commands, "MAX_COMMAND_CHARS", chars)
    monkeypatch.setattr(process_rules, "MAX_SEARCHED_CHARS", chars)
    long = piece * (chars // len(piece))
    score_turns([shell(long, output=long)])
