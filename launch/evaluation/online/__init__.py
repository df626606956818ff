"""Evaluations of a run: before and after training, and beside it.

``schedule`` decides which weights are due, ``online_evaluator`` runs the evaluations beside training, and
``run_evaluations`` stores and finds all of a run's evaluations.
"""
