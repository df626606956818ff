"""Parses shell scripts into plain values that tell what a script starts, evaluates and writes. Pure.

``script`` holds the values; ``parser`` builds them with tree-sitter, on top of ``redirections``, ``evaluation`` and
``nodes``.
"""
