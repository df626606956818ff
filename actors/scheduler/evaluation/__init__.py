"""Evaluations on the scheduler's workers: the plan of attempts, their requests, and what has finished.

Unlike training, an evaluation never abandons an attempt: it fails with it.
"""
