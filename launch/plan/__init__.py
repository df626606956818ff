"""The command ``longshore plan``: estimates what a run needs before it starts.

Memory follows from the model's shape; speed and staleness from a simulation of measured or assumed episodes and steps;
engines, sandboxes and machines from both.
"""
