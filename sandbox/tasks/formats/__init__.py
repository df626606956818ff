"""The formats in which tasks are written, a module or package each.

``folders`` and ``rows`` hold what formats share, ``registry`` knows every format by name, and ``writing`` writes a
whole data set.
"""
