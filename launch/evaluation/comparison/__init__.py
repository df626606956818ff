"""Evaluations of the same tasks compared with the first one.

`compared_evaluation` reads each from disk, `compatibility` refuses what cannot be compared, `paired_tasks` computes,
`comparison_tables` and `comparison_page` show it.
"""
