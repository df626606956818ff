"""The command ``longshore sweep``: many runs or evaluations that differ along axes, and a table of their results.

``definition`` reads what is swept into points; ``sweep_loop`` runs these, ``training_points`` and ``evaluation_points``
know their commands and results, and ``sweep_table`` formats those.
"""
