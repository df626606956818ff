"""If these fail, an agent runs what its model did not ask for, ends an episode that goes on, or leaves the model in the
dark about what was wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_sitter import Language, Parser

from actors.agents import bash_block
from actors.agents.agent import ActionOutcome, Agent, AgentToolCall, MalformedAction, ParsedReply
from actors.agents.bash_block import SUBMIT, BashBlockAgent
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.hermes import HermesAgent
from actors.agents.json_action import JsonActionAgent
from actors.agents.keystrokes import KeystrokesAgent
from actors.agents.prompt import PROMPTS_FOLDER, PromptTemplate, list_agent_prompts, load_agent_prompt
from actors.agents.registry import make_agent
from actors.agents.settings import AgentKind, AgentSettings, AgentSpec, ToolsetKind
from launch.config.tables import AgentTable
from protocol.errors import UserError
from sandbox.tasks.task import Task
from sandbox.tools import CODE_INTERPRETER, OPENCLAW, SETA, SHELL_ONLY

PROMPT = PromptTemplate("sys")
TASK = Task(id="fix-it", instruction="Fix {tools} and {name}.")
BASH, JSON, KEYS = BashBlockAgent(PROMPT), JsonActionAgent(PROMPT, SHELL_ONLY), KeystrokesAgent(PROMPT)
CODE = CodeInterpreterAgent(PROMPT, CODE_INTERPRETER)
HERMES = HermesAgent(PROMPT, SHELL_ONLY, {})
ALL: list[Agent] = [BASH, JSON, KEYS, CODE, HERMES]
LS = AgentToolCall("shell_exec", {"command": "ls"})
HERMES_LS = '<tool_call>{"name": "shell_exec", "arguments": {"command": "ls"}}</tool_call>'


def action(agent: Agent, reply: str) -> object:
    """The one that the reply is."""
    reading = agent.parse_reply(reply)
    assert not reading.final
    (only,) = reading.actions
    return only


def wrong(agent: Agent, reply: str) -> str:
    """Why it does not parse."""
    found = action(agent, reply)
    assert isinstance(found, MalformedAction)
    return found.reason


def as_json(kind: str, **params: object) -> str:
    return json.dumps({"action": {"type": kind, "params": params}})


def typed(*commands: object, complete: object = False) -> str:
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": complete})


# ---- what every agent does ----


@pytest.mark.parametrize(
    ("agent", "reply"),
    [
        (BASH, "```bash\nls\n```"),
        (JSON, as_json("shell_exec", command="ls")),
        (HERMES, HERMES_LS),
        (CODE, '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'),
        (KEYS, typed({"keystrokes": "ls\n"})),
    ],
)
def test_calls_inside_thoughts_are_not_run(agent: Agent, reply: str) -> None:
    done = agent.parse_reply(reply)
    assert [type(each) for each in done.actions] == [AgentToolCall]
    assert agent.parse_reply(f"<think>\nI could {reply}\n</think>\n\n{reply}") == done
    assert agent.parse_reply(f"\n<think>\n\n</think>\n\n{reply}") == done
    assert "inside its thoughts" in wrong(agent, f"<think>\nI could {reply}")


def test_a_think_tag_inside_a_call_argument_is_kept() -> None:
    reply = HERMES_LS.replace('"ls"', '"echo </think>"')
    assert action(HERMES, reply) == AgentToolCall("shell_exec", {"command": "echo </think>"})


@pytest.mark.parametrize("agent", ALL, ids=lambda agent: type(agent).__name__)
@given(reply=st.text() | st.text("`{}<>bashjson\n\"':,[]/toolcal_ "))
def test_any_reply_parses_to_actions_or_a_final_answer(agent: Agent, reply: str) -> None:
    """No reply is lost without an answer, and none breaks the worker."""
    reading = agent.parse_reply(reply)
    assert reading.final or reading.actions
    outcomes = [ActionOutcome(each, f"Error: {each}") for each in reading.actions]
    if any(isinstance(each, MalformedAction) for each in reading.actions):
        assert not reading.final
        messages = agent.format_outcomes(outcomes)
        assert messages
        for each in outcomes:
            if isinstance(each.action, MalformedAction):
                assert any(each.text in message["content"] for message in messages)


@pytest.mark.parametrize("kind", AgentKind)
def test_opening_messages_contain_the_task_instruction_unchanged(kind: AgentKind) -> None:
    agent = make_agent(AgentTable(kind=kind).make_spec())
    messages = agent.opening_messages(TASK)
    assert [message["role"] for message in messages][-1] == "user"
    assert TASK.instruction in messages[-1]["content"]
    assert "{" + "instruction}" not in json.dumps(messages)


# ---- one block of bash ----


def test_the_bash_block_is_the_command_and_other_blocks_are_ignored() -> None:
    reply = "THOUGHT: like\n```python\nx = 1\n```\nso\n```bash\ncat <<'E'\n a\tb \nE\n```\n"
    assert action(BASH, reply) == AgentToolCall("shell_exec", {"command": "cat <<'E'\n a\tb \nE"})


def test_lines_of_a_bash_block_end_as_a_shells_do() -> None:
    reply = "So:\r\n```bash\r\ncd /usr\r\ncat <<E\r\n```\r\nE\r\n```\r\n"
    assert action(BASH, reply) == AgentToolCall("shell_exec", {"command": "cd /usr\ncat <<E\n```\nE"})


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("I am done.", "no blocks"),
        ("```sh\nls\n```", "no blocks"),
        ("```bash\nls\n```\n```bash\nrm x\n```", "2 blocks"),
        ("```bash\nls", "has no end"),
        ("```bash\ncat > a.md <<'E'\n```python\nx\n```", "inside a command"),
        ("```bash\ncat > a.md <<'E'\n```\nx\n```\n", "has no end"),
        ("```bash\ngit commit -m 'See\n```\nls\n```\n'\n```", "inside a command"),
        (HERMES_LS, "no blocks"),
        ("```bash\ncat > a <<EOF\nx\n```", "only EOF"),
        ("```bash\ncat > a <<'A B' <<C\nx\nA B\n```", "no end"),
        ("```bash\ncat > a <<EOF\nx\n  EOF\n```", "only EOF"),
        ("```bash\necho $((1<<y))\ncat <<-\\E\n\tx\n```", "only E"),
        ("```bash\ncat <<E\n```", "only E"),
    ],
)
def test_a_reply_without_exactly_one_bash_block_runs_nothing(reply: str, why: str) -> None:
    assert why in wrong(BASH, reply)


@pytest.mark.parametrize(
    "command",
    [
        "cat > README.md <<'EOF'\n# Use\n```sh\nls\n```\nEOF\necho written",
        "cat > a.md <<EOF\n```\nEOF",
        *(f"cat > a.md <<{word}\n```\na\n```\n{word}\necho" for word in ("!", ":", "~", "EOF!", "EOF/x")),
        *(
            f"cat > a.md <<{word}\n```\na\n```\n{word}\necho"
            for word in ("{EOF}", "*EOF*", "$EOF", "${E}", "a=b", "[?#]", "$")
        ),
        *(f"cat > a.md <<{word}\n```\na\n```\nE F\necho" for word in ("$'E F'", '$"E F"', "E$' F'")),
        "cat <<-\"B C\"\n```\n\tB C\ncat <<'A'\n```\nA\necho",
        *(f"cat <<{word}\n```\na\n```\nE O'F\necho" for word in ("E' 'O\"'F\"", '"E "O\\\'F')),
        "diff <(cat <<A) <(cat <<'B')\n```\nA\n```\nB\necho",
        "cat <<A - <<-B 3<<C >a.md\n```\nA\n```sh\n\tB\n```\nC\nls | wc",
        'git commit -m "$(cat <<\'EOF\'\nsay "hi"\n```\nls\n```\nEOF\n)"',
        "echo \"no <<EOF\" 'nor <<EOF' # nor <<EOF",
        "cat <<<EOF",
        "x=$((1<<y))\necho $x ${a[1<<y]}",
        '((x <<= 2)); echo "<<A"',
    ],
)
@pytest.mark.parametrize("after", ["", "\nIt prints\n```\nx\n```\n"])
def test_a_block_in_a_here_document_is_part_of_the_command(command: str, after: str) -> None:
    """Half of such a command would run, and its exit code be 0."""
    reply = f"THOUGHT\n```bash\n{command}\n```{after}"
    assert action(BASH, reply) == AgentToolCall("shell_exec", {"command": command})


def test_a_block_with_more_backticks_may_contain_lines_of_three() -> None:
    reply = "````bash\necho '\n```\n'\n````"
    assert action(BASH, reply) == AgentToolCall("shell_exec", {"command": "echo '\n```\n'"})


@pytest.mark.parametrize(
    "piece", ["```\n", "```bash\n```\n", "<<A ", "cat <<A\n", "cat <<A <<B\n", "'", '"', "```bash\ncat <<A\n"]
)
def test_long_repetitive_blocks_are_parsed_in_linear_time(piece: str) -> None:
    """A worker's loop, and all of its episodes, would stand still meanwhile."""
    assert BASH.parse_reply("```bash\n" + piece * (100_000 // len(piece))).is_malformed


def test_many_here_documents_are_read_in_linear_time() -> None:
    begun = "".join(f"cat <<A{n}\n" for n in range(20_000))
    assert "has no end" in wrong(BASH, f"```bash\n{begun[:2000]}```")
    assert "cannot be checked" in wrong(BASH, f"```bash\n{begun}```")
    assert "has no end" in wrong(BASH, f"```bash\n{begun * 2}")


@pytest.mark.parametrize("piece", ["<<A ", "a|", "a=(", "<<-A;", "f()\n", "<<<"])
@pytest.mark.parametrize("after", ["", "```\nx\n```\n"])
def test_a_command_that_is_parsed_in_quadratic_time_is_refused_before(
    piece: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of a worker's loop, in which all of its episodes stand still."""
    made: list[Parser] = []

    def count_parser(language: Language) -> Parser:
        made.append(Parser(language))
        return made[-1]

    monkeypatch.setattr(bash_block, "Parser", count_parser)
    document = "cat <<'B'\n" + "f(x) | {y};\n" * 1000 + "B\n"
    short, long = (f"```bash\n{document}{piece * times}\ncat <<C\n```\n{after}" for times in (100, 600))
    assert "cannot be checked" not in wrong(BASH, short)
    assert len(made) == 1
    assert "cannot be checked" in wrong(BASH, long)
    assert len(made) == 1


@given(st.text(st.characters(exclude_characters="`\r<", exclude_categories=["Cs"])))
def test_a_command_without_backticks_is_run_as_written(command: str) -> None:
    assert action(BASH, f"THOUGHT\n```bash\n{command}\n```") == AgentToolCall("shell_exec", {"command": command})


@pytest.mark.parametrize(
    ("output", "code", "over"),
    [
        (f"{SUBMIT}\n", 0, True),
        (f"\n {SUBMIT} \ndiff --git", 0, True),
        (f"{SUBMIT}\n", 1, False),
        (f"{SUBMIT}\n", None, False),
        (f"before\n{SUBMIT}\n", 0, False),
        (f"{SUBMIT}S\n", 0, False),
        ("", 0, False),
    ],
)
def test_a_successful_command_with_output_beginning_with_the_marker_submits(
    output: str, code: int | None, over: bool
) -> None:
    """mini-SWE-agent's rule.  A model that only quotes the marker goes on."""
    assert (BASH.format_outcomes([ActionOutcome(LS, output.strip(), output, code)]) is None) is over


def test_command_output_is_formatted_like_mini_swe_agent() -> None:
    def observation(text: str, code: int | None) -> str:
        ((message,),) = (BASH.format_outcomes([ActionOutcome(LS, text, text, code)]) or [],)
        assert message["role"] == "user"
        return message["content"]

    assert observation("a\nb", 0) == "<returncode>0</returncode>\n<output>\na\nb\n</output>"
    assert observation("no\nExit code: 2", 2) == "<returncode>2</returncode>\n<output>\nno\n</output>"
    assert observation("Command timed out", None) == "<output>\nCommand timed out\n</output>"


# ---- one JSON action ----


@pytest.mark.parametrize("around", ["{}", "I look.\n```json\n{}\n```", " {} \n", "<think>x</think>\n\n{}"])
def test_a_json_action_is_read_in_a_block_or_alone(around: str) -> None:
    assert action(JSON, around.replace("{}", as_json("shell_exec", command="ls"))) == LS


@pytest.mark.parametrize(
    "params", [{"answers": {"answer1": "7"}}, {"final": {"answers": {"answer1": "7"}}}], ids=["bare", "final"]
)
def test_a_stop_action_ends_the_episode_and_keeps_its_answers(params: dict[str, object]) -> None:
    reading = JSON.parse_reply(as_json("stop", **params))
    assert reading == ParsedReply([AgentToolCall("answer", {"answer": {"answer1": "7"}})], final=True)
    assert "answer" in JSON.tools
    assert JSON.offered_tools == {}


@pytest.mark.parametrize("params", [{"answer": "7"}, {"final": {"answer": "7"}}], ids=["bare", "final"])
def test_a_stop_action_may_give_one_answer_as_a_text(params: dict[str, object]) -> None:
    assert JSON.parse_reply(as_json("stop", **params)) == ParsedReply(
        [AgentToolCall("answer", {"answer": "7"})], final=True
    )


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("done", "not valid JSON"),
        ("[1]", "not an object"),
        ("```json\n{}\n```\n```json\n{}\n```", "2 blocks"),
        ("```json\n{", "has no end"),
        ("{}", 'no "action"'),
        ('{"action": {"type": "shell_exec", "params": 3}}', '"params" is not an object'),
        (as_json("goto", url="x"), "the types are shell_exec, stop"),
        (as_json("answer", answer="x"), "the types are shell_exec, stop"),
        (as_json("stop"), "needs its answers"),
        (as_json("stop", final=[]), "needs its answers"),
    ],
)
def test_an_invalid_json_action_is_rejected_with_the_reason(reply: str, why: str) -> None:
    assert why in wrong(JSON, reply)


# ---- keystrokes ----


def test_keystroke_entries_are_typed_in_order_and_the_last_screen_is_returned() -> None:
    entries = [{"keystrokes": "ls\n", "duration": 0.5}, {"keystrokes": "C-c"}]
    reading = KEYS.parse_reply(f"So:\n{typed(*entries)}\nThat is all.")
    assert reading == ParsedReply([AgentToolCall("terminal_keystrokes", entry) for entry in entries])
    messages = KEYS.format_outcomes([ActionOutcome(each, f"screen {n}") for n, each in enumerate(reading.actions)])
    assert messages == [{"role": "user", "content": "screen 1"}]


@pytest.mark.parametrize(
    "before",
    [
        "I use ${HOME:-/root} and {x}.",
        'Like {"a": 1}, {}, {"x"}:',
        "awk '{print $1}' {",
        '{"keystrokes": "not this"}',
        'I say "task_complete": false, {"a", "b"}.',
        'The settings are {"debug": True}.',
        'DATABASES = {"default": {"ENGINE": env}}',
        'Call {"name": <name>}, or jq {"a": .b} and {"x": [1, {"y": z}]}; {"a": 1, "a": 2}, {"b": NaN}:',
    ],
)
def test_braces_before_the_object_are_text(before: str) -> None:
    entry = {"keystrokes": "awk '{print}' a\n"}
    assert action(KEYS, f"{before}\n{typed(entry)}\nThat {{is}} all.") == AgentToolCall("terminal_keystrokes", entry)


def test_a_completion_flag_ends_the_episode_after_its_keystrokes() -> None:
    assert KEYS.parse_reply(typed({"keystrokes": "exit\n"}, complete=True)).final
    assert KEYS.parse_reply(typed(complete=True)) == ParsedReply([], final=True)
    assert action(KEYS, typed()) == AgentToolCall("terminal_keystrokes", {"keystrokes": "", "duration": 0})


def test_a_keystroke_script_with_an_invalid_entry_is_not_typed_at_all() -> None:
    reading = KEYS.parse_reply(typed({"keystrokes": "rm -r \\\n"}, {"keys": "x"}, complete=True))
    assert [type(each) for each in reading.actions] == [MalformedAction]
    assert not reading.final


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("ls", "no valid JSON object"),
        ("} {", "no valid JSON object"),
        ("{'a': 1}", "no valid JSON object"),
        ('{"a": 1}', "has none of commands, task_complete"),
        ('{"commands": []} or {"commands": [{"keystrokes": "rm x"}]}', "2 objects"),
        ('{"commands": [{"keystrokes": "ls"}', "not valid JSON"),
        ('{"commands": [{"keystrokes": "ls", "duration": NaN}]}', "not valid JSON"),
        (
            '{"analysis": "write {"commands": [], "task_complete": true}", "commands": [], "task_complete": false}',
            "not valid JSON",
        ),
        ('{"commands": [{"keystrokes": "ls"}], "next": {"task_complete": true}, }', "not valid JSON"),
        ('{"plan": bad, "next": {"commands": [{"keystrokes": "rm"}]}}', "not valid JSON"),
        (
            '{"a": 1} is fine, {"commands": [...]} is the form: {"commands": [], "task_complete": true}',
            "not valid JSON",
        ),
        (
            '{"commands": [], "task_complete": true} at the end, now {"analysis": "it"s", "commands": []}',
            "not valid JSON",
        ),
        ('{"analysis": "a", "example": {"commands": [], "task_complete": true}', "not valid JSON"),
        ('{"analysis": "a", bad "example": {"commands": [], "task_complete": true}', "part of one"),
        ('{"commands": [], "commands": [{"keystrokes": "rm"}]}', "given twice"),
        ('{"a": {"commands": []}, "a": 1}, {"commands": [{"keystrokes": "rm"}]}', "part of one"),
        ('{plan: bad, "next": {"commands": [{"keystrokes": "rm"}]}}', "part of one"),
        ('{{"commands": [{"keystrokes": "rm"}]}}', "part of one"),
        ("{'a': {\"task_complete\": true}, 'commands': [", "part of one"),
        ("{'commands': [], 'task_complete': False}, later {\"task_complete\": true}", "part of one"),
        ('{"commands": {}}', "is not a list"),
        ('{"commands": [], "task_complete": "yes"}', "neither true nor false"),
    ],
)
def test_invalid_keystrokes_are_rejected_with_the_reason(reply: str, why: str) -> None:
    """What is written inside of an invalid object is neither typed nor ends the episode."""
    assert why in wrong(KEYS, reply)


@pytest.mark.parametrize("piece", ["{", '{"', '{"a":', '{"a":[', "{}", '{"a": 1}', '{"a": "', '{"\\"', "{ ", "}"])
def test_long_repetitive_objects_are_parsed_in_linear_time(piece: str) -> None:
    assert KEYS.parse_reply(piece * (400_000 // len(piece))).is_malformed


# ---- Hermes calls, and Python ----


def test_each_malformed_call_is_reported_along_with_the_valid_ones() -> None:
    """SETA's agent reports the first alone, and verl's drops them."""
    reply = f"{HERMES_LS}<tool_call>{{]</tool_call>{HERMES_LS}<tool_call>{{"
    assert [type(each) for each in HERMES.parse_reply(reply).actions] == [
        AgentToolCall,
        MalformedAction,
        AgentToolCall,
        MalformedAction,
    ]


def test_the_final_reply_of_the_code_interpreter_agent_is_its_answer() -> None:
    assert CODE.parse_reply("<think>7?</think>\n\nIt is \\boxed{7}.") == ParsedReply(
        [AgentToolCall("answer", {"answer": "It is \\boxed{7}."})], final=True
    )
    assert list(CODE.offered_tools) == ["code_interpreter"]
    assert "answer" in CODE.tools


def test_an_agent_calls_the_tools_of_its_set() -> None:
    """OpenClaw's prompt names a tool that it does not offer."""
    for name, tools in (
        (ToolsetKind.SHELL_ONLY, SHELL_ONLY),
        (ToolsetKind.SETA, SETA),
        (ToolsetKind.OPENCLAW, OPENCLAW),
    ):
        agent = make_agent(AgentSpec(AgentSettings(toolset=name), PROMPT))
        assert agent.tools == agent.offered_tools == tools
        assert make_agent(AgentSpec(AgentSettings(toolset=name, tools=False), PROMPT)).offered_tools == {}
    named = {
        word.strip(".,:;()") for word in load_agent_prompt("openclaw-1").system.split() if word.startswith("shell_")
    }
    assert named == set(OPENCLAW)
    named = {word.strip(".,:;()") for word in load_agent_prompt("seta-1").system.split() if word.startswith("shell_")}
    assert named < set(SETA)


# ---- prompts ----


def test_the_openclaw_user_message_has_openclaws_format() -> None:
    filled = load_agent_prompt("openclaw-1").render(instruction="Do {name}.", name="t1", tools="")
    assert filled.user == "Task name:t1\nTask instruction: Do {name}."


def test_each_example_in_a_prompt_is_parsed_by_its_agent() -> None:
    """Otherwise a model would be told to write text that is then refused."""
    bash = load_agent_prompt("bash-1")
    assert action(BASH, bash.system) == AgentToolCall("shell_exec", {"command": "ls -la"})
    submits = action(BASH, bash.user)
    assert submits == AgentToolCall("shell_exec", {"command": f"echo {SUBMIT}"})
    shown = load_agent_prompt("json-1").system
    assert JSON.parse_reply(shown[shown.index("you are shown") :]).final
    keys = load_agent_prompt("keystrokes-1").system
    first, _ = json.JSONDecoder().raw_decode(keys[keys.index("{") :])
    assert action(KEYS, json.dumps(first)) == AgentToolCall(
        "terminal_keystrokes", {"keystrokes": "ls -la\n", "duration": 0.5}
    )


def test_published_prompts_never_change() -> None:
    """Otherwise two runs of one configuration would not be comparable.  A reworded prompt gets a new number."""
    assert {
        name: hashlib.sha256((PROMPTS_FOLDER / f"{name}.txt").read_bytes()).hexdigest()[:16]
        for name in list_agent_prompts()
    } == {
        "bash-1": "b53dcba365626dd6",
        "browser-1": "9d3d675003279aff",
        "code_interpreter-1": "41c515aa85bf4678",
        "json-1": "2defe58159b7f55f",
        "keystrokes-1": "49e93675efa7876b",
        "openclaw-1": "7113dc9b8f75d071",
        "seta-1": "d721e75c303327c4",
    }


def test_a_custom_prompt_file_is_loaded_and_its_errors_are_named(tmp_path: Path) -> None:
    own = tmp_path / "mine.txt"
    own.write_text("about it\n--- user\nDo: {instruction}\n")
    assert load_agent_prompt(str(own)) == PromptTemplate("", "Do: {instruction}")
    for text, why in (
        ("no section", "has none"),
        ("--- user\nDo it.", "{instruction} is missing"),
        ("--- tool\nx", "has tool"),
    ):
        own.write_text(text)
        with pytest.raises(UserError, match=why):
            load_agent_prompt(str(own))
    with pytest.raises(UserError, match="did you mean 'seta-1'"):
        load_agent_prompt("seta-2")
