"""The command ``longshore compare``: compares evaluations task by task."""
