"""Client of OpenAI's chat API, used by judges and chat policies."""
