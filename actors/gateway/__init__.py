"""An endpoint for harnesses: any agent that takes a base URL and an API key talks to the policy, and can be trained.

Two APIs over one session, which is one rollout: OpenAI's chat completions and Anthropic's messages.  A harness sends
messages; the session keeps tokens.  Invariants:

- What was sampled is kept as it was sampled, with its log-probabilities and versions, and stands so in every later
  prompt.  A reply that a harness sends back is recognised by what it was told, and its text is never tokenised again.
- A prompt that does not begin with all that a segment holds begins another segment: a harness may rewrite its history
  and call in parallel, and each sampled token still carries loss exactly once.
- An option under which the sampler would draw from another distribution than the log-probabilities tell of is refused.
- What a stream has told is the beginning of what the whole reply says, whichever engines die on the way.
- A reply is kept when the engine has given it.  A caller who leaves before ends the sampling, and nothing is kept.

``keys.py`` whose session a request is; ``asked.py``, ``answer.py`` what is asked and answered, whatever the API;
``beginning.py`` what of an answer is certain before it is whole; ``options.py`` which options are refused;
``history.py`` from messages to tokens and segments; ``session.py`` limits, and the engine; ``openai_*.py`` and
``anthropic_*.py`` the two APIs; ``app.py``, ``stream.py``, ``server.py`` HTTP.
"""
