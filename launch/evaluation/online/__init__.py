"""Evaluations that belong to a run.

The schedule says which weight versions are due, the online evaluator runs them beside training, result_store keeps
every attempt of those, and run_evaluations finds all of a run's evaluations.
"""
