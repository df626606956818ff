"""The command ``longshore sweep``: many runs or evaluations that differ along axes, and a table of their results.

``definition`` and ``axes`` read what is swept; ``sweep_points`` runs the points, of which ``training_points`` and
``evaluation_points`` know the commands and results; ``sweep_table`` formats those.
"""
