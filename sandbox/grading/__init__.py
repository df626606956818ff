"""Grades an attempt: runs its hidden tests where the agent cannot interfere and turns their reports into a verdict.

Layers, from the ground up: ``math_typesetting``, ``math_expression`` and its ``math_process`` are what ``math_answer``
compares boxed answers with; ``shell_scripts`` parses test scripts; ``isolation`` decides whose programs run the tests,
``results`` reads what they report, ``suspicions`` selects passes that a person should read; ``grade_result`` is the
outcome, ``hidden_tests`` the files to write, ``grading_run`` judges a run, ``containers`` prepares the container for
the tests; ``grader`` does it all for a session.
"""
