"""Measures weight updates of engines that are decoding.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
