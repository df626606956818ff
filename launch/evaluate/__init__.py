"""The command ``longshore evaluate``: evaluates a model on tasks outside of any run."""
