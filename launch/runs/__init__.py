"""Lists runs (:mod:`.run_list`), compares them (:mod:`.comparison`), queries them in SQL (:mod:`.query`) and frees disk
space (:mod:`.pruning`).  Only pruning changes anything, and never a run in progress.
"""
