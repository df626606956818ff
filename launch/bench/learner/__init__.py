"""Measures optimizer steps: against plain Hugging Face on a CPU, and against the peak of a GPU.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
