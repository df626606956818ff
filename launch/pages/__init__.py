"""The parts of every HTML page of the project: documents, charts, the script bundle, static files and npm packages.

It imports no other package of launch; monitor, evaluation, compare, sweep, simulate and runs build their pages on it.
"""
