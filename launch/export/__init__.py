"""Writes recorded trajectories of runs and evaluations for other projects: ``longshore export``.

It selects trajectories (:mod:`.selection`), and has one module for each format: ShareGPT, ATIF, Hugging Face data sets.
An export is complete or absent.
"""
