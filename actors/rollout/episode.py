"""One agent, one task, one trajectory.  No Ray, no socket.

Prompt ids → sampled ids, appended as they are → the agent parses actions from them → tools run → the observation's ids
are appended with mask 0 → … → grade → reward.  A task of several steps is played and graded step by step in one
sandbox.  An episode ends in a :class:`Trajectory` whose status says what the *policy* did, or it raises
:class:`InfraError`, after which the worker gives the request back.  Only sampled tokens are trained, and no token is
tokenized again, unless the history is rendered anew (:mod:`actors.tokens.prompt_context`).
"""

from __future__ import annotations

from actors.agents.agent import Agent
from actors.engines.messages import GenerateFunction
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.grading import EpisodeContext, SampledEpisode, finish_episode, run_and_grade
from actors.rollout.policy import TokenPolicy
from actors.rollout.step_contexts import StepContexts
from actors.rollout.terminal import EpisodeTerminal
from actors.tokens.chat_format import ChatFormat
from protocol.trajectory import Trajectory
from sandbox.tasks.task import Task


async def run_agent_episode(
    context: EpisodeContext, agent: Agent, chat: ChatFormat, generate: GenerateFunction, terminal: EpisodeTerminal
) -> Trajectory:
    """Run one request to its end with a built-in agent.  Raises :class:`InfraError` if infrastructure failed."""
    task, settings = context.task, context.settings
    contexts, policies = StepContexts(settings, chat), list[TokenPolicy]()

    def open_policy(step: Task) -> TokenPolicy:
        prompts = contexts.open(agent.opening_messages(step))
        policies.append(TokenPolicy(chat, prompts, generate, context.sampling))
        return policies[-1]

    loop = AgentLoop(agent, open_policy, terminal, settings, context.observer)
    transcript = loop.transcript
    graded = await run_and_grade(loop.play, terminal, task, lambda: transcript.last_content, context.deadlines)
    record = SampledEpisode(
        turns=transcript.turns,
        segments=contexts.segments(),
        turn_order=contexts.turn_order,
        engine=next((policy.engine for policy in reversed(policies) if policy.engine), ""),
        timings_ms={"generate": loop.generate_ms, "tool": loop.tool_ms},
    )
    return await finish_episode(context, graded, record)
