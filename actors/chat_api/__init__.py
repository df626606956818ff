"""OpenAI's chat API as a client sees it.  The lowest room of actors/: judges and chat policies stand on it."""
