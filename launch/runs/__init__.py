"""Looking after a folder of runs: what there is (:mod:`.listing`), some side by side (:mod:`.comparing`), any question
in SQL (:mod:`.query`), and what can go (:mod:`.pruning`).  Only the last one changes anything, and never a run that
goes on.
"""
