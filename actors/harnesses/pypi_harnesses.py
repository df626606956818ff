"""The harnesses that are published on PyPI.

Most are libraries without a command: their record has the driver, the few lines that their documentation shows for an
agent with a shell as its tool; Harbor's agent gets an environment that is the sandbox it runs in.  Python runs isolated
(``-I``), so nothing of an image's own Python is loaded.
"""

from __future__ import annotations

from actors.harnesses.published_harness import PublishedHarness, PypiPackage

_DRIVER = '"$HARNESS_BIN/python" -I "$HARNESS_HOME/agent.py"'
_SHELL = '''\
import os
import subprocess
import sys


def shell(command: str) -> str:
    """Run a command in a shell and return its output, of which a long one loses its middle, and its exit code.

    Args:
        command: The command.
    """
    done = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.stdout.decode(errors="replace")
    if len(output) > 10_000:
        output = output[:5_000] + "\\n...\\n" + output[-5_000:]
    return f"{output}\\nexit code {done.returncode}"


'''
_TASK = "Solve the task with the shell. When it is done, say so."
_LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""LiteLLM fetches no list of prices."""

MINI_SWE_AGENT = PublishedHarness(
    name="mini-swe-agent",
    title="mini-swe-agent",
    package=PypiPackage("mini-swe-agent", "2.4.6"),
    program="lib/python3.*/site-packages/bin/mini",
    command='"$HARNESS_BIN/python" -I "$HARNESS_BIN/mini-swe-agent" --yolo --exit-immediately --cost-limit 0 '
    '--model "openai/$OPENAI_MODEL" --output "$HARNESS_HOME/trajectory.json" --task="$LONGSHORE_INSTRUCTION"',
    environment={
        **_LITELLM,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": "$HARNESS_HOME",
        "MSWEA_SILENT_STARTUP": "1",
    },
    prompt_tokens=1_100,
    context_tokens=16_384,
    memory_mb=512,
)

OPENAI_AGENTS = PublishedHarness(
    name="openai-agents",
    title="OpenAI's Agents SDK",
    package=PypiPackage("openai-agents", "0.24.0"),
    program="bin/python",
    command=_DRIVER,
    environment={"OPENAI_AGENTS_DISABLE_TRACING": "1"},
    files={
        "agent.py": f"""\
{_SHELL}from agents import Agent, Runner, function_tool, set_default_openai_client
from openai import AsyncOpenAI

set_default_openai_client(AsyncOpenAI(timeout=3600))
agent = Agent("agent", instructions="{_TASK}", model=os.environ["OPENAI_MODEL"], tools=[function_tool(shell)])
print(Runner.run_sync(agent, sys.stdin.read(), max_turns=None).final_output)
"""
    },
    prompt_tokens=200,
    context_tokens=16_384,
    memory_mb=512,
)

SMOLAGENTS = PublishedHarness(
    name="smolagents",
    title="smolagents",
    package=PypiPackage("smolagents", "1.26.0", ("openai==2.54.0",)),
    program="bin/python",
    command=_DRIVER,
    environment={"HF_HOME": "$HARNESS_HOME", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1"},
    files={
        "agent.py": f"""\
{_SHELL}from smolagents import OpenAIModel, ToolCallingAgent, tool

model = OpenAIModel(os.environ["OPENAI_MODEL"], client_kwargs={{"timeout": 3600}}, tool_choice="auto")
print(ToolCallingAgent([tool(shell)], model, max_steps=100_000).run(sys.stdin.read()))
"""
    },
    prompt_tokens=1_400,
    context_tokens=16_384,
    memory_mb=512,
)

CAMEL = PublishedHarness(
    name="camel",
    title="CAMEL",
    package=PypiPackage("camel-ai", "0.2.90", ("mcp==1.30.0",)),
    program="bin/python",
    command=_DRIVER,
    files={
        "agent.py": f"""\
{_SHELL}from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import FunctionTool
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter


class CharacterCounter(BaseTokenCounter):
    def count_tokens_from_messages(self, messages):
        return len(str(messages)) // 4

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))


platform, name = ModelPlatformType.OPENAI_COMPATIBLE_MODEL, os.environ["OPENAI_MODEL"]
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
model = ModelFactory.create(platform, name, url=url, api_key=key, timeout=3600, token_counter=CharacterCounter())
agent = ChatAgent("{_TASK}", model=model, tools=[FunctionTool(shell)], step_timeout=None)
print(agent.step(sys.stdin.read()).msgs[-1].content)
"""
    },
    prompt_tokens=200,
    context_tokens=16_384,
    memory_mb=512,
)
"""Its own counter of tokens would download a vocabulary."""

OPENHANDS = PublishedHarness(
    name="openhands",
    title="OpenHands' SDK",
    package=PypiPackage("openhands-sdk", "1.58.2", ("openhands-tools==1.58.2",)),
    program="bin/python",
    command=_DRIVER,
    environment={**_LITELLM, "OH_PERSISTENCE_DIR": "$HARNESS_HOME", "OPENHANDS_SUPPRESS_BANNER": "1"},
    files={
        "agent.py": """\
import os
import sys

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.terminal import TerminalTool

name, url, key = f"openai/{os.environ['OPENAI_MODEL']}", os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
llm = LLM(model=name, base_url=url, api_key=key, timeout=3600)
agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name, params={"terminal_type": "subprocess"})])
conversation = Conversation(agent, workspace=os.getcwd())
conversation.send_message(sys.stdin.read())
conversation.run()
"""
    },
    prompt_tokens=7_200,
    context_tokens=32_768,
    memory_mb=512,
)

TERMINUS_2 = PublishedHarness(
    name="terminus-2",
    title="Terminus 2",
    package=PypiPackage("harbor", "0.26.0"),
    program="bin/python",
    machine_programs=("tmux",),
    command=_DRIVER,
    environment={**_LITELLM, "HARBOR_TELEMETRY": "off", "TERMINFO": "$HARNESS_BIN/../terminfo"},
    files={
        "agent.py": """\
import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harbor.agents.terminus_2 import Terminus2, terminus_2
from harbor.environments.base import ExecResult
from harbor.models.agent.context import AgentContext

TMUX = 'tmux() { "$HARNESS_BIN/tmux" -f /dev/null -S "$HARNESS_HOME/tmux" "$$@"; }'


class ThisSandbox:
    default_user = session_id = None

    async def exec(self, command, **_):
        script = ["sh", "-c", f"{TMUX}\\n{command}"]
        done = await asyncio.to_thread(subprocess.run, script, stdin=subprocess.DEVNULL, capture_output=True)
        output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return ExecResult(stdout=output, stderr=errors, return_code=done.returncode)


async def main():
    name, url = f"openai/{os.environ['OPENAI_MODEL']}", os.environ["OPENAI_BASE_URL"]
    home = terminus_2.EnvironmentPaths.agent_dir = Path("$HARNESS_HOME")
    agent = Terminus2(home, name, base_url=url, llm_call_kwargs={"timeout": 3600}, record_terminal_session=False)
    sandbox = ThisSandbox()
    await agent.setup(sandbox)
    await agent.run(sys.stdin.read(), sandbox, AgentContext())


if shutil.which("bash") is None:
    sys.exit("Terminus 2 types into bash, which the task's image lacks")
asyncio.run(main())
"""
    },
    prompt_tokens=1_000,
    context_tokens=16_384,
    memory_mb=512,
)

PYPI_HARNESSES = (MINI_SWE_AGENT, OPENAI_AGENTS, SMOLAGENTS, CAMEL, OPENHANDS, TERMINUS_2)
