"""Benchmarks of the parts of longshore, one package or module each."""
