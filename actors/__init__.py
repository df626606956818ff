"""The Ray actors of a run and the episodes that they play: tasks become graded trajectories in the buffer.

Packages, from above; each imports only those below it, :mod:`protocol` and :mod:`sandbox`:

- ``workers``: the rollout worker, an actor on each node that runs many episodes in one event loop.
- ``scheduler``: the actor that admits groups, orders tasks and hands out rollout requests.
- ``buffer``: the actor that keeps trajectories durable and leases whole groups to the learner.
- ``environment``: the service that runs whole episodes on a machine outside the Ray cluster.
- ``rollout``: one episode, from its policy and sandbox to its grade and reward.
- ``gateway``: the endpoint through which any agent with a base URL calls the policy and is trained.
- ``agents``: tasks to messages, and replies to actions.
- ``harnesses``: published agents, installed once and mounted into the sandboxes of a run.
- ``rewards``: results of episodes to numbers, by tests, process rules and judges.
- ``tokens``: messages to token ids, and sampled ids kept exactly.
- ``weight_transport``: weight versions to hosts other than the learner's.
- ``engines``: SGLang servers, the routing of requests to them, and the loading of weights into them.
- ``chat_api``: the client of OpenAI's chat API, for judges and chat policies.
- ``runtime``: the only code that places, starts, calls and kills Ray actors.

An episode waits for engines, its sandbox and its reward; a worker waits for the scheduler's requests and for the
buffer's acknowledgement; the scheduler waits for the buffer's progress; the buffer waits for no other actor.  No call
goes to the learner: the scheduler admits no new group while rollout is too far ahead of it, and
:mod:`launch.weight_sync` brings its weights to the engines.
"""
