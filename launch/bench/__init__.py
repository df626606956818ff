"""Benchmarks behind ``longshore bench``, for those who change a part of longshore or size a cluster for it.

Each module or package measures one part with the code of that part: engines, learner, training modes, weights,
transport, monitor, behaviour under faults.  docs/benchmarks.md has the results.
"""
