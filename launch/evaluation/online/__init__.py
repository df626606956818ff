"""Evaluations of a run before, during and after training.

``schedule`` decides which weights are due, ``online_evaluator`` runs those during training, and
``run_evaluations`` stores and finds all of a run's evaluations.
"""
