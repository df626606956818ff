"""Measure weight updates of engines that are decoding.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
