"""The full record of a run: every acknowledged trajectory, group and step.

``catalog`` follows the run's files into ``trajectory_table``, ``step_table`` and ``group_table``; ``query`` filters,
sorts and pages them.  ``token_facts``, ``trajectory_details`` and ``token_pages`` read single trajectories on
request, ``vocabulary`` decodes their tokens, ``recordings`` reads terminals, ``activity`` the activity of processes,
and ``run_cards`` summarises other runs.  The tables need about 300 bytes per trajectory and 600
per step.  Nothing is written, and the journal is never opened.
"""
