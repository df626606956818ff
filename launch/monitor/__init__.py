"""Shows a run to people: a web page, a terminal UI, progress lines and a report.

Everything is read from the run directory.  ``run_state`` derives the present state from events and metrics; ``archive``
holds every acknowledged trajectory, group and step.  ``run_follower`` serves both to many readers, in the types of
``api_types``.  ``web`` and ``tui`` show a run live, ``progress`` in the terminal that started it, ``reports`` as files.
A run never waits for any of this, and output of sandboxes is only ever shown as text.
"""
