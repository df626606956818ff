"""An endpoint for harnesses: any agent that accepts a base URL and an API key can call the policy and be trained.

Three APIs share one session, which is one rollout: OpenAI's chat completions and responses, and Anthropic's messages.
A harness sends messages; the session keeps tokens.  Invariants:

- Sampled tokens are kept with their log-probabilities and versions and appear unchanged in every later prompt.  A reply
  that a harness sends back is recognised by its content, and its text is never tokenised again.
- A prompt that does not begin with a whole segment begins another segment: a harness may rewrite its history and call
  in parallel, and each sampled token still carries loss exactly once.
- Replies that are not the agent's work (a title, one that the harness threw away) are marked and carry no loss.
- An option with which the sampler would draw from another distribution than the recorded log-probabilities is refused.
- A stream always sends a prefix of the final reply, even if engines die meanwhile.
- A reply is kept once the engine has completed it.  If the caller leaves before, sampling ends and nothing is kept.

Modules: ``session_keys`` maps API keys to sessions; ``chat_request`` and ``completion`` are requests and replies
independent of the API; ``partial_completion`` is the part of an unfinished reply that is certain; ``request_options``
decides which options are refused; ``tool_results`` orders results by their calls; ``reply_roles`` finds the replies
that are the agent's work; ``conversation`` maps messages to tokens and segments; ``session`` enforces limits and calls
the engine; ``openai_*``, ``responses_*`` and ``anthropic_*`` are the APIs; ``app``, ``event_stream`` and ``server`` are
HTTP.
"""
