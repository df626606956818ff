"""Measurements that a person can repeat, a package or module each."""
