"""Measurements that a person can repeat, one package each."""
