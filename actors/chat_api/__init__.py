"""The client of OpenAI's chat API, for those parts that ask a model which longshore does not serve itself.

The judge (:mod:`actors.rewards.judge`) and the policy of an evaluated endpoint (:mod:`actors.rollout.chat_policy`)
share it; each has its own deadlines and retries.
"""
