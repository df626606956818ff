"""Runs small tasks by Harbor and by longshore, and compares the rewards of their oracles."""
