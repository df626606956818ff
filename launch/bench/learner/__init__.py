"""Measure optimizer steps: beside plain Hugging Face on a CPU, against the peak of a GPU.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
