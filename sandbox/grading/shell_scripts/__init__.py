"""Parses shell scripts into plain values, for readers who ask what a script starts, evaluates and writes.  Pure.

``script`` holds the values; ``parser`` makes them with tree-sitter, above ``redirections``, ``evaluation``, ``nodes``.
"""
